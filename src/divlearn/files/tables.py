"""Matrices in the rows of a .csv file: whole, or their upper triangles."""

import csv
import io
import math
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import BinaryIO

import numpy as np

from divlearn.arrays import RealArray
from divlearn.files.columns import FILES, GROUP_NAMES, LABEL_NAMES, LARGEST_FILE
from divlearn.files.variables import Refusal, Variable, quote, text_array
from divlearn.spd import are_symmetric

_NAMED = (FILES, *GROUP_NAMES, *LABEL_NAMES)
_Row = tuple[int, list[str]]  # number of the line, and cells


@contextmanager
def open_csv(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the matrices of a .csv file, and its columns of labels, groups or other text."""
    if size > LARGEST_FILE:
        raise Refusal(
            f"it has {size} bytes, must have <= {LARGEST_FILE}; save the matrices as .npz"
        )
    file.seek(0)
    rows = _rows(file.read().decode("utf-8-sig"))
    first = next(rows, (1, []))
    names = [] if _is_data(first[1]) else first[1]
    second = next(rows, (2, [])) if names else first
    if not second[1]:
        raise Refusal("it has no rows, must have one for each matrix; write it again")
    texts: dict[int, list[str]] = {
        place: []
        for place, (name, cell) in enumerate(zip(names, second[1], strict=False))
        if name in _NAMED or not _is_number(cell)
    }
    table = _read_table(chain([second], rows), len(first[1]), texts)
    columns = [(names[place], text_array(cells, LARGEST_FILE)) for place, cells in texts.items()]
    yield [_as_variable(*one) for one in [("matrices", _to_matrices(table)), *columns]]


def _rows(text: str) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""))
    return ((reader.line_num, [cell.strip() for cell in row]) for row in reader if row)


def _is_data(cells: Sequence[str]) -> bool:
    """Whether a first row is no heading: it has numbers, which do not count columns."""
    numbers = [cell for cell in cells if _is_number(cell)]
    counts = ([str(first + place) for place in range(len(numbers))] for first in (0, 1))
    return len(numbers) == 1 or (len(numbers) > 1 and numbers not in counts)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_table(rows: Iterator[_Row], width: int, texts: dict[int, list[str]]) -> RealArray:
    """Read numbers, one row for each matrix; cells of the columns of ``texts`` are added to it."""
    entries, n_rows = array("d"), 0
    for line, row in rows:
        n_rows += 1
        if len(row) != width:
            raise Refusal(
                f"line {line} has {len(row)} entries, must have {width} as the first one; write "
                "one matrix per line"
            )
        for place, cell in enumerate(row):
            if place in texts:
                texts[place].append(cell)
            elif _is_number(cell):
                entries.append(float(cell))
            else:
                raise Refusal(
                    f"line {line}, column {place + 1} holds {quote(cell)}, must hold a number; "
                    "separate numbers by commas, with a point for decimals, and give columns of "
                    "text a heading"
                )
    return np.array(entries, dtype=np.float64).reshape(n_rows, width - len(texts))


def _to_matrices(table: RealArray) -> RealArray:
    """Turn rows into matrices; a width of both kinds is that of whole ones if these are symmetric.

    Upper triangles are read row by row: x11, x12, ..., x1d, x22, ..., xdd.
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
            f"it has {width} columns of numbers, must have d * d for whole matrices or "
            "d * (d + 1) / 2 for upper triangles; separate them by commas, leave out others, and "
            "give labels that are numbers the heading labels"
        )
    matrices = np.empty((n_matrices, d, d))
    rows, columns = np.triu_indices(d)
    matrices[:, rows, columns] = matrices[:, columns, rows] = table
    return matrices


def _as_variable(name: str, values: np.ndarray) -> Variable:
    def read(limit: int) -> np.ndarray:
        if values.dtype.kind == "U" and "" in values:  # as spreadsheets write what is not known
            raise Refusal(
                f"{quote(name)}[{values.tolist().index('')}] is empty; fill it in, or drop the "
                "matrix"
            )
        return values

    return Variable(name, values.shape, values.dtype, read)
