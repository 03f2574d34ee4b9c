"""What cells compute, beside SciPy and scikit-learn."""

import numpy as np
import pytest
from scipy.linalg import eigvalsh, logm
from scipy.stats import t as student
from sklearn.linear_model import Ridge
from sklearn.metrics import pair_confusion_matrix
from sklearn.neighbors import KNeighborsClassifier

from divlearn.datasets import make_wishart_clusters
from paper.classification import make_split, measure_accuracy
from paper.clustering import measure_clusters
from paper.comparison import accuracy_of, mean_of
from paper.data import load_data, pack
from paper.experiments.convergence import trace_objective
from paper.experiments.gradient_time import measure_gradient, ridge_slopes
from paper.experiments.heat_map import count_right, map_accuracy
from paper.experiments.joint_learning import paired_gain
from paper.experiments.trajectories import follow
from paper.methods import make_classifier, make_clustering
from paper.protocol import Limits
from paper.tests.tiny import make_data

LIMITS, EVERYTHING = Limits(3, 14, 4), Limits()
HARD = make_wishart_clusters(3, 60, 3, separation=1.5, random_state=5)


@pytest.fixture(scope="module")
def data():
    return make_data(0)


@pytest.fixture(scope="module")
def hard():
    """Classes that overlap, so that an accuracy is neither 0 nor 1."""
    dataset = make_data(0)
    dataset.stored, dataset.labels = HARD
    return dataset


# --- splits ---------------------------------------------------------------------------------------


def test_splits_are_those_of_the_data_and_more(data):
    """More splits begin with those that fewer would be."""
    for seed, expected in enumerate(data.splits(n=4)):
        for part, rows in zip(make_split(data, seed, Limits()), expected, strict=True):
            np.testing.assert_array_equal(part, rows)
    official = make_data(0)
    official.official_splits = tuple(data.splits())
    np.testing.assert_array_equal(make_split(official, 3, Limits())[1], data.splits()[1][1])


def test_limits_draw_from_the_parts_of_the_split(data):
    whole, some = make_split(data, 1, Limits()), make_split(data, 1, Limits(2, 3, 2))
    for part, drawn, size in zip(whole, some, (3, 2), strict=True):
        assert set(drawn) <= set(part)
        labels, counts = np.unique(data.labels[drawn], return_counts=True)
        assert (labels.tolist(), counts.tolist()) == ([0, 1], [size, size])


# --- accuracies -----------------------------------------------------------------------------------


def accuracy(dataset, method, limits=EVERYTHING, seed=0, **settings):
    given = {"seed": seed, "limits": limits, "method": method, "settings": settings}
    return measure_accuracy(dataset, "auto", **given)


def geodesic(A: np.ndarray, B: np.ndarray) -> float:
    return float(np.sqrt((np.log(eigvalsh(A, B)) ** 2).sum()))


def jbld(A: np.ndarray, B: np.ndarray) -> float:
    det = np.linalg.det
    return float(np.log(det((A + B) / 2)) - np.log(det(A) * det(B)) / 2)


@pytest.mark.parametrize(("method", "distance"), [("AIRM 1-NN", geodesic), ("JBLD 1-NN", jbld)])
def test_nearest_neighbours_by_hand(method, distance, hard):
    train, test = make_split(hard, 0, Limits(3, 20, 10))
    X, y = hard.matrices, hard.labels
    nearest = [train[np.argmin([distance(X[i], X[j]) for j in train])] for i in test]
    found = accuracy(hard, method, Limits(3, 20, 10))
    assert found["accuracy"] == (y[nearest] == y[test]).mean()
    assert 0.4 < found["accuracy"] < 1
    assert found["n_test"] == 30


def test_log_euclidean_neighbours_are_scikit_learns(hard):
    train, test = make_split(hard, 1, Limits())
    vectors = np.array([logm(A).ravel() for A in hard.matrices])
    model = KNeighborsClassifier(1).fit(vectors[train], hard.labels[train])
    found = accuracy(hard, "LE 1-NN", seed=1)
    assert found["accuracy"] == model.score(vectors[test], hard.labels[test])
    assert 0.4 < found["accuracy"] < 1


def test_set_ups_of_the_paper(data):
    """Its text chooses gamma; its code has 10 in units of the number of matrices."""
    code = {"atoms_per_class": 1, "code": True, "iterations": 1}
    assert accuracy(data, "IDDL-V", **code)["gamma"] == pytest.approx(10 / 43)
    text = {"atoms_per_class": 1, "solver": "joint", "iterations": 1}
    assert accuracy(data, "IDDL-B", **text)["gamma"] in (1e-3, 1e-2, 1e-1, 1.0)
    started = make_classifier("IDDL-S", {"atoms": 3, "start": [0.5, 1.5]}, 0, 3)
    assert started.recipe.start == (0.5, 1.5)


def test_a_paired_gain_is_over_common_splits():
    ours = [{"seed": s, "accuracy": a} for s, a in enumerate((0.8, 0.7, 0.9, 0.2))]
    others = [{"seed": s, "accuracy": a} for s, a in enumerate((0.7, 0.7, 0.7))]
    gain, p = paired_gain(ours, others)
    assert gain == pytest.approx((10, 10 / 3**0.5))
    assert p == pytest.approx(2 * student(2).sf(3**0.5))
    assert paired_gain(ours, others[:1]) == (None, None)
    assert paired_gain(ours, ours)[1] == 1


def test_packed_data_is_the_same(data, tmp_path):
    official = make_data(1)
    official.official_splits = tuple(official.splits())
    pack({"virus": data, "kth": official}, tmp_path)
    found = load_data(tmp_path, ["virus", "kth", "brodatz"])
    assert list(found) == ["virus", "kth"]
    for given, one in ((data, found["virus"]), (official, found["kth"])):
        assert one.digest() == given.digest()
        for split, expected in zip(one.splits(), given.splits(), strict=True):
            np.testing.assert_array_equal(np.concatenate(split), np.concatenate(expected))


def test_errors_over_test_sets_and_on_one():
    split = [{"accuracy": a, "n_test": 100, "test": t} for a, t in ((0.5, "a"), (0.7, "b"))]
    assert accuracy_of(split) == pytest.approx((60, 10))  # deviation 0.1414 over sqrt(2)
    same = [one | {"test": "a"} for one in split]
    assert accuracy_of(same) == pytest.approx((60, 100 * (0.6 * 0.4 / 100) ** 0.5))
    assert accuracy_of([]) is None
    assert mean_of([1.0, 3.0]) == pytest.approx((2, 1))


# --- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1e-1, 1e-4])
def test_the_ridge_head_is_scikit_learns(gamma):
    rng = np.random.default_rng(0)
    V, W = rng.random((40, 5)), rng.random((200, 5))
    codes, truth = rng.integers(0, 3, 40), rng.integers(0, 3, 200)
    model = Ridge(alpha=2 * gamma * len(V), fit_intercept=False).fit(V, np.eye(3)[codes])
    expected = (model.predict(W).argmax(axis=1) == truth).sum()
    assert count_right(V, codes, W, truth, gamma) == expected


def test_the_map_has_named_points(hard):
    found = map_accuracy(hard, "auto", limits=Limits(), n_atoms=6, step=1.0)
    assert found["grid"].tolist() == [0, 1, 2]
    assert found["accuracy"].shape == (3, 3)
    counts = found["accuracy"] * found["n_test"]
    np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
    assert 0.5 < found["accuracy"].max() < 1


def test_descents_fall_block_by_block(data):
    settings = {"atoms_per_class": 1, "iterations": 2, "start": [1.0, 1.0], "gamma": 0.1}
    found = trace_objective(data, "auto", limits=LIMITS, settings=settings)
    assert (np.diff(found["objective"]) <= 1e-9).all()
    assert found["block"].tolist() == ["start", *["atoms", "parameters", "head"] * 2]


def test_trajectories_of_fewer_iterations_are_their_beginning(data):
    """The training accuracies rest on that."""
    long, short = (
        follow(data, "auto", limits=LIMITS, start=(0.5, 1.5), n_atoms=3, iterations=n)
        for n in (4, 2)
    )
    assert (long["alpha"][0], long["beta"][0]) == (0.5, 1.5)
    assert (long["stops"], short["stops"]) == ([0, 1, 2, 4], [0, 1, 2])
    for name in ("alpha", "beta", "objective"):
        np.testing.assert_array_equal(long[name][:3], short[name])
    assert long["train_accuracy"][:3] == short["train_accuracy"]
    assert (np.diff(long["objective"]) <= 1e-9).all()


def test_slopes_of_the_timed_objective_by_finite_differences():
    rng = np.random.default_rng(0)
    V, targets = rng.random((12, 3)), np.eye(2)[rng.integers(0, 2, 12)]

    def objective(V: np.ndarray) -> float:
        model = Ridge(alpha=2e-3 * len(V), solver="svd").fit(V, targets)
        squares = ((targets - model.predict(V)) ** 2).sum()
        return squares / (2 * len(V)) + 1e-3 * (model.coef_**2).sum()

    step, slopes = 1e-5, np.empty_like(V)
    for index in np.ndindex(V.shape):
        move = np.zeros_like(V)
        move[index] = step
        slopes[index] = (objective(V + move) - objective(V - move)) / (2 * step)
    np.testing.assert_allclose(ridge_slopes(V, targets), slopes, atol=1e-8)


def test_gradients_take_time():
    assert measure_gradient(None, "auto", d=3, n_atoms=2, rounds=1)["seconds"] > 0


# --- clusters -------------------------------------------------------------------------------------


def test_f1_counts_pairs():
    X, _ = HARD
    y = np.repeat(["a", "b", "c"], 60)
    found = measure_clusters(X, y, "LE", 0)
    labels = make_clustering("LE", 3, 0).fit(X).labels_
    (_, false), (missed, true) = pair_confusion_matrix(y, labels)
    assert found["f1"] == pytest.approx(2 * true / (2 * true + false + missed))
    assert 0.3 < found["f1"] < 1


def test_distant_clusters_are_found_and_blocks_timed():
    X, y = make_wishart_clusters(3, 20, 3, separation=40, random_state=0)
    found = measure_clusters(X, y, "E", 0)
    assert found["f1"] == found["matched_f1"] == 1
    assert set(found["block_seconds"]) == {"start", "centroids", "parameters", "assignment"}
    assert len(found["objective"]) == len(found["block"]) == len(found["alpha"])
