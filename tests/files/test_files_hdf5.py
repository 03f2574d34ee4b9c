"""Ordinary HDF5 files of every kind: filters, layouts, versions of the format, and groups."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.io
from spd_files import random_spd

from divlearn.files import read_spd

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

X = random_spd(12)
Y = np.arange(12) % 3
CHUNKS = {"chunks": (5, 4, 3)}  # that do not fill the array
OPTIONS = {
    "contiguous": {},
    "chunked": CHUNKS,
    "gzip": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf", **CHUNKS},
    "fletcher32": {"fletcher32": True, **CHUNKS},
    "all of them": {"compression": "gzip", "shuffle": True, "fletcher32": True, **CHUNKS},
    "resizable": {"maxshape": (None, 4, 4)},
    "resizable everywhere": {"maxshape": (None, None, None), **CHUNKS},
}


@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
@pytest.mark.parametrize("name", OPTIONS)
def test_ordinary_files(tmp_path, name, libver):
    with h5py.File(tmp_path / "data", "w", libver=libver) as store:
        store.create_dataset("X", data=X, **OPTIONS[name])
        store["y"] = Y
    found = read_spd(tmp_path / "data")
    np.testing.assert_array_equal(found.matrices, X)
    np.testing.assert_array_equal(found.labels, Y)


def test_text_is_utf8_whatever_the_file_says(tmp_path):
    """Bytes that a program stores are marked as ASCII."""
    states = ["Füße", "rest", "日本"] * 9
    with h5py.File(tmp_path / "data", "w") as store:
        store["X"] = X
        store["y"] = [name.encode() for name in states[: len(X)]]
    assert read_spd(tmp_path / "data").labels.tolist() == states[: len(X)]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_scale_and_offset(tmp_path, libver):
    """Integers without loss, and floats up to the digits that are kept."""
    counts = np.rint(1000 * X).astype(np.int32)
    for scale, matrices, atol in ((0, counts, 0), (6, X, 1e-6)):
        with h5py.File(tmp_path / "data", "w", libver=libver) as store:
            store.create_dataset("X", data=matrices, scaleoffset=scale, chunks=(5, 4, 4))
        np.testing.assert_allclose(read_spd(tmp_path / "data").matrices, matrices, 0, atol)


def test_arrays_in_the_header_and_floats_of_other_makes(tmp_path):
    compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    compact.set_layout(h5py.h5d.COMPACT)
    odd = h5py.h5t.IEEE_F64LE.copy()
    odd.set_ebias(1000)
    space = h5py.h5s.create_simple(X.shape)
    for kind, properties in ((h5py.h5t.IEEE_F64BE, compact), (odd, None)):
        with h5py.File(tmp_path / "data", "w") as store:
            made = h5py.h5d.create(store.id, b"X", kind, space, properties)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, X)
        np.testing.assert_array_equal(read_spd(tmp_path / "data").matrices, X)


# --- groups


def test_arrays_inside_groups(tmp_path):
    with h5py.File(tmp_path / "data", "w", libver="latest") as store:
        store["subject 1/session/X"] = X
        store["subject 1/y"] = [f"class {code}" for code in Y]
        store["subject 1/info/weights"] = np.ones(3)
        for number in range(20):  # many links are stored otherwise
            store[f"more/{number}"] = number
        store["subject 1/above"] = store["/"]  # a circle for those who follow links
    found = read_spd(tmp_path / "data")
    np.testing.assert_array_equal(found.matrices, X)
    assert found.labels.tolist() == [f"class {code}" for code in Y]
    for name in ("X", "subject 1/session/X", "/subject 1/session/X"):
        np.testing.assert_array_equal(read_spd(tmp_path / "data", matrices=name).matrices, X)


def test_names_that_are_not_unique(tmp_path):
    with h5py.File(tmp_path / "data", "w") as store:
        for part, factor in (("left", 1), ("right", 2)):
            store[f"{part}/X"] = factor * X
            store[f"{part}/y"] = factor * Y
    with pytest.raises(ValueError, match="'left/X', 'right/X' could be the matrices; choose with"):
        read_spd(tmp_path / "data")
    found = read_spd(tmp_path / "data", matrices="right/X", labels="right/y")
    np.testing.assert_array_equal(found.matrices, 2 * X)
    np.testing.assert_array_equal(found.labels, 2 * Y)
    with pytest.raises(
        ValueError, match=r"matrices='X' is not in it; it holds 'left/X' \(12, 4, 4"
    ):
        read_spd(tmp_path / "data", matrices="X")


def test_only_what_is_asked_for_is_read(tmp_path):
    """The others would take more memory than there is."""
    with h5py.File(tmp_path / "data", "w") as store:
        store["X"], store["y"] = X, Y
        store.create_dataset("huge", (2**40,), "f8", chunks=(2**10,))[0] = 1
    np.testing.assert_array_equal(read_spd(tmp_path / "data").matrices, X)


# --- MATLAB 7.3


def test_structs_of_matlab_are_groups_and_its_own_are_passed_over(tmp_path):
    path = tmp_path / "data.mat"
    with h5py.File(path, "w", userblock_size=512) as store:
        store["experiment/X"], store["experiment/y"] = X.T, Y[None] * 1.0
        store["#refs#/a"], store["#subsystem#/MCOS"] = X, X
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    with pytest.raises(NotImplementedError, match="HDF reader"):
        scipy.io.loadmat(path)
    found = read_spd(path)
    np.testing.assert_array_equal(found.matrices, X)
    np.testing.assert_array_equal(found.labels, Y)
