"""What is given to shards is read as it is, once, and checked as data in memory is."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning

from divlearn.cluster import ABKMeans
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import ReferenceEngine
from divlearn.iddl import IDDLClassifier, IDDLRegressor, Recipe
from divlearn.sharded import open_shards
from divlearn.sharded.blocks import open_sources
from divlearn.sharded.opening import open_data

SETTINGS = {
    "cv": None,
    "recipe": Recipe(loss="ridge", penalty=1e-2),
    "random_state": 0,
    "max_iter": 2,
    "n_atoms": 4,
    "divergence": [(1.0, 1.0)],
}


def classifier(**settings):
    return IDDLClassifier(**SETTINGS | settings)


def regressor():
    return IDDLRegressor(**SETTINGS)


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 20, 3, separation=2, random_state=0)


def matrices_of(shards):
    return np.concatenate(shards.map(lambda block: block.data.matrices))


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_what_was_changed_in_a_map_is_seen(tmp_path, data, mode):
    X = data[0]
    np.save(tmp_path / "all.npy", X)
    mapped = np.load(tmp_path / "all.npy", mmap_mode=mode)
    mapped[20:] *= 3
    expected = np.concatenate([X[:20], 3 * X[20:]])
    np.testing.assert_array_equal(matrices_of(open_shards(mapped, block_size=8)), expected)
    np.testing.assert_array_equal(matrices_of(open_shards(mapped[5:], block_size=8)), expected[5:])


@pytest.mark.parametrize("memory_limit", [None, 0])
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_callable_is_called_once(data, columns, memory_limit, temporary_folder):
    X, y = data
    made = []

    def generate():
        for rows in np.array_split(np.arange(len(X)), 12):
            made.append(rows[0])
            yield (X[rows], y[rows], np.ones(len(rows)))[:columns]

    shards = open_shards(generate, memory_limit=memory_limit)
    assert len(list(temporary_folder.rglob("*.pickle"))) == (0 if memory_limit is None else 12)
    for _ in range(3):
        np.testing.assert_array_equal(matrices_of(shards), X)
    assert len(made) == len(shards) == 12
    if columns > 1:
        assert np.concatenate(shards.map(lambda block: block.y)).tolist() == y.tolist()
    del shards
    assert not list(temporary_folder.rglob("*.pickle"))


def test_items_have_targets_for_all_matrices(data):
    X, y = data
    with pytest.raises(ValueError, match="item 1 of the iterator: y has 29 rows, but X has 30"):
        open_shards(lambda: iter([(X[:30], y[:30]), (X[30:], y[31:])]))
    with pytest.raises(TypeError, match="X is an iterator, which can be read once; pass a callab"):
        open_shards(iter([data[0]]))
    with pytest.raises(ValueError, match="the iterator yields nothing"):
        open_shards(lambda: iter([]))


def test_items_may_lack_labels_or_weights_and_shards_may_be_empty(data):
    X, y = data
    expected = ABKMeans(3, random_state=0).fit(lambda: iter([X[:30], X[30:]]))
    parts = [(X[:30], y[:30]), X[30:], X[:0]]
    found = ABKMeans(3, random_state=0).fit(lambda: iter(parts))
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    weighted = [(X[:30], y[:30], np.ones(30)), (X[30:], y[30:])]
    shards = open_shards(lambda: iter(weighted), regularize="shrink")
    assert shards.n_matrices == len(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size=0 must be >= 1"),
        ({"memory_limit": "1.2.3GB"}, "memory_limit='1.2.3GB' must be a number of bytes"),
    ],
)
def test_wrong_sizes_of_blocks(data, options, message):
    with pytest.raises(ValueError, match=message):
        open_shards(data[0], **options)


def test_starts_are_drawn_among_matrices_with_a_weight():
    X, _ = make_wishart_clusters(1, 42_000, 2, random_state=0)
    weights = np.zeros(len(X))
    weights[::4000] = 1  # eleven
    settings = {"random_state": 0, "n_init": 1, "max_iter": 2}
    shards = open_shards(X, None, weights, block_size=15_000)
    drawn, _, shares = shards.sample(10_000, 0)
    np.testing.assert_array_equal(drawn, X[::4000])
    assert shares.tolist() == [1.0] * 11
    assert len(shards.sample(6, 0)[0]) == 3 + 3 + 2  # of 4, 4 and 3
    found = ABKMeans(8, **settings).fit(shards)
    whole = ABKMeans(8, **settings).fit(X, None, weights)
    np.testing.assert_allclose(found.cluster_centers_, whole.cluster_centers_, rtol=1e-8)


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("make", [classifier, regressor])
def test_matrices_without_a_weight_are_no_samples(data, make):
    X, y = data
    few = np.where(np.arange(60) % 20 == 0, 1.0, 0.0)
    with pytest.raises(ValueError, match="n_atoms=4 must be >= 1 and <= n_matrices=3;"):
        make().fit(open_shards(X, y, few, block_size=13), None)


# ---------------------------------------------------------------------- labels


def test_numbers_are_no_classes_even_without_a_weight(data):
    X, _ = data
    y = np.where(np.arange(60) == 50, 0.5, data[1])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        classifier().fit(open_shards(X, y, np.where(y == 0.5, 0.0, 1.0), block_size=13), None)


def test_labels_may_be_a_column(data):
    X, y = data
    expected = classifier().fit(X, y).predict(X)
    shards = open_shards(X, y[:, None], block_size=13)
    with pytest.warns(DataConversionWarning, match="column-vector y") as found:
        fitted = classifier().fit(shards, None)
    assert len(found) == 1
    assert fitted.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(fitted.predict(X), expected)


def test_blocks_of_many_classes_are_nothing_to_warn_of():
    X, _ = make_wishart_clusters(1, 60, 2, random_state=0)
    y = np.tile(np.arange(30), 2)
    shards = open_shards(X, y, block_size=30)
    assert len(classifier().fit(shards, None).classes_) == 30


def test_all_columns_of_dask_arrays_are_targets(data):
    distributed = pytest.importorskip("distributed")
    import dask.array as da

    X, y = data
    targets = np.stack([y, 3 * y, X[:, 0, 0]], axis=1)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with distributed.Client(**options, dashboard_address=":0"):
        shards = open_shards(
            da.from_array(X, chunks=(20, 3, 3)), da.from_array(targets, chunks=(25, 1))
        )
        found = np.concatenate(shards.map(lambda block: block.y))
    np.testing.assert_array_equal(found, targets)


@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_dask_arrays_that_do_not_know_their_rows_say_what_to_call(data, name):
    da = pytest.importorskip("dask.array")
    columns = {"X": data[0], "y": data[1], "sample_weight": np.ones(len(data[0]))}
    known = da.from_array(columns[name])
    columns[name] = known[da.from_array(np.ones(len(known), dtype=bool))]
    with pytest.raises(ValueError, match=rf"^{name} has chunks of .* call {name}.compute_chunk_si"):
        open_sources(**columns, in_files=False)


# ---------------------------------------------------------------------- files


def test_files_that_cannot_be_read_are_named(tmp_path, data):
    np.save(tmp_path / "X.npy", data[0])
    (tmp_path / "short.npy").write_bytes((tmp_path / "X.npy").read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"short\.npy: mmap length is greater than file size"):
        open_shards(tmp_path / "short.npy")
    np.savez(tmp_path / "two.npz", a=data[0], b=data[0])
    with pytest.raises(ValueError, match=r"two\.npz: it holds a, b, must hold X, or one array"):
        open_shards(tmp_path / "two.npz")


@pytest.mark.parametrize("length", [20, 50])
@pytest.mark.parametrize("key", ["y", "sample_weight"])
def test_files_must_have_as_many_rows(tmp_path, data, length, key):
    X, y = data
    np.save(tmp_path / "X.npy", X[:30])
    np.save(tmp_path / "other.npy", y[:length])
    others = {key: [tmp_path / "other.npy"]}
    message = rf"other\.npy has {length} rows of {key}, but .*X\.npy has 30 matrices; pass files"
    with pytest.raises(ValueError, match=message):
        open_shards([tmp_path / "X.npy"], **others, block_size=8)


def test_one_file_of_matrices_with_two_of_labels(tmp_path, data):
    X, y = data
    np.save(tmp_path / "X.npy", X)
    files = [tmp_path / "0.npy", tmp_path / "1.npy"]
    for number, file in enumerate(files):
        np.save(file, y + 10 * number)
    shards = open_shards(2 * [tmp_path / "X.npy"], files, files, block_size=25)
    np.testing.assert_array_equal(matrices_of(shards), np.concatenate([X, X]))
    expected = np.concatenate([y, y + 10])
    weights = expected / expected[expected > 0].mean()
    for name, values in (("y", expected), ("weights", weights)):
        found = np.concatenate(shards.map(lambda block, name=name: getattr(block, name)))
        np.testing.assert_allclose(found, values)


def test_labels_in_files_of_matrices_are_asked_for(tmp_path, data):
    X, y = data
    files = [tmp_path / "0.npz", tmp_path / "1.npz"]
    np.savez(files[0], X=X[:25], y=y[:25])
    np.savez(files[1], X=X[25:], y=y[25:])
    with pytest.raises(ValueError, match=r"no y .pass .* files, those of X again where they hold"):
        classifier().fit(files, None)
    whole, parts = classifier().fit(X, y), classifier().fit(files, files)
    np.testing.assert_allclose(whole._scores(X), parts._scores(X), rtol=1e-8, atol=1e-8)


# ---------------------------------------------------------------------- one seam


def test_all_kinds_of_data_are_opened_by_one_function(tmp_path, data):
    X, _ = data
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    opened = open_shards(X, block_size=13)
    for given in (X, X.tolist(), X.astype(np.float32), mapped, tmp_path / "X.npy", opened):
        shards = open_data(given)
        found = np.concatenate(shards.map(lambda block: block.matrices))
        np.testing.assert_allclose(found, X, rtol=1e-6)
        assert (shards.n_matrices, shards.n_seen, shards.d) == (60, 60, 3)
    assert open_data(opened) is opened


def test_memory_maps_are_read_in_blocks_if_they_are_large(tmp_path, data, monkeypatch):
    X, y = data
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")  # as workers of joblib get an array
    model = IDDLClassifier(cv=2, max_iter=1, random_state=0)
    expected = model.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(model.fit(mapped, y).predict_proba(mapped), expected)
    monkeypatch.setattr("divlearn.sharded.opening._LARGE_MAP", mapped.nbytes - 1)
    with pytest.raises(ValueError, match="cv=2 must be None for data in shards"):
        model.fit(mapped, y)


def test_an_array_in_memory_is_one_block_that_keeps_its_engine(data):
    X, y = data
    engine = ReferenceEngine(1)
    (block,) = open_data(X, y, 2.0, engine=engine).map(lambda block: block)
    assert block.engine is engine
    np.testing.assert_array_equal(block.y, y)
    np.testing.assert_array_equal(block.weights, np.ones(60))
    with pytest.raises(ValueError, match="y has 59 rows, but X has 60 matrices"):
        open_data(X, y[1:])
    with pytest.raises(ValueError, match=r"^X\[3\] has a diagonal entry"):
        open_data(np.where(np.arange(60)[:, None, None] == 3, -X, X))


def test_what_stands_for_all_has_weights(data):
    X, _ = data
    weights = np.where(np.arange(60) % 7, 1.0, 0.0)
    whole = open_data(X)
    assert whole.draw(3) is whole.map(lambda block: block)[0]  # nothing is prepared again
    for shards in (open_data(X, None, weights), open_shards(X, None, weights, block_size=13)):
        np.testing.assert_array_equal(shards.draw(3).matrices, X[weights > 0])


def test_parts_of_a_block_in_memory_stay_prepared(data):
    X, _ = data
    (block,) = open_data(X).map(lambda block: block)
    rows = np.arange(0, 60, 2)
    first = block.take(0, rows)
    assert block.take(0, rows.copy()) is first
    assert block.take(1, np.arange(60)) is block.data
    other = block.take(0, rows + 1)
    np.testing.assert_array_equal(other.matrices, X[1::2])
