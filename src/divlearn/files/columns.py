"""Selection of arrays of a file by name: matrices, and columns with one entry for each matrix."""

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from divlearn.arrays import Labels
from divlearn.files.variables import (
    Refusal,
    Variable,
    check_limit,
    explaining,
    open_npy,
    open_npz,
    open_regular,
    quote,
    text_array,
)
from divlearn.text import counted

Column = tuple[Variable, ...]  # one array, or its training and test part
Row = tuple[int, list[str]]  # number of the line, and cells

MATRIX_NAMES = (
    "matrices",
    "X",
    "x",
    "data",
    "covariances",
    "covs",
    "cov",
    "spd",
    "SPD",
    "spds",
    "features",
)
LABEL_NAMES = ("labels", "y", "Y", "label", "target", "targets", "classes", "gnd")
GROUP_NAMES = ("groups", "group", "subjects", "subject", "sessions", "session")
FILES = "files"  # names of the files that matrices were made from
COLUMN_FILES = (".npy", ".npz", ".csv", ".txt")  # endings that `read_column_file` supports
_PARTS = ("train", "test")
_N_SHOWN = 10
LARGEST_FILE = 2**28


# --- selection of arrays


def choose(
    variables: Sequence[Variable],
    matrices: str | None,
    labels: str | Path | None,
    groups: str | Path | None,
    square: bool,
) -> tuple[Column, Column, Column, dict[str, Column]]:
    """Choose arrays by names, by default by the rules that `load_spd` documents."""
    # Returned are matrices, labels, groups, and other arrays by name: ``files``, and those that
    # look like groups. If the file is split, each column has the training and the test array.
    # Labels and groups that are a path are in another file; the column is then empty.
    # Arrays inside HDF5 groups are known by the last part of their path, if it is unique.
    ends = Counter(_end(variable.name) for variable in variables)
    by_name: dict[str, Variable] = {}
    for variable in variables:
        end = _end(variable.name)
        key = end if ends[end] == 1 else variable.name
        if key in by_name:
            raise Refusal(
                f"it holds two arrays named {quote(variable.name)}; write it again with one"
            )
        by_name[key] = variable
    parts = _choose_matrices(by_name, matrices, square)
    label_column = () if isinstance(labels, Path) else _choose_labels(by_name, labels, parts)
    group_column: Column = ()
    if isinstance(groups, str):
        group_column = _find_column(by_name, groups, parts) or (_get(by_name, groups, "groups"),)
    chosen = {*parts, *label_column, *group_column}
    columns = {name: _find_column(by_name, name, parts) for name in (FILES, *GROUP_NAMES)}
    others = {name: c for name, c in columns.items() if c and chosen.isdisjoint(c)}
    return parts, label_column, group_column, others


def _find_column(by_name: dict[str, Variable], name: str, parts: Column) -> Column:
    """Find the array of a name, or its training and test part; empty if there is none."""
    if name in by_name:
        return (by_name[name],)
    if len(parts) == 2:
        return _find_split(by_name, (name,))
    part_names = _join_part(name, _part_of(parts[0].name))
    return tuple(by_name[key] for key in part_names if key in by_name)[:1]


def _choose_matrices(by_name: dict[str, Variable], name: str | None, square: bool) -> Column:
    if name is not None:
        return (_get(by_name, name, "matrices"),)
    # An unreadable array is a candidate, so that its error is raised.
    usual = [by_name[key] for key in MATRIX_NAMES if key in by_name]
    candidates: list[Column] = [(v,) for v in usual if _is_stack(v, square) or v.refusal]
    if split := _find_split(by_name, MATRIX_NAMES):
        candidates.append(split)
    candidates = candidates or [(v,) for v in by_name.values() if _is_stack(v, square)]
    if not candidates:
        raise Refusal(
            "it has no stack of square matrices, an array with three axes of which the last or the "
            f"first two are equal; {_listing(by_name)}; save one of shape (n_matrices, d, d)"
        )
    if len(candidates) > 1:
        shown = [variable for column in candidates[:_N_SHOWN] for variable in column]
        names = ", ".join(quote(variable.name) for variable in shown)
        raise Refusal(f"{names} could be the matrices; choose with matrices=")
    return candidates[0]


def _choose_labels(by_name: dict[str, Variable], name: str | None, parts: Column) -> Column:
    if name is not None:
        return (_get(by_name, name, "labels"),)
    part = ""
    if len(parts) == 1:
        part = _part_of(parts[0].name)
    elif split := _find_split(by_name, LABEL_NAMES):
        return split
    elif single := [k for p in _PARTS for k in _join_names(LABEL_NAMES, p) if k in by_name]:
        raise Refusal(
            f"of the two parts of the split only {single[0]} has labels; add the others, or "
            "choose one part with matrices="
        )
    names = _join_names(LABEL_NAMES, part) if part else LABEL_NAMES
    variables = [by_name[key] for key in names if key in by_name]
    candidates = tuple(variable for variable in variables if variable not in parts)
    if len(candidates) > 1:
        shown = ", ".join(variable.name for variable in candidates)
        raise Refusal(f"{shown} could be the labels; choose with labels=")
    return candidates


def _is_stack(variable: Variable, square: bool) -> bool:
    shape = variable.shape
    is_square = len(shape) == 3 and (shape[0] == shape[1] or shape[1] == shape[2])
    return (is_square if square else len(shape) > 1) and variable.dtype.kind not in "SU"


def _join_part(name: str, part: str) -> tuple[str, str]:
    return f"{name}_{part}", f"{part}_{name}"


def _join_names(names: Sequence[str], part: str) -> list[str]:
    return [joined for name in names for joined in _join_part(name, part)]


def _part_of(name: str) -> str:
    """Return the part, "train" or "test", that the name of an array of matrices has, or ""."""
    end = _end(name)
    return next((part for part in _PARTS if end in _join_names(MATRIX_NAMES, part)), "")


def _find_split(by_name: dict[str, Variable], names: Sequence[str]) -> Column:
    """Find the training and the test array, empty unless the file has both; refuse two pairs."""
    pairs = [
        (by_name[train], by_name[test])
        for name in names
        for train, test in zip(*(_join_part(name, part) for part in _PARTS), strict=True)
        if train in by_name and test in by_name
    ]
    if len(pairs) > 1:
        shown = ", ".join(quote(variable.name) for pair in pairs for variable in pair)
        raise Refusal(f"{shown} are several splits; choose with matrices= and labels=")
    return pairs[0] if pairs else ()


def _get(by_name: dict[str, Variable], name: str, argument: str) -> Variable:
    by_path = {variable.name: variable for variable in by_name.values()}
    variable = by_path.get(name.strip("/"), by_name.get(name))
    if variable is None:
        raise Refusal(f"{argument}={name!r} is not in it; {_listing(by_name)}; name one of these")
    return variable


def _end(path: str) -> str:
    return path.rpartition("/")[2]


def _listing(by_name: dict[str, Variable]) -> str:
    shown = ", ".join(str(variable) for variable in list(by_name.values())[:_N_SHOWN])
    more = f" and {len(by_name) - _N_SHOWN} more" if len(by_name) > _N_SHOWN else ""
    return f"it holds {shown or 'no arrays'}{more}"


# --- columns: one entry for each matrix


def fits(column: Column, sizes: Sequence[int]) -> bool:
    """Whether a column can be read and has an entry for each matrix of the parts of these sizes."""
    return all(
        not variable.refusal and _has_length(variable, n_matrices)
        for variable, n_matrices in _pair_with_sizes(column, sizes)
    )


def check_column(column: Column, sizes: Sequence[int], argument: str, of: str = "matrices") -> None:
    """Refuse a column of another length or type; ``argument`` is the one that chooses it."""
    for variable, length in _pair_with_sizes(column, sizes):
        if variable.dtype.kind not in "biufSU":
            raise Refusal(f"{variable} must hold numbers or text; save {argument} of these kinds")
        if not _has_length(variable, length):
            raise Refusal(
                f"{variable} must have one {argument.removesuffix('s')} for each of {length} {of}; "
                f"save {argument} of shape ({length},) or choose others with {argument}="
            )


def _pair_with_sizes(column: Column, sizes: Sequence[int]) -> Iterable[tuple[Variable, int]]:
    return zip(column, sizes if len(column) == len(sizes) else [sum(sizes)], strict=False)


def _has_length(variable: Variable, n_matrices: int) -> bool:
    return math.prod(variable.shape) == max(variable.shape, default=1) == n_matrices


def read_column(column: Column, limit: int) -> Labels:
    """Read the arrays of a column and join them; text is decoded, whole numbers become integers."""
    parts = [variable.read(limit).ravel() for variable in column]
    is_text = [part.dtype.kind in "SU" for part in parts]
    if not any(is_text):
        return _as_numbers(np.concatenate(parts), column[0])
    if not all(is_text):
        raise Refusal(
            f"{' and '.join(map(str, column))} are text and numbers; save both as the same type"
        )
    # Make a list first, because many short strings and a long one make a large array.
    strings = [text for part in parts for text in part.tolist()]
    decoded = [text.decode("utf8") if isinstance(text, bytes) else text for text in strings]
    return text_array(decoded, limit)


def _as_numbers(values: np.ndarray, variable: Variable) -> Labels:
    if values.dtype.kind == "b":
        # Bytes of the file may be other than 0 and 1, which are invalid booleans.
        return np.not_equal(values.view(np.uint8), 0)
    if not np.isfinite(values).all():
        i = np.flatnonzero(~np.isfinite(values))[0]
        raise Refusal(f"{quote(variable.name)}[{i}] is {values[i]}; drop matrices without a label")
    fits_int64 = bool((np.abs(values) < np.float64(2.0**63)).all())
    if values.dtype.kind in "iu":
        return values.astype(np.int64) if fits_int64 else values
    are_integers = fits_int64 and bool((values == np.rint(values)).all())
    return values.astype(np.int64 if are_integers else np.float64)


def read_column_file(path: Path, length: int, argument: str, of: str = "matrices") -> Labels:
    """Read a file with one entry, such as a label, for each matrix; a .csv may have a heading."""
    with open_regular(path, path.name) as file, explaining(path.name, LARGEST_FILE):
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILE:
            raise Refusal(f"it has {size} bytes, must have <= {LARGEST_FILE} to hold {argument}")
        match path.suffix.lower():
            case ".npy" | ".npz" as ending:
                return _read_array(file, size, ending, length, argument, of)
            case ".csv" | ".txt" as ending:
                return _read_lines(file, ending, length, argument, of)
        raise Refusal(f"its name must end in {', '.join(COLUMN_FILES)} to hold {argument}")


def _read_array(
    file: BinaryIO, size: int, ending: str, length: int, argument: str, of: str
) -> Labels:
    usual = LABEL_NAMES if argument == "labels" else GROUP_NAMES
    with (open_npy if ending == ".npy" else open_npz)(file, size) as variables:
        column = tuple(v for v in variables if len(variables) == 1 or v.name in usual)
        if len(column) != 1:
            names = ", ".join(map(str, variables)) or "no arrays"
            raise Refusal(f"it holds {names}, must hold one array; save {argument} alone")
        column[0].require()
        check_column(column, [length], argument, of)
        check_limit(column[0].n_bytes, LARGEST_FILE, f"the entries of {column[0]}")
        return read_column(column, LARGEST_FILE)


def _read_lines(file: BinaryIO, ending: str, length: int, argument: str, of: str) -> Labels:
    text = read_text(file)
    entries = [line.strip() for line in text.splitlines()]
    if ending == ".csv":
        # An empty line between others is a missing entry.
        rows = [row for _, row in read_rows(text.rstrip())]
        widest = max(map(len, rows), default=1)
        if widest > 1:
            raise Refusal(f"it has {widest} columns, must have one; save the {argument} alone")
        entries = [row[0] if row else "" for row in rows]
        entries = entries[len(entries) == length + 1 or _has_heading(entries) :]
    if len(entries) != length or not all(entries):
        n_entries = sum(map(bool, entries))
        raise Refusal(
            f"it has {counted(n_entries, 'entries')} in {counted(len(entries), 'lines')}, must "
            f"have one for each of {counted(length, of)}; save {argument} in the order of the "
            f"{of}, one per line"
        )
    return text_array(entries, LARGEST_FILE)


def read_text(file: BinaryIO) -> str:
    """Read a text file whole."""
    try:
        return file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refusal(
            f"byte {error.start} is not UTF-8; save it as text in UTF-8, which some programs call "
            "CSV UTF-8"
        ) from error


def read_rows(text: str) -> Iterator[Row]:
    """Read the rows of a .csv file; a stray quote would join rows."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from ((reader.line_num, [cell.strip() for cell in row]) for row in reader)
    except csv.Error as error:
        raise Refusal(
            f"line {reader.line_num} cannot be split into cells ({error}); close the quotes around "
            'cells, and double those inside: ""'
        ) from error


def _has_heading(entries: Sequence[str]) -> bool:
    """Whether the first entry is a usual name, or a text that at least two numbers follow."""
    if entries and entries[0] in (*LABEL_NAMES, *GROUP_NAMES):
        return True
    if len(entries) < 3:
        return False
    are_numbers = [is_numeric_text(entry) for entry in entries]
    return not are_numbers[0] and all(are_numbers[1:])


def is_numeric_text(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
