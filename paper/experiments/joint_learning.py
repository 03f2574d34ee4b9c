"""Is it worth learning atoms and divergences together? One split of Virus."""

from typing import Any

from paper import published
from paper.cache import Cell, Done, distinct, where
from paper.classification import accuracy_cells
from paper.comparison import Row, accuracy_of, clauses, figures_of, judge, names_of
from paper.data import SOURCES, Data
from paper.experiment import Experiment, say_limits
from paper.methods import SOLVER, WHY
from paper.protocol import Protocol

# What is held fixed in the paper: the variant, and settings that are not those of the protocol.
_SCENARIOS: dict[str, tuple[str, dict[str, Any]]] = {
    "Fix(alpha, beta)": ("IDDL-N", {"solver": "joint atoms"}),
    "Fix(B)": ("IDDL-S", {"solver": "joint divergences"}),
    "joint": ("IDDL-N", {"solver": "joint"}),
}
_EXEMPT = "15 atoms"  # where the paper says the opposite


def _cells(data: Data, protocol: Protocol) -> list[Cell]:
    return [
        cell
        for atoms in protocol.joint_atoms
        for method, changes in _SCENARIOS.values()
        for cell in accuracy_cells(data, ["virus"], [method], protocol, atoms=atoms, **changes)
        if cell.seed == 0
    ]


def _rows(done: Done) -> list[Row]:
    rows = []
    for atoms in distinct(done, "atoms"):
        for name, (method, changes) in _SCENARIOS.items():
            here = where(done, method=method, atoms=atoms, **changes)
            known = published.JOINT.get(atoms, {}).get(name)
            rows.append(Row.of(f"{atoms} atoms", name, accuracy_of(here), known))
    return rows


def _claims(rows: list[Row], done: Done) -> list[str]:
    holds = {}
    for name in names_of(rows):
        found = figures_of(rows, name)
        if len(found) == len(_SCENARIOS):
            best = found["joint"] == max(found.values())
            holds[name] = best == (name != _EXEMPT)
    return judge(f"joint learning is best, but for {_EXEMPT}", holds)


def _effort(protocol: Protocol) -> str:
    return clauses(
        f"The first split, {protocol.iterations} iterations of {SOLVER}",
        say_limits(protocol, ["virus"]),
    )


JOINT_LEARNING = Experiment(
    name="joint-learning", title="Learning atoms, divergences, or both", unit="accuracy in %",
    where='Table "fixing the dictionary atoms against fixing the parameters"',
    sources=("virus",), cells=_cells, rows=_rows, claims=_claims, effort=_effort,
    reasons={
        **{f"{n} atoms": SOURCES["virus"].why for n in published.JOINT},
        **dict.fromkeys(_SCENARIOS, WHY["IDDL-N"]),
    },
)  # fmt: skip
