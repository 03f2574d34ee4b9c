"""Ridge regression beside the structured SVM, for variants V and N."""

from paper import published
from paper.classification import accuracy_table
from paper.comparison import Claim, Row, compare
from paper.methods import STRUCTURED

_RIDGE = ("IDDL-V", "IDDL-N")
_BETTER = ("the structured SVM is better", "the ridge loss is better")


def _claims(rows: list[Row]) -> list[Claim]:
    return compare(rows, published.LOSSES, STRUCTURED, _RIDGE, _BETTER)


LOSSES = accuracy_table(
    name="losses",
    title="Ridge regression against the structured SVM",
    where='Table "Comparisons between IDDL variants for ridge regression and structured SVM"',
    methods=(*_RIDGE, *STRUCTURED),
    published=published.LOSSES,
    claims=_claims,
    effort="To save time, the structured SVM starts at (1, 1), and its gamma is chosen with the "
    "first atoms; Brodatz, where one fit takes hours, is left out",
)
