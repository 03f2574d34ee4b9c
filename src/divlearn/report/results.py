"""Pages of the answers of `divlearn.judge`."""

from collections.abc import Sequence
from functools import singledispatch

import numpy as np

from divlearn.judge.answer import MEAN, NEIGHBOUR, WhichDivergence, say_answer
from divlearn.judge.channels import ChannelImportance
from divlearn.judge.evaluation import Evaluation
from divlearn.judge.maps import PlaneMap
from divlearn.judge.significance import name_units
from divlearn.nearest.plane import NAMED
from divlearn.report.channels import ranking_section
from divlearn.report.figures import confusion_anchor, confusion_section
from divlearn.report.page import Page
from divlearn.report.planes import LEGEND, LEVELS, TITLES, map_section, plane_section
from divlearn.report.sections import (
    Formats,
    Section,
    as_sentence,
    disagreement_section,
    table_section,
)
from divlearn.text import counted, format_p

_MAX_ROWS = 500
_OWN_CLASSIFIERS = ("SPDClassifier", "IDDLClassifier", "DivergenceKernelClassifier")


@singledispatch
def page_of(result: object) -> Page:
    """Make the page of a WhichDivergence, PlaneMap, Evaluation or ChannelImportance.

    Notebooks show it; `Page.write` writes it to a file.

    Examples
    --------
    >>> from divlearn import plane_map
    >>> X = [[[scale, 0], [0, shape]] for shape in (1, 9) for scale in (1, 2)]
    >>> page_of(plane_map(X, [0, 0, 1, 1], [0, 1], [0, 1])).sentence
    'All 4 points of the grid have the accuracy 100.0%.'
    """
    raise TypeError(f"a {type(result).__name__} has no page")


def _answer(title: str, summary: str, sections: Sequence[Section]) -> Page:
    """Show the first statement of a summary as the answer, and the rest below as evidence."""
    summary = summary.replace("+-", "±")
    ends = [summary.find(mark) for mark in (": ", ". ")]
    end = min((index for index in ends if index > 0), default=len(summary))
    answer, evidence = summary[:end].rstrip("."), summary[end + 1 :].strip()
    return Page(title, f"{answer}.", sections, detail=evidence[:1].upper() + evidence[1:])


@page_of.register
def _(plane: PlaneMap) -> Page:
    errors = plane.standard_error
    points = {name: (NAMED[name].alpha, NAMED[name].beta) for name in plane.named}
    rows = [
        [TITLES[name], *point, plane.at(*point), errors[plane.index(*point)]]
        for name, point in points.items()
    ]
    highest = max(plane.named.values(), default=0)
    return _answer(
        "Which divergence?",
        plane.summary(),
        [
            map_section(
                plane,
                [(*plane.best, "best of the grid")],
                "best of the grid",
                "The star is the best of the grid.",
            ),
            table_section(
                "Named divergences",
                ["name", "alpha", "beta", "accuracy", "standard error"],
                rows,
                bold=[index for index, row in enumerate(rows) if row[3] == highest],
                formats={"alpha": "g", "beta": "g", "accuracy": ".1%", "standard error": ".1%"},
            ),
        ],
    )


@page_of.register
def _(answer: WhichDivergence) -> Page:
    lines = say_answer(answer)
    if answer.message.startswith("interrupted"):
        lines.append(as_sentence(answer.message))
    make_sections = _accuracy_sections if answer.criterion == "accuracy" else _likelihood_sections
    return _answer("Which divergence?", "\n".join(lines), make_sections(answer))


def _accuracy_sections(answer: WhichDivergence) -> list[Section]:
    formats: Formats = {
        "neighbour": ".1%",
        "mean": ".1%",
        "p": format_p,
        "learned ahead by": ".1f",
        "alpha": "g",
        "beta": "g",
    }
    neighbour, mean = (answer.rules[rule].score for rule in (NEIGHBOUR, MEAN))
    rows: list[list[object]] = [
        ["learned", answer.score, None, None, None, *answer.best],
        ["best named", neighbour, mean, *4 * [None]],
        *_named_rows(answer, 100, "mean_score"),
    ]
    note = (
        f"Held-out {answer.measure} of the nearest neighbour and of the nearest mean; differences "
        "between neighbours in the learned point and in each named divergence, in percentage "
        f"points on the same matrices, with p-values (max-T sign-flip test over {answer.units}, "
        "adjusted for all named divergences). The learned point, and the best named divergence of "
        "either rule, are chosen without each fold and judged on it."
    )
    return [
        plane_section(
            "Map of the plane",
            answer.alphas,
            answer.betas,
            answer.map,
            answer.measure,
            learned=[(*answer.best, "learned")],
            note=f"{LEGEND} The star is the learned point. Values are held-out {answer.measure} of "
            f"the nearest neighbour on {answer.n_matrices} matrices.",
        ),
        _named_table(rows, formats, note),
    ]


def _likelihood_sections(answer: WhichDivergence) -> list[Section]:
    formats: Formats = {
        "log-likelihood": ".3f",
        "BIC difference": "+.1f",
        "p": format_p,
        "maximum ahead by": ".3f",
        "alpha": ".3g",
        "beta": ".3g",
    }
    rows: list[list[object]] = [["maximum", answer.score, None, None, None, *answer.best]]
    rows += _named_rows(answer, 1, "bic_difference")
    note = (
        "Differences between the maximum and each named divergence, in log-likelihood per matrix, "
        "with p-values of the likelihood-ratio test. A positive BIC difference prefers the "
        "maximum, which has two more parameters."
    )
    values = answer.map - answer.score
    return [
        plane_section(
            "Map of the plane",
            answer.alphas,
            answer.betas,
            values,
            "log-likelihood",
            learned=[(*answer.best, "maximum")],
            mark="maximum",
            note=f"{LEGEND} The star is the maximum. Values are log-likelihoods per matrix "
            f"relative to the maximum; values more than {LEVELS} below the best cell share one "
            "colour.",
            value_format=".3f",
            floor=float(np.nanmax(values)) - LEVELS,  # the maximum may lie far outside the map
        ),
        _named_table(rows, formats, note),
    ]


def _named_rows(answer: WhichDivergence, scale: int, attribute: str) -> list[list[object]]:
    """Rows of a table. A phone cuts off the last columns, which are on the map as well."""
    rows = []
    for name, row in answer.named.items():
        ahead = (scale * row.difference, scale * row.standard_error)
        values = [row.score, getattr(row, attribute), row.p_value, ahead, row.alpha, row.beta]
        rows.append([TITLES[name], *values])
    return rows


def _named_table(rows: list[list[object]], formats: Formats, note: str) -> Section:
    headings = ["name", *formats]
    return table_section("Named divergences", headings, rows, note, bold=[0], formats=formats)


@page_of.register
def _(evaluation: Evaluation) -> Page:
    table = evaluation.table()
    best, *others = [row.name for row in table]
    formats: Formats = {
        "accuracy": ".1%",
        "behind the best": ".1f",
        "p": format_p,
        "seconds": ".1f",
    }
    rows = [
        [
            row.name,
            (row.accuracy, row.standard_error),
            (100 * paired.difference, 100 * paired.standard_error),
            paired.p_value,
            row.seconds,
        ]
        for row in table
        for paired in [row.versus_best]
    ]
    sections = [
        table_section(
            "Classifiers",
            ["classifier", *formats],
            rows,
            bold=[0],
            formats=formats,
            anchors=[confusion_anchor(number) for number in range(len(table))],
            note=f"Cross-validation on the same folds: {evaluation.message}. Differences to the "
            f"best classifier are in percentage points on the same matrices, with p-values "
            f"({evaluation.test}). A name leads to its confusion matrix.",
        ),
        confusion_section(
            "Confusion matrices",
            evaluation.classes.tolist(),
            {name: evaluation.confusion(name) for name in (best, *others)},
            note="Rows are true classes, columns predicted ones.",
            remarks={name: _say_pair(evaluation, best, name) for name in others},
        ),
    ]
    baselines = [name for name in others if name not in _OWN_CLASSIFIERS]
    if others:
        rival = (baselines or others)[0]
        sections.append(_disagreements(evaluation, best, rival))
    return _answer("Which classifier?", evaluation.summary(), sections)


def _say_pair(evaluation: Evaluation, best: str, other: str) -> str:
    """Count the matrices that both of two classifiers, one of them, or none classifies right."""
    first, second = evaluation.correct(best), evaluation.correct(other)
    both = counted((first & second).sum(), "matrices")
    return (
        f"{best} and {other} are both right on {both}, only {best} on "
        f"{(first & ~second).sum():,}, only {other} on {(~first & second).sum():,}, neither on "
        f"{(~first & ~second).sum():,}."
    )


def _disagreements(evaluation: Evaluation, best: str, rival: str) -> Section:
    rows = np.flatnonzero(evaluation.correct(best) != evaluation.correct(rival))
    shown = rows[:_MAX_ROWS]
    more = f" The first {_MAX_ROWS} of {len(rows)}." if len(rows) > _MAX_ROWS else ""
    predictions = {
        name: evaluation.classes[evaluation.predictions[name][shown]].tolist()
        for name in (best, rival)
    }
    return disagreement_section(
        f"Where {best} and {rival} disagree",
        evaluation.classes[evaluation.codes[shown]].tolist(),
        predictions,
        names=evaluation.rows[shown].tolist(),
        note=f"Matrices, by index, that exactly one of the two classifies correctly.{more}",
    )


@page_of.register
def _(importance: ChannelImportance) -> Page:
    units = name_units(importance.groups, importance.rows)
    note = (
        "Held-out accuracy with all channels minus that without these, in percentage points on the "
        f"same matrices, with p-values (max-T sign-flip test over {units}, adjusted for all rows). "
        f"Method: {importance.method}; {importance.message}."
    )
    section = ranking_section("Channels", importance, note)
    return _answer("Which channels?", importance.summary(), [section])
