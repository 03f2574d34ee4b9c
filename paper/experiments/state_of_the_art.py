"""Accuracy beside metric learning, sparse coding and dictionary learning."""

from paper import published
from paper.cache import Done, distinct
from paper.classification import accuracy_table
from paper.comparison import Row, figures_of, judge
from paper.methods import CODED, RIDGE

_RIVALS = ("LEML", *CODED)


def _claims(rows: list[Row], done: Done) -> list[str]:
    best, learned = {}, {}
    for data in distinct(done, "data"):
        found = figures_of(rows, data)
        if {*_RIVALS, *RIDGE} <= set(found):
            best[data] = max(found[m] for m in RIDGE) >= max(found[m] for m in _RIVALS)
            fixed = max(found["IDDL-A"], found["IDDL-B"])
            learned[data] = max(found["IDDL-V"], found["IDDL-N"]) >= fixed
    return [
        *judge("the best variant of IDDL is better than all other methods", best),
        *judge("IDDL-V or IDDL-N, with learned divergences, beat fixed ones", learned),
    ]


STATE_OF_THE_ART = accuracy_table(
    name="state-of-the-art",
    title="Against LEML, sparse coding and dictionary learning",
    where='Table "Comparisons against state of the art"',
    methods=(*_RIVALS, *RIDGE),
    published=published.STATE_OF_THE_ART,
    claims=_claims,
)
