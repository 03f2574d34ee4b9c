"""SPDClassifier: what it weighs, how it predicts, and what scikit-learn makes of it."""

from __future__ import annotations

from copy import copy
from itertools import count

import numpy as np
import pytest
from pyriemann.geometry.distance import pairwise_distance
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold, StratifiedKFold

from divlearn.committee import MEMBERS, SPDClassifier
from divlearn.committee.weights import average, count_samples, find_simple, fit_average, floored
from divlearn.datasets import make_wishart_clusters
from divlearn.log_vectors import log_vectors
from divlearn.nearest import DivergenceMDM
from divlearn.tangent import TangentClassifier

QUICK = ("tangent logistic", "kernel", "tangent lda")


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 50, 4, separation=5, random_state=0)
    return X[::2], y[::2], X[1::2], y[1::2]


@pytest.fixture(scope="module")
def fitted(data):
    return SPDClassifier(cv=3, random_state=0).fit(*data[:2])


def test_all_members(data, fitted):
    _, _, X_test, y_test = data
    assert set(fitted.weights_) == set(MEMBERS)
    assert sum(fitted.weights_.values()) == pytest.approx(1)
    assert min(fitted.weights_.values()) > 0
    assert fitted.score(X_test, y_test) > 0.8
    probabilities = fitted.predict_proba(X_test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (probabilities > 0).all()
    assert log_loss(y_test, probabilities) < 0.6 * np.log(3)
    said = [floored(member.predict_proba(X_test)) for member in fitted.members_.values()]
    assert log_loss(y_test, probabilities) < np.median([log_loss(y_test, one) for one in said])
    worst = min((one.argmax(axis=1) == y_test).mean() for one in said)
    assert fitted.score(X_test, y_test) >= worst


def test_members_are_mixed_by_their_weights(fitted):
    """By hand: each is mixed with a thousandth of even odds, then they are with each other.

    A temperature of one half squares what results.
    """

    class Sure:
        def predict_proba(self, X):
            return np.array([[1.0, 0.0, 0.0]])

    class Unsure:
        def predict_proba(self, X):
            return np.array([[0.2, 0.3, 0.5]])

    committee = copy(fitted)
    committee.members_ = {"sure": Sure(), "unsure": Unsure()}
    committee.weights_ = {"sure": 0.25, "unsure": 0.75}
    committee.temperature_ = 0.5
    squares = np.square([[0.39993333333333, 0.22510833333333, 0.37495833333333]])
    expected = squares / squares.sum()
    np.testing.assert_allclose(committee.predict_proba(np.eye(4)[None]), expected, rtol=1e-12)


def test_it_says_what_it_weighs(data, fitted, capsys):
    text = fitted.summary()
    for name in MEMBERS:
        assert name in text
    assert f"accuracy of {fitted.oof_accuracy_['average']:.1%}" in text
    model = SPDClassifier(QUICK, verbose=1, random_state=0).fit(*data[:2])
    out = capsys.readouterr().out
    assert "Weights by the likelihood" in out
    for name in QUICK:
        weight, accuracy = model.weights_[name], model.oof_accuracy_[name]
        assert f"{name} {weight:.2f} (accuracy {accuracy:.1%})" in out


@pytest.mark.usefixtures("short_fits")
def test_members_are_judged_on_data_they_have_not_seen(data):
    """On labels without meaning nobody is right more often than by chance."""
    X, _, _, _ = data
    noise = np.random.default_rng(0).integers(3, size=len(X))
    classifier = SPDClassifier(QUICK, random_state=0).fit(X, noise)
    assert max(classifier.oof_accuracy_.values()) < 0.6
    assert np.isfinite(classifier.oof_proba_).all()


@pytest.mark.parametrize("cv", [GroupKFold(4), 4])
def test_groups_keep_together(cv):
    """Labels mean nothing, but copies share them: whoever has seen one knows the others."""
    rng = np.random.default_rng(0)
    X = np.repeat(make_wishart_clusters(1, 24, 3, random_state=0)[0], 3, axis=0)
    y = np.repeat(rng.permutation(np.arange(24) % 2), 3)
    model = SPDClassifier(("tangent rbf",), cv=cv, random_state=0)
    assert model.fit(X, y, groups=np.arange(72) // 3).oof_accuracy_["average"] < 0.7
    apart = StratifiedKFold(4, shuffle=True, random_state=0)
    assert model.set_params(cv=apart).fit(X, y).oof_accuracy_["average"] > 0.85


@pytest.mark.usefixtures("short_fits")
def test_labels_weights_and_seeds(data):
    X, y, X_test, _ = data
    few = ("tangent logistic", "tangent lda")
    names = np.array(["ash", "birch", "cedar"])
    first = SPDClassifier(few, random_state=0).fit(X, names[y])
    second = SPDClassifier(few, random_state=0).fit(X, names[y])
    np.testing.assert_array_equal(first.predict_proba(X_test), second.predict_proba(X_test))
    assert set(first.predict(X_test)) <= set(names)
    heavy = SPDClassifier(few, class_weight={"ash": 30}, random_state=0).fit(X, names[y])
    assert (heavy.predict(X_test) == "ash").sum() >= (first.predict(X_test) == "ash").sum()
    half = np.where(y == 0, 0.0, 1.0)
    two = SPDClassifier(few, random_state=0).fit(X, y, sample_weight=half)
    assert two.classes_.tolist() == [1, 2]
    assert np.isnan(two.oof_proba_[y == 0]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": ()}, r"members=\(\) must be a sequence of names"),
        ({"members": "kernel"}, r"members='kernel' must be a sequence"),
        ({"members": ("forest",)}, r"member 'forest' must be one of tangent lda"),
        ({"cv": 1}, r"=1 must be an integer >= 2"),
        ({"time_limit": 0}, r"time_limit=0 must be > 0, in seconds, or None"),
        ({"time_limit": "long"}, r"time_limit='long' must be > 0, in seconds, or None"),
    ],
)
def test_bad_parameters(data, options, message):
    X, y, _, _ = data
    with pytest.raises(ValueError, match=message):
        SPDClassifier(**{"members": QUICK} | options).fit(X, y)


def test_bad_data(data):
    X, y, _, _ = data
    with pytest.raises(ValueError, match=r"class 9 has 1 matrix, must have >= 2"):
        SPDClassifier(QUICK).fit(X[:10], [*[0] * 5, *[1] * 4, 9])
    with pytest.raises(ValueError, match="one class 0"):
        SPDClassifier(QUICK).fit(X[y == 0], y[y == 0])
    with pytest.raises(ValueError, match="expecting 4"):
        SPDClassifier(("tangent lda",)).fit(X, y).predict(np.eye(3)[None])


# weights


def test_weights_minimise_the_objective():
    rng = np.random.default_rng(0)
    said = rng.dirichlet(np.ones(3), size=(4, 60))
    codes = rng.integers(3, size=60)
    prior = np.array([0.1, 0.1, 0.2, 0.6])
    # The prior is of any scale.
    weights, temperature = fit_average(said, codes, np.ones(60), 7 * prior)
    true = floored(said)[:, np.arange(60), codes]

    def objective(w):
        return -np.log(w @ true).sum() - 5 * prior @ np.log(w)

    for _ in range(50):
        other = np.abs(weights + 1e-3 * rng.standard_normal(4))
        assert objective(other / other.sum()) >= objective(weights) - 1e-9

    # The temperature of the least log-loss of the average, up to the rule of succession.
    def loss(temperature):
        powers = np.tensordot(weights, floored(said), axes=1) ** (1 / temperature)
        return log_loss(codes, powers / powers.sum(axis=1, keepdims=True))

    assert loss(temperature) < min(map(loss, (0.5 * temperature, 1.0))) + 1e-3
    np.testing.assert_allclose(average(floored(said), weights, temperature).sum(axis=1), 1.0)


def test_averages_of_calibrated_members_are_sharpened():
    """Calibrated members that err independently: their mean is too unsure of what both say."""
    rng = np.random.default_rng(1)
    codes = rng.integers(2, size=4000)
    hints = rng.standard_normal((2, 4000)) + np.where(codes == 1, 1.0, -1.0)
    ones = 1 / (1 + np.exp(-2 * hints))  # Bayes' rule of one hint
    both = np.stack([1 - ones, ones], axis=2)
    weights, temperature = fit_average(both, codes, np.ones(4000), np.ones(2))
    np.testing.assert_allclose(weights, 0.5, atol=0.05)
    assert temperature < 0.8
    said = average(both, weights, temperature)
    sure = said[:, 1] > 0.9
    assert abs(codes[sure].mean() - said[sure, 1].mean()) < 0.02


def test_saturated_folds_do_not_decide():
    """Of members that are all right, the surest is not trusted alone."""
    sure = [0.999, 0.99, 0.95, 0.9]
    said = np.array([np.tile([p, 1 - p], (60, 1)) for p in sure])
    weights, _ = fit_average(said, np.zeros(60, int), np.ones(60), np.ones(4))
    assert (np.diff(weights) < 0).all()
    assert 0.1 < weights.min() < weights.max() < 0.4
    one_wrong = said.copy()
    one_wrong[0, :6] = one_wrong[0, :6, ::-1]
    weights, _ = fit_average(one_wrong, np.zeros(60, int), np.ones(60), np.ones(4))
    assert weights.argmin() == 0


def test_groups_count_less_than_their_matrices():
    weights = np.array([1.0, 1.0, 2.0, 4.0])
    alone = count_samples(weights, np.arange(4))
    np.testing.assert_allclose(alone, weights / 2)
    np.testing.assert_allclose(count_samples(weights, np.array([0, 0, 0, 0])), alone / 2)


def test_equal_members_have_the_weights_of_the_prior():
    said, prior = np.broadcast_to([[0.7, 0.3]], (3, 20, 2)), np.array([1.0, 1.0, 4.0])
    weights, _ = fit_average(said, np.zeros(20, int), np.ones(20), prior)
    np.testing.assert_allclose(weights, prior / 6, rtol=1e-6)


# tangent vectors


def vectors_of(model, X):
    return log_vectors(X, model.whitener_) / model.deviation_


def test_tangent_vectors_are_those_of_pyriemann(data):
    from pyriemann.tangentspace import TangentSpace

    X = data[0]
    ours = vectors_of(TangentClassifier().fit(*data[:2]), X)
    theirs = TangentSpace(metric="riemann").fit(X).transform(X)
    assert ours.var(axis=0).sum() == pytest.approx(1)
    theirs /= np.sqrt(theirs.var(axis=0).sum())
    # Both are vectors of log(G^(-1/2) X G^(-1/2)), in the same order or not.
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-6)


def test_vectors_at_the_identity_are_log_euclidean(data):
    X = data[0]
    model = TangentClassifier(at="identity").fit(*data[:2])
    distances = pdist(vectors_of(model, X)) * model.deviation_
    expected = pairwise_distance(X, metric="logeuclid")
    np.testing.assert_allclose(squareform(distances), expected, atol=1e-9)


@pytest.mark.parametrize("model", ["lda", "rda", "logistic", "rbf"])
def test_tangent_classifiers(data, model):
    X, y, X_test, y_test = data
    classifier = TangentClassifier(model, cv=3, random_state=0).fit(X, y)
    probabilities = classifier.predict_proba(X_test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert classifier.score(X_test, y_test) > 0.75
    assert classifier.held_out_accuracy_ > 0.7


@pytest.mark.parametrize(
    ("options", "message"), [({"model": "svm"}, "model='svm'"), ({"at": "zero"}, "at='zero'")]
)
def test_bad_parameters_of_tangent_classifiers(data, options, message):
    with pytest.raises(ValueError, match=f"{message} must be one of"):
        TangentClassifier(**options).fit(*data[:2])


def test_two_matrices_of_each_class_are_enough():
    """Though not for discriminants: a training part has one of each, and no spread around it."""
    X, y = make_wishart_clusters(3, 2, 3, separation=6, random_state=0)
    model = SPDClassifier(("tangent logistic", "tangent lda"), random_state=0).fit(X, y)
    assert list(model.members_) == ["tangent logistic"]
    assert model.message_.startswith(
        "1 of 2 members were fitted; tangent lda was left out: no class has two different "
        "matrices in every training part, but one must have"
    )
    with pytest.raises(ValueError, match=r"no member could be fitted: tangent lda was left out"):
        SPDClassifier(("tangent lda",)).fit(X, y)


def test_discriminants_know_the_weights_of_classes():
    X, y = make_wishart_clusters(2, 30, 3, separation=1, random_state=0)
    model = SPDClassifier(("tangent lda",), random_state=0)
    plain = model.fit(X, y).predict_proba(X)[:, 1]
    heavy = model.fit(X, y, sample_weight=np.where(y == 1, 100.0, 1.0)).predict_proba(X)[:, 1]
    assert (heavy > plain).all()


# time


@pytest.fixture
def tick(monkeypatch):
    """Let every look at the clock take some seconds."""

    def every(seconds):
        ticks = count(0, seconds)
        monkeypatch.setattr("divlearn.committee.base.clock", lambda: next(ticks))

    return every


def test_members_that_take_too_long_are_skipped(data, tick, monkeypatch):
    X, y, X_test, y_test = data
    members = ("iddl", "tangent rda", "kernel", "tangent lda", "nearest neighbour")
    model = SPDClassifier(members, time_limit=20, random_state=0)
    # A probe of one second for 38 matrices: tables of 75 take 4 seconds, learning takes 37.
    probes = []
    monkeypatch.setattr("divlearn.committee.base.clock", lambda: float(len(probes)))
    monkeypatch.setattr("divlearn.committee.base.make_tables", lambda *given: probes.append(given))
    model.fit(X, y)
    assert set(model.members_) == set(members) - {"iddl"}
    assert model.message_ == (
        "4 of 5 members were fitted; iddl was skipped: it would exceed time_limit=20"
    )
    assert model.score(X_test, y_test) > 0.8
    tick(60)
    assert list(model.fit(X, y).members_) == ["tangent lda"]  # the first is always fitted
    assert model.message_.count("it would exceed time_limit=20") == 4


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_member_that_has_not_finished_in_time_is_left_out(data, tick, n_jobs):
    X, y, X_test, y_test = data
    members = ("tangent lda", "tangent rbf", "iddl")
    tick(1)  # with every candidate and iteration
    model = SPDClassifier(members, time_limit=15, n_jobs=n_jobs, random_state=0).fit(X, y)
    assert list(model.members_) == ["tangent lda"]
    assert "tangent rbf was left out: it did not finish in time_limit=15" in model.message_
    assert model.score(X_test, y_test) > 0.8


def test_time_does_not_change_members(data, tick):
    X, y, X_test, _ = data
    members = ("tangent rda", "tangent lda")
    slow = SPDClassifier(members, time_limit=1e6, random_state=0)
    fast = SPDClassifier(members, random_state=0).fit(X, y)
    tick(1000)
    np.testing.assert_array_equal(slow.fit(X, y).predict_proba(X_test), fast.predict_proba(X_test))


# a single member


def test_it_names_a_member_that_is_as_good():
    rng = np.random.default_rng(0)
    whole = rng.random(400) < 0.9
    same, worse = whole.copy(), whole & (rng.random(400) < 0.8)
    units, counts = np.arange(400), np.ones(400)
    assert find_simple({"worse": worse, "same": same}, whole, counts, units) == "same"
    assert find_simple({"worse": worse}, whole, counts, units) is None
    # The same errors, all in one of many groups: they may be chance.
    groups = np.where(worse != whole, 0, 1 + units % 40)
    groups = np.unique(groups, return_inverse=True)[1]
    assert find_simple({"worse": worse}, whole, counts, groups) == "worse"
    assert find_simple({}, whole, counts, units) is None


def test_the_summary_names_it(data, fitted):
    assert f"{fitted.simple_} alone is as good" in fitted.summary()
    assert fitted.simple_ in MEMBERS[:7]
    committee = copy(fitted)
    assert f"; SPDClassifier(({fitted.simple_!r},)) is simpler." in fitted.summary()
    committee.members = [(fitted.simple_, "an estimator of the user")]
    assert f"; SPDClassifier([({fitted.simple_!r}, ...)]) is simpler." in committee.summary()
    committee.simple_ = None
    assert "alone" not in committee.summary()


# little data


@pytest.mark.parametrize(("n_classes", "n_each"), [(2, 2), (12, 2), (3, 5)])
@pytest.mark.usefixtures("small_grids")
def test_few_matrices_of_each_class(n_classes, n_each):
    X, y = make_wishart_clusters(n_classes, n_each, 3, separation=6, random_state=0)
    members = tuple(name for name in MEMBERS if "iddl" not in name)
    model = SPDClassifier(members, random_state=0).fit(X, y)
    assert {"log rbf", "nearest neighbour", "tangent logistic"} <= set(model.members_)
    assert model.score(X, y) > 1.5 / n_classes
    left_out = set(members) - set(model.members_)
    assert all(f"{name} was left out: " in model.message_ for name in left_out)


def test_a_class_that_is_alone_in_a_training_part():
    X, y = make_wishart_clusters(3, 6, 3, separation=6, random_state=0)
    rows = np.concatenate([np.flatnonzero(y < 2), np.flatnonzero(y == 2)[:2]])
    X, y = X[rows], y[rows]
    model = SPDClassifier(("tangent rda", "tangent lda", "kernel"), cv=2, random_state=0)
    assert len(model.fit(X, y).members_) == 3
    assert model.score(X, y) > 0.6


@pytest.mark.parametrize("name", ["tangent lda", "tangent rda", "tangent rbf", "nearest neighbour"])
def test_members_that_are_always_right_are_not_sure(name):
    """By the rule of succession, one error is expected in n + 2."""
    X, y = make_wishart_clusters(2, 20, 3, separation=12, random_state=0)
    model = SPDClassifier((name,), random_state=0).fit(X, y)
    assert model.oof_accuracy_[name] == 1
    doubt = 1 - model.members_[name].oof_proba_[np.arange(40), y]
    assert 0.2 / 42 < doubt.mean() < 5 / 42


class Overflowing(DivergenceMDM):
    def fit(self, X, y):
        raise FloatingPointError("the objective is nan")


def test_members_whose_numbers_fail_are_left_out(data):
    X, y, *_ = data
    model = SPDClassifier(("tangent lda", ("mine", Overflowing())), random_state=0).fit(X, y)
    assert model.message_.endswith("mine was left out: the objective is nan")
