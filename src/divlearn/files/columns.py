"""Arrays of a file by their names: the matrices, and one entry for each of them."""

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
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

Column = tuple[Variable, ...]  # one array, or a training and a test part

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
COLUMN_FILES = (".npy", ".npz", ".csv", ".txt")  # endings that `read_column_file` knows
_PARTS = ("train", "test")
_SHOWN = 10
LARGEST_FILE = 2**28


# --- which arrays


def choose(
    variables: Sequence[Variable],
    matrices: str | None,
    labels: str | Path | None,
    groups: str | Path | None,
    square: bool,
) -> tuple[Column, Column, Column, dict[str, Column]]:
    """Choose by the given names or, without them, by the rules that `load_spd` documents."""
    # Returned are matrices, labels, groups, and what else has a usual name: ``files``, and arrays
    # that look like groups. Where the file is split, each holds the training and the test array.
    # Labels and groups with a file of their own have a path for a name; none are chosen.
    # Arrays inside groups have usual names too: what counts is the end of a path, if it is unique.
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
    chosen = () if isinstance(labels, Path) else _choose_labels(by_name, labels, parts)
    together: Column = ()
    if isinstance(groups, str):
        together = _find_column(by_name, groups, parts) or (_get(by_name, groups, "groups"),)
    taken = {*parts, *chosen, *together}
    others = {name: _find_column(by_name, name, parts) for name in (FILES, *GROUP_NAMES)}
    others = {name: one for name, one in others.items() if one and not taken.intersection(one)}
    return parts, chosen, together, others


def _find_column(by_name: dict[str, Variable], name: str, parts: Column) -> Column:
    """Find the array of a name, or those of the parts of a split; empty if there is none."""
    if name in by_name:
        return (by_name[name],)
    if len(parts) == 2:
        return _find_split(by_name, (name,))
    joined = _joined(name, _part_of(parts[0].name))
    return tuple(by_name[one] for one in joined if one in by_name)[:1]


def _choose_matrices(by_name: dict[str, Variable], wanted: str | None, square: bool) -> Column:
    if wanted is not None:
        return (_get(by_name, wanted, "matrices"),)
    # One that cannot be read counts: its error is raised rather than another one taken.
    usual = [by_name[name] for name in MATRIX_NAMES if name in by_name]
    found: list[Column] = [(one,) for one in usual if _is_stack(one, square) or one.refusal]
    if split := _find_split(by_name, MATRIX_NAMES):
        found.append(split)
    found = found or [(one,) for one in by_name.values() if _is_stack(one, square)]
    if not found:
        raise Refusal(
            "it has no stack of square matrices, an array with three axes of which the last or the "
            f"first two are equal; {_contents(by_name)}; save one of shape (n_matrices, d, d)"
        )
    if len(found) > 1:
        names = ", ".join(quote(variable.name) for one in found[:_SHOWN] for variable in one)
        raise Refusal(f"{names} could be the matrices; choose with matrices=")
    return found[0]


def _choose_labels(by_name: dict[str, Variable], wanted: str | None, parts: Column) -> Column:
    if wanted is not None:
        return (_get(by_name, wanted, "labels"),)
    part = ""
    if len(parts) == 1:
        part = _part_of(parts[0].name)
    elif split := _find_split(by_name, LABEL_NAMES):
        return split
    elif lone := [name for part in _PARTS for name in _names_of(part) if name in by_name]:
        raise Refusal(
            f"of the two parts of the split only {lone[0]} has labels; add the others, or "
            "choose one part with matrices="
        )
    names = _names_of(part) if part else LABEL_NAMES
    found = [by_name[name] for name in names if name in by_name and by_name[name] not in parts]
    if len(found) > 1:
        shown = ", ".join(variable.name for variable in found)
        raise Refusal(f"{shown} could be the labels; choose with labels=")
    return tuple(found)


def _is_stack(variable: Variable, square: bool) -> bool:
    shape = variable.shape
    is_square = len(shape) == 3 and (shape[0] == shape[1] or shape[1] == shape[2])
    return (is_square if square else len(shape) > 1) and variable.dtype.kind not in "SU"


def _joined(name: str, part: str) -> tuple[str, str]:
    return f"{name}_{part}", f"{part}_{name}"


def _names_of(part: str) -> tuple[str, ...]:
    return tuple(joined for name in LABEL_NAMES for joined in _joined(name, part))


def _part_of(name: str) -> str:
    """Return the part of a split that an array of matrices is by its name, empty if none."""
    usual = {
        joined: part for part in _PARTS for one in MATRIX_NAMES for joined in _joined(one, part)
    }
    return usual.get(_end(name), "")


def _find_split(by_name: dict[str, Variable], names: Sequence[str]) -> Column:
    """Find the training and the test array; empty unless the file has both. Refuse several."""
    pairs = [
        (by_name[train], by_name[test])
        for name in names
        for train, test in zip(*(_joined(name, part) for part in _PARTS), strict=True)
        if train in by_name and test in by_name
    ]
    if len(pairs) > 1:
        shown = ", ".join(quote(variable.name) for pair in pairs for variable in pair)
        raise Refusal(f"{shown} are several splits; choose with matrices= and labels=")
    return pairs[0] if pairs else ()


def _get(by_name: dict[str, Variable], name: str, argument: str) -> Variable:
    by_path = {variable.name: variable for variable in by_name.values()}
    found = by_path.get(name.strip("/"), by_name.get(name))
    if found is None:
        raise Refusal(f"{argument}={name!r} is not in it; {_contents(by_name)}; name one of these")
    return found


def _end(path: str) -> str:
    return path.rpartition("/")[2]


def _contents(by_name: dict[str, Variable]) -> str:
    shown = ", ".join(str(variable) for variable in list(by_name.values())[:_SHOWN])
    more = f" and {len(by_name) - _SHOWN} more" if len(by_name) > _SHOWN else ""
    return f"it holds {shown or 'no arrays'}{more}"


# --- one entry for each matrix


def fits(variables: Column, sizes: Sequence[int]) -> bool:
    """Whether arrays can be read and have one entry for each matrix of the parts of these sizes."""
    return all(
        not variable.refusal and _has_length(variable, n_matrices)
        for variable, n_matrices in _expected(variables, sizes)
    )


def check_column(variables: Column, sizes: Sequence[int], what: str, of: str = "matrices") -> None:
    """Refuse arrays of other sizes or kinds; ``what`` is the argument that chooses them."""
    for variable, length in _expected(variables, sizes):
        if variable.dtype.kind not in "biufSU":
            raise Refusal(f"{variable} must hold numbers or text; save {what} of these kinds")
        if not _has_length(variable, length):
            raise Refusal(
                f"{variable} must have one {what.removesuffix('s')} for each of {length} {of}; "
                f"save {what} of shape ({length},) or choose others with {what}="
            )


def _expected(variables: Column, sizes: Sequence[int]) -> Iterable[tuple[Variable, int]]:
    return zip(variables, sizes if len(variables) == len(sizes) else [sum(sizes)], strict=False)


def _has_length(variable: Variable, n_matrices: int) -> bool:
    return math.prod(variable.shape) == max(variable.shape, default=1) == n_matrices


def read_column(variables: Column, limit: int) -> Labels:
    """Read arrays and join them; text is decoded, and whole numbers become integers."""
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


def _as_numbers(values: np.ndarray, variable: Variable) -> Labels:
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


def read_column_file(path: Path, length: int, what: str, of: str = "matrices") -> Labels:
    """Read a file with one entry, such as a label, for each matrix; a .csv may have a heading."""
    with open_regular(path, path.name) as file, explaining(path.name, LARGEST_FILE):
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILE:
            raise Refusal(f"it has {size} bytes, must have <= {LARGEST_FILE} to hold {what}")
        match path.suffix.lower():
            case ".npy" | ".npz" as ending:
                return _read_array(file, size, ending, length, what, of)
            case ".csv" | ".txt" as ending:
                return _read_lines(file, ending, length, what, of)
        raise Refusal(f"its name must end in {', '.join(COLUMN_FILES)} to hold {what}")


def _read_array(file: BinaryIO, size: int, ending: str, length: int, what: str, of: str) -> Labels:
    usual = LABEL_NAMES if what == "labels" else GROUP_NAMES
    with (open_npy if ending == ".npy" else open_npz)(file, size) as variables:
        chosen = tuple(one for one in variables if len(variables) == 1 or one.name in usual)
        if len(chosen) != 1:
            found = ", ".join(map(str, variables)) or "no arrays"
            raise Refusal(f"it holds {found}, must hold one array; save {what} alone")
        chosen[0].require()
        check_column(chosen, [length], what, of)
        check_limit(chosen[0].n_bytes, LARGEST_FILE, f"the entries of {chosen[0]}")
        return read_column(chosen, LARGEST_FILE)


def _read_lines(file: BinaryIO, ending: str, length: int, what: str, of: str) -> Labels:
    text = file.read().decode("utf-8-sig")
    entries = [line.strip() for line in text.splitlines()]
    if ending == ".csv":
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
        widest = max(map(len, rows), default=1)
        if widest > 1:
            raise Refusal(f"it has {widest} columns, must have one; save the {what} alone")
        entries = [row[0].strip() for row in rows]
        entries = entries[len(entries) == length + 1 or _has_heading(entries) :]
    if len(entries) != length or not all(entries):
        n_entries = sum(map(bool, entries))
        raise Refusal(
            f"it has {n_entries} entries in {len(entries)} lines, must have one for each of "
            f"{length} {of}; save {what} in the order of the {of}, one per line"
        )
    return text_array(entries, LARGEST_FILE)


def _has_heading(entries: Sequence[str]) -> bool:
    """Whether numbers follow a text: it names them, and is none of as many entries."""
    if len(entries) < 3:
        return False
    is_number = [_is_number(one) for one in entries]
    return not is_number[0] and all(is_number[1:])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
