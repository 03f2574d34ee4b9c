"""Data in memory and the same data in shards: equal results, or refusals in the same words."""

from __future__ import annotations

import numpy as np
import pytest

from divlearn import SPDClassifier
from divlearn.baselines import LogEuclideanSVM
from divlearn.cluster import ABKMeans, ABMixture, KarcherKMeans, LogEuclideanKMeans
from divlearn.datasets import make_wishart_clusters
from divlearn.heads.losses import RidgeLoss
from divlearn.iddl import IDDLClassifier, IDDLRegressor, IDDLTransformer, Recipe
from divlearn.nearest import DivergenceKNN, DivergenceMDM
from divlearn.sharded import open_shards

X, Y = make_wishart_clusters(3, 20, 3, separation=3, random_state=0)
NAMES = np.array(["b", "a", "c"])[Y]
NUMBERS = np.linalg.slogdet(X)[1]
SETTINGS = {
    "cv": None,
    "recipe": Recipe(loss="ridge", init="samples", penalty=1e-2),
    "random_state": 0,
    "max_iter": 1,
    "n_atoms": 4,
    "divergence": [(1.0, 1.0)],
}


def classifier(**settings):
    return IDDLClassifier(**SETTINGS | settings)


def regressor(**settings):
    return IDDLRegressor(**SETTINGS | settings)


def clusters():
    return ABKMeans(3, n_init=1, random_state=0)


def learned():
    return ABKMeans(3, "likelihood", n_init=1, max_iter=1, random_state=0)


def penalized():
    return ABKMeans(3, "learn", n_init=1, random_state=0)


def karcher():
    return KarcherKMeans(3, n_init=1, random_state=0)


def logarithms():
    return LogEuclideanKMeans(3, n_init=1, random_state=0)


def mixture():
    return ABMixture(2, "wishart", init=X[[0, 30]])


@pytest.fixture(autouse=True)
def few_steps(set_tolerance):
    """As many in memory as in shards."""
    set_tolerance("mixtures", 1e-2)


def in_memory(make, y, weights):
    return make().fit(X, y) if weights is None else make().fit(X, y, weights)


def in_shards(make, y, weights):
    """Fit three shards, opened as IDDL estimators open files."""
    return make().fit(open_shards(X, y, weights, block_size=25, accuracy=1e-6), None)


def answers(fitted):
    """All that is predicted of the matrices."""
    names = (
        "decision_function",
        "predict_proba",
        "predict",
        "kneighbors",
        "transform",
        "score_samples",
    )
    return {name: getattr(fitted, name)(X) for name in names if hasattr(fitted, name)}


def check_equal(make, y, weights=None, tolerance=1e-8):
    whole, parts = in_memory(make, y, weights), in_shards(make, y, weights)
    for name in ("classes_", "temperature_", "labels_", "n_iter_", "message_"):
        if not hasattr(whole, name):
            continue
        expected, found = getattr(whole, name), getattr(parts, name)
        if name == "temperature_":
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=name)
    if "objective" in getattr(whole, "history_", {}):
        expected, found = whole.history_["objective"], parts.history_["objective"]
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    found_in_parts = answers(parts)
    for name, expected in answers(whole).items():
        found = found_in_parts[name]
        for one, other in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
            if np.asarray(other).dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=name)
            else:
                np.testing.assert_array_equal(one, other, err_msg=name)


def check_refused(make, y, weights, message):
    for fit in (in_memory, in_shards):
        with pytest.raises((ValueError, TypeError), match=message):
            fit(make, y, weights)


# ---------------------------------------------------------------------- weights


def changed(values, index, value):
    values = np.array(values, dtype=object if value is None else None)
    values[index] = value
    return values


ONES = np.ones(len(X))
UNEVEN = np.random.RandomState(0).uniform(0.5, 2, size=len(X))
LEARNERS = [
    (classifier, Y),
    (regressor, NUMBERS),
    (clusters, None),
    (learned, None),
    (penalized, None),
    (karcher, None),
    (logarithms, None),
    (mixture, None),
]
BAD_WEIGHTS = {
    "negative": (changed(ONES, 2, -1), r"^sample_weight\[2\] = -1.0 must be >= 0$"),
    "NaN": (changed(ONES, 2, np.nan), r"^sample_weight\[2\] = nan must be finite$"),
    "infinite": (changed(ONES, 2, np.inf), r"^sample_weight\[2\] = inf must be finite$"),
    "zero": (np.zeros(60), r"^sample_weight is zero everywhere, must hold at least one non-zero"),
    "huge": (np.full(60, 1e308), r"^weights have the sum inf, which must be finite; divide"),
    "few": (np.ones(59), r"^sample_weight has shape \(59,\), but must have \(60,\): one weight"),
    "column": (np.ones((60, 1)), r"^sample_weight has shape \(60, 1\), but must have \(60,\)"),
    "text": (np.full(60, "1"), r"^sample_weight has dtype <U1, but must be real numbers$"),
    "complex": (1j * ONES, r"^sample_weight has dtype complex128, but must be real numbers$"),
}
GOOD_WEIGHTS = {
    "uneven": UNEVEN,
    "some zero": np.where(np.arange(60) % 7, UNEVEN, 0),
    "a number": 2.0,
    "large": np.full(60, 1e300),
    "a shard of zero, others tiny": np.where(np.arange(60) < 25, 0, 1e-320),
}
EXTREME_WEIGHTS = ("a shard of zero, others tiny",)


@pytest.mark.parametrize(("make", "y"), LEARNERS)
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_bad_weights_are_refused_in_the_same_words(make, y, name):
    check_refused(make, y, *BAD_WEIGHTS[name])


@pytest.mark.parametrize(
    ("make", "y", "name"),
    [
        (*learner, name)
        for learner in LEARNERS
        # All are given shares; that these are good two of the learners show.
        for name in (GOOD_WEIGHTS if learner[0] in (classifier, clusters) else EXTREME_WEIGHTS)
    ],
)
def test_good_weights_lead_to_equal_results(make, y, name):
    check_equal(make, y, GOOD_WEIGHTS[name], 1e-6)


# ---------------------------------------------------------------------- weights of classes

BAD_CLASS_WEIGHTS = {
    "negative": ({0: -1, 1: 1, 2: 1}, r"^class_weight=\{0: -1, .* must be finite and >= 0 for ev"),
    "NaN": ({0: np.nan}, r"^class_weight=\{0: nan\} must be finite and >= 0 for every class$"),
    "infinite": ({0: np.inf}, r"^class_weight=\{0: inf\} must be finite and >= 0 for every class$"),
    "unknown": ({7: 1.0}, r"^The classes, \[0, 1, 2\], are not in class_weight$"),
    "some unknown": ({0: 1.0, 7: 3.0}, r"^The classes, \[1, 2\], are not in class_weight$"),
    "all but one zero": (
        {0: 0, 1: 0, 2: 1},
        "^y holds the one class 2, must hold >= 2 classes of wei",
    ),
    "all zero": ({0: 0, 1: 0, 2: 0}, "^y holds no class, must hold >= 2 classes of weight > 0"),
    "a word": ("heavy", "must be an instance of 'dict', a str among {'balanced'} or None. Got 'he"),
    "a list": (
        [1.0, 2.0, 3.0],
        r"must be an instance of 'dict', .* or None. Got \[1.0, 2.0, 3.0\]",
    ),
    "huge": (dict.fromkeys(range(3), 1e308), "^weights have the sum inf, which must be finite"),
}
GOOD_CLASS_WEIGHTS = {
    "balanced": "balanced",
    "one": {0: 3.0},
    "a class of zero": {0: 0, 1: 1, 2: 2},
    "too many": {0: 1.0, 1: 2.0, 2: 0.5, 7: 9.0},
    "tiny": dict.fromkeys(range(3), 1e-300),
}


@pytest.mark.parametrize("name", BAD_CLASS_WEIGHTS)
def test_bad_weights_of_classes_are_refused_in_the_same_words(name):
    class_weight, message = BAD_CLASS_WEIGHTS[name]
    check_refused(lambda: classifier(class_weight=class_weight), Y, None, message)


@pytest.mark.parametrize("name", GOOD_CLASS_WEIGHTS)
def test_good_weights_of_classes_lead_to_equal_results(name):
    weights = GOOD_WEIGHTS["some zero"]
    check_equal(lambda: classifier(class_weight=GOOD_CLASS_WEIGHTS[name]), Y, weights)


def test_a_class_of_no_weight_is_as_if_it_were_not_there():
    rows = Y != 0
    expected = classifier().fit(X[rows], Y[rows])
    dropped = in_shards(lambda: classifier(class_weight={0: 0, 1: 1, 2: 1}), Y, None)
    assert dropped.classes_.tolist() == [1, 2]
    np.testing.assert_allclose(dropped.predict_proba(X), expected.predict_proba(X), rtol=1e-6)


# ---------------------------------------------------------------------- labels and numbers

WHERE = r"^(shard \d: )?"
BAD_LABELS = {
    "none": (None, "requires y to be passed, but the target y is None; pass one row per matrix$"),
    "one None": (changed(NAMES, 3, None), WHERE + r"y\[3\] is None, must be a number or text"),
    "one NaN": (
        changed(Y.astype(float), 3, np.nan),
        WHERE + r"y\[3\] is nan, must be a number or text",
    ),
    "one class": (np.zeros(60), "^y holds the one class 0.0, must hold >= 2"),
    "numbers": (NUMBERS, WHERE + "Unknown label type: continuous. y holds .* SPDRegressor"),
    "objects": (
        Y.astype(object),
        WHERE + "Unknown label type: y has dtype object and holds 0, must",
    ),
    "a table": (np.stack([Y, Y], axis=1), WHERE + "y should be a 1d array, got an array of shape"),
    "two kinds": (
        np.where(np.arange(60) < 9, Y.astype(object), NAMES.astype(object)),
        WHERE + "y is text for some samples only",
    ),
    "too few": (Y[:-1], "^y has 59 rows, but X has 60 matrices .inconsistent numbers of samples"),
    "bytes": (NAMES.astype("S1"), WHERE + "Support for labels represented as bytes"),
}
GOOD_LABELS = {
    "text": NAMES,
    "objects": NAMES.astype(object),
    "floats": Y.astype(float),
    "bool": Y == 0,
    "list": NAMES.tolist(),
}
BAD_NUMBERS = {
    "none": (None, "requires y to be passed, but the target y is None; pass one row per matrix$"),
    "one NaN": (changed(NUMBERS, 3, np.nan), WHERE + "Input y contains NaN"),
    "one infinite": (changed(NUMBERS, 3, np.inf), WHERE + "Input y contains infinity"),
    "text": (NAMES, WHERE + "y holds '.', must hold numbers for a regressor; pass these or use"),
    "three dimensions": (NUMBERS[:, None, None], WHERE + "Found array with dim 3"),
    "too few": (NUMBERS[:-1], "^y has 59 rows, but X has 60 matrices"),
}
GOOD_NUMBERS = {
    "integers": Y,
    "a column": NUMBERS[:, None],
    "constant": np.full(60, 2.0),
    "two outputs": np.stack([NUMBERS, 1e6 * NUMBERS + 5], axis=1),
}


@pytest.mark.parametrize("name", BAD_LABELS)
def test_bad_labels_are_refused_in_the_same_words(name):
    y, message = BAD_LABELS[name]
    check_refused(classifier, y, None, message)


@pytest.mark.parametrize("name", GOOD_LABELS)
def test_good_labels_lead_to_equal_results(name):
    check_equal(classifier, GOOD_LABELS[name])


def test_many_classes_are_warned_of():
    for fit in (in_memory, in_shards):
        with pytest.warns(UserWarning, match="y holds 60 classes in 60 matrices"):
            fit(classifier, np.arange(60), None)


def test_strings_and_numbers_in_different_shards_are_refused():
    parts = [(X[:30], NAMES[:30]), (X[30:], Y[30:])]
    with pytest.raises(ValueError, match=r"y is text for some samples only|y mixes labels"):
        classifier().fit(open_shards(lambda: iter(parts)), None)


@pytest.mark.parametrize("name", BAD_NUMBERS)
def test_bad_numbers_are_refused_in_the_same_words(name):
    y, message = BAD_NUMBERS[name]
    check_refused(regressor, y, None, message)


@pytest.mark.parametrize("name", GOOD_NUMBERS)
def test_good_numbers_lead_to_equal_results(name):
    y = GOOD_NUMBERS[name]
    check_equal(regressor, y, None, 1e-8 * max(1, np.abs(y).max()))


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_units_of_numbers_do_not_matter(unit):
    weights = np.append(np.ones(59), 0.0)
    usual = in_memory(regressor, NUMBERS, weights).predict(X)
    far = changed(unit * NUMBERS, 59, 1e300)  # without weight it is not there
    for fit in (in_memory, in_shards):
        found = fit(regressor, far, weights).predict(X) / unit
        np.testing.assert_allclose(found, usual, rtol=1e-8, atol=1e-8)


# ---------------------------------------------------------------------- settings

SAME = [
    {},
    {"recipe": Recipe(loss="softmax", penalty=1e-2)},
    # Rough heads of a hinge are the better known the larger the penalty.
    {"recipe": Recipe(loss="hinge", penalty=3e-1)},
    {"recipe": Recipe(loss=RidgeLoss(bias=False), penalty=1e-2)},
    {"recipe": Recipe(loss=RidgeLoss(plain=True), penalty=1e-2)},
    {"divergence": "learn"},
    {"divergence": "airm"},
    {"recipe": Recipe(loss="ridge", learn="divergences", penalty=1e-2), "divergence": "learn"},
    {"recipe": Recipe(loss="ridge", learn="atoms", penalty=1e-2)},
    {"max_iter": 0},
    {"recipe": Recipe(loss="ridge", init="kmeans", penalty=1e-2)},
    {"recipe": Recipe(loss="ridge", penalty=1e-2)},
    {"recipe": Recipe(loss="ridge", init="identity", penalty=1e-2), "n_atoms": 1},
    {"recipe": Recipe(loss="ridge", init=X[:3], penalty=1e-2), "n_atoms": 3},
    {"n_atoms": "auto", "max_iter": 2},
    {"n_atoms": "auto", "recipe": Recipe(loss="ridge", atoms_per_class=2, penalty=1e-2)},
]


@pytest.mark.parametrize("settings", SAME)
def test_settings_under_which_classifiers_agree(settings):
    same_loss = settings.get("recipe", SETTINGS["recipe"]).loss == "ridge"
    check_equal(lambda: classifier(**settings), Y, UNEVEN, 1e-7 if same_loss else 1e-5)


def test_random_states_draw_alike():
    def make():
        return classifier(random_state=np.random.RandomState(5))

    check_equal(make, Y)


@pytest.mark.usefixtures("small_samples")
def test_the_temperature_of_many_matrices_is_that_of_a_sample():
    sampled = in_shards(classifier, Y, None)
    whole = in_memory(classifier, Y, None)
    assert sampled.temperature_ != pytest.approx(whole.temperature_, rel=1e-3)
    assert 0.3 < sampled.temperature_ / whole.temperature_ < 3


# ---------------------------------------------------------------------- scores


@pytest.mark.parametrize(("make", "y"), [(classifier, NAMES), (regressor, NUMBERS)])
def test_scores_take_what_shards_hold(tmp_path, make, y):
    fitted = make().fit(X[::3], y[::3])
    shards = open_shards(X, y, UNEVEN, block_size=25)
    assert fitted.score(shards, None) == pytest.approx(fitted.score(X, y, UNEVEN), rel=1e-9)
    assert fitted.score(shards, y, ONES) == pytest.approx(fitted.score(X, y), rel=1e-9)
    np.savez(tmp_path / "all.npz", X=X, y=y)
    files = [tmp_path / "all.npz"]
    assert fitted.score(files, files) == pytest.approx(fitted.score(X, y), rel=1e-9)
    with pytest.raises(ValueError, match=r"shard 0 has no y \(pass an array, files"):
        fitted.score(open_shards(X), None)


def test_scores_of_clusters_take_the_weights_that_shards_hold():
    fitted = clusters().fit(X)
    expected = -UNEVEN / UNEVEN.mean() @ fitted.transform(X).min(axis=1)
    shards = open_shards(X, None, UNEVEN, block_size=25)
    assert fitted.score(shards) == pytest.approx(expected, rel=1e-9)
    assert fitted.score(X, None, UNEVEN) == pytest.approx(expected, rel=1e-9)


# ---------------------------------------------------------------------- files


def test_errors_in_files_name_the_shard(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "weights.npy", changed(ONES, 30, -1))
    files = [tmp_path / "X.npy"], None, [tmp_path / "weights.npy"]
    message = r"^shard 1 \(.*X\.npy\[25:50\]\): sample_weight\[5\] = -1.0 must be >= 0$"
    with pytest.raises(ValueError, match=message):
        open_shards(*files, block_size=25)


# ---------------------------------------------------------------------- what takes no shards


@pytest.mark.parametrize(
    "make",
    [SPDClassifier, DivergenceKNN, DivergenceMDM, LogEuclideanSVM, IDDLTransformer],
)
def test_what_takes_no_shards_says_what_to_do(make):
    message = r"X is Shards of 60 matrices, but must be an array .* X, y, sample_weight = shar"
    with pytest.raises(TypeError, match=message):
        make().fit(open_shards(X, Y), None)
    for nothing in ("X.npy", ["0.npy", "1.npy"], lambda: iter([X])):
        with pytest.raises(TypeError, match="load the matrices first, files with"):
            make().fit(nothing, Y)


def test_shards_are_brought_into_memory_as_the_message_says():
    shards = open_shards(X, NAMES, UNEVEN, block_size=25)
    matrices, labels, weights = shards.sample(shards.n_matrices, 0)
    np.testing.assert_array_equal(matrices, X)
    np.testing.assert_array_equal(labels, NAMES)
    np.testing.assert_allclose(weights, UNEVEN / UNEVEN.mean())
