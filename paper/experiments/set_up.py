"""IDDL by the paper's text and by its authors' code, each with the paper's solver and with ours."""

from typing import Any

from paper import published
from paper.cells import Cell, Done, distinct, where
from paper.classification import accuracy_cells
from paper.comparison import Claim, Row, accuracy_of, mean_of, names_of
from paper.data import paper_name
from paper.experiment import Experiment
from paper.protocol import Protocol

_BEST = "IDDL, best variant"
_METHODS = {"kth": "IDDL-V", "virus": "IDDL-N", "kth-images": "IDDL-V"}  # the paper's best
_CODE: dict[str, Any] = {"gamma": "10/n", "code": True}
_COLUMNS: dict[str, dict[str, Any]] = {
    "text, BCD": {"solver": "bcd"},
    "text, joint": {"solver": "joint"},
    "code, BCD": _CODE | {"solver": "bcd"},
    "code, joint": _CODE | {"solver": "joint"},
}


def _cells(protocol: Protocol) -> list[Cell]:
    cells = []
    for source, method in _METHODS.items():
        for changes in reversed(_COLUMNS.values()):
            told = changes | {"iterations": protocol.steps(changes["solver"])}
            cells += accuracy_cells([source], [method], protocol, **told)
    return cells


def _rows(done: Done) -> list[Row]:
    rows = []
    for data in distinct(done, "data"):
        known = published.STANDARD[paper_name(data)][_BEST]
        for name, changes in _COLUMNS.items():
            here = where(done, data=data, solver=changes["solver"], code=changes.get("code"))
            rows.append(Row.of(data, name, accuracy_of(here), known))
        for name in ("text, BCD", "text, joint"):
            solver = _COLUMNS[name]["solver"]
            here = where(done, data=data, solver=solver, code=None)
            seconds = mean_of([one["fit_seconds"] for one in here])
            rows.append(Row(data, f"{name}, s", seconds and seconds[0], decimals=0))
    return rows


def _claims(rows: list[Row]) -> list[Claim]:
    found = {(row.row, row.column): row for row in rows if row.value is not None}
    claims = []
    for data in names_of(rows):
        bcd = found.get((data, "text, BCD"))
        if bcd:
            text = "accuracy of IDDL, set up by the text, within two standard errors"
            here = f"{bcd.value:.1f} +- {bcd.error:.1f}"
            claims.append(Claim(text, data, not bcd.differs, here, f"{bcd.paper:g}"))
    return claims


def _effort(protocol: Protocol) -> str:
    return (
        "IDDL-V on KTH-TIPS2 and IDDL-N on Virus, where they are the paper's best; `text` is "
        "`IDDLClassifier.paper()`, `code` is `paper(code=True)`; the last columns are the seconds "
        "of a fit, including the choice of gamma"
    )


SET_UP = Experiment(
    name="set-up",
    title="The paper's set-up and its solver",
    unit="accuracy in %",
    where='Figures of IDDL in Table "Comparisons against 1-NN and SVM classification"',
    cells=_cells,
    rows=_rows,
    claims=_claims,
    effort=_effort,
)
