"""Re-centring that is chosen by held-out groups: what is chosen, and by which losses."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn import config_context
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline

from divlearn import Recenter, SPDClassifier, load, save
from divlearn.geometry import expm, invsqrtm, logm
from divlearn.transfer.choice import compare_losses


def whiten(X, mean):
    root = invsqrtm(mean)
    return root @ X @ root


def simulate(gains=0.0, stretches=0.0):
    """Two classes of 3 x 3 matrices from eight subjects, with gains and dispersions of their own.

    Logarithms of the matrices are normal around +C or -C, times a factor of the subject.
    """
    rng = np.random.default_rng(0)
    groups, y = np.repeat(np.arange(8), 20), np.arange(160) % 2
    noise = rng.normal(size=(160, 3, 3))
    center = np.diag([0.8, -0.8, 0.0])
    logarithms = (2 * y - 1)[:, None, None] * center + 0.4 * (noise + noise.swapaxes(1, 2))
    factors = np.exp(stretches * np.linspace(-1, 1, 8))[groups]
    scales = np.exp(gains * rng.normal(size=(8, 3)))[groups]
    X = expm(factors[:, None, None] * logarithms)
    return X * scales[:, :, None] * scales[:, None, :], y, groups


def test_choose_centers_subjects_that_are_shifted():
    X, y, groups = simulate(gains=1.0)
    model = Recenter("choose").fit(X, y, groups)
    assert model.chosen_ == "center"
    np.testing.assert_array_equal(
        model.transform(X[:9], groups[:9]),
        Recenter().fit(X, y, groups).transform(X[:9], groups[:9]),
    )


def test_choose_stretches_subjects_of_different_dispersion():
    X, y, groups = simulate(gains=1.0, stretches=1.5)
    model = Recenter("choose")
    moved = model.fit_transform(X, y, groups)
    assert model.chosen_ == "stretch"
    np.testing.assert_array_equal(moved, Recenter(stretch=True).fit_transform(X, y, groups))
    new = Recenter(stretch=True).fit(X, y, groups).transform(X[:9])
    np.testing.assert_array_equal(model.transform(X[:9]), new)


def test_choose_leaves_groups_alone_that_carry_the_class():
    """Every group has one class: what re-centring removes is the class."""
    X, y, groups = simulate()
    model = Recenter("choose").fit(X, y, 2 * groups + y)
    assert model.chosen_ == "none"
    np.testing.assert_array_equal(model.transform(X[:9], groups[:9]), X[:9])


@pytest.mark.parametrize("seed", range(3))
def test_choose_leaves_groups_alone_that_carry_a_weak_signal(seed):
    """Patients and controls: after re-centring, no signal is left to be judged."""
    X, _, groups = simulate(gains=0.3)
    y = (np.random.default_rng(seed).permutation(8) % 2)[groups]
    X[y == 1, 0] *= 1.1
    X[y == 1, :, 0] *= 1.1
    assert Recenter("choose").fit(X, y, groups).chosen_ == "none"


def test_choose_leaves_groups_alone_whose_classes_differ_in_frequency():
    """Without a shift, means of groups differ by the frequencies of classes only."""
    X, y, groups = simulate()
    y, rng = y.astype(bool), np.random.default_rng(0)
    kept = rng.uniform(size=160) < np.where(y, np.linspace(0.1, 1, 8)[groups], 1)
    model = Recenter("choose")
    np.testing.assert_array_equal(model.fit_transform(X[kept], y[kept], groups[kept]), X[kept])
    assert model.chosen_ == "none"


def test_choose_leaves_alone_what_cannot_be_judged():
    """With one group per class, every fold would train without a class."""
    X, y, _ = simulate()
    assert Recenter("choose").fit(X, y, y).chosen_ == "none"
    assert Recenter("choose").fit(X, y, y * (np.arange(160) < 80)).chosen_ == "none"


def differing():
    return simulate(gains=0.3, stretches=0.5)


@cache
def results_of_choice():
    return Recenter("choose").fit(*differing()).cv_results_


@cache
def fitted_without(held: int, stretch: bool):
    X, y, groups = differing()
    train = groups != held
    return Recenter(stretch=stretch).fit(X[train], y[train], groups[train])


@pytest.mark.parametrize("alignment", ["none", "center", "stretch"])
def test_choose_judges_by_groups_it_has_not_seen(alignment):
    """By hand: discriminants of scikit-learn, one group held out, aligned as in `transform`."""
    X, y, groups = differing()
    scores, labels = [], []
    for held in range(8):
        train, test = groups != held, groups == held
        recenter = fitted_without(held, alignment == "stretch")
        moved = recenter.transform(X[train], groups[train]), recenter.transform(X[test])
        if alignment == "none":
            moved = whiten(X[train], recenter.mean_), whiten(X[test], recenter.mean_)
        tangent = [logm(part)[:, *np.triu_indices(3)] for part in moved]
        lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(tangent[0], y[train])
        scores.append(lda.decision_function(tangent[1]))
        labels.append(y[test])
    margins = np.concatenate(scores) * (2 * np.concatenate(labels) - 1)

    def loss(sharpness):  # with the rule of succession, as in calibration
        doubt = 1 / (len(margins) + 2)
        return (np.logaddexp(0, -sharpness * margins) + doubt * sharpness * margins).mean()

    best = minimize_scalar(loss, bounds=(1e-3, 1e3), method="bounded", options={"xatol": 1e-9}).x
    expected = np.minimum(np.logaddexp(0, -best * margins), np.log(1e4)).mean()
    found = results_of_choice()
    np.testing.assert_allclose(
        found["log_loss"][list(found["alignment"]).index(alignment)], expected, rtol=0.02
    )


def test_choose_in_a_pipeline_with_a_committee(small_grids):
    X, y, groups = simulate(gains=1.0)
    old, scores = groups < 6, {}
    with config_context(enable_metadata_routing=True):
        for first in (Recenter("choose"), Recenter(), None):
            committee = SPDClassifier(["tangent lda"], random_state=0).set_fit_request(groups=True)
            model = make_pipeline(first, committee).fit(X[old], y[old], groups=groups[old])
            given = {} if first is None else {"groups": groups[~old]}
            scores[str(first)] = model.score(X[~old], y[~old], **given)
    chosen, centered, without = scores.values()
    assert chosen == centered > without + 0.1


def test_choose_online_and_in_files(tmp_path):
    X, y, groups = simulate(gains=1.0)
    old = groups < 7
    model = Recenter("choose").partial_fit(X[old], y[old], groups[old])
    plain = Recenter().partial_fit(X[old], y[old], groups[old])
    for one in (model, plain):
        one.partial_fit(X[~old][:10], groups=groups[~old][:10])
    save(model, tmp_path / "model")
    later = X[~old][10:], groups[~old][10:]
    np.testing.assert_array_equal(
        load(tmp_path / "model").transform(*later), plain.transform(*later)
    )


def test_a_refit_that_does_not_stretch_forgets_dispersions(tmp_path):
    """Those of another number of groups would be taken for damage in a file."""
    X, y, groups = simulate(gains=1.0, stretches=1.5)
    model = Recenter("choose").fit(X, y, groups)
    assert len(model.dispersions_) == 8
    X, y, groups = simulate(gains=1.0)
    model.fit(X[groups < 6], y[groups < 6], groups[groups < 6])
    assert model.chosen_ == "center"
    save(model, tmp_path / "model")
    assert not hasattr(load(tmp_path / "model"), "dispersions_")


def test_choose_needs_labels_and_groups():
    X, y, groups = simulate()
    with pytest.raises(
        ValueError, match=r"\"choose\" got 0 groups, must have >= 2 .*; pass groups"
    ):
        Recenter("choose").fit(X, y)
    with pytest.raises(ValueError, match=r"\"choose\" got 1 group, must have >= 2"):
        Recenter("choose").fit(X, y, np.zeros(160))
    with pytest.raises(ValueError, match="requires y to be passed"):
        Recenter("choose").fit(X, groups=groups)


@pytest.mark.parametrize(("n_groups", "expected"), [(4, "center"), (5, "none")])
def test_the_error_of_few_groups_does_not_decide(n_groups, expected):
    """Re-centring lowers the loss of one group by much, and raises that of the others a little."""
    worse = np.where(np.arange(n_groups) == 0, -1.0, 0.1)
    losses = {"none": np.ones(n_groups), "center": 1 + worse, "stretch": np.full(n_groups, 2.0)}
    assert compare_losses(losses)[0] == expected
