"""Loading SPD matrices: every format, layout, name and kind of label comes back as it was."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from spd_files import (
    WRITERS,
    each_format,
    load,
    mat_array,
    mat_header,
    random_spd,
    write_hdf5,
    write_mat,
    write_mat73,
)

from divlearn.files import read_spd
from divlearn.files.matlab_files import is_matlab, open_matlab
from divlearn.files.variables import Refusal
from divlearn.spd import check_spd

X = random_spd()
N = len(X)
CLASSES = np.arange(N) % 3
TEXTS = ["sand", "bark", "é ü", "sand", "bark", ""]


# --- formats and layouts


@pytest.mark.parametrize("axis", [0, -1])
@each_format
def test_round_trip(tmp_path, write, axis):
    data = load(tmp_path, {"X": np.moveaxis(X, 0, axis), "y": CLASSES}, write)
    np.testing.assert_array_equal(data.matrices, X)
    np.testing.assert_array_equal(data.labels, CLASSES)
    assert data.matrices.dtype == np.float64
    assert data.matrices.flags.c_contiguous
    assert data.labels.dtype == np.int64
    assert data.splits is None


def test_labels_of_half_precision(tmp_path):
    np.savez(tmp_path / "data", X=X, y=CLASSES.astype(np.float16))
    np.testing.assert_array_equal(read_spd(tmp_path / "data.npz").labels, CLASSES)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("float32", "float32"),
        ("float16", "float32"),
        (">f4", "float32"),
        (">f8", "float64"),
        ("longdouble", "float64"),
        ("int8", "float64"),
        ("uint64", "float64"),
        ("bool", "float64"),
    ],
)
def test_dtypes_become_float32_or_float64(tmp_path, stored, expected):
    matrices = (np.arange(1, 4)[:, None, None] * np.eye(2)).astype(stored)
    data = load(tmp_path, {"X": matrices})
    assert data.matrices.dtype == expected
    assert data.matrices.dtype.isnative
    np.testing.assert_array_equal(data.matrices, matrices.astype(expected))


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8", "bool", ">i4", ">f8"])
@pytest.mark.parametrize("name", ["mat", "mat compressed", "hdf5", "hdf5 chunked"])
def test_dtypes_of_other_formats(tmp_path, name, dtype):
    matrices = np.broadcast_to(np.eye(3), (4, 3, 3)).astype(dtype)
    data = load(tmp_path, {"X": matrices}, WRITERS[name])
    assert data.matrices.dtype == ("float32" if dtype == "float32" else "float64")
    np.testing.assert_array_equal(data.matrices, matrices.astype(float))


def test_matlab_stores_doubles_as_small_integers(tmp_path):
    # SciPy writes doubles; MATLAB takes the smallest type that holds the values.
    matrices = np.stack([[[3, 1], [1, 2]]] * 3, axis=-1)
    path = tmp_path / "data.mat"
    path.write_bytes(mat_header() + mat_array("X", matrices, kind=2, stored="u1"))
    np.testing.assert_array_equal(read_spd(path).matrices, [[[3, 1], [1, 2]]] * 3)
    np.testing.assert_array_equal(scipy.io.loadmat(path)["X"], matrices)


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_holds_matrices_only(tmp_path, order):
    np.save(tmp_path / "data.npy", np.asarray(X, order=order))
    data = read_spd(str(tmp_path / "data.npy"))
    np.testing.assert_array_equal(data.matrices, X)
    assert data.labels is None


@each_format
def test_a_cube_is_turned_until_it_is_symmetric(tmp_path, write):
    cube = random_spd(4, 4)
    for axis in (0, -1):
        np.testing.assert_array_equal(
            load(tmp_path, {"X": np.moveaxis(cube, 0, axis)}, write).matrices, cube
        )


def test_cubes_that_are_symmetric_both_ways_and_no_way(tmp_path):
    both = np.ones((2, 2, 2))
    both[[0, 1], [0, 1], [0, 1]] = 4
    np.testing.assert_array_equal(load(tmp_path, {"X": both}).matrices, both)
    neither = random_spd(3, 3)
    neither[0, 0, 1] = 9
    neither[0, 1, 2] = 9
    with pytest.raises(ValueError, match=r"^data: X \(3, 3, 3\) .* three equal axes, and its"):
        load(tmp_path, {"X": neither})
    load(tmp_path, {"X": np.ones((1, 1, 1))})


# --- labels


@pytest.mark.parametrize(
    ("labels", "expected", "dtype"),
    [
        (CLASSES.astype("u1"), CLASSES, "int64"),
        (CLASSES[:, None].astype("f4"), CLASSES, "int64"),
        (CLASSES[None, :] * 1.0, CLASSES, "int64"),
        (CLASSES + 0.5, CLASSES + 0.5, "float64"),
        (CLASSES * 1e18, CLASSES * 10**18, "int64"),
        (CLASSES * 1e300, CLASSES * 1e300, "float64"),
        (
            CLASSES.astype("u8") + np.uint64(2**64 - 9),
            CLASSES.astype("u8") + np.uint64(2**64 - 9),
            "uint64",
        ),
        (CLASSES > 1, CLASSES > 1, "bool"),
        (np.array(TEXTS), TEXTS, "<U4"),
        (np.array([text.encode() for text in TEXTS]), TEXTS, "<U4"),
    ],
)
def test_kinds_of_labels(tmp_path, labels, expected, dtype):
    found = load(tmp_path, {"X": X, "y": labels}).labels
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == dtype
    assert found.shape == (N,)


@pytest.mark.parametrize("name", ["mat", "mat compressed"])
@pytest.mark.parametrize("labels", [TEXTS, np.array(TEXTS, object), np.array([TEXTS], object)])
def test_text_of_matlab_as_char_array_or_cells(tmp_path, name, labels):
    found = load(tmp_path, {"X": X, "y": labels}, WRITERS[name]).labels
    assert found.tolist() == TEXTS


def test_text_of_hdf5_of_any_and_of_fixed_length(tmp_path):
    assert load(tmp_path, {"X": X, "y": TEXTS}, write_hdf5).labels.tolist() == TEXTS
    encoded = [text.encode() for text in TEXTS]
    for name in ("hdf5", "hdf5 chunked"):
        arrays = {"X": X, "y": np.array(encoded)}
        assert load(tmp_path, arrays, WRITERS[name]).labels.tolist() == TEXTS
    many = np.array([f"class {i}" * (i % 7) for i in range(3000)])
    arrays = {"X": np.ones((3000, 1, 1)), "y": many.astype(object)}
    for name in ("hdf5", "hdf5 chunked"):
        assert load(tmp_path, arrays, WRITERS[name]).labels.tolist() == many.tolist()


def test_text_of_matlab_73_is_a_char_array(tmp_path):
    width = max(map(len, TEXTS))
    codes = np.array([[ord(letter) for letter in text.ljust(width)] for text in TEXTS], np.uint16)
    assert load(tmp_path, {"X": X, "y": codes}, write_mat73).labels.tolist() == TEXTS


@pytest.mark.parametrize("word", ["char", np.bytes_("uint16"), np.array([b"char"]), 4])
def test_numbers_stay_numbers_without_the_attribute_of_matlab(tmp_path, word):
    write_hdf5(tmp_path / "data", {"X": X, "y": CLASSES.astype("u2")})
    with pytest.importorskip("h5py").File(tmp_path / "data", "r+") as store:
        store["y"].attrs["MATLAB_class"] = word
    np.testing.assert_array_equal(read_spd(tmp_path / "data").labels, CLASSES)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.arange(5), r"y \(5,\) int64 must have one label for each of 6 matrices; save labels"),
        (np.ones((N, 3)), r"y \(6, 3\) float64 must have one label"),
        (np.ones((3, 2)), r"y \(3, 2\) float64 must have one label"),
        (np.array(1.0), r"y \(\) float64 must have one label"),
        (np.zeros(0), r"y \(0,\) float64 must have one label"),
        (np.arange(N) * 1j, r"y \(6,\) complex128 must hold numbers or text"),
        (np.array([1, 2, np.nan, 1, 2, 1]), r"y\[2\] is nan; drop matrices without a label"),
        (np.array([1, np.inf, 2, 1, 2, 1]), r"y\[1\] is inf; drop matrices without a label"),
        (np.array([b"a", b"\xff"] * 3), "UnicodeDecodeError"),
    ],
)
def test_bad_labels(tmp_path, labels, message):
    with pytest.raises(ValueError, match=f"^data: .*{message}"):
        load(tmp_path, {"X": X, "y": labels})


# --- validation, arguments, real data


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (-np.eye(4), r"X_test\[1\] has a diagonal entry"),
        (np.ones((4, 4)), r"X_test\[1\] is rank-deficient"),
        (np.full((4, 4), np.nan), r"X_test\[1\] has a NaN entry"),
        (np.triu(X[0]), r"X_test\[1\] is not symmetric"),
    ],
)
@each_format
def test_bad_matrices_are_named(tmp_path, write, bad, message):
    test = X[3:].copy()
    test[1] = bad
    with pytest.raises(ValueError, match=f"^data: {message}"):
        load(tmp_path, {"X_train": X, "X_test": test}, write)


def test_the_training_part_says_how_both_are_regularized(tmp_path):
    matrices = X.copy()
    matrices[2] = 1
    data = load(tmp_path, {"X": matrices}, regularize=0.1)
    np.testing.assert_array_equal(data.matrices, check_spd(matrices, regularize=0.1))
    data = load(tmp_path, {"X_train": matrices, "X_test": 100 * matrices}, regularize=0.1)
    level = 0.1 * np.trace(matrices, axis1=1, axis2=2).mean() / 4 * np.eye(4)
    np.testing.assert_allclose(data.matrices[:6], 0.9 * matrices + level)
    np.testing.assert_allclose(data.matrices[6:], 90 * matrices + level)
    with pytest.raises(ValueError, match='regularize=\'fix\' must be "raise", "shrink" or'):
        load(tmp_path, {"X": X}, regularize="fix")


@pytest.mark.parametrize(
    ("limit", "error"),
    [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError), ("1", TypeError)],
)
def test_bad_limits(tmp_path, limit, error):
    with pytest.raises(error, match=r"^limit=.* must be .*, a number of bytes"):
        load(tmp_path, {"X": X}, limit=limit)


@each_format
def test_the_limit_counts_all_that_is_loaded(tmp_path, write):
    arrays = {"X": X, "y": CLASSES * 1.0, "not_loaded": np.ones(10_000)}
    n_bytes = X.nbytes + 8 * N
    np.testing.assert_array_equal(load(tmp_path, arrays, write, limit=n_bytes).matrices, X)
    message = rf"^data: X .* and y .* would take {n_bytes} bytes, more than the {n_bytes - 1} that "
    with pytest.raises(ValueError, match=message):
        load(tmp_path, arrays, write, limit=n_bytes - 1)


@pytest.mark.parametrize("write_hdf5_kind", [write_hdf5, write_mat73])
def test_without_h5py_the_extra_is_named(tmp_path, uninstall, write_hdf5_kind):
    write_hdf5_kind(tmp_path / "data", {"X": X})
    uninstall("h5py")
    with pytest.raises(ImportError, match=r'needs h5py: pip install "divlearn\[files\]"'):
        read_spd(tmp_path / "data")
    write_mat(tmp_path / "data", {"X": X})
    read_spd(tmp_path / "data")


def test_what_matlab_wrote_passes_the_checks():
    """SciPy's collection: every array of numbers or text is read as SciPy reads it."""
    n_read = 0
    for path in sorted(
        (Path(scipy.io.matlab.__file__).parent / "tests" / "data").glob("test*.mat")
    ):
        content = path.read_bytes()
        if not is_matlab(content[:128]):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = scipy.io.loadmat(path, mat_dtype=True)
        with open_matlab(io.BytesIO(content), len(content)) as variables:
            assert variables, path.name
            for variable in variables:
                if variable.refusal or "cell" in variable.name:
                    continue
                peer = expected[variable.name]
                if "complex" in variable.name:
                    with pytest.raises(Refusal, match="is complex, must be real"):
                        variable.read(2**20)
                    continue
                # SciPy keeps the blanks that pad the rows of a char array.
                peer = np.char.rstrip(peer) if peer.dtype.kind == "U" else peer
                found = variable.read(2**20).astype(peer.dtype)
                np.testing.assert_array_equal(found, peer, strict=True)
                n_read += 1
    assert n_read > 20


def test_a_file_that_others_published():
    folder = os.environ.get("DIVLEARN_DATA")
    if folder is None:
        pytest.skip("DIVLEARN_DATA is not set")
    path = Path(folder) / "kth_tips2_authors" / "demo_dataset.mat"
    if not path.exists():
        pytest.skip("DIVLEARN_DATA has no kth_tips2_authors")
    data = read_spd(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = scipy.io.loadmat(path)
    expected = np.concatenate([np.moveaxis(peer[f"X_{part}"], -1, 0) for part in ("train", "test")])
    np.testing.assert_array_equal(data.matrices, 0.5 * expected + 0.5 * expected.mT)
    labels = np.concatenate([peer[f"{part}_labels"].ravel() for part in ("train", "test")])
    np.testing.assert_array_equal(data.labels, labels)
    assert [len(part) for part in data.splits] == [300, 60]
