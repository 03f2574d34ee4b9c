"""Re-centring: against pyRiemann, against its definition, and in pipelines that route groups."""

from __future__ import annotations

import numpy as np
import pytest
from pyriemann.estimation import Covariances
from pyriemann.geometry.distance import distance_riemann
from pyriemann.geometry.geodesic import geodesic_riemann
from pyriemann.geometry.mean import mean_riemann
from pyriemann.tangentspace import TangentSpace
from sklearn import config_context
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline

from divlearn import Recenter, get_divergence, load, save
from divlearn.datasets import make_wishart_clusters
from divlearn.geometry import invsqrtm, logm
from divlearn.nearest import DivergenceMDM

NAMES = np.array(["anna", "bert", "carl", "dora"])


@pytest.fixture(scope="module")
def data():
    """Three classes of 4 x 4 matrices, recorded from four subjects, each with gains of its own."""
    X, y = make_wishart_clusters(3, 40, 4, separation=5, random_state=0)
    codes = np.arange(len(y)) % 4
    gains = np.exp(np.random.default_rng(0).normal(0, 1, (4, 4)))[codes]
    return X * gains[:, :, None] * gains[:, None, :], y, NAMES[codes]


def whiten(X, mean):
    root = invsqrtm(mean)
    return root @ X @ root


# --- training groups


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("airm", "riemann"),
        ("kullback", "euclid"),
        ("reverse-burg", "harmonic"),
        ("jeffreys", "kullback_sym"),
        ("log-euclidean", "logeuclid"),
    ],
)
@pytest.mark.parametrize("stretch", [False, True])
def test_as_pyriemann(data, ours, theirs, stretch):
    transfer = pytest.importorskip("pyriemann.transfer")
    X, y, groups = data
    domains = transfer.encode_domains(X, y, groups)[1]
    expected = transfer.TLCenter("dora", theirs).fit_transform(X, domains)
    if stretch:
        scale = transfer.TLScale("dora", centered_data=True)
        expected = scale.fit_transform(expected, domains)
    model = Recenter(ours, stretch=stretch)
    np.testing.assert_allclose(model.fit_transform(X, y, groups), expected, atol=1e-4)
    # Matrices of a group that `fit` has seen, with the mean and the dispersion from there.
    later = X[groups == "dora"][:5]
    expected = transfer.TLCenter("dora", theirs).fit(X, domains).transform(later)
    if stretch:
        expected = scale.transform(expected)
    np.testing.assert_allclose(model.transform(later, ["dora"] * 5), expected, atol=1e-4)


@pytest.mark.parametrize("divergence", ["airm", "stein", "burg", (0.5, 1.5), "jeffreys"])
def test_the_identity_is_the_mean_of_every_group(data, divergence):
    X, _, groups = data
    centered = Recenter(divergence).fit_transform(X, groups=groups)
    for name in NAMES:
        again = Recenter(divergence).fit(centered[groups == name])
        np.testing.assert_allclose(again.means_[0], np.eye(4), atol=1e-4)


def test_distances_within_a_group_stay_and_stretching_scales_them(data):
    X, _, groups = data
    model = Recenter(stretch=True).fit(X, groups=groups)
    plain = Recenter().fit_transform(X, groups=groups)
    stretched = model.transform(X, groups)
    for name, dispersion in zip(NAMES, model.dispersions_, strict=True):
        rows = np.flatnonzero(groups == name)
        before = distance_riemann(X[rows[0]], X[rows[1]])
        np.testing.assert_allclose(distance_riemann(plain[rows[0]], plain[rows[1]]), before)
        squares = (logm(plain[rows]) ** 2).sum(axis=(1, 2))
        np.testing.assert_allclose(squares.mean(), dispersion)
        np.testing.assert_allclose(logm(stretched[rows]), logm(plain[rows]) / dispersion**0.5)


def test_a_group_of_equal_matrices_is_not_stretched():
    X = np.concatenate([np.tile(np.diag([1.0, 9.0]), (3, 1, 1)), [np.eye(2), 4 * np.eye(2)]])
    moved = Recenter(stretch=True).fit_transform(X, groups=[0, 0, 0, 1, 1])
    np.testing.assert_allclose(moved[:3], np.tile(np.eye(2), (3, 1, 1)), atol=1e-12)
    edge = np.exp(1 / np.sqrt(2))  # at distance one from the identity
    np.testing.assert_allclose(moved[3:], [np.eye(2) / edge, edge * np.eye(2)], atol=1e-9)


def test_a_seen_group_needs_no_company(data):
    X, _, groups = data
    model = Recenter(stretch=True)
    whole = model.fit_transform(X, groups=groups)
    np.testing.assert_allclose(model.transform(X, groups), whole, atol=1e-12)
    np.testing.assert_allclose(model.transform(X[7:8], groups[7:8]), whole[7:8], atol=1e-12)


# --- new groups


@pytest.mark.parametrize("count", [2, 3, 30])
def test_one_of_the_matrices_of_a_new_group_gives_way_to_the_training_groups(data, count):
    X, _, groups = data
    model = Recenter().fit(X[groups < "d"], groups=groups[groups < "d"])
    new = X[groups == "dora"][:count]
    middle, own = mean_riemann(model.means_, tol=1e-12), mean_riemann(new, tol=1e-12)
    expected = whiten(new, geodesic_riemann(middle, own, 1 - 1 / count))
    np.testing.assert_allclose(model.transform(new, ["dora"] * count), expected, atol=1e-4)
    np.testing.assert_allclose(model.transform(new), expected, atol=1e-4)


def test_a_single_matrix_is_treated_as_the_training_groups_are(data):
    X, _, groups = data
    for stretch in (False, True):
        model = Recenter(stretch=stretch).fit(X[groups < "d"], groups=groups[groups < "d"])
        new = X[groups == "dora"][:1]
        expected = whiten(new, model.mean_)
        if stretch:
            np.testing.assert_allclose(
                logm(model.transform(new)), logm(expected) / model.dispersions_.mean() ** 0.5
            )
        else:
            np.testing.assert_allclose(model.transform(new), expected)


def test_many_matrices_of_a_new_group_are_centered_and_stretched(data):
    """Copies tell the mean and the dispersion to any accuracy."""
    X, _, groups = data
    model = Recenter(stretch=True).fit(X[groups < "d"], groups=groups[groups < "d"])
    new = np.tile(X[groups == "dora"], (400, 1, 1))
    moved = logm(model.transform(new))
    np.testing.assert_allclose(moved.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose((moved**2).sum(axis=(1, 2)).mean(), 1, rtol=1e-3)


def test_new_groups_do_not_disturb_each_other(data):
    X, _, groups = data
    model = Recenter(stretch=True).fit(X[groups < "c"], groups=groups[groups < "c"])
    together = model.transform(X, groups)
    for name in NAMES:
        rows = groups == name
        np.testing.assert_allclose(model.transform(X[rows], groups[rows]), together[rows])


def test_text_and_numbers_are_not_mixed(data):
    """As 1 and "1" would be two groups, of which the user means one."""
    X, _, _ = data
    codes = np.arange(len(X)) % 2
    numbers, text = Recenter().fit(X, groups=codes), Recenter().fit(X, groups=codes.astype(str))
    numbers.partial_fit(X[:1])  # a session without a group is neither
    for method in ("transform", "partial_fit"):
        with pytest.raises(ValueError, match=r"groups hold '0', which is text, but .* fit hold 0,"):
            getattr(numbers, method)(X, groups=codes.astype(str))
        with pytest.raises(ValueError, match=r"groups hold 0, which is not text, but .* hold '0'"):
            getattr(text, method)(X, groups=codes.astype(object))
    expected = numbers.transform(X, codes)
    for same in (codes.astype(float), codes.astype(object), codes.astype(np.uint8), codes > 0):
        np.testing.assert_array_equal(numbers.transform(X, same), expected)


def test_days_are_the_same_groups_in_all_their_types(data):
    pandas, (X, _, _) = pytest.importorskip("pandas"), data
    days = np.array(["2026-01-01", "2026-02-01"], dtype="datetime64[D]")[np.arange(len(X)) % 2]
    expected = Recenter().fit_transform(X, groups=days)
    series = pandas.Series(days)
    for same in (days, days.astype("datetime64[s]"), series, series.to_list(), days.tolist()):
        for other in (days, series.to_list()):
            found = Recenter().fit(X, groups=same).transform(X, other)
            np.testing.assert_array_equal(found, expected)


# --- what is refused


def test_groups_inside_classes_are_refused(data):
    X, y, _ = data
    objects = 10 * y + np.arange(len(y)) % 2
    message = "each of the 6 groups lies inside one of the 3 classes.*; leave out groups"
    with pytest.raises(ValueError, match=message):
        Recenter().fit(X, y, objects)
    Recenter().fit(X, None, objects)
    Recenter().fit(X, np.zeros(len(y)), objects)  # a single class
    Recenter().fit(X, np.column_stack([y, y]), objects)  # several targets
    objects[y.argmin()] = objects[y.argmax()]  # one group has two classes
    Recenter().fit(X, y, objects)


def test_a_training_group_of_one_matrix_is_refused(data):
    X, y, groups = data
    groups = groups.copy()
    groups[3] = "emil"
    with pytest.raises(ValueError, match=r"group emil has 1 matrix .*must have >= 2 in fit"):
        Recenter().fit(X, y, groups)
    with pytest.raises(ValueError, match=r"X has 1 matrix .*must have >= 2 in fit"):
        Recenter().fit(X[:1])


def test_wrong_lengths_and_sizes(data):
    X, y, groups = data
    model = Recenter().fit(X, y, groups)
    with pytest.raises(ValueError, match="groups has 5 entries, must have one for each of 120"):
        model.transform(X, groups[:5])
    with pytest.raises(ValueError, match="y has 7 rows, but X has 120 matrices"):
        Recenter().fit(X, y[:7], groups)
    with pytest.raises(ValueError, match="matrices of size 3, but Recenter is expecting 4"):
        model.transform(X[:, :3, :3])


def test_a_mean_that_is_not_exact_is_told(data, set_tolerance):
    X, _, groups = data
    set_tolerance("means", 1e-300)
    with pytest.warns(ConvergenceWarning) as told:
        Recenter().fit(X, groups=groups)
    messages = [str(one.message) for one in told]
    assert messages[1].startswith("the mean of group bert is not exact: no step lowers")


# --- in pipelines


def requested():
    return Recenter().set_fit_request(groups=True).set_transform_request(groups=True)


@pytest.mark.parametrize("make", [Recenter, requested])
def test_groups_reach_it_through_pipelines_and_cross_validation(data, make):
    X, y, groups = data
    splitter = GroupKFold(2)
    by_hand, without = [], []
    for train, test in splitter.split(X, y, groups):
        recenter = Recenter().fit(X[train], y[train], groups[train])
        model = DivergenceMDM().fit(recenter.transform(X[train], groups[train]), y[train])
        by_hand.append(model.score(recenter.transform(X[test], groups[test]), y[test]))
        without.append(DivergenceMDM().fit(X[train], y[train]).score(X[test], y[test]))
    with config_context(enable_metadata_routing=True):
        model = make_pipeline(make(), DivergenceMDM().set_fit_request(groups=False))
        scores = cross_val_score(model, X, y, cv=splitter, params={"groups": groups})
    np.testing.assert_array_equal(scores, by_hand)
    assert np.mean(scores) > np.mean(without) + 0.2


def test_files_keep_it_and_what_it_requests(data, tmp_path):
    X, y, groups = data
    with config_context(enable_metadata_routing=True):
        last = LogisticRegression().set_fit_request(sample_weight="weight")
        model = make_pipeline(requested(), TangentSpace(), last)
        model.fit(X, y, groups=groups, weight=np.ones(len(y)))
        save(model, tmp_path / "model")
        again = load(tmp_path / "model")
        expected = model.predict_proba(X, groups=groups)
        np.testing.assert_array_equal(again.predict_proba(X, groups=groups), expected)
        assert str(again.get_metadata_routing()) == str(model.get_metadata_routing())
        again.fit(X, y, groups=groups, weight=np.ones(len(y)))
        np.testing.assert_array_equal(again.predict_proba(X, groups=groups), expected)


def test_between_steps_of_pyriemann():
    series = np.random.default_rng(0).standard_normal((60, 3, 40))
    y, session = np.arange(60) % 2, np.arange(60) // 30
    series[y == 1, 0] *= 2
    series[session == 1] *= np.array([4.0, 1.0, 0.3])[:, None]
    model = make_pipeline(
        Covariances("scm"), Recenter(), TangentSpace(), LinearDiscriminantAnalysis()
    )
    model.fit(series[session == 0], y[session == 0])
    assert model.score(series[session == 1], y[session == 1]) > 0.9


def test_single_precision_stays(data):
    X, _, groups = data
    exact = Recenter(stretch=True).fit_transform(X, groups=groups)
    model = Recenter(stretch=True)
    rounded = model.fit_transform(X.astype(np.float32), groups=groups)
    assert rounded.dtype == model.transform(X.astype(np.float32), groups).dtype == np.float32
    np.testing.assert_allclose(rounded, exact, rtol=1e-3, atol=1e-4)


# --- online


@pytest.mark.parametrize("divergence", ["log-euclidean", "burg", "reverse-burg", "euclidean"])
def test_running_means_are_means_of_all_matrices_where_these_are_averages(data, divergence):
    """The training mean counts as one matrix of a new group."""
    X, _, groups = data
    model = Recenter(divergence).fit(X[groups < "d"], groups=groups[groups < "d"])
    new = X[groups == "dora"]
    for part in (new[:1], new[1:9], new[9:]):
        model.partial_fit(part, groups=["dora"] * len(part))
    expected = get_divergence(divergence).mean([model.mean_, *new])
    np.testing.assert_allclose(model.means_[-1], expected, rtol=1e-8)
    assert model.totals_[-1] == 1 + len(new)
    np.testing.assert_allclose(
        model.transform(new[:2], ["dora"] * 2), whiten(new[:2], expected), rtol=1e-6
    )


def test_running_means_move_along_geodesics(data):
    X, _, groups = data
    model = Recenter().fit(X[groups < "d"], groups=groups[groups < "d"])
    expected, total = model.mean_, 1.0
    for matrix in X[groups == "dora"]:
        model.partial_fit(matrix[None], groups=["dora"], forgetting=0.1)
        total = 0.9 * total + 1
        expected = geodesic_riemann(expected, matrix, 1 / total)
    np.testing.assert_allclose(model.means_[-1], expected, rtol=1e-4)
    assert model.totals_[-1] == pytest.approx(total)


def test_forgetting_weights_matrices_by_age(data):
    X, _, groups = data
    model = Recenter("log-euclidean", stretch=True).fit(
        X[groups < "c"], groups=groups[groups < "c"]
    )
    rows = groups == "anna"
    n, new = rows.sum(), X[groups == "carl"][:7]
    model.partial_fit(new, groups=["anna"] * 7, forgetting=0.2)
    weights = np.append(np.full(n, 0.8**7), 0.8 ** np.arange(6, -1, -1))
    everything = np.concatenate([X[rows], new])
    expected = get_divergence("log-euclidean").mean(everything, weights)
    np.testing.assert_allclose(model.means_[0], expected, rtol=1e-8)
    np.testing.assert_allclose(model.totals_, [weights.sum(), n])


def test_running_dispersions_of_numbers():
    """Each number adds its squared distance to the mean before, over the expectation of that."""
    random = np.random.default_rng(0)
    old, new, forgetting = random.normal(size=50), 5 + 2 * random.normal(size=200), 0.3
    old /= old.std()
    model = Recenter("log-euclidean", stretch=True)
    model.fit(np.exp(old)[:, None, None], groups=["old"] * 50)
    dispersion, total, weights, running = 1.0, 1.0, np.empty(0), []
    for i, x in enumerate(new):
        model.partial_fit(np.exp([[[x]]]), groups=["new"], forgetting=forgetting)
        total *= 1 - forgetting
        if i > 0:
            mean = np.average(new[:i], weights=weights)
            variance = (weights**2).sum() / weights.sum() ** 2  # of the mean
            dispersion = total * dispersion + (x - mean) ** 2 / (1 + variance)
        else:
            dispersion = total * dispersion + dispersion
        total, weights = total + 1, np.append((1 - forgetting) * weights, 1)
        dispersion /= total
        running.append(model.dispersions_[1])
        assert running[-1] == pytest.approx(dispersion, rel=1e-6)
    assert np.mean(running[20:]) == pytest.approx(np.var(new), rel=0.05)


def test_running_dispersions_of_a_part(data):
    """As of numbers, of all matrices of a call together; matrices that repeat add the same."""
    X, _, groups = data
    first = X[groups == "anna"]
    n = len(first)
    model = Recenter(stretch=True).fit(first, groups=["anna"] * n)
    mean, dispersion = model.means_[0], model.dispersions_[0]
    model.partial_fit(first, groups=["anna"] * n)
    np.testing.assert_allclose(model.means_[0], mean, rtol=1e-4)
    expected = dispersion * (1 + 1 / (1 - 1 / (2 * n))) / 2  # the mean has 2 n matrices
    np.testing.assert_allclose(model.dispersions_, [expected], rtol=1e-4)


def test_matrices_without_groups_continue_one_session(data, tmp_path):
    X, y, groups = data
    old, new = groups == "anna", groups == "dora"
    model = Recenter().fit(X[old])
    whole = model.transform(X[new])
    model.partial_fit(X[new][:10]).partial_fit(X[new][10:])
    assert model.groups_.tolist() == [None]
    single = np.concatenate([model.transform(matrix[None]) for matrix in X[new]])
    assert np.abs(logm(single) - logm(whole)).max() < 0.3
    classifier = DivergenceMDM().fit(Recenter().fit_transform(X[old]), y[old])
    assert classifier.score(single, y[new]) > 0.8
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").transform(X[new][:1]), single[:1])


def test_the_first_part_is_a_fit(data):
    X, _, groups = data
    one = Recenter("burg").partial_fit(X[:40], groups=groups[:40])
    np.testing.assert_array_equal(
        one.means_, Recenter("burg").fit(X[:40], groups=groups[:40]).means_
    )
    one.partial_fit(X[40:], groups=groups[40:])
    np.testing.assert_allclose(one.means_, Recenter("burg").fit(X, groups=groups).means_)
    alone = Recenter("burg").partial_fit(X[:40]).partial_fit(X[40:])
    np.testing.assert_allclose(alone.means_[0], X.mean(axis=0))


def test_dates_are_the_same_in_all_units(data, tmp_path):
    X, _, groups = data
    days = np.array(["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"], "datetime64[D]")
    codes = np.unique(groups, return_inverse=True)[1]
    model = Recenter().fit(X, groups=days[codes])
    expected = Recenter().fit(X, groups=groups).transform(X[:3], groups[:3])
    later = days[codes[:3]].astype("datetime64[ns]")
    np.testing.assert_array_equal(model.transform(X[:3], later), expected)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model").transform(X[:3], days[codes[:3]])
    np.testing.assert_array_equal(again, expected)


def test_a_failed_part_changes_nothing(data):
    X, _, groups = data
    model = Recenter().fit(X, groups=groups)
    before = model.means_
    with pytest.raises(ValueError, match="groups has 3 entries"):
        model.partial_fit(X[:5], groups=["new"] * 3)
    with pytest.raises(ValueError, match=r"forgetting=-0.1 must be a number >= 0 and < 1"):
        model.partial_fit(X[:5], forgetting=-0.1)
    assert model.means_ is before
