"""Ridge regression beside the structured SVM, for variants V and N."""

from __future__ import annotations

from collections.abc import Sequence

from divlearn.experiments import paper
from divlearn.experiments.cells import Outcomes
from divlearn.experiments.methods import STRUCTURED
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import join, judge
from divlearn.experiments.shelf import SOURCES
from divlearn.experiments.tables import AccuracyTable, figures_of, paper_name

__all__ = ["Losses"]

_RIDGE = ("IDDL-V", "IDDL-N")


class Losses(AccuracyTable):
    """Which of the paper's two losses is better, on the same data."""

    name = "losses"
    title = "Ridge regression against the structured SVM"
    where = 'Table "Comparisons between IDDL variants for ridge regression and structured SVM"'
    methods = (*_RIDGE, *STRUCTURED)
    published = paper.LOSSES

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        left_out = [SOURCES[key].title for key in protocol.skipped]
        told = f"; no structured SVM on {join(left_out)}, where one takes hours" if left_out else ""
        return super().effort(protocol) + told

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        told = super().claims(rows, done)
        for data in done.data:
            found, said = figures_of(rows, data), self.published.get(paper_name(data))
            if said and set(self.methods) <= set(found):
                winner = _winner(said)
                held = _winner(found) == winner
                told += judge(f"on {paper_name(data)} the {winner} is better", {data: held})
        return told


def _winner(found: dict[str, float]) -> str:
    ridge, structured = (max(found[m] for m in methods) for methods in (_RIDGE, STRUCTURED))
    return "structured SVM" if structured > ridge else "ridge loss"
