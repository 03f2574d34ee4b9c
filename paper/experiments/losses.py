"""Ridge regression beside the structured SVM, for variants V and N."""

from paper import published
from paper.classification import accuracy_table
from paper.comparison import Claim, Row, against, figures_of, names_of
from paper.data import paper_name
from paper.methods import STRUCTURED

_RIDGE = ("IDDL-V", "IDDL-N")


def _claims(rows: list[Row]) -> list[Claim]:
    claims = []
    for data in names_of(rows):
        said = published.LOSSES.get(paper_name(data))
        here = against(figures_of(rows, data), STRUCTURED, _RIDGE)
        theirs = against(said, STRUCTURED, _RIDGE) if said else None
        if here and theirs:
            claim = f"the {'structured SVM' if theirs[0] else 'ridge loss'} is better"
            claims.append(Claim(claim, data, here[0] == theirs[0], here[1], theirs[1]))
    return claims


LOSSES = accuracy_table(
    name="losses",
    title="Ridge regression against the structured SVM",
    where='Table "Comparisons between IDDL variants for ridge regression and structured SVM"',
    methods=(*_RIDGE, *STRUCTURED),
    published=published.LOSSES,
    claims=_claims,
    effort="The structured SVM starts at (1, 1), and its gamma is chosen with the first atoms, for "
    "time; on Brodatz one fit takes hours and is left out",
)
