"""Outliers: against closed forms, against pyRiemann's Potato, and online."""

from __future__ import annotations

import numpy as np
import pytest
from pyriemann.artifact_detection import Potato
from pyriemann.geometry.distance import distance_riemann
from sklearn.metrics import f1_score, roc_auc_score

from divlearn import DivergenceOutliers, get_divergence, load, save


def simulate(seed: int, share: float, n: int = 200, d: int = 6, n_times: int = 80):
    """Covariances of trials; some have an artifact from a direction of their own."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(d) + 0.4 * rng.standard_normal((d, d))
    amplitudes = np.exp(0.15 * rng.standard_normal((n, 1, 1)))
    trials = amplitudes * (mixing @ rng.standard_normal((n, d, n_times)))
    is_artifact = np.arange(n) < share * n
    directions = rng.standard_normal((n, d, 1)) * is_artifact[:, None, None]
    trials += 2 * directions * rng.standard_normal((n, 1, n_times))
    return trials @ trials.mT / n_times, is_artifact


@pytest.fixture(scope="module")
def clean():
    return simulate(0, 0.0)[0]


def numbers(values) -> np.ndarray:
    return np.asarray(values, dtype=float)[:, None, None]


def test_the_mean_of_numbers_is_their_median():
    """AIRM distances of numbers are those of their logarithms."""
    values = np.exp(np.random.default_rng(0).standard_normal(41))
    found = DivergenceOutliers().fit(numbers(values))
    np.testing.assert_allclose(found.mean_, np.median(values), rtol=1e-2)


@pytest.mark.parametrize(("n", "repeats"), [(21, 12), (81, 4)])
def test_numbers_far_from_their_median_are_found(n, repeats):
    """The median is one of the numbers, whose log-divergence from it is far below all others."""
    found = []
    for seed in range(repeats):
        values = np.exp(0.2 * np.random.default_rng(seed).standard_normal(n))
        values[0] = 200
        found.append(DivergenceOutliers().fit(numbers(values)).predict(numbers(values)) == -1)
    assert np.mean([flags[0] for flags in found]) > 0.8
    assert np.mean([flags[1:].mean() for flags in found]) < 0.03


@pytest.mark.parametrize("divergence", ["airm", "log-cosh", "log-euclidean"])
def test_the_robust_mean_minimises_the_sum_of_roots(clean, divergence):
    X, known = clean[:40], get_divergence(divergence)
    center = DivergenceOutliers(divergence).fit(X).mean_

    def objective(matrix):
        return np.sqrt(known.pairwise(X, matrix[None])).mean()

    rng, least = np.random.default_rng(1), objective(center)
    assert least < objective(known.mean(X))
    for _ in range(20):
        move = np.eye(6) + 0.02 * rng.standard_normal((6, 6))
        assert least < objective(move @ center @ move.T)


def test_scores_are_z_scores_of_log_distances(clean):
    model = DivergenceOutliers().fit(clean)
    logs = np.log([distance_riemann(one, model.mean_, squared=True) for one in clean])
    z = (logs - model.location_) / model.spread_
    np.testing.assert_allclose(model.score_samples(clean), -z, atol=1e-8)
    near = z <= 3
    np.testing.assert_allclose(model.location_, logs[near].mean(), rtol=2e-2)
    np.testing.assert_allclose(model.spread_, logs[near].std(), rtol=5e-2)
    np.testing.assert_array_equal(model.predict(clean), np.where(z > 3, -1, 1))
    np.testing.assert_allclose(model.decision_function(clean), 3 - z, atol=1e-8)
    assert (model.predict(clean) == -1).mean() < 0.02


def test_single_precision(clean):
    narrow, wide = (DivergenceOutliers().fit(X) for X in (clean.astype(np.float32), clean))
    np.testing.assert_allclose(narrow.score_samples(clean), wide.score_samples(clean), atol=1e-3)


def test_contamination_is_the_share_of_outliers(clean):
    model = DivergenceOutliers(contamination=0.15).fit(clean)
    assert (model.predict(clean) == -1).sum() == 30
    assert model.score_samples(clean)[model.predict(clean) == -1].max() < model.offset_


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_finds_many_artifacts_that_the_potato_does_not(share):
    ours, theirs = [], []
    for seed in range(2):
        X, is_artifact = simulate(seed, share)
        model, potato = DivergenceOutliers().fit(X), Potato(threshold=3).fit(X)
        ours.append(
            [
                f1_score(is_artifact, model.predict(X) == -1),
                roc_auc_score(is_artifact, -model.score_samples(X)),
            ]
        )
        theirs.append(
            [
                f1_score(is_artifact, potato.predict(X) == 0),
                roc_auc_score(is_artifact, potato.transform(X)),
            ]
        )
    (f1, area), (their_f1, their_area) = np.mean(ours, axis=0), np.mean(theirs, axis=0)
    assert f1 > their_f1 + 0.4
    assert area > their_area - 1e-3


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_few_artifacts_are_found_as_well_as_by_the_potato(share):
    found = []
    for seed in range(2):
        X, is_artifact = simulate(seed, share)
        model, potato = DivergenceOutliers().fit(X), Potato(threshold=3).fit(X)
        rejected = model.predict(X) == -1, potato.predict(X) == 0
        found.append([flags[is_artifact].mean() for flags in rejected])
        assert rejected[0][~is_artifact].mean() <= 0.02
    ours, theirs = np.mean(found, axis=0)
    assert ours >= theirs


# --- online


def test_one_at_a_time_is_as_in_one_call(clean):
    one, other = (DivergenceOutliers().fit(clean[:100]) for _ in range(2))
    one.partial_fit(clean[100:130], forgetting=0.02)
    for matrix in clean[100:130]:
        other.partial_fit(matrix[None], forgetting=0.02)
    np.testing.assert_array_equal(one.mean_, other.mean_)
    assert (one.location_, one.spread_, one.total_) == (
        other.location_,
        other.spread_,
        other.total_,
    )
    assert one.total_ == pytest.approx(100 * 0.98**30 + (1 - 0.98**30) / 0.02)


def test_the_first_call_is_a_fit(clean):
    first, fitted = DivergenceOutliers().partial_fit(clean), DivergenceOutliers().fit(clean)
    np.testing.assert_array_equal(first.mean_, fitted.mean_)
    assert first.total_ == 200


def test_online_and_batch_agree_in_the_long_run():
    X, _ = simulate(3, 0.0, n=250, d=3)
    batch = DivergenceOutliers().fit(X)
    online = DivergenceOutliers().fit(X[:50]).partial_fit(X[50:])
    assert distance_riemann(online.mean_, batch.mean_) < 0.03
    assert online.location_ == pytest.approx(batch.location_, abs=0.1)
    assert online.spread_ == pytest.approx(batch.spread_, rel=0.1)


@pytest.mark.parametrize("n_first", [2, 5])
def test_a_start_with_few_matrices_is_made_up_for(n_first):
    """However little they differ by chance: matrices that are ignored would teach nothing."""
    rejected = []
    for seed in range(2):
        X, is_artifact = simulate(seed, 0.1, n=120, d=4)
        order = np.r_[np.arange(20, 120), np.arange(20)]  # begin with clean ones
        X, is_artifact = X[order], is_artifact[order]
        model = DivergenceOutliers().partial_fit(X[:n_first]).partial_fit(X[n_first:60])
        rejected.append(model.predict(X[60:]) == -1)
    rejected, is_artifact = np.array(rejected), is_artifact[60:]
    assert rejected[:, ~is_artifact].mean() < 0.03
    assert rejected[:, is_artifact].mean() > 0.5


def test_copies_make_no_outliers_of_the_others():
    """They have the same divergence, so that the nearer half hardly differs."""
    kept = []
    for seed in range(8):
        X, _ = simulate(seed, 0.0, n=80, d=4)
        X[:20] = X[0]
        kept.append(DivergenceOutliers().fit(X).predict(X) == 1)
    assert np.mean(kept) > 0.95


def test_a_drift_is_followed_and_artifacts_are_not():
    X, _ = simulate(4, 0.0, n=300)
    gains = np.exp(np.linspace(0, 1.5, 300))[:, None, None]
    model = DivergenceOutliers().fit(X[:100])
    stays = DivergenceOutliers().fit(X[:100])
    drifted = gains * X
    artifacts = np.arange(100, 300, 10)
    drifted[artifacts] *= 1000
    model.partial_fit(drifted[100:], forgetting=0.05)
    expected = gains[-1] * stays.mean_
    assert distance_riemann(model.mean_, expected) < 0.5
    assert distance_riemann(stays.mean_, expected) > 3
    later = gains[-1] * X[:100]
    assert (model.predict(later) == 1).mean() > 0.9
    assert (stays.predict(later) == 1).mean() < 0.2


# --- what is refused, and files


@pytest.mark.parametrize("divergence", ["euclidean", "wasserstein", "harmonic"])
def test_scores_do_not_depend_on_the_unit_of_matrices(clean, divergence):
    """Squared volts, for instance, make covariances of 1e-12, whose squared distances are 1e-24."""
    scores = DivergenceOutliers(divergence).fit(clean).score_samples(clean)
    for unit in (1e-12, 1e12):
        model = DivergenceOutliers(divergence).fit(unit * clean)
        np.testing.assert_allclose(model.score_samples(unit * clean), scores, atol=1e-6)


def test_equal_matrices_are_no_outliers_but_others_are():
    model = DivergenceOutliers().fit(np.tile(np.eye(2), (5, 1, 1)))
    np.testing.assert_array_equal(model.predict([np.eye(2), 2 * np.eye(2)]), [1, -1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contamination": 0.7}, r"contamination=0.7 must be \"auto\" or a number > 0 and <= 0.5"),
        ({"contamination": "some"}, r"contamination='some' must be"),
        ({"threshold": -1}, r"threshold=-1 must be a finite number >= 0"),
    ],
)
def test_parameters_that_are_refused(clean, options, message):
    with pytest.raises(ValueError, match=message):
        DivergenceOutliers(**options).fit(clean)


def test_forgetting_that_is_refused(clean):
    with pytest.raises(ValueError, match=r"forgetting=1 must be a number >= 0 and < 1"):
        DivergenceOutliers().fit(clean).partial_fit(clean, forgetting=1)


def test_files_keep_it(clean, tmp_path):
    model = DivergenceOutliers("stein").fit(clean)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(clean), model.score_samples(clean))
