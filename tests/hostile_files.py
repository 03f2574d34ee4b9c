"""Hostile files, byte by byte, each with what the message about it must say."""

from __future__ import annotations

import io
import os
import random
import struct
import zipfile
import zlib

import numpy as np
import pytest
from spd_files import mat_array, mat_element, mat_header, random_spd

X = random_spd()
N = len(X)
BIG = 2**24  # bytes of a bomb
LIMIT = 2**20
h5py = pytest.importorskip("h5py", reason="h5py is not installed")


class Trap:
    """Unpickling it would end the interpreter."""

    def __reduce__(self):
        return os._exit, (1,)


def npy_bytes(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def letters(n: int, length: int = 1) -> np.ndarray:
    return np.array([length * "a"] * n)


def letter_codes(n: int) -> np.ndarray:
    return np.full(n, ord("a"))


def npy_header(text: str, version: int = 1, data: bytes = b"") -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


def npy_claim(shape: str, data: bytes = b"", dtype: str = "'<f8'") -> bytes:
    return npy_header(f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}", data=data)


def npz_bytes(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def encrypted() -> bytes:
    content = bytearray(npz_bytes({"X.npy": npy_bytes(X)}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def lying_directory(member: bytes, claim: int) -> bytes:
    """An archive whose directory gives another size than its one member has."""
    content = bytearray(npz_bytes({"X.npy": member}))
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<I", claim)
    return bytes(content)


def npy_bomb() -> bytes:
    return npy_claim(f"({BIG // 32}, 2, 2)", bytes(BIG))


def unheld(n: int) -> bytes:
    """An archive of which directory and header agree on a size that it does not hold."""
    member = npy_claim(f"({n}, 2, 2)")
    return lying_directory(member, len(member) + 32 * n)


def mat_file(*variables: bytes) -> bytes:
    return mat_header() + b"".join(variables)


def mat_compressed(variable: bytes) -> bytes:
    content = zlib.compress(variable, 1)
    return struct.pack("<II", 15, len(content)) + content


def mat_cut(variable: bytes) -> bytes:
    """A variable that ends before its last element does."""
    body = variable[8:-64]
    return struct.pack("<II", 14, len(body)) + body


NO_CELL = struct.pack("<II", 14, 0)
TEXT_WITHOUT_AXES = mat_element(
    14,
    b"".join(
        [
            mat_element(6, struct.pack("<II", 4, 0)),
            mat_element(5, b""),
            mat_element(1, b""),
            mat_element(16, b"a"),
        ]
    ),
)


def mat_cells(*cells: bytes) -> bytes:
    """A cell array named y."""
    body = mat_element(6, struct.pack("<II", 1, 0)) + mat_element(5, struct.pack("<2i", N, 1))
    body += mat_element(1, b"y") + b"".join(cells)
    return struct.pack("<II", 14, len(body)) + body


def hdf5(fill, **options) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w", **options) as store:
        fill(store)
    return file.getvalue()


def dataset(**options) -> bytes:
    return hdf5(lambda store: store.create_dataset("X", **options))


def link(target) -> bytes:
    return hdf5(lambda store: store.__setitem__("X", target))


def virtual(store) -> None:
    layout = h5py.VirtualLayout((N, 4, 4), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "X", (N, 4, 4))
    store.create_virtual_dataset("X", layout)


def unheld_chunks(store) -> None:
    """One chunk of many is there."""
    store.create_dataset("X", (10**9, 9, 9), "f8", chunks=(1, 9, 9))[0] = 1


def chunk_bomb(store) -> None:
    """A chunk that inflates to more than it should, to NaN in all places."""
    store["X"] = X
    made = store.create_dataset("y", (N,), "f8", chunks=(N,), compression="gzip")
    made.id.write_direct_chunk((0,), zlib.compress(b"\xff" * BIG, 1))


def shared_string() -> bytes:
    """Many references to one long string: small in the file, large in memory."""
    n, length = 1000, 40_000
    labels = ["b" * length] + ["a"] * (n - 1)
    content = bytearray(hdf5(lambda store: store.update(X=np.ones((n, 1, 1)), y=labels)))
    first = content.index(struct.pack("<I", length))
    content[first : first + 16 * n] = content[first : first + 16] * n
    return bytes(content)


def foreign_filter() -> bytes:
    """A filter that h5py does not come with."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(X.shape)
    properties.set_filter(32001, h5py.h5z.FLAG_OPTIONAL)  # without it, the chunk is stored as it is

    def fill(store) -> None:
        space = h5py.h5s.create_simple(X.shape)
        made = h5py.h5d.create(store.id, b"X", h5py.h5t.IEEE_F64LE, space, properties)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, X)

    return hdf5(fill)


def no_heap() -> bytes:
    return hdf5(lambda store: store.update(X=X, y=["a"] * N)).replace(b"GCOL", b"GROL")


HOSTILE = {
    # What is no known file.
    "empty": (lambda: b"", "it is empty; write it as"),
    "text": (lambda: b"1.0, 2.0\n" * 99, r"it starts with b'1\.0, 2\.0', as none of the known"),
    "pickle": (lambda: b"\x80\x04\x95\x00", "as none of the known formats does"),
    "level 4": (lambda: struct.pack("<5i", 0, 2, 2, 0, 2) + b"X\0" + bytes(200), "as none of the"),
    "only magic npy": (lambda: b"\x93NUMPY", "header of an array cannot be .* truncated"),
    "only magic zip": (lambda: b"PK\x03\x04", "BadZipFile"),
    "only magic hdf5": (lambda: b"\x89HDF\r\n\x1a\n", "damaged .OSError"),
    "only header mat": (mat_header, "it holds no arrays"),
    "empty zip": (lambda: npz_bytes({}), "it holds no arrays"),
    "7.3 without hdf5": (lambda: b" " * 124 + b"\x00\x02IM" + bytes(999), "none of the known"),
    # Arrays of NumPy.
    "object npy": (
        lambda: npy_bytes(np.full((2, 2, 2), Trap())),
        r"has dtype '\|O': objects are never unpickled",
    ),
    "object y": (
        lambda: npz_bytes({"X.npy": npy_bytes(X), "y.npy": npy_bytes(np.array([Trap()]))}),
        "y has dtype .* unpickled",
    ),
    "records": (lambda: npz_bytes({"X.npy": npy_bytes(np.zeros((2, 2, 2), "i4,f8"))}), "records"),
    "complex": (lambda: npy_bytes(X * 1j), r"complex128 must hold real numbers; save"),
    "strings": (lambda: npy_bytes(np.full((2, 3, 3), "a")), "no stack of square matrices"),
    "dates": (lambda: npy_bytes(np.zeros((2, 3, 3), "M8[s]")), "holds times, must hold numbers"),
    "many claimed": (lambda: npy_claim("(1000000000, 9, 9)"), "claims shape .* but 0 follow it"),
    "overflow": (lambda: npy_claim(f"({2**40}, {2**40}, {2**40})"), "but 0 follow it"),
    "negative": (lambda: npy_claim("(-6, -2, 2)", bytes(192)), r"claims shape \(-6, -2, 2\)"),
    "no numbers": (lambda: npy_claim("('a', 2, 2)"), "cannot be read .* shape is not valid"),
    "no literal": (lambda: npy_header("exit(1)"), "header of an array cannot be read"),
    "nested": (lambda: npy_header("(" * 9000), "header of an array cannot be read"),
    "signs": (lambda: npy_header("-" * 9000 + "1"), "header of an array cannot be read"),
    "long header": (lambda: npy_header(" ", 2)[:8] + b"\xff" * 99, "expected 4294967295 bytes"),
    "long header inside": (
        lambda: npz_bytes({"X.npy": npy_header(" ", 2)[:8] + b"\xff" * 4 + bytes(BIG)}),
        "expected 4294967295 bytes",
    ),
    "wide strings": (lambda: npy_claim("(2, 2, 2)", dtype="'<U999999999'"), "damaged"),
    "trailing": (lambda: npy_bytes(X) + b"more", "but 772 follow it"),
    # Archives.
    "npz bomb": (
        lambda: npz_bytes({"X.npy": npy_bomb()}),
        f"would take {BIG} bytes, more than the {LIMIT} that limit=",
    ),
    "understated": (lambda: lying_directory(npy_bomb(), 10**6), "but .* follow it"),
    "overstated": (
        lambda: lying_directory(npy_bomb(), 2**32 - 2),
        "claims 4294967294 bytes, more than",
    ),
    "unheld": (lambda: unheld(100_000), "more than .* compressed ones can give"),
    "unheld, less": (lambda: unheld(1000), "EOF: reading array data|BadZipFile"),
    "longer inside": (
        lambda: lying_directory(npy_bytes(X) + bytes(BIG), len(npy_bytes(X))),
        "BadZipFile",
    ),
    "encrypted": (encrypted, "X is encrypted; write the file without a password"),
    "bzip2": (lambda: npz_bytes({"X.npy": npy_bytes(X)}, zipfile.ZIP_BZIP2), "by method 12"),
    "lzma": (lambda: npz_bytes({"X.npy": npy_bytes(X)}, zipfile.ZIP_LZMA), "by method 14"),
    "not an array": (lambda: npz_bytes({"X.npy": b"something"}), "magic string is not correct"),
    "wide and many": (
        lambda: npz_bytes(
            {
                "X_train.npy": npy_bytes(np.ones((9000, 1, 1))),
                "y_train.npy": npy_bytes(letters(9000)),
                "X_test.npy": npy_bytes(np.ones((1, 1, 1))),
                "y_test.npy": npy_bytes(letters(1, 9000)),
            }
        ),
        "9001 strings of up to 9000 characters would take 324036000 bytes",
    ),
    "no letters": (
        lambda: npz_bytes(
            {"X.npy": npy_bytes(X), "y.npy": npy_claim(f"({N},)", b"\xff" * 4 * N, "'<U1'")}
        ),
        r"damaged .(Value|System)Error",
    ),
    # MATLAB.
    "mat claim": (lambda: mat_file(mat_array("X", X, shape=(2**30, 2, 2))), "would take"),
    "mat overflow": (lambda: mat_file(mat_array("X", X, shape=(2**30,) * 3)), "would take"),
    "mat negative": (lambda: mat_file(mat_array("X", X, shape=(-6, 4, 4))), "claims the shape"),
    "mat short": (lambda: mat_file(mat_array("X", X[:5], shape=(6, 4, 4))), "array of size 80"),
    "mat long": (lambda: mat_file(mat_array("X", X, shape=(5, 4, 4))), "array of size 96"),
    "mat element": (lambda: mat_file(mat_cut(mat_array("X", X))), "claims 768 of 704 bytes"),
    "mat characters": (
        lambda: mat_file(
            mat_array("X", X),
            mat_array("y", letter_codes(N - 1), shape=(N, 1), flags=4, kind=4, stored="u2"),
        ),
        "damaged .TypeError",
    ),
    "mat no axes": (
        lambda: mat_file(mat_array("X", X), mat_cells(*N * [TEXT_WITHOUT_AXES])),
        r"claims the shape \(\)",
    ),
    # SciPy would look these up outside of a table, and in it where it is empty.
    "mat type": (lambda: mat_file(mat_array("X", X, kind=200)), "an element has type 200"),
    "mat type inside": (
        lambda: mat_file(mat_compressed(mat_array("X", X, kind=2**16 - 1))),
        "an element has type 65535",
    ),
    "mat no type": (lambda: mat_file(mat_array("X", X, kind=8)), "an element has type 8"),
    "mat type of text": (
        lambda: mat_file(
            mat_array("X", X), mat_cells(*N * [mat_array("", letter_codes(1), flags=4, kind=11)])
        ),
        "an element has type 11",
    ),
    "mat class": (lambda: mat_file(mat_array("X", X, flags=99)), "X has MATLAB's class 'unknown'"),
    "mat rest": (lambda: mat_file(mat_array("X", X, rest=bytes(64))), "X has 9 elements of data"),
    "mat complex": (
        lambda: mat_file(mat_array("X", X, flags=0x806, rest=mat_element(9, X.tobytes()))),
        "X is complex, must be real",
    ),
    "mat struct": (lambda: mat_file(mat_array("X", X, flags=2)), "X has MATLAB's class 'struct'"),
    "mat sparse": (lambda: mat_file(mat_array("X", X, flags=5)), "X has MATLAB's class 'sparse'"),
    "mat twice": (lambda: mat_file(2 * mat_array("X", X)), "two arrays named X; write"),
    "mat no matrix": (lambda: mat_file(mat_element(9, bytes(8))), "has type 9 and claims 8 bytes"),
    "mat cells": (
        lambda: mat_file(mat_array("X", X), mat_cells(*[mat_array("", X)] * N)),
        "y is a cell array with other cells than text",
    ),
    "mat nested": (
        lambda: mat_file(mat_array("X", X), mat_cells(*N * [mat_cells(*N * [NO_CELL])])),
        "y is a cell array with other cells than text",
    ),
    "mat empty cells": (
        lambda: mat_file(mat_array("X", X), mat_cells(*N * [NO_CELL])),
        "y is a cell array with other cells than text",
    ),
    # SciPy would make arrays of these sizes before it reads on.
    "mat unheld cells": (
        lambda: mat_file(
            mat_array("X", np.ones((9999, 1, 1))), mat_array("y", [], shape=(9999, 1), flags=1)
        ),
        r"y claims the shape \(9999, 1\) in 56 bytes",
    ),
    "mat unheld text": (
        lambda: mat_file(mat_array("X", X), mat_array("y", [], shape=(N, 2**30), flags=4, kind=4)),
        r"y claims the shape \(6, 1073741824\) in 56 bytes",
    ),
    "mat bomb": (
        lambda: mat_file(mat_compressed(mat_array("X", np.zeros((BIG // 32, 2, 2))))),
        f"would take {BIG} bytes, more than the {LIMIT} that limit=",
    ),
    "mat cell bomb": (
        lambda: mat_file(
            mat_array("X", X),
            mat_compressed(mat_cells(mat_array("", np.zeros(BIG // 8), flags=4, kind=4))),
        ),
        "the entries of y would take .* bytes, more than",
    ),
    "mat longer inside": (
        lambda: mat_file(mat_compressed(mat_array("X", X) + bytes(BIG))),
        "does not end where",
    ),
    "mat claimed inside": (
        lambda: mat_file(mat_compressed(struct.pack("<II", 14, 2**31))),
        "damaged",
    ),
    # HDF5.
    "hdf5 claim": (lambda: hdf5(unheld_chunks), "would take 648000000000 bytes"),
    "hdf5 overflow": (
        lambda: dataset(shape=(2**40, 2**10, 2**10), dtype="u1", chunks=(1, 2, 2)),
        "X has a shape and no entries; write them",
    ),
    "hdf5 unwritten": (lambda: dataset(shape=(9, 9, 9), dtype="f8"), "a shape and no entries"),
    "hdf5 no chunks": (
        lambda: dataset(shape=(9, 5, 5), dtype="f8", chunks=(1, 5, 5)),
        "a shape and no entries",
    ),
    "hdf5 wide chunks": (
        lambda: dataset(data=X, maxshape=(None,) * 3, chunks=(1, 512, 512)),
        "chunks of X would",
    ),
    "hdf5 bomb": (lambda: hdf5(chunk_bomb), r"y\[0\] is nan|damaged"),
    "hdf5 shared string": (shared_string, "its strings would take .* bytes, more than .* limit="),
    "hdf5 no heap": (no_heap, "damaged .OSError"),
    "hdf5 soft link": (lambda: link(h5py.SoftLink("/other")), "X is a link"),
    "hdf5 external link": (lambda: link(h5py.ExternalLink("/etc/passwd", "/X")), "X is a link"),
    "hdf5 virtual": (lambda: hdf5(virtual), "X keeps its data in other files .*virtual"),
    "hdf5 external": (
        lambda: dataset(shape=X.shape, dtype="f8", external=[("/etc/passwd", 0, 1024)]),
        "X keeps its data in other files",
    ),
    "hdf5 complex": (lambda: dataset(data=X * 1j), "X is complex"),
    "hdf5 records": (lambda: dataset(data=np.zeros((2, 3, 3), "i4,f8")), "neither numbers nor"),
    "hdf5 references": (lambda: dataset(shape=(2, 3, 3), dtype=h5py.ref_dtype), "neither numbers"),
    "hdf5 opaque": (lambda: dataset(data=np.zeros((2, 3, 3), "V9")), "neither numbers nor text"),
    "hdf5 null": (lambda: dataset(dtype="f8", shape=None, data=h5py.Empty("f8")), "X has no shape"),
    "hdf5 group": (lambda: hdf5(lambda store: store.create_group("X")), "it holds no arrays"),
    "hdf5 link inside": (
        lambda: hdf5(
            lambda store: store.create_group("a").__setitem__(
                "X", h5py.ExternalLink("/etc/passwd", "/X")
            )
        ),
        "'a/X' is a link",
    ),
    "hdf5 filter": (foreign_filter, r"X is stored through the HDF5 filters \[32001\], which"),
}


def damaged(content: bytes, generator: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(generator.choice([1, 1, 2, 5])):
        # Half of the changes go where most headers are.
        end = generator.choice([len(changed), min(len(changed), 1000)])
        at = generator.randrange(end)
        value = generator.choice([0, 1, 127, 128, 255, changed[at] ^ 1 << generator.randrange(8)])
        width = generator.choice([1, 1, 1, 4])
        changed[at : at + width] = bytes([value] * width)[: len(changed) - at]
    return bytes(changed)
