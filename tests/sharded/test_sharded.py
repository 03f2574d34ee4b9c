"""Shards on one machine: where they come from, and results equal to those of data in memory."""

from __future__ import annotations

import numpy as np
import pytest
from iddl_problems import start_features

from divlearn.cluster import ABKMeans
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import get_engine
from divlearn.heads.losses import LOSSES
from divlearn.iddl import IDDLClassifier, Recipe
from divlearn.iddl.atoms import Dictionary, make_variant
from divlearn.iddl.objective import Objective, Settings
from divlearn.iddl.stochastic import _spread
from divlearn.sharded import encode, open_shards
from divlearn.sharded.opening import open_data
from divlearn.weights import column_moments, merge_moments

MINIBATCHES = Recipe(loss="softmax", solver="stochastic", penalty=1e-2)
SETTINGS = {
    "cv": None,
    "recipe": Recipe(loss="ridge", penalty=1e-2),
    "random_state": 0,
    "max_iter": 2,
    "n_atoms": 4,
    "divergence": [(1.0, 1.0)],
}


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 20, 3, separation=2, random_state=0)
    weights = np.random.RandomState(0).uniform(size=len(X))
    weights[7] = 0
    return X, y, weights


def close(first, second, tolerance=1e-8):
    np.testing.assert_allclose(first, second, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------- where shards come from


def sources(folder, X):
    import zarr

    np.save(folder / "all.npy", X)
    files = []
    for i, part in enumerate(np.array_split(X, 3)):
        files.append(folder / f"{i}.npz")
        np.savez(files[-1], X=part, y=np.arange(len(part)))
    zarr.save(folder / "all.zarr", X)
    mapped = np.load(folder / "all.npy", mmap_mode="r")
    return {
        "array": X,
        "list": X.tolist(),
        "map": mapped,
        "file": folder / "all.npy",
        "files": files,
        "zarr": str(folder / "all.zarr"),
        "zarr array": zarr.open(folder / "all.zarr", mode="r"),
        "iterator": lambda: iter(np.array_split(X, 4)),
    }


@pytest.mark.parametrize("memory_limit", [None, 2000])
def test_all_sources_hold_the_same(tmp_path, data, memory_limit):
    X = data[0]
    for name, source in sources(tmp_path, X).items():
        shards = open_shards(source, block_size=8, memory_limit=memory_limit)
        assert len(shards) > 2, name
        for _ in range(2):  # what is read again is the same
            np.testing.assert_array_equal(
                np.concatenate(shards.map(lambda block: block.data.matrices)), X, err_msg=name
            )


def test_views_of_memory_maps_are_read_where_they_lie(tmp_path, data):
    X = data[0]
    np.save(tmp_path / "all.npy", X)
    mapped = np.load(tmp_path / "all.npy", mmap_mode="r")
    shards = open_shards(mapped[5:40][3:], block_size=7)
    found = np.concatenate(shards.map(lambda block: block.data.matrices))
    np.testing.assert_array_equal(found, X[8:40])


def test_labels_of_files_stay_with_their_matrices(tmp_path, data):
    X = data[0]
    files = sources(tmp_path, X)["files"]
    shards = open_shards(files, files, block_size=8)
    assert np.concatenate(shards.map(lambda block: block.y)).tolist() == 3 * list(range(20))


def test_errors_name_the_shard_and_the_index(data):
    X, y, _ = data
    bad = X.copy()
    bad[43] = -bad[43]
    with pytest.raises(ValueError, match=r"shard 2 \(X\[40:60\]\), X\[3\] has a diagonal entry"):
        open_shards(bad, block_size=20)
    bad = X.copy()
    bad[21, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"shard 1 .*X\[1\] has a NaN entry"):
        open_shards(bad, block_size=20)
    with pytest.raises(ValueError, match="y has 59 rows, but X has 60"):
        open_shards(X, y[:-1])
    with pytest.raises(ValueError, match="shard 1 has matrices of size 2"):
        open_shards(lambda: iter([X, X[:, :2, :2]]))
    with pytest.raises(ValueError, match=r"^sample_weight\[2\] = -1.0 must be >= 0"):
        open_shards(X, y, np.where(np.arange(60) == 2, -1.0, 1.0))
    with pytest.raises(ValueError, match="memory_limit='much'"):
        open_shards(X, memory_limit="much")
    with pytest.raises(ValueError, match="is not a shard"):
        open_shards("data.csv")


def test_results_beyond_the_memory_limit_are_in_files_until_they_are_dropped(
    data, temporary_folder
):
    X = data[0]
    shards = open_shards(X, block_size=8, memory_limit=1500)
    held = shards.hold(lambda block: block.data.matrices)
    assert len(list(temporary_folder.rglob("*.pickle"))) == len(shards) == 8
    for _ in range(2):
        found = shards.map(lambda _, matrices: matrices, parts=[held])
        np.testing.assert_array_equal(np.concatenate(found), X)
    del held
    assert not list(temporary_folder.rglob("*.pickle"))


def test_sums_have_one_order():
    for count in (1, 7, 8, 9, 64, 65, 100):
        shards = open_shards(np.ones((count, 1, 1)), block_size=1)
        joined = shards.reduce(lambda block: f"{block.number} ", merge=lambda a, b: f"({a}{b})")
        assert joined.replace("(", "").replace(")", "").split() == list(map(str, range(count)))
    both = open_shards(np.ones((2, 1, 1)), block_size=1)
    sums = both.reduce(lambda block: (block.number, None, (block.number + 1.0, 4)))
    assert sums == (1, None, (3.0, 8))


def test_moments_are_those_of_all_rows():
    random = np.random.RandomState(0)
    rows, weights = 1e6 + random.normal(size=(50, 3)), random.uniform(size=50)
    weights[:10] = 0
    cut = open_shards(np.ones((50, 1, 1)), block_size=10)
    parts = [np.split(rows, 5), np.split(weights, 5)]
    weight, mean, squares = cut.reduce(
        lambda _, part, some: column_moments(part, some), parts=parts, merge=merge_moments
    )
    expected = np.diag(np.cov(rows.T, aweights=weights, ddof=0))
    np.testing.assert_allclose(mean, np.average(rows, axis=0, weights=weights), rtol=1e-14)
    np.testing.assert_allclose(squares / weight, expected, rtol=1e-8)


def test_codes_are_gathered_or_held(data):
    X, _, _ = data
    expected = get_engine().encode(X, X[:4], 1.0, [0.0, 0.5, 1.0, 2.0])
    arguments = (X, X[:4], 1.0, [0.0, 0.5, 1.0, 2.0])
    close(encode(*arguments, block_size=7), expected, 1e-12)
    close(np.concatenate(encode(*arguments, block_size=7, gather=False)), expected, 1e-12)


# ---------------------------------------------------------------------- the objective


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize(("bias", "plain"), [(True, False), (False, False), (True, True)])
def test_objective_and_gradient_are_those_of_data_in_memory(data, loss, bias, plain):
    X, y, weights = data
    engine = get_engine()
    shares = weights / weights.sum()
    solver = LOSSES[loss](bias)
    solver.tolerance = 1e-12  # so that heads of hinges agree in all digits
    variant = make_variant([(1.0, 0.5), (0.5, 0.0)], 3)
    V = engine.encode(X, X[:3], *variant.expand(variant.start)).reshape(len(X), -1)
    features = start_features(V, shares, plain=plain)
    known = variant, features, Settings(solver, 1e-2)
    wanted = np.eye(3)[y]
    whole = Objective(open_data(X), [(wanted, shares)], *known)
    cut = [slice(i, i + 9) for i in range(0, len(X), 9)]
    targets = [(wanted[rows], shares[rows]) for rows in cut]
    parts = Objective(open_shards(X, block_size=9), targets, *known)
    point = Dictionary(np.linalg.cholesky(X[:3]), variant.start)
    one, other = whole.trial(point), parts.trial(point)
    close(one.value, other.value, 1e-10)
    close(whole.gradient(one), parts.gradient(other))
    for mine, theirs in zip(_spread(whole, one)[:2], _spread(parts, other)[:2], strict=True):
        close(mine, theirs)


# ---------------------------------------------------------------------- estimators


def test_minibatches_of_one_block_are_those_of_data_in_memory(data):
    X, y, weights = data
    settings = SETTINGS | {"recipe": MINIBATCHES, "max_iter": 1}
    whole = IDDLClassifier(**settings).fit(X, y, weights)
    parts = IDDLClassifier(**settings).fit(open_shards(X, y, weights, accuracy=1e-6), None)
    close(whole.atoms_, parts.atoms_)
    close(whole.history_["objective"], parts.history_["objective"])
    cut = {"block_size": 25, "accuracy": 1e-6}
    kept = IDDLClassifier(**settings).fit(open_shards(X, y, weights, **cut), None)
    read = IDDLClassifier(**settings).fit(open_shards(X, y, weights, memory_limit=100, **cut), None)
    assert np.array_equal(kept.atoms_, read.atoms_)
    assert not np.array_equal(kept.atoms_, parts.atoms_)


@pytest.mark.parametrize(
    "settings",
    [
        {"recipe": Recipe(penalty=1e-2)},
        {"recipe": Recipe(loss="ridge")},
        {"divergence": "N"},
        {"recipe": Recipe(loss="ridge", solver="bcd", penalty=1e-2), "max_iter": 1},
    ],
    ids=str,
)
def test_settings_are_chosen_as_for_data_in_memory(data, settings):
    X, y, weights = data
    settings = SETTINGS | settings
    whole = IDDLClassifier(**settings).fit(X, y, weights)
    shards = open_shards(X, y, weights, block_size=25, accuracy=1e-6)
    parts = IDDLClassifier(**settings).fit(shards, None)
    assert (whole.loss_, whole.penalty_) == (parts.loss_, parts.penalty_)
    close(whole.atoms_, parts.atoms_, 1e-6)
    close(whole.predict_proba(X), parts.predict_proba(shards), 1e-6)


def test_models_of_folds_need_data_in_memory(data):
    X, y, _ = data
    with pytest.raises(ValueError, match=r"cv=4 must be None for data in shards.*set cv=None"):
        IDDLClassifier(**SETTINGS | {"cv": 4}).fit(open_shards(X, y), None)
    with pytest.raises(ValueError, match="groups must be None for data in shards"):
        IDDLClassifier(**SETTINGS).fit(open_shards(X, y), None, groups=y)


@pytest.mark.parametrize(
    ("divergence", "init"),
    [
        ((0.5, 1.5), "tangent"),
        ((1.5, 1.5), "k-means++"),
        ((1.0, 0.0), "random"),
        ("learn", None),
        ("likelihood", "tangent"),
        ("paper-tied", "log-euclidean"),
    ],
)
def test_clusters_are_those_of_data_in_memory(data, divergence, init):
    X, _, weights = data
    n_init = 2 if init == "random" else 1
    if init is None:  # most of these lose all their matrices, and are moved
        init = np.stack([np.eye(3) * size for size in (1.0, 1e6, 1e7, 1e8)])
    settings = {"init": init, "n_init": n_init, "max_iter": 1, "random_state": 0}
    whole = ABKMeans(4, divergence, **settings).fit(X, None, weights)
    shards = open_shards(X, None, weights, block_size=13)
    parts = ABKMeans(4, divergence, **settings).fit(shards)
    close(whole.cluster_centers_, parts.cluster_centers_)
    assert (whole.labels_ == parts.labels_).all()
    assert whole.n_iter_ == parts.n_iter_
    close(whole.history_["objective"], parts.history_["objective"])
    assert (parts.predict(shards) == parts.labels_).all()
    close(parts.transform(shards), whole.transform(X))
