"""What tables of accuracies have in common: data sets in rows, methods in columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from divlearn.experiments.cells import Cell, Outcomes
from divlearn.experiments.classification import accuracy_cells
from divlearn.experiments.estimates import Estimate, accuracy_of
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.methods import OURS, WHY
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import clauses
from divlearn.experiments.shelf import SOURCES, Shelf

__all__ = ["TABLE_SOURCES", "AccuracyTable", "best_of", "figures_of", "paper_name"]

# What is cheap first: whoever stops early has most of the tables.
TABLE_SOURCES = (
    "kth", "virus", "jhmdb-joints", "brodatz", "kth-images", "jhmdb", "breast", "myometrium",
    "rgbd", "hmdb",
)  # fmt: skip
_PAPER_NAMES = {source.title: source.paper for source in SOURCES.values()}


def paper_name(title: str) -> str:
    """Return what the paper calls data.

    Examples
    --------
    >>> paper_name("JHMDB joints")
    'JHMDB'
    """
    return _PAPER_NAMES.get(title, title)


def best_of(done: Outcomes, methods: Iterable[str]) -> Estimate | None:
    """Return the highest of the accuracies of methods, once all are there."""
    found = [accuracy_of(done.where(method=method)) for method in methods]
    known = [one for one in found if one is not None]
    return max(known) if len(known) == len(found) else None


def figures_of(rows: Sequence[Row], data: str) -> dict[str, float]:
    """Return the figures of a data set that are there, by method."""
    return {row.column: row.value for row in rows if row.row == data and row.value is not None}


class AccuracyTable(Experiment):
    """Accuracies of methods on data sets, beside those of the paper.

    Attributes
    ----------
    methods : sequence of str
        Columns that the paper has too.
    published : mapping, the paper's figures by data and method.
    """

    unit = "accuracy in %"
    sources = TABLE_SOURCES
    column_reasons = WHY
    methods: ClassVar[Sequence[str]]
    published: ClassVar[Mapping[str, Mapping[str, float]]]

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        return [
            cell
            for holding in shelf.find(self.sources)
            for cell in accuracy_cells(holding, (*self.methods, *reversed(OURS)), protocol)
        ]

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        return [
            Row.of(data, method, accuracy_of(done.where(data=data, method=method)),
                   self.published.get(paper_name(data), {}).get(method))
            for data in done.data
            for method in (*self.methods, *OURS)
        ]  # fmt: skip

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        parts = (
            f"At most {_count(protocol.splits, 'split')} of every data set, "
            f"{_count(protocol.repeats, 'fit')} where there is one split",
            self.limits(protocol),
            f"{_count(protocol.atoms_per_class, 'atom')} per class for all dictionaries",
            f"the paper's IDDL has {protocol.iterations} iterations of {SOLVERS[protocol.solver]}",
            *(
                f"{method} with {_say_parameters(protocol.parameters[method])}"
                for method in (*self.methods, *OURS)
                if method in protocol.parameters
            ),
        )
        return clauses(*parts)

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        return [sentence for data in done.data for sentence in self._beside(rows, data)]

    def _beside(self, rows: Sequence[Row], data: str) -> list[str]:
        """Say how the best of ours compares with the best of the paper's methods."""
        found = figures_of(rows, data)
        ours = {name: value for name, value in found.items() if name in OURS}
        theirs = {name: value for name, value in found.items() if name in self.methods}
        if len(ours) < len(OURS) or len(theirs) < len(self.methods):
            return []
        one, other = max(ours, key=ours.__getitem__), max(theirs, key=theirs.__getitem__)
        published = self.published.get(paper_name(data))
        highest = (
            f"; the paper's highest figure is {max(published.values()):g}" if published else ""
        )
        return [
            f"{data}: the best of ours is {one} with {ours[one]:.1f}, of the paper's methods here "
            f"{other} with {theirs[other]:.1f}{highest}."
        ]


SOLVERS = {
    "bcd": "block-coordinate descent, as in the paper",
    "joint": "the joint solver, which minimises what the paper's does in a fraction of the time",
}


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _say_parameters(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())
