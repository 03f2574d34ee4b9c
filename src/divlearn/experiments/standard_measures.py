"""Accuracy beside 1-NN in the usual metrics and a linear SVM."""

from __future__ import annotations

from collections.abc import Sequence

from divlearn.experiments import paper
from divlearn.experiments.cells import Cell, Outcomes
from divlearn.experiments.classification import accuracy_cells
from divlearn.experiments.estimates import accuracy_of
from divlearn.experiments.methods import NEIGHBOURS, OURS, RIDGE
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import judge
from divlearn.experiments.shelf import SOURCES, Shelf
from divlearn.experiments.tables import AccuracyTable, best_of, figures_of, paper_name

__all__ = ["StandardMeasures"]

_BEST = "IDDL, best variant"
_WHOLE = "brodatz-all"  # too large for all but 1-NN
_EXEMPT = SOURCES["brodatz"].title, SOURCES["rgbd"].title  # where the paper says the opposite


class StandardMeasures(AccuracyTable):
    """Simple classifiers beside the best variant of IDDL, picked on test data as in the paper."""

    name = "standard-measures"
    title = "Against 1-NN and a linear SVM"
    where = 'Table "Comparisons against 1-NN and SVM classification"'
    methods = (*NEIGHBOURS, "SVM-LE")
    published = paper.STANDARD

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        variants = [
            cell
            for holding in shelf.find(self.sources)
            for cell in accuracy_cells(holding, tuple(RIDGE), protocol)
        ]
        whole = [
            cell
            for holding in shelf.find([_WHOLE] if protocol.whole else [])
            for cell in accuracy_cells(holding, tuple(NEIGHBOURS), protocol)
        ]
        return [*super().cells(shelf, protocol), *variants, *whole]

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        rows = super().rows(done)
        best = [
            Row.of(data, _BEST, best_of(done.where(data=data), RIDGE),
                   self.published.get(paper_name(data), {}).get(_BEST))
            for data in done.data
        ]  # fmt: skip
        theirs, ours = (
            [row for row in rows if (row.column in OURS) is own] for own in (False, True)
        )
        whole = SOURCES[_WHOLE].title
        return [
            row for row in (*theirs, *best, *ours) if row.row != whole or row.column in NEIGHBOURS
        ]

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        return (
            f"{super().effort(protocol)}; its best variant is picked on test data, as in the paper"
        )

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        holds, variants = {}, []
        for data in done.data:
            found = figures_of(rows, data)
            if {_BEST, *self.methods} <= set(found):
                best = found[_BEST] >= max(found[method] for method in self.methods)
                holds[data] = best == (data not in _EXEMPT)
                variants.append(_say_variant(done.where(data=data), data))
        claim = "IDDL is better than 1-NN and SVM-LE, but for Brodatz and 3D objects"
        said = [f"Best variants: {'; '.join(variants)}."] if variants else []
        return [*super().claims(rows, done), *said, *judge(claim, holds)]


def _say_variant(here: Outcomes, data: str) -> str:
    """Name the best variant of IDDL, and that of the paper."""
    found = {RIDGE[method]: accuracy_of(here.where(method=method)) for method in RIDGE}
    known = {letter: one.value for letter, one in found.items() if one is not None}
    published = paper.BEST_VARIANT.get(paper_name(data), "-")
    return f"{data} {max(known, key=known.__getitem__)} (the paper: {published})"
