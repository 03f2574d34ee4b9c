"""Accuracy beside metric learning, sparse coding and dictionary learning."""

from paper import published
from paper.classification import accuracy_table
from paper.comparison import Claim, Row, against, figures_of, names_of
from paper.data import paper_name
from paper.methods import CODED, RIDGE

_RIVALS = ("LEML", *CODED)
_COMPARED = {
    "variants of IDDL {} LEML, sparse coding and dictionaries": (tuple(RIDGE), _RIVALS),
    "learned divergences (V, N) {} fixed ones (A, B)": (
        ("IDDL-V", "IDDL-N"),
        ("IDDL-A", "IDDL-B"),
    ),
}


def _claims(rows: list[Row]) -> list[Claim]:
    claims = []
    for text, (ours, others) in _COMPARED.items():
        for data in names_of(rows):
            said = published.STATE_OF_THE_ART.get(paper_name(data))
            here = against(figures_of(rows, data), ours, others)
            theirs = against(said, ours, others) if said else None
            if here and theirs:
                claim = text.format("beat" if theirs[0] else "do not beat")
                claims.append(Claim(claim, data, here[0] == theirs[0], here[1], theirs[1]))
    return claims


STATE_OF_THE_ART = accuracy_table(
    name="state-of-the-art",
    title="Against LEML, sparse coding and dictionary learning",
    where='Table "Comparisons against state of the art"',
    methods=(*_RIVALS, *RIDGE),
    published=published.STATE_OF_THE_ART,
    claims=_claims,
    effort="All dictionaries have the same number of atoms",
)
