"""Accuracy beside metric learning, sparse coding and dictionary learning."""

from __future__ import annotations

from collections.abc import Sequence

from divlearn.experiments import paper
from divlearn.experiments.cells import Outcomes
from divlearn.experiments.methods import CODED, RIDGE
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import judge
from divlearn.experiments.tables import AccuracyTable, figures_of

__all__ = ["StateOfTheArt"]

_RIVALS = ("LEML", *CODED)


class StateOfTheArt(AccuracyTable):
    """All variants of IDDL beside the methods the paper compares with, with as many atoms."""

    name = "state-of-the-art"
    title = "Against LEML, sparse coding and dictionary learning"
    where = 'Table "Comparisons against state of the art"'
    methods = (*_RIVALS, *RIDGE)
    published = paper.STATE_OF_THE_ART

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        best, learned = {}, {}
        for data in done.data:
            found = figures_of(rows, data)
            if set(self.methods) <= set(found):
                best[data] = max(found[m] for m in RIDGE) >= max(found[m] for m in _RIVALS)
                fixed = max(found["IDDL-A"], found["IDDL-B"])
                learned[data] = max(found["IDDL-V"], found["IDDL-N"]) >= fixed
        return [
            *super().claims(rows, done),
            *judge("the best variant of IDDL is better than all other methods", best),
            *judge("IDDL-V or IDDL-N, with learned divergences, beat fixed ones", learned),
        ]
