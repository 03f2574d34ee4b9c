"""Results: every kind has a summary, a picture and a page."""

from __future__ import annotations

import html

import numpy as np
import pytest

from divlearn import (
    ABKMeans,
    IDDLClassifier,
    SPDClassifier,
    evaluate,
    mean_abld,
    plane_map,
    which_divergence,
)
from divlearn.baselines import DivergenceKNN, DivergenceMDM
from divlearn.cluster import ABMixture
from divlearn.datasets import make_wishart_clusters
from divlearn.judge import examine
from divlearn.likelihood import fit_likelihood
from divlearn.report import page_of, plot_evaluation, plot_matrix, plot_plane

X, Y = make_wishart_clusters(2, 15, 3, separation=5, random_state=0)
NAMES = np.array(["bark", "moss"])[Y]
GRID = [0.0, 1.0]


def plot_center(fit, ax=None):
    return plot_matrix(fit.center, ax, title="centre")


def plot_mean(found, ax=None):
    return plot_matrix(found, ax, title="centroid")


# What makes it and draws it, and words of its picture and of its summary.
RESULTS = {
    "Evaluation": (
        lambda: evaluate(
            X, NAMES, {"near": DivergenceKNN(1, "airm"), "mean": DivergenceMDM("airm")}, cv=3
        ),
        plot_evaluation, "30 matrices, 3 folds", "held-out matrices",
    ),
    "WhichDivergence": (
        lambda: which_divergence(X, NAMES, cv=3, alphas=GRID, betas=GRID), plot_plane,
        "30 matrices", "Use ",
    ),
    "PlaneMap": (lambda: plane_map(X, NAMES, GRID, GRID), plot_plane, "30 matrices", "Use "),
    "LikelihoodFit": (lambda: fit_likelihood(X), plot_center, "centre", "kappa = "),
    "MeanResult": (lambda: mean_abld(X, 0.5, 0.5), plot_mean, "centroid", "mean divergence"),
}  # fmt: skip
PAGES = {"Evaluation": "Confusion matrix of", "WhichDivergence": "AIRM", "PlaneMap": "AIRM"}


@pytest.fixture
def pyplot():
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize("name", RESULTS)
def test_pictures_and_summaries(pyplot, name):
    make, plot, word, summary = RESULTS[name]
    result = make()
    assert type(result).__name__ == name
    assert summary in result.summary()
    ax = plot(result)
    assert pyplot.gcf() is ax.figure  # a notebook shows it
    ax.figure.draw_without_rendering()
    texts = [ax.get_title(), ax.get_title("left"), *(text.get_text() for text in ax.texts)]
    assert any(word in text for text in texts)
    given = pyplot.figure().add_subplot()
    assert plot(result, given) is given


@pytest.mark.parametrize("name", PAGES)
def test_pages(name):
    pytest.importorskip("plotly", reason="plotly is not installed")
    assert PAGES[name] in page_of(RESULTS[name][0]()).html()


def test_other_objects_have_no_page():
    with pytest.raises(TypeError, match="a str has no page"):
        page_of("a text")


@pytest.mark.parametrize("name", [*PAGES, "Diagnosis"])
def test_notebooks_show_the_summary(name):
    result = examine(X, NAMES) if name == "Diagnosis" else RESULTS[name][0]()
    assert html.unescape(result._repr_html_()) == f"<p>{result.summary()}</p>"


def test_the_picture_of_an_evaluation_shows_its_numbers(pyplot):
    found = RESULTS["Evaluation"][0]()
    ax = plot_evaluation(found)
    assert [text.get_text() for text in ax.get_yticklabels()] == [r.name for r in found.table()]
    shown = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    for row in found.table():
        assert any(abs(value - 100 * row.accuracy) < 1e-9 for value in shown)


def test_the_picture_of_an_answer_shows_its_numbers(pyplot):
    answer = RESULTS["WhichDivergence"][0]()
    ax = plot_plane(answer)
    assert np.array_equal(ax.collections[0].get_array(), 100 * answer.map.T)
    labels = [text.get_text() for text in ax.texts]
    assert f"Burg  {answer.named['burg'].score:.1%}" in labels
    star = ax.get_legend().get_texts()[0].get_text()
    assert star.startswith(f"learned point ({answer.best[0]:g}, {answer.best[1]:g})")


def test_names_are_no_markup():
    found = evaluate(X, NAMES, {"<u>": DivergenceKNN(1, "airm")}, cv=2)
    assert "<u>" not in found._repr_html_()
    assert "<u>" not in page_of(found).html()


@pytest.mark.parametrize(
    "estimator", [SPDClassifier(), IDDLClassifier(), ABKMeans(2), ABMixture(2)], ids=repr
)
def test_estimators_have_the_page_of_scikit_learn(estimator):
    assert type(estimator).__name__ in estimator._repr_html_()
