"""Writers of small files of SPD matrices in every format, for the tests of `read_spd`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from divlearn.files import SPDFile, read_spd

Arrays = dict[str, Any]


def random_spd(n: int = 6, d: int = 4) -> np.ndarray:
    factors = np.random.default_rng(n + d).standard_normal((n, d, 2 * d))
    product = factors @ factors.mT
    return (product + product.mT) / 2


def write_npz(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def write_npz_compressed(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def write_mat(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        scipy.io.savemat(file, arrays)


def write_mat_compressed(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        scipy.io.savemat(file, arrays, do_compression=True)


def write_mat_big_endian(path: Path, arrays: Arrays) -> None:
    path.write_bytes(
        mat_header(">") + b"".join(mat_array(name, array, ">") for name, array in arrays.items())
    )


def write_hdf5(path: Path, arrays: Arrays, **options: Any) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as store:
        for name, array in arrays.items():
            store.create_dataset(name, data=array, **options)


def write_hdf5_chunked(path: Path, arrays: Arrays) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as store:
        for name, array in arrays.items():
            # Chunks that do not fill the array, and one that is stored without compression.
            chunks = tuple(max(1, side // 2 + 1) for side in np.shape(array))
            store.create_dataset(name, data=array, chunks=chunks, compression="gzip", shuffle=True)


def write_mat73(path: Path, arrays: Arrays) -> None:
    """As MATLAB does: columns first, which is transposed here, behind a block of 512 bytes."""
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w", userblock_size=512) as store:
        for name, array in arrays.items():
            options = {"chunks": np.shape(array)[::-1], "compression": "gzip"}
            store.create_dataset(name, data=np.transpose(array), **options)
            store[name].attrs["MATLAB_class"] = np.bytes_(
                "char" if np.asarray(array).dtype == np.uint16 else "double"
            )
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")


WRITERS: dict[str, Callable[[Path, Arrays], None]] = {
    "npz": write_npz,
    "npz compressed": write_npz_compressed,
    "mat": write_mat,
    "mat compressed": write_mat_compressed,
    "mat big-endian": write_mat_big_endian,
    "mat 7.3": write_mat73,
    "hdf5": write_hdf5,
    "hdf5 chunked": write_hdf5_chunked,
}


each_format = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


def load(folder: Path, arrays: Arrays, write=write_npz, **options) -> SPDFile:
    write(folder / "data", arrays)
    return read_spd(folder / "data", **options)


# --- MATLAB level 5, byte by byte -----------------------------------------------------------------


def mat_header(order: str = "<") -> bytes:
    return b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}HH", 0x0100, 0x4D49)


def mat_element(kind: int, content: bytes, order: str = "<") -> bytes:
    padding = bytes(-len(content) % 8)
    return struct.pack(f"{order}II", kind, len(content)) + content + padding


def mat_array(
    name: str,
    array: np.ndarray,
    order: str = "<",
    *,
    shape: tuple[int, ...] | None = None,
    flags: int = 6,
    kind: int = 9,
    stored: str = "f8",
    rest: bytes = b"",
) -> bytes:
    """A variable of class double, or of whatever the header is to claim."""
    array = np.asarray(array)
    shape = shape or (array.shape if array.ndim > 1 else (array.size, 1))
    body = mat_element(6, struct.pack(f"{order}II", flags, 0), order)
    body += mat_element(5, struct.pack(f"{order}{len(shape)}i", *shape), order)
    body += mat_element(1, name.encode(), order)
    body += mat_element(kind, array.astype(order + stored).tobytes("F"), order) + rest
    return struct.pack(f"{order}II", 14, len(body)) + body
