"""Arrays with one entry for each matrix: labels, groups, names of files."""

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divlearn.files.names import GROUP_NAMES, Column
from divlearn.files.numpy_files import open_npy, open_npz
from divlearn.files.variables import (
    Refusal,
    Variable,
    check_limit,
    explaining,
    open_regular,
    quote,
    text_array,
)

COLUMN_FILES = (".npy", ".npz", ".csv", ".txt")  # endings that `read_groups` knows
_LARGEST_FILE = 2**28


def fits(variables: Column, sizes: Sequence[int]) -> bool:
    """Whether arrays can be read and have one entry for each matrix of the parts of these sizes."""
    return all(
        not variable.refusal and _has_length(variable, n_matrices)
        for variable, n_matrices in _expected(variables, sizes)
    )


def check_column(variables: Column, sizes: Sequence[int], what: str) -> None:
    """Refuse arrays of other sizes or kinds; ``what`` is the argument that chooses them."""
    for variable, n_matrices in _expected(variables, sizes):
        if variable.dtype.kind not in "biufSU":
            raise Refusal(f"{variable} must hold numbers or text; save {what} of these kinds")
        if not _has_length(variable, n_matrices):
            raise Refusal(
                f"{variable} must have one {what.removesuffix('s')} for each of {n_matrices} "
                f"matrices; save {what} of shape ({n_matrices},) or choose others with {what}="
            )


def read_column(variables: Column, limit: int) -> NDArray[Any] | None:
    """Read arrays and join them; text is decoded, and whole numbers become integers."""
    if not variables:
        return None
    parts = [variable.read(limit).ravel() for variable in variables]
    is_text = [part.dtype.kind in "SU" for part in parts]
    if not any(is_text):
        return _as_numbers(np.concatenate(parts), variables[0])
    if not all(is_text):
        raise Refusal(
            f"{' and '.join(map(str, variables))} are text and numbers; save both as the same type"
        )
    # As a list first: many short strings and one long one make a large array.
    strings = [text for part in parts for text in part.tolist()]
    decoded = [text.decode("utf8") if isinstance(text, bytes) else text for text in strings]
    return text_array(decoded, limit)


def read_groups(path: Path, n_matrices: int) -> NDArray[Any]:
    """Read a file with the group of each matrix; a .csv file may have a heading."""
    with open_regular(path, path.name) as file, explaining(path.name, _LARGEST_FILE):
        size = os.fstat(file.fileno()).st_size
        if size > _LARGEST_FILE:
            raise Refusal(f"it has {size} bytes, must have <= {_LARGEST_FILE} to hold groups")
        match path.suffix.lower():
            case ".npy" | ".npz" as ending:
                return _read_array(file, size, ending, n_matrices)
            case ".csv" | ".txt" as ending:
                return _read_lines(file, ending, n_matrices)
        raise Refusal(f"its name must end in {', '.join(COLUMN_FILES)} to hold groups")


def _expected(variables: Column, sizes: Sequence[int]) -> Iterable[tuple[Variable, int]]:
    return zip(variables, sizes if len(variables) == len(sizes) else [sum(sizes)], strict=False)


def _has_length(variable: Variable, n_matrices: int) -> bool:
    n_entries = math.prod(variable.shape)
    return n_entries == max(variable.shape, default=1) == n_matrices


def _read_array(file: BinaryIO, size: int, ending: str, n_matrices: int) -> NDArray[Any]:
    with (open_npy if ending == ".npy" else open_npz)(file, size) as variables:
        chosen = tuple(one for one in variables if len(variables) == 1 or one.name in GROUP_NAMES)
        if len(chosen) != 1:
            found = ", ".join(map(str, variables)) or "no arrays"
            raise Refusal(f"it holds {found}, must hold one array; save groups alone")
        if chosen[0].refusal:
            raise Refusal(f"{quote(chosen[0].name)} {chosen[0].refusal}")
        check_column(chosen, [n_matrices], "groups")
        check_limit(chosen[0].n_bytes, _LARGEST_FILE, f"the entries of {chosen[0]}")
        column: Any = read_column(chosen, _LARGEST_FILE)
    return column


def _read_lines(file: BinaryIO, ending: str, n_matrices: int) -> NDArray[Any]:
    text = file.read().decode("utf-8-sig")
    if ending == ".csv":
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
        if any(len(row) > 1 for row in rows):
            widest = max(map(len, rows))
            raise Refusal(f"it has {widest} columns, must have one; save the groups alone")
        entries = [row[0].strip() for row in rows]
        entries = entries[len(entries) == n_matrices + 1 :]  # without its heading
    else:
        entries = [line.strip() for line in text.splitlines()]
    if len(entries) != n_matrices or not all(entries):
        n_entries = sum(map(bool, entries))
        raise Refusal(
            f"it has {n_entries} entries in {len(entries)} lines, must have one for each of "
            f"{n_matrices} matrices, in their order"
        )
    return text_array(entries, _LARGEST_FILE)


def _as_numbers(values: NDArray[Any], variable: Variable) -> NDArray[Any]:
    if values.dtype.kind == "b":
        # Bytes other than 0 and 1 are no booleans until they have been compared.
        return np.not_equal(values.view(np.uint8), 0)
    if not np.isfinite(values).all():
        i = np.flatnonzero(~np.isfinite(values))[0]
        raise Refusal(f"{quote(variable.name)}[{i}] is {values[i]}; drop matrices without a label")
    small = bool((np.abs(values) < 2.0**63).all())
    if values.dtype.kind in "iu":
        return values.astype(np.int64) if small else values
    whole = small and bool((values == np.rint(values)).all())
    return values.astype(np.int64 if whole else np.float64)
