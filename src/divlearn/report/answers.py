"""Pages of the answers to "which divergence should I use?"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from divlearn.maps import NAMED, PlaneMap
from divlearn.report.page import Page
from divlearn.report.plane import TITLES
from divlearn.report.plane_section import PlaneSection
from divlearn.report.section import Section
from divlearn.report.tables import TableSection
from divlearn.report.words import as_sentence

if TYPE_CHECKING:
    from divlearn.which import WhichDivergence

__all__ = ["plane_page", "which_page"]

_TITLE = "Which divergence?"
_LEVELS = 0.5  # log-likelihood per matrix that the colours tell apart
_BRIGHTER = (
    "Every cell is a divergence, by its parameters alpha and beta; brighter is better. Circles "
    "have a name in the literature, the star is "
)


def which_page(answer: WhichDivergence) -> Page:
    """Page of what `which_divergence` found: the answer, the map and the table.

    Parameters
    ----------
    answer : WhichDivergence

    Returns
    -------
    Page

    Examples
    --------
    >>> from divlearn import which_divergence
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    >>> which_page(which_divergence(X, y, random_state=0)).sentence
    'Use ...'
    """
    summary = answer.summary()
    if answer.message.startswith("interrupted"):
        summary += f" {as_sentence(answer.message)}"
    if answer.criterion == "accuracy":
        return _page(summary, [_accuracy_map(answer), _accuracy_table(answer)])
    return _page(summary, [_likelihood_map(answer), _likelihood_table(answer)])


def plane_page(plane: PlaneMap) -> Page:
    """Page of a map of the plane.

    Parameters
    ----------
    plane : PlaneMap

    Returns
    -------
    Page

    Examples
    --------
    >>> from divlearn import maps
    >>> X = [[[scale, 0], [0, shape]] for shape in (1, 9) for scale in (1, 2)]
    >>> plane_page(maps.plane_map(X, [0, 0, 1, 1])).title
    'Which divergence?'
    """
    rows = [
        [TITLES[name], NAMED[name].alpha, NAMED[name].beta, accuracy, error]
        for name, accuracy in plane.named.items()
        for error in [plane.standard_error[plane.index(NAMED[name].alpha, NAMED[name].beta)]]
    ]
    highest = max(plane.named.values(), default=0)
    map_section = PlaneSection(
        "Map of the plane", plane.alphas, plane.betas, plane.accuracy, "accuracy",
        learned=[(*plane.best, "best of the grid")], mark="best of the grid",
        note=_BRIGHTER + "the best of the grid. Values are leave-one-out accuracies of the "
        f"nearest neighbour on {plane.n_matrices} matrices.",
    )  # fmt: skip
    table = TableSection(
        "Named divergences", ["name", "alpha", "beta", "accuracy", "standard error"], rows,
        bold=[index for index, row in enumerate(rows) if row[3] == highest],
        formats={"alpha": "g", "beta": "g", "accuracy": ".1%", "standard error": ".1%"},
    )  # fmt: skip
    return _page(plane.summary(), [map_section, table])


def _page(summary: str, sections: Sequence[Section]) -> Page:
    """Take the first statement of a summary as the answer; the evidence stands below."""
    summary = summary.replace("+-", "±")
    ends = [place for place in (summary.find(": "), summary.find(". ")) if place > 0]
    end = min(ends, default=len(summary))
    answer, evidence = summary[:end].rstrip("."), summary[end + 1 :].strip()
    return Page(_TITLE, f"{answer}.", sections, detail=evidence[:1].upper() + evidence[1:])


# ------------------------------------------------------------------ with labels


def _accuracy_map(answer: WhichDivergence) -> PlaneSection:
    return PlaneSection(
        "Map of the plane", answer.alphas, answer.betas, answer.map, "accuracy",
        learned=[(*answer.best, "learned")],
        note=_BRIGHTER + "what was learned. Values are cross-validated accuracies of the nearest "
        f"neighbour on {answer.n_matrices} matrices.",
    )  # fmt: skip


def _accuracy_table(answer: WhichDivergence) -> TableSection:
    headings = ["name", "alpha", "beta", "accuracy", "learned ahead by", "standard error", "p"]
    rows = [["learned", *answer.best, answer.score, None, None, None]]
    rows += [
        [
            TITLES[name], row.alpha, row.beta, row.score, 100 * row.difference,
            100 * row.standard_error, row.p_value,
        ]
        for name, row in answer.named.items()
    ]  # fmt: skip
    return TableSection(
        "Named divergences", headings, rows, bold=[0],
        formats={
            "alpha": "g", "beta": "g", "accuracy": ".1%", "learned ahead by": "+.1f",
            "standard error": ".1f", "p": ".2g",
        },
        note="How far the learned point is ahead of each, in percentage points on the same "
        "matrices, and how likely that would be by luck alone (exact McNemar test). The learned "
        "point is judged on folds it was chosen without.",
    )  # fmt: skip


# ------------------------------------------------------------------ without labels


def _likelihood_map(answer: WhichDivergence) -> PlaneSection:
    below = answer.map - answer.score
    return PlaneSection(
        "Map of the plane", answer.alphas, answer.betas, below, "log-likelihood",
        learned=[(*answer.best, "maximum")], mark="maximum", value_format=".3f",
        floor=float(np.nanmax(below)) - _LEVELS,  # the maximum may lie far outside the map
        note=_BRIGHTER + "the maximum. Values are log-likelihoods per matrix, less that of the "
        f"maximum; all that are more than {_LEVELS} below the best cell look the same.",
    )  # fmt: skip


def _likelihood_table(answer: WhichDivergence) -> TableSection:
    headings = ["name", "alpha", "beta", "log-likelihood", "maximum ahead by", "standard error"]
    headings += ["p", "BIC difference"]
    rows = [["maximum", *answer.best, answer.score, None, None, None, None]]
    rows += [
        [
            TITLES[name], row.alpha, row.beta, row.score, row.difference, row.standard_error,
            row.p_value, row.bic_difference,
        ]
        for name, row in answer.named.items()
    ]  # fmt: skip
    return TableSection(
        "Named divergences", headings, rows, bold=[0],
        formats={
            "alpha": ".3g", "beta": ".3g", "log-likelihood": ".3f", "maximum ahead by": ".3f",
            "standard error": ".3f", "p": ".2g", "BIC difference": "+.1f",
        },
        note="How far the maximum is ahead of each, in log-likelihood per matrix, and how likely "
        "that would be by luck alone (likelihood-ratio test). A positive difference of BIC "
        "prefers the maximum, although it has two parameters more.",
    )  # fmt: skip
