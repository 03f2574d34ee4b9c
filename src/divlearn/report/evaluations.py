"""Pages of classifiers side by side."""

from __future__ import annotations

from divlearn.evaluation import Evaluation
from divlearn.report.confusion import ConfusionSection
from divlearn.report.page import Page
from divlearn.report.section import Section
from divlearn.report.tables import DisagreementSection, TableSection

__all__ = ["evaluation_page"]

_MOST_ROWS = 500
_OURS = ("SPDClassifier", "IDDLClassifier", "DivergenceKernelClassifier")


def evaluation_page(found: Evaluation) -> Page:
    """Page of an evaluation: the table, and where the best one errs.

    Parameters
    ----------
    found : Evaluation

    Returns
    -------
    Page

    Examples
    --------
    >>> from divlearn.baselines import DivergenceKNN
    >>> from divlearn.datasets import make_wishart_clusters
    >>> from divlearn.evaluation import evaluate
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=2, random_state=0)
    >>> near = {name: DivergenceKNN(1, name) for name in ("airm", "log-euclidean")}
    >>> [section.title for section in evaluation_page(evaluate(X, y, near)).sections]
    ['Classifiers', 'What log-euclidean takes for what', 'Where log-euclidean and airm disagree']
    """
    best = found.best
    answer, _, detail = found.summary().replace("+-", "±").partition(". ")
    sections: list[Section] = [_table(found), _confusion(found, best)]
    rival = _rival(found)
    if rival is not None:
        sections.append(_disagreements(found, best, rival))
    return Page("Which classifier?", f"{answer.rstrip('.')}.", sections, detail=detail)


def _table(found: Evaluation) -> TableSection:
    headings = ["classifier", "accuracy", "±", "behind the best", "± points", "p", "seconds"]
    rows = [
        [
            row.name, row.accuracy, row.standard_error, 100 * row.versus_best.difference,
            100 * row.versus_best.standard_error, row.versus_best.p_value, row.seconds,
        ]
        for row in found.table()
    ]  # fmt: skip
    return TableSection(
        "Classifiers", headings, rows, bold=[0],
        formats={
            "accuracy": ".1%", "±": ".1%", "behind the best": ".1f", "± points": ".1f", "p": ".2g",
            "seconds": ".1f",
        },
        note=f"Cross-validation on the same folds: {found.message}. How far each is behind the "
        "best, in percentage points on the same matrices, and how likely that would be by luck "
        "alone (exact McNemar test).",
    )  # fmt: skip


def _confusion(found: Evaluation, name: str) -> ConfusionSection:
    return ConfusionSection(
        f"What {name} takes for what", found.classes.tolist(), found.confusion(name),
        note="Rows are true classes, columns predicted ones.",
    )  # fmt: skip


def _rival(found: Evaluation) -> str | None:
    """Name the best baseline; where the best is one itself, the next one."""
    others = [row.name for row in found.table() if row.name != found.best]
    baselines = [name for name in others if name not in _OURS]
    return next(iter(baselines or others), None)


def _disagreements(found: Evaluation, best: str, rival: str) -> DisagreementSection:
    rows = found.disagreements(best, rival)
    shown = rows[:_MOST_ROWS]
    more = f" The first {_MOST_ROWS} of {len(rows)}." if len(rows) > _MOST_ROWS else ""
    said = {name: found.classes[found.predictions[name][shown]].tolist() for name in (best, rival)}
    return DisagreementSection.of(
        f"Where {best} and {rival} disagree", found.classes[found.codes[shown]].tolist(), said,
        names=found.rows[shown].tolist(),
        note=f"Matrices, by their number, that exactly one of the two gets right.{more}",
    )  # fmt: skip
