"""Reader of stacks of SPD matrices, their labels and groups, from files of all formats."""

import math
import os
import zipfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import check_count
from divlearn.files.columns import (
    FILES,
    GROUP_NAMES,
    LABEL_NAMES,
    LARGEST_FILE,
    Column,
    Row,
    check_column,
    choose,
    fits,
    is_numeric_text,
    read_column,
    read_column_file,
    read_rows,
    read_text,
)
from divlearn.files.matlab_files import find_hdf5, is_matlab, open_hdf5, open_matlab
from divlearn.files.variables import (
    NPY_MAGIC,
    ZIP_MAGICS,
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
from divlearn.spd import are_symmetric, check_and_learn
from divlearn.text import counted

MODEL_PAGE = "model.json"  # of the archives that `divlearn.save` writes
_COLUMN_NAMES = (FILES, *GROUP_NAMES, *LABEL_NAMES)


@dataclass(frozen=True, eq=False)
class SPDFile:
    matrices: RealArray
    labels: Labels | None
    splits: tuple[Indices, Indices] | None  # training and test matrices
    groups: Labels | None
    files: Labels | None  # names of the files that matrices were made from
    group_names: tuple[str, ...]  # arrays that look like groups, if ``groups`` is None


def read_spd(
    path: str | os.PathLike[str],
    *,
    matrices: str | None = None,
    labels: str | Path | None = None,
    groups: str | Path | None = None,
    limit: int = 2**32,
    regularize: str | float | None = "raise",
    square: bool = True,
) -> SPDFile:
    """Read a file as `load_spd` documents."""
    # There is no check if ``regularize`` is None or ``square`` is False. A `Path` of labels or
    # groups names another file.
    limit = check_count(limit, "limit", fix=", a number of bytes")
    path = Path(path).expanduser()
    with open_regular(path, path.name) as file, explaining(path.name, limit):
        size = os.fstat(file.fileno()).st_size
        with _find_opener(file, size)(file, size) as variables:
            parts, label_column, group_column, others = choose(
                variables, matrices, labels, groups, square
            )
            sizes = _check_choice(parts, label_column, group_column, square)
            others = {name: column for name, column in others.items() if fits(column, sizes)}
            columns = (label_column, group_column, others.pop(FILES, ()))
            chosen = [*parts, *chain.from_iterable(columns)]
            n_bytes = sum(variable.n_bytes for variable in chosen)
            check_limit(n_bytes, limit, " and ".join(map(str, chosen)))
            stacks = [_read_stack(part, limit) if square else part.read(limit) for part in parts]
            rest = limit - sum(stack.nbytes for stack in stacks)
            y, group_labels, files = (read_column(c, rest) if c else None for c in columns)
    if square and regularize is not None:
        shrinkage: Any = regularize
        for i, variable in enumerate(parts):  # the training part comes first
            name = f"{path.name}: {quote(variable.name)}"
            stacks[i], learned = check_and_learn(stacks[i], shrinkage, ndim=3, name=name)
            shrinkage = learned or shrinkage
    stack, splits = stacks[0], None
    if len(stacks) == 2:
        stack = np.concatenate(stacks)
        splits = np.arange(sizes[0]), np.arange(sizes[0], sum(sizes))
    if isinstance(labels, Path):
        y = read_column_file(labels, len(stack), "labels")
    if isinstance(groups, Path):
        group_labels = read_column_file(groups, len(stack), "groups")
    names = tuple(others) if group_labels is None else ()
    return SPDFile(stack, y, splits, group_labels, files, names)


def _find_opener(
    file: BinaryIO, size: int
) -> Callable[[BinaryIO, int], AbstractContextManager[list[Variable]]]:
    start = file.read(128)
    file.seek(0)
    if start.startswith(NPY_MAGIC):
        return open_npy
    if start.startswith(ZIP_MAGICS):
        with zipfile.ZipFile(file) as archive:  # arrays of a model may look like matrices
            if MODEL_PAGE in archive.namelist():
                raise Refusal(
                    "it is a model or a checkpoint of divlearn, must be data; pass matrices"
                )
        file.seek(0)
        return open_npz
    if is_matlab(start):
        return open_matlab
    if find_hdf5(file, size):
        return open_hdf5
    if Path(file.name).suffix.lower() == ".csv":  # it has no signature
        return open_csv
    fact = f"starts with {start[:8]!r}, as none of the known formats does" if start else "is empty"
    raise Refusal(
        f"it {fact}; write it as .npz, .npy, .csv, HDF5 or, in MATLAB, with save -v7 or save -v7.3"
    )


def _check_choice(matrices: Column, labels: Column, groups: Column, square: bool) -> list[int]:
    """Check arrays before they are read; return the number of matrices of each part."""
    for variable in (*matrices, *labels, *groups):
        variable.require()
    layouts = [_layout(variable, square) for variable in matrices]
    sizes = [size for size, _ in layouts]
    if len({side for _, side in layouts}) > 1:
        raise Refusal(
            f"{' and '.join(map(str, matrices))} differ in the size of their matrices; choose one "
            "with matrices="
        )
    check_column(labels, sizes, "labels")
    check_column(groups, sizes, "groups")
    return sizes


def _layout(variable: Variable, square: bool) -> tuple[int, tuple[int, ...]]:
    """Return the number of matrices and the shape of each."""
    if variable.dtype.kind not in "biuf":
        raise Refusal(f"{variable} must hold real numbers; save the matrices as float64")
    match variable.shape:
        case (n, _, *_) if not square:
            return n, variable.shape[1:]
        case (n, d, e) if d == e:
            return n, (d, e)
        case (d, e, n) if d == e:
            return n, (d, e)
    raise Refusal(
        f"{variable} is not a stack of square matrices: it must have three axes, the last or the "
        "first two of them equal; save it with shape (n_matrices, d, d), even if there is only one"
    )


def _read_stack(variable: Variable, limit: int) -> np.ndarray:
    """Read matrices, and move the axis along which they are stacked to the front."""
    stack = variable.read(limit)
    a, b, c = stack.shape
    if b != c:
        return np.moveaxis(stack, -1, 0)
    if a != b or are_symmetric(stack):
        return stack
    # The array is a cube. If matrices along the first and the last axis are symmetric, they agree.
    stack = np.moveaxis(stack, -1, 0)
    if are_symmetric(stack):
        return stack
    raise Refusal(
        f"{variable} has three equal axes, and its matrices are symmetric along neither the first "
        "nor the last; symmetrize them, or save another number of matrices"
    )


# --- rows of a .csv file: whole matrices, or their upper triangles --------------------------------


@contextmanager
def open_csv(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the matrices of a .csv file, and its columns of labels, groups or other text."""
    if size > LARGEST_FILE:
        raise Refusal(
            f"it has {size} bytes, must have <= {LARGEST_FILE}; save the matrices as .npz"
        )
    file.seek(0)
    rows = (row for row in read_rows(read_text(file)) if row[1])
    first = next(rows, (1, []))
    heading = [] if _is_data(first[1]) else first[1]
    second = next(rows, (2, [])) if heading else first
    if not second[1]:
        raise Refusal("it has no rows, must have one for each matrix; write it again")
    texts: dict[int, list[str]] = {
        column: []
        for column, (name, cell) in enumerate(zip(heading, second[1], strict=False))
        if name in _COLUMN_NAMES or not is_numeric_text(cell)
    }
    table = _read_table(chain([second], rows), len(first[1]), texts)
    columns = [(heading[i], text_array(cells, LARGEST_FILE)) for i, cells in texts.items()]
    arrays = [("matrices", _to_matrices(table)), *columns]
    yield [_as_variable(name, array) for name, array in arrays]


def _is_data(cells: Sequence[str]) -> bool:
    """Whether a first row has data: it has numbers, other than 0, 1, 2, ... or 1, 2, 3, ..."""
    numbers = [cell for cell in cells if is_numeric_text(cell)]
    column_numbers = ([str(i) for i in range(k, k + len(numbers))] for k in (0, 1))
    return len(numbers) == 1 or (len(numbers) > 1 and numbers not in column_numbers)


def _read_table(rows: Iterator[Row], width: int, texts: dict[int, list[str]]) -> RealArray:
    """Read numbers, a row for each matrix; cells of the columns in ``texts`` are appended there."""
    entries, n_rows = array("d"), 0
    for line, row in rows:
        n_rows += 1
        if len(row) != width:
            raise Refusal(
                f"line {line} has {counted(len(row), 'entries')}, must have {width} as the first "
                "one; write one matrix per line, with commas between numbers and a point for "
                "decimals"
            )
        for column, cell in enumerate(row):
            if column in texts:
                texts[column].append(cell)
            elif is_numeric_text(cell):
                entries.append(float(cell))
            else:
                raise Refusal(
                    f"line {line}, column {column + 1} holds {quote(cell)}, must hold a number; "
                    "separate numbers by commas, with a point for decimals, and give columns of "
                    "text a heading"
                )
    return np.array(entries, dtype=np.float64).reshape(n_rows, width - len(texts))


def _to_matrices(table: RealArray) -> RealArray:
    """Turn rows into matrices; a row is a matrix, or its upper triangle x11, x12, ..., x22, ...

    If the width fits both, rows are matrices if these are symmetric.
    """
    n_matrices, width = table.shape
    side, d = math.isqrt(width), (math.isqrt(8 * width + 1) - 1) // 2
    triangular = d * (d + 1) // 2 == width
    if side * side == width > 0:
        whole = table.reshape(n_matrices, side, side)
        if not triangular or side == d or are_symmetric(whole):
            return whole
    if not triangular or not width:
        raise Refusal(
            f"it has {counted(width, 'columns')} of numbers, must have d * d for whole matrices or "
            "d * (d + 1) / 2 for upper triangles; separate them by commas, leave out others, and "
            "give labels that are numbers the heading labels"
        )
    matrices = np.empty((n_matrices, d, d))
    rows, columns = np.triu_indices(d)
    matrices[:, rows, columns] = matrices[:, columns, rows] = table
    return matrices


def _as_variable(name: str, values: np.ndarray) -> Variable:
    def read(limit: int) -> np.ndarray:
        if values.dtype.kind == "U" and "" in values:  # spreadsheets write missing values like this
            raise Refusal(
                f"{quote(name)}[{values.tolist().index('')}] is empty; fill it in, or drop the "
                "matrix"
            )
        return values

    return Variable(name, values.shape, values.dtype, read)
