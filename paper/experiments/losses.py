"""Ridge regression beside the structured SVM, for variants V and N."""

from collections.abc import Mapping

from paper import published
from paper.cache import Done, distinct
from paper.classification import accuracy_table
from paper.comparison import Row, figures_of, join, judge
from paper.data import SOURCES, paper_name
from paper.methods import STRUCTURED
from paper.protocol import Protocol

_RIDGE = ("IDDL-V", "IDDL-N")


def _claims(rows: list[Row], done: Done) -> list[str]:
    told = []
    for data in distinct(done, "data"):
        found, said = figures_of(rows, data), published.LOSSES.get(paper_name(data))
        if said and {*_RIDGE, *STRUCTURED} <= set(found):
            winner = _winner(said)
            holds = {data: _winner(found) == winner}
            told += judge(f"on {paper_name(data)} the {winner} is better", holds)
    return told


def _winner(found: Mapping[str, float]) -> str:
    ridge, structured = (max(found[m] for m in methods) for methods in (_RIDGE, STRUCTURED))
    return "structured SVM" if structured > ridge else "ridge loss"


def _more_effort(protocol: Protocol) -> str:
    left_out = join(SOURCES[key].title for key in protocol.skipped)
    return f"no structured SVM on {left_out}, where one takes hours" if left_out else ""


LOSSES = accuracy_table(
    name="losses",
    title="Ridge regression against the structured SVM",
    where='Table "Comparisons between IDDL variants for ridge regression and structured SVM"',
    methods=(*_RIDGE, *STRUCTURED),
    published=published.LOSSES,
    claims=_claims,
    more_effort=_more_effort,
)
