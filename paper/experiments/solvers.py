"""All variants of IDDL by the paper's block-coordinate descent, beside the joint solver."""

from itertools import product

import numpy as np

from paper import published
from paper.cells import Cell, Done, distinct, where
from paper.classification import accuracy_cells
from paper.comparison import Claim, Row, accuracy_of
from paper.data import paper_name
from paper.experiment import Experiment
from paper.methods import RIDGE
from paper.protocol import Protocol

_SOURCES = ("kth", "virus", "jhmdb-joints")
_SOLVERS = {"bcd": "BCD", "joint": "joint solver"}


def _cells(protocol: Protocol) -> list[Cell]:
    return [
        cell
        for each in reversed(protocol.sweep)
        for source in _SOURCES
        for solver in protocol.solvers
        for cell in accuracy_cells(
            [source],
            RIDGE,
            protocol,
            atoms_per_class=each,
            solver=solver,
            iterations=protocol.steps(solver),
        )
    ]


def _rows(done: Done) -> list[Row]:
    rows = []
    for data, each in product(distinct(done, "data"), sorted(distinct(done, "atoms_per_class"))):
        known = published.STATE_OF_THE_ART.get(paper_name(data), {}) if each == 5 else {}
        for solver, said in _SOLVERS.items():
            here = where(done, data=data, atoms_per_class=each, solver=solver)
            rows += [
                Row.of(
                    f"{data}, {each} per class, {said}",
                    method,
                    accuracy_of(where(here, method=method)),
                    known.get(method),
                )
                for method in RIDGE
                if here
            ]
    return rows


def _claims(rows: list[Row]) -> list[Claim]:
    """Compare figures that both solvers have."""
    found = {(*row.row.rsplit(", ", 2), row.column): row for row in rows if row.value is not None}
    claims = []
    for data in dict.fromkeys(data for data, *_ in found):
        pairs = [
            (found[data, each, _SOLVERS["bcd"], method], joint)
            for (name, each, solver, method), joint in found.items()
            if name == data
            and solver == _SOLVERS["joint"]
            and (data, each, _SOLVERS["bcd"], method) in found
        ]
        if pairs:
            claims.append(_agreement(data, pairs))
    return claims


def _agreement(data: str, pairs: list[tuple[Row, Row]]) -> Claim:
    """Compare pairs of figures, by the paper's solver and by ours."""
    values, errors = (
        np.array([[getattr(row, name) for row in pair] for pair in pairs])
        for name in ("value", "error")
    )
    gaps = values[:, 1] - values[:, 0]
    near = np.abs(gaps) <= 2 * np.linalg.norm(errors, axis=1)
    here = f"at {near.sum()} of {len(near)}; joint - BCD is {gaps.mean():+.1f} on average"
    text = "ours: the joint solver is as accurate as BCD, within two standard errors"
    return Claim(text, data, bool(near.all()), here)


def _effort(protocol: Protocol) -> str:
    return (
        f"{', '.join(map(str, protocol.sweep))} atoms per class; the solvers share splits, first "
        "atoms, grid search and the way gamma is chosen; the paper's figures stand beside 5 atoms "
        "per class"
    )


SOLVERS = Experiment(
    name="solvers",
    title="Block-coordinate descent against the joint solver",
    unit="accuracy in %",
    where='IDDL in Table "Comparisons against state of the art"',
    cells=_cells,
    rows=_rows,
    claims=_claims,
    effort=_effort,
)
