"""Ridge regression beside the structured SVM, for variants V and N."""

from paper import published
from paper.cells import Cell
from paper.classification import accuracy_cells, accuracy_table
from paper.comparison import Claim, Row, compare
from paper.methods import OURS, STRUCTURED
from paper.protocol import Protocol

_RIDGE = ("IDDL-V", "IDDL-N")
_METHODS = (*_RIDGE, *STRUCTURED)
_BETTER = ("the structured SVM is better", "the ridge loss is better")


def _few_textures(protocol: Protocol) -> list[Cell]:
    """Make cells of a part of Brodatz, where the structured SVM is too slow for all textures."""
    few = ["brodatz-20"] if "brodatz" in protocol.skipped else []
    return accuracy_cells(few, (*_METHODS, *OURS), protocol)


def _claims(rows: list[Row]) -> list[Claim]:
    return compare(rows, published.LOSSES, STRUCTURED, _RIDGE, _BETTER)


LOSSES = accuracy_table(
    name="losses",
    title="Ridge regression against the structured SVM",
    where='Table "Comparisons between IDDL variants for ridge regression and structured SVM"',
    methods=_METHODS,
    published=published.LOSSES,
    claims=_claims,
    more_cells=_few_textures,
    effort="To save time, the structured SVM starts at (1, 1), and its gamma is chosen with the "
    "first atoms; with all textures of Brodatz one fit takes hours, so it has 20 of them",
)
