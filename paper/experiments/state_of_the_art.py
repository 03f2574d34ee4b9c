"""Accuracy beside metric learning, sparse coding and dictionary learning."""

from paper import published
from paper.cells import Cell
from paper.classification import accuracy_table, whole_cells
from paper.comparison import Claim, Row, compare
from paper.methods import CODED, RIDGE
from paper.protocol import Protocol

_RIVALS = ("LEML", *CODED)
_LEARNED, _FIXED = ("IDDL-V", "IDDL-N"), ("IDDL-A", "IDDL-B")


def _more_cells(protocol: Protocol) -> list[Cell]:
    return whole_cells(RIDGE, protocol)


def _claims(rows: list[Row]) -> list[Claim]:
    table = published.STATE_OF_THE_ART
    best = "IDDL beats LEML, sparse coding and dictionaries", "IDDL does not beat dictionaries"
    learned = "learned divergences (V, N) beat fixed ones (A, B)", "fixed divergences beat learned"
    return [
        *compare(rows, table, RIDGE, _RIVALS, best),
        *compare(rows, table, _LEARNED, _FIXED, learned),
    ]


STATE_OF_THE_ART = accuracy_table(
    name="state-of-the-art",
    title="Against LEML, sparse coding and dictionary learning",
    where='Table "Comparisons against state of the art"',
    methods=(*_RIVALS, *RIDGE),
    published=published.STATE_OF_THE_ART,
    claims=_claims,
    more_cells=_more_cells,
    effort="All dictionaries have the same number of atoms",
)
