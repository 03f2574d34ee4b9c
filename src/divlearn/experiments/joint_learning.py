"""Is it worth to learn atoms and divergences together? One split of Virus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from divlearn.experiments import paper
from divlearn.experiments.cells import Cell, Outcomes
from divlearn.experiments.classification import accuracy_cells
from divlearn.experiments.estimates import accuracy_of
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.methods import WHY
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import clauses, judge
from divlearn.experiments.shelf import SOURCES, Shelf
from divlearn.experiments.tables import SOLVERS

__all__ = ["JointLearning"]

# What is held, as the paper has it: the variant, and settings that are not those of the protocol.
_SCENARIOS: dict[str, tuple[str, dict[str, Any]]] = {
    "Fix(alpha, beta)": ("IDDL-N", {"learn_parameters": False}),
    "Fix(B)": ("IDDL-S", {"learn_atoms": False}),
    "joint": ("IDDL-N", {}),
}
_EXEMPT = "15 atoms"  # where the paper says the opposite


class JointLearning(Experiment):
    """The dictionary alone, the divergence alone, or both."""

    name = "joint-learning"
    title = "Learning atoms, divergences, or both"
    where = 'Table "fixing the dictionary atoms against fixing the parameters"'
    unit = "accuracy in %"
    sources = ("virus",)
    column_reasons = dict.fromkeys(_SCENARIOS, WHY["IDDL-N"])

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        return [
            cell
            for holding in shelf.find(self.sources)
            for atoms in protocol.joint_atoms
            for method, changes in _SCENARIOS.values()
            for cell in accuracy_cells(holding, [method], protocol, atoms=atoms, **changes)
            if cell.seed == 0
        ]

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        rows = []
        for atoms in done.settings("atoms"):
            for name, (method, changes) in _SCENARIOS.items():
                here = done.where(method=method, atoms=atoms, **(_UNCHANGED | changes))
                published = paper.JOINT.get(atoms, {}).get(name)
                rows.append(Row.of(f"{atoms} atoms", name, accuracy_of(here), published))
        return rows

    def reasons(self, rows: Sequence[Row]) -> dict[str, str]:
        """See `Experiment.reasons`."""
        return dict.fromkeys((row.row for row in rows), SOURCES["virus"].why)

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        found = {(row.row, row.column): row.value for row in rows}
        holds = {}
        for name in dict.fromkeys(row.row for row in rows):
            values = [found[name, scenario] for scenario in _SCENARIOS]
            if None not in values:
                best = values[-1] == max(value for value in values if value is not None)
                holds[name] = best == (name != _EXEMPT)
        return judge(f"joint learning is best, but for {_EXEMPT}", holds)

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        return clauses(
            f"The first split, {protocol.iterations} iterations of {SOLVERS[protocol.solver]}",
            self.limits(protocol),
        )


_UNCHANGED = {"learn_parameters": None, "learn_atoms": None}  # where a setting is not there
