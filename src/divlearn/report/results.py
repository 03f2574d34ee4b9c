"""How results look: a picture and a page of every kind."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.datasets import Dataset
from divlearn.doctor import Diagnosis
from divlearn.evaluation import Evaluation
from divlearn.likelihood import LikelihoodFit
from divlearn.maps import PlaneMap
from divlearn.means import MeanResult
from divlearn.report.answers import plane_page, which_page
from divlearn.report.atoms import AtomsSection
from divlearn.report.evaluations import evaluation_page
from divlearn.report.page import Page
from divlearn.report.pictures import plot_classes, plot_conditions, plot_evaluation, plot_matrix
from divlearn.report.plane import plot_plane
from divlearn.report.section import Section
from divlearn.report.tables import TableSection
from divlearn.report.which import plot_answer
from divlearn.report.words import TextSection
from divlearn.which import WhichDivergence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_result", "result_page"]


@singledispatch
def result_page(result: Any) -> Page:
    """Page of a result; `divlearn.showing.Shown` shows it in notebooks.

    Parameters
    ----------
    result : object

    Returns
    -------
    Page

    Examples
    --------
    >>> from divlearn.doctor import examine
    >>> result_page(examine([np.eye(2), 2 * np.eye(2)])).sentence
    '2 matrices of size 2: nothing is wrong; condition numbers 1 to 1, median 1.'
    """
    raise TypeError(f"a {type(result).__name__} has no page")


@singledispatch
def plot_result(result: Any, ax: Axes | None = None) -> Axes:
    """Draw a picture of a result.

    Parameters
    ----------
    result : object
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> plot_result("a text")
    Traceback (most recent call last):
    TypeError: a str has no picture
    """
    raise TypeError(f"a {type(result).__name__} has no picture")


result_page.register(Evaluation, evaluation_page)
result_page.register(WhichDivergence, which_page)
result_page.register(PlaneMap, plane_page)
plot_result.register(Evaluation, plot_evaluation)
plot_result.register(WhichDivergence, plot_answer)
plot_result.register(PlaneMap, lambda plane, ax=None: plot_plane(plane, ax=ax))
plot_result.register(Diagnosis, plot_conditions)
plot_result.register(Dataset, plot_classes)


@result_page.register
def _(result: Diagnosis) -> Page:
    rows = [
        [one.kind, len(one.indices), one.text, one.advice, "yes" if one.severe else "no"]
        for one in result.findings
    ]
    headings = ["finding", "matrices", "what it is", "what to do", "nothing works before"]
    sections: list[Section] = [TableSection("Findings", headings, rows)] if rows else []
    if result.classes:
        sections.append(_classes(result.classes))
    return Page("Diagnosis", result.summary(), sections)


@result_page.register
def _(result: Dataset) -> Page:
    sections: list[Section] = []
    if result.labels is not None:
        names, counts = np.unique(result.labels, return_counts=True)
        sections.append(_classes(dict(zip(map(str, names), counts.tolist(), strict=True))))
    sections.append(TextSection("About this data", "\n\n".join(result.summary().split("\n"))))
    return Page("Data", repr(result).strip("<>"), sections)


@result_page.register
def _(result: LikelihoodFit) -> Page:
    values = {
        "alpha": result.alpha, "beta": result.beta, "kappa": result.kappa,
        "log-likelihood per matrix": result.log_likelihood,
    }  # fmt: skip
    sections: list[Section] = [_values(values), _matrix("Centre", result.center), _ending(result)]
    return Page("Likelihood", f"Most likely is {_say_member(result)}.", sections)


@plot_result.register
def _(result: LikelihoodFit, ax: Any = None) -> Any:
    return plot_matrix(result.center, f"centre of {_say_member(result)}", ax)


@result_page.register
def _(result: MeanResult) -> Page:
    values = {"mean divergence": result.objective, "size of the gradient": result.gradient_norm}
    sections: list[Section] = [_matrix("Centroid", result.mean), _values(values), _ending(result)]
    return Page("Centroid", f"A centroid of size {len(result.mean)}.", sections)


@plot_result.register
def _(result: MeanResult, ax: Any = None) -> Any:
    return plot_matrix(result.mean, f"mean divergence {result.objective:.4g}", ax)


def _say_member(fit: LikelihoodFit) -> str:
    return f"the density of alpha = {fit.alpha:.3g}, beta = {fit.beta:.3g}, kappa = {fit.kappa:.3g}"


def _classes(sizes: dict[str, int]) -> TableSection:
    return TableSection("Classes", ["class", "matrices"], list(sizes.items()))


def _values(values: dict[str, float]) -> TableSection:
    return TableSection("Values", ["name", "value"], list(values.items()))


def _matrix(title: str, matrix: RealArray) -> AtomsSection:
    return AtomsSection(
        title, matrix[None], [1], [f"{len(matrix)} x {len(matrix)}"],
        note="As correlations; standard deviations appear where one points at it.",
    )  # fmt: skip


def _ending(result: LikelihoodFit | MeanResult) -> TextSection:
    return TextSection("How it ended", f"{result.message} ({result.n_iter} iterations).")
