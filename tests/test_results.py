"""Results that can be looked at: every kind has a picture and a page."""

from __future__ import annotations

import html
import importlib
import pkgutil
import sys
from contextlib import suppress

import numpy as np
import pytest
from report_pages import Outline

import divlearn
from divlearn import ABKMeans, IDDLClassifier, SPDClassifier, maps, mean_abld, which_divergence
from divlearn.baselines import DivergenceKNN, DivergenceMDM
from divlearn.cluster import ABMixture
from divlearn.datasets import Dataset, make_wishart_clusters
from divlearn.doctor import examine
from divlearn.evaluation import evaluate
from divlearn.likelihood import fit_likelihood
from divlearn.showing import Shown

X, Y = make_wishart_clusters(2, 15, 3, separation=5, random_state=0)
NAMES = np.array(["bark", "moss"])[Y]
GRID = [0.0, 1.0]
BAD = np.concatenate([X, np.full((1, 3, 3), np.nan)])

# What makes it, and words of its picture and of its page.
RESULTS = {
    "Evaluation": (
        lambda: evaluate(
            X, NAMES, {"near": DivergenceKNN(1, "airm"), "mean": DivergenceMDM("airm")}, cv=3
        ),
        "30 matrices, 3 folds", "never saw it",
    ),
    "WhichDivergence": (
        lambda: which_divergence(X, NAMES, cv=3, alphas=GRID, betas=GRID), "30 matrices", "AIRM",
    ),
    "PlaneMap": (lambda: maps.plane_map(X, NAMES, GRID, GRID), "30 matrices", "AIRM"),
    "Diagnosis": (
        lambda: examine(BAD, [*NAMES, "sand"]), "30 of 31 matrices are positive definite",
        "NaN or infinite",
    ),
    "Dataset": (
        lambda: Dataset("shapes", NAMES, "nobody", "free", stored=X), "shapes", "moss",
    ),
    "LikelihoodFit": (lambda: fit_likelihood(X), "centre of the density", "kappa"),
    "MeanResult": (lambda: mean_abld(X, 0.5, 0.5), "mean divergence", "Centroid"),
}  # fmt: skip


@pytest.fixture
def pyplot(monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    yield pyplot
    pyplot.close("all")


def page_of(result) -> str:
    """The document inside the frame that a notebook shows."""
    frame = Outline(result._repr_html_())
    assert frame.tags == ["iframe"]
    return next(value for _, name, value in frame.attributes if name == "srcdoc")


def test_no_kind_is_forgotten():
    for module in pkgutil.walk_packages(divlearn.__path__, "divlearn."):
        if not module.name.endswith("__main__"):
            with suppress(ModuleNotFoundError):  # what needs an extra that is not there
                importlib.import_module(module.name)
    assert {kind.__name__ for kind in Shown.__subclasses__()} == set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_pictures(pyplot, name):
    make, word, _ = RESULTS[name]
    result = make()
    ax = result.plot()
    assert pyplot.gcf() is ax.figure  # a notebook shows it
    ax.figure.draw_without_rendering()
    texts = [ax.get_title(), ax.get_title("left"), *(text.get_text() for text in ax.texts)]
    assert any(word in text for text in texts)
    given = pyplot.figure().add_subplot()
    assert result.plot(given) is given


@pytest.mark.parametrize("name", RESULTS)
def test_pages(name):
    pytest.importorskip("plotly", reason="plotly is not installed")
    make, _, word = RESULTS[name]
    page = page_of(make())
    assert word in page
    heavy = name in ("Evaluation", "WhichDivergence", "PlaneMap")  # figures need the library
    assert (len(page) > 500_000) == heavy


def test_the_picture_of_an_evaluation_shows_its_numbers(pyplot):
    found = RESULTS["Evaluation"][0]()
    ax = found.plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == [r.name for r in found.table()]
    shown = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    for row in found.table():
        assert any(abs(value - 100 * row.accuracy) < 1e-9 for value in shown)


def test_data_without_labels(pyplot):
    data = Dataset("shapes", None, "nobody", "free", stored=X)
    assert data.plot().patches[0].get_width() == 30
    assert "30 matrices" in page_of(data)


def test_names_are_no_markup():
    data = Dataset("a <u> & c", np.array(["<i>"] * 3), "nobody", "free", stored=X[:3])
    page = page_of(data)
    assert "<u>" not in page
    assert html.escape("<i>") in page


def test_without_jinja_a_notebook_shows_the_text(monkeypatch):
    from divlearn.report import render

    render._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert examine(X)._repr_html_() is None


@pytest.mark.parametrize(
    "estimator", [SPDClassifier(), IDDLClassifier(), ABKMeans(2), ABMixture(2)], ids=repr
)
def test_estimators_have_the_page_of_scikit_learn(estimator):
    assert type(estimator).__name__ in estimator._repr_html_()
