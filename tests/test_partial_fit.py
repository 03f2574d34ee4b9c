"""Learning from streams: what it reaches, what it remembers, and what it refuses."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from lifted import lift_spd, lifted
from scipy.special import softmax
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from divlearn import abld
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import IDDLClassifier, IDDLRegressor, IDDLTransformer
from divlearn.iddl.calibration import fit_temperature

CLASSES = np.arange(5)
FAST = {"n_atoms": "2 per class", "init": "samples", "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_data()


def make_data():
    X, y = make_wishart_clusters(5, 600, 4, separation=4, random_state=0)
    return X[:1800], y[:1800], X[1800:], y[1800:]


def batches(X, y, size=200):
    edges = [*range(0, len(X), size), len(X)]
    return [(X[a:b], y[a:b]) for a, b in pairwise(edges)]


def stream(estimator, X, y, size=200, **options):
    for batch in batches(X, y, size):
        estimator.partial_fit(*batch, **options)
    return estimator


# scikit-learn's checks


def streamed(estimator):
    """Lift an estimator to rows with its `partial_fit`."""
    stand_in = lifted(estimator, lift_spd)
    methods = {
        "partial_fit": _partial_fit,
        "__reduce__": lambda self: (streamed, (self.estimator,), self.__dict__),
    }
    kind = type(f"Streamed{type(estimator).__name__}", (type(stand_in),), methods)
    return kind(estimator, lift_spd)


def _partial_fit(self, X, y=None, **options):
    first = not hasattr(self, "_fitted")
    samples = self._lift(X, reset=first)
    fitted = clone(self.estimator) if first else self._fitted
    fitted.partial_fit(samples, y, **options)
    self._fitted = fitted
    for name, value in vars(fitted).items():
        if name.endswith("_") and name != "n_features_in_":
            setattr(self, name, value)
    return self


class StreamedClassifier(IDDLClassifier):
    """Fit by one batch of a stream: all checks of `fit` are then checks of `partial_fit`."""

    def fit(self, X, y, sample_weight=None):
        return self.partial_fit(X, y, np.unique(np.asarray(y)), sample_weight)


CHANCE = "k-means and minibatches draw other numbers where samples are repeated"


@parametrize_with_checks(
    [streamed(StreamedClassifier("1 per class", random_state=0))],
    expected_failed_checks=lambda _: {"check_sample_weight_equivalence_on_dense_data": CHANCE},
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# what it says of itself


def test_attributes(data, capsys):
    X, y, _, _ = data
    classifier = IDDLClassifier(verbose=1, **FAST)
    for number, batch in enumerate(batches(X[:500], y[:500]), start=1):
        assert classifier.partial_fit(*batch, classes=CLASSES) is classifier
        assert classifier.n_iter_ == number
        assert classifier.message_ == f"batch {number} is learned"
        assert classifier.message_ in capsys.readouterr().out
        assert {len(column) for column in classifier.history_.values()} == {number}
    assert classifier.n_samples_seen_ == 500
    assert (classifier.head_, classifier.n_features_in_) == ("linear", 4)
    assert (classifier.recipe_.loss.name, classifier.recipe_.gamma) == ("softmax", 1e-3)
    assert classifier.recipe_.n_tangent == 0
    assert len(classifier.models_) == 1
    history = classifier.history_
    assert (history["gradient_norm"] > 0).all()
    assert (np.diff(history["seconds"]) > 0).all()
    np.testing.assert_array_equal(history["eigenproblems"], 2 * 10 * np.array([200, 400, 500]))
    np.testing.assert_array_equal(history["alpha"][-1], classifier.alpha_)


@pytest.mark.parametrize("tangent", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
def test_scores_of_what_is_new_come_from_the_model_before(data, standardize, tangent):
    """Also where the new has changed what features are standardised by."""
    X, y, _, _ = data
    classifier = IDDLClassifier(standardize=standardize, tangent=tangent, **FAST)
    classifier.partial_fit(X[:100], y[:100], CLASSES)
    assert classifier.temperature_ == 1
    assert np.isnan(classifier.oof_proba_).all()
    scores = classifier._mean_scores(X[100:200])
    weights = np.arange(100) % 4  # what has no weight is not scored; the rest is one minibatch
    classifier.partial_fit(X[100:200], y[100:200], sample_weight=weights)
    expected = softmax(scores / classifier.temperature_, axis=1)
    expected[weights == 0] = np.nan
    np.testing.assert_allclose(classifier.oof_proba_, expected, rtol=1e-8)
    kept = np.flatnonzero(weights)
    share = weights[kept] / weights.sum()
    best, _ = fit_temperature(scores[kept], y[100:200][kept], share)
    assert classifier.temperature_ == pytest.approx(best, rel=1e-6)


def test_the_seed_decides_and_a_pickle_goes_on(data):
    X, y, X_test, _ = data
    first, second, third = (
        stream(IDDLClassifier(**FAST | {"random_state": state}), X[:600], y[:600], classes=CLASSES)
        for state in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.predict_proba(X_test), second.predict_proba(X_test))
    assert not np.allclose(first.predict_proba(X_test), third.predict_proba(X_test))
    copy = pickle.loads(pickle.dumps(first)).partial_fit(X[600:800], y[600:800])
    second.partial_fit(X[600:800], y[600:800])
    np.testing.assert_array_equal(copy.predict_proba(X_test), second.predict_proba(X_test))


def test_a_stream_takes_no_more_room_the_longer_it_is(data):
    X, y, _, _ = data
    classifier = stream(IDDLClassifier(**FAST), X[:1200], y[:1200], classes=CLASSES)
    before = len(pickle.dumps(classifier))
    after = len(pickle.dumps(stream(classifier, X[1200:], y[1200:])))
    assert before < X[:400].nbytes + 200_000
    assert after - before < 5000


# weights


def test_weights(data):
    X, y, X_test, _ = data
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 3, 400).astype(float)

    def learn(rows, weights=None, **options):
        classifier = IDDLClassifier(**FAST | {"loss": "ridge"} | options)
        for part in np.split(rows, [100, 200]):  # minibatches of a batch are drawn
            share = None if weights is None else weights[part]
            classifier.partial_fit(X[part], y[part], CLASSES, share)
        return classifier.predict_proba(X_test)

    rows = np.arange(300)
    weighted = learn(rows, weights)
    np.testing.assert_allclose(learn(rows, 1e-3 * weights), weighted, rtol=1e-6)
    assert not np.allclose(learn(rows), weighted, rtol=1e-2)
    heavy = learn(rows, class_weight={0: 30.0})
    assert (heavy.argmax(axis=1) == 0).mean() > (learn(rows).argmax(axis=1) == 0).mean() + 0.1
    # A class of no weight is not there.
    without = learn(rows, class_weight={0: 0.0})
    assert not (without.argmax(axis=1) == 0).any()


# before and after other calls


def test_fit_starts_anew_unless_warm(data):
    X, y, X_test, _ = data
    options = {"ensemble": None, "max_iter": 0, "gamma": 1e-3, "tangent": False, **FAST}
    classifier = IDDLClassifier(**options).partial_fit(X[:200], y[:200], CLASSES)
    streamed = classifier.atoms_
    fresh = clone(classifier).fit(X[:300], y[:300])
    classifier.fit(X[:300], y[:300])
    np.testing.assert_array_equal(classifier.predict_proba(X_test), fresh.predict_proba(X_test))
    assert len(classifier.history_["objective"]) == 1
    warm = IDDLClassifier(warm_start=True, **options).partial_fit(X[:200], y[:200], CLASSES)
    np.testing.assert_allclose(warm.fit(X[:300], y[:300]).atoms_, streamed, rtol=1e-10)
    # And a stream after that is another one.
    classifier.partial_fit(X[300:400], y[300:400])
    assert (classifier.n_iter_, classifier.n_samples_seen_) == (1, 400)


@pytest.mark.parametrize("ensemble", [None, 3])
@pytest.mark.parametrize("standardize", [True, False])
def test_a_stream_goes_on_from_a_fit(data, ensemble, standardize):
    X, y, X_test, y_test = data
    options = {"ensemble": ensemble, "standardize": standardize, "loss": "softmax", **FAST}
    classifier = IDDLClassifier(max_iter=3, head="linear", **options).fit(X[:900], y[:900])
    before, score = classifier.models_[0], classifier.score(X_test, y_test)
    recipe = classifier.recipe_
    classifier.partial_fit(X[900:910], y[900:910])
    model = classifier.models_[0]
    # One short step: the distance of two matrices is the root of twice their (0, 0).
    ways = [np.sqrt(2 * abld(a, b, 0, 0)) for a, b in zip(before.atoms, model.atoms, strict=True)]
    assert 0 < max(ways) < 0.1
    np.testing.assert_allclose(model.head.weights, before.head.weights, atol=0.1)
    np.testing.assert_allclose(model.features.mean, before.features.mean, atol=0.1)
    np.testing.assert_allclose(model.features.scale, before.features.scale, rtol=0.1)
    assert len(classifier.models_) == 1
    assert classifier.recipe_ is recipe
    assert classifier.n_samples_seen_ == 910
    stream(classifier, X[910:], y[910:])
    assert classifier.score(X_test, y_test) > score - 0.02


@pytest.mark.parametrize("change", [{"head": "rbf"}, {"pairs": [(0.5, 0.5)]}], ids=str)
def test_a_stream_after_a_fit_with_another_head(data, change):
    X, y, X_test, y_test = data
    options = {"loss": "ridge", "ensemble": 2, "max_iter": 1, **FAST}
    classifier = IDDLClassifier(**options | {k: v for k, v in change.items() if k == "head"})
    classifier.fit(X[:300], y[:300])
    atoms = classifier.models_[0].atoms
    classifier.set_params(**{"head": "auto"} | {k: v for k, v in change.items() if k == "pairs"})
    stream(classifier, X[300:700], y[300:700])
    assert classifier.head_ == "linear"
    ways = [np.sqrt(2 * abld(a, b, 0, 0)) for a, b in zip(atoms, classifier.atoms_, strict=True)]
    assert max(ways) < 1
    assert classifier.score(X_test, y_test) > 0.75


# the encoder


@pytest.mark.parametrize("numbers", [False, True])
def test_encoders(data, numbers):
    X, y, X_test, _ = data
    targets = np.linalg.slogdet(X)[1] if numbers else y
    encoder = stream(IDDLTransformer(10, random_state=0), X[:600], targets[:600])
    kind = IDDLRegressor if numbers else IDDLClassifier
    options = {} if numbers else {"classes": CLASSES}
    same = stream(kind(10, random_state=0), X[:600], targets[:600], **options)
    np.testing.assert_array_equal(encoder.atoms_, same.atoms_)
    V = encoder.transform(X_test)
    assert V.shape == (len(X_test), 30) == (len(X_test), len(encoder.get_feature_names_out()))
    atom, alpha, beta = encoder.atoms_[1], encoder.alpha_[1, 2], encoder.beta_[1, 2]
    np.testing.assert_allclose(V[:, 5], abld(X_test, atom, alpha, beta), rtol=1e-8)
    assert encoder.n_iter_ == 3
    if numbers:  # they stay numbers
        encoder.partial_fit(X[:5], np.arange(5))
        assert encoder.n_samples_seen_ == 605


def test_encoders_after_fits(data):
    X, y, _, _ = data
    options = {"n_atoms": 5, "max_iter": 1, "ensemble": None, "random_state": 0}
    for targets in (None, y[:100]):
        encoder = IDDLTransformer(**options).fit(X[:100], targets)
        atoms = encoder.atoms_
        encoder.partial_fit(X[100:105], y[100:105], CLASSES)
        ways = [np.sqrt(2 * abld(a, b, 0, 0)) for a, b in zip(atoms, encoder.atoms_, strict=True)]
        assert 0 < max(ways) < 0.1
    fresh = clone(encoder).fit(X[:100], y[:100])
    np.testing.assert_array_equal(encoder.fit(X[:100], y[:100]).atoms_, fresh.atoms_)
    with pytest.raises(ValueError, match="y is None, must be classes or numbers"):
        encoder.partial_fit(X[:5], None)
    with pytest.raises(ValueError, match="y holds 7, which is not one of classes"):
        encoder.partial_fit(X[:2], [0, 7])


# what it refuses


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({}, {"classes": None}, "classes must be passed on the first call"),
        ({}, {"classes": [3]}, r"classes=\[3\] is 1 class, must be >= 2"),
        ({}, {"classes": [0, 1, 2]}, r"y holds [34], which is not one of classes=\[0 1 2\]"),
        ({}, {"y": ["a"] * 50}, "y mixes labels of types int and str"),
        ({}, {"y": np.linspace(0, 1, 50)}, "Unknown label type"),
        ({}, {"sample_weight": np.zeros(50)}, "at least one non-zero"),
        ({"class_weight": dict.fromkeys(range(5), 0)}, {}, "all weights of the batch are 0"),
        ({"class_weight": "balanced"}, {}, "class_weight='balanced' is not known before"),
        ({"head": "rbf"}, {}, 'head=\'rbf\' must be "auto" or "linear" for partial_fit'),
        ({"gamma": -1}, {}, "gamma=-1 must be"),
        ({"n_atoms": 0}, {}, "n_atoms=0 must be >= 1"),
    ],
)
def test_a_bad_first_batch(data, options, call, message):
    X, y, _, _ = data
    call = {"y": y[:50], "classes": CLASSES, **call}
    classifier = IDDLClassifier(**FAST | options)
    before = dict(vars(classifier))
    with pytest.raises(ValueError, match=message):
        classifier.partial_fit(X[:50], **call)
    assert vars(classifier) == before


def test_a_bad_batch_changes_nothing(data):
    X, y, X_test, _ = data
    classifier = IDDLClassifier(**FAST).partial_fit(X[:100], y[:100], CLASSES)
    before = classifier.predict_proba(X_test)
    for call, message in (
        ((np.eye(3)[None], [0]), "X has matrices of size 3, but IDDLClassifier is expecting 4"),
        ((-X[:5], y[:5]), "positive definite"),
        ((X[:5], y[:4]), "inconsistent numbers of samples"),
        ((X[:5], [0, 1, 2, 3, 9]), "y holds 9, which is not one of"),
        ((X[:5], y[:5], [0, 1]), r"classes=\[0 1\] must be \[0 1 2 3 4\], as before"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier.partial_fit(*call)
    np.testing.assert_array_equal(classifier.predict_proba(X_test), before)
    assert classifier.n_iter_ == 1
    regressor = IDDLRegressor(random_state=0).partial_fit(X[:50], X[:50, 0, 0])
    with pytest.raises(ValueError, match=r"y has shape \(5, 2\), must have 1 outputs in one dim"):
        regressor.partial_fit(X[:5], X[:5, 0, :2])
