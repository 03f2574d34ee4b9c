"""Results: every kind has a summary, a picture and a page."""

from __future__ import annotations

import html
from functools import cache

import numpy as np
import pytest
from scipy.linalg import logm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from divlearn import (
    ABKMeans,
    DivergenceKernelClassifier,
    IDDLClassifier,
    SPDClassifier,
    channel_importance,
    evaluate,
    mean_abld,
    plane_map,
    which_divergence,
)
from divlearn.cluster import ABMixture
from divlearn.datasets import make_wishart_clusters
from divlearn.judge import examine
from divlearn.likelihood import fit_likelihood
from divlearn.nearest import DivergenceKNN, DivergenceMDM
from divlearn.report import (
    BICDisplay,
    ChannelImportanceDisplay,
    ClusterDisplay,
    EvaluationDisplay,
    MatrixDisplay,
    PlaneDisplay,
    WeightsDisplay,
    page_of,
)

X, Y = make_wishart_clusters(2, 15, 3, separation=5, random_state=0)
NAMES = np.array(["bark", "moss"])[Y]
GRID = [0.0, 1.0]


# What makes it and draws it, and words of its picture and of its summary.
RESULTS = {
    "Evaluation": (
        lambda: evaluate(
            X, NAMES, {"near": DivergenceKNN(1, "airm"), "mean": DivergenceMDM("airm")}, cv=3
        ),
        EvaluationDisplay,
        "30 matrices, 3 folds",
        "held-out matrices",
    ),
    "WhichDivergence": (
        lambda: which_divergence(X, NAMES, cv=3, alphas=GRID, betas=GRID),
        PlaneDisplay,
        "30 matrices",
        "Use ",
    ),
    "PlaneMap": (lambda: plane_map(X, NAMES, GRID, GRID), PlaneDisplay, "30 matrices", "points"),
    "ChannelImportance": (
        lambda: channel_importance(DivergenceMDM("airm"), X, NAMES, ["C3", "Cz", "C4"], cv=3),
        ChannelImportanceDisplay,
        "30 matrices",
        "held-out matrices with all channels",
    ),
}


@cache
def result_of(name):
    return RESULTS[name][0]()


PAGES = {
    "Evaluation": "Confusion matrices",
    "WhichDivergence": "AIRM",
    "PlaneMap": "AIRM",
    "ChannelImportance": "Cz",
}


@pytest.fixture
def pyplot():
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize("name", RESULTS)
def test_pictures_and_summaries(pyplot, name):
    _, display, word, summary = RESULTS[name]
    result = result_of(name)
    assert type(result).__name__ == name
    assert summary in result.summary()
    drawn = display(result).plot()
    ax = drawn.ax_
    assert pyplot.gcf() is ax.figure is drawn.figure_  # a notebook shows it
    ax.figure.draw_without_rendering()
    texts = [ax.get_title(), ax.get_title("left"), *(text.get_text() for text in ax.texts)]
    assert any(word in text for text in texts)
    given = pyplot.figure().add_subplot()
    assert drawn.plot(given) is drawn
    assert drawn.ax_ is given


def test_the_picture_of_a_matrix_shows_correlations(pyplot):
    centre = fit_likelihood(X).center
    ax = MatrixDisplay(centre).plot(title="centre").ax_
    assert ax.get_title() == "centre"
    deviations = np.sqrt(np.diag(centre))
    np.testing.assert_allclose(ax.images[0].get_array(), centre / np.outer(deviations, deviations))
    assert MatrixDisplay(mean_abld(X, 0.5, 0.5)).plot().ax_.images  # a result is an array, too


@pytest.mark.parametrize("name", PAGES)
def test_pages(name):
    pytest.importorskip("plotly", reason="plotly is not installed")
    assert PAGES[name] in page_of(result_of(name)).html()


def test_other_objects_have_no_page():
    with pytest.raises(TypeError, match="a str has no page"):
        page_of("a text")


@pytest.mark.parametrize("name", [*PAGES, "Diagnosis"])
def test_notebooks_show_the_summary(name):
    result = examine(X, NAMES) if name == "Diagnosis" else result_of(name)
    assert html.unescape(result._repr_html_()) == f"<p>{result.summary()}</p>"


def test_the_picture_of_an_evaluation_shows_its_numbers(pyplot):
    found = result_of("Evaluation")
    ax = EvaluationDisplay(found).plot().ax_
    assert [text.get_text() for text in ax.get_yticklabels()] == [r.name for r in found.table()]
    shown = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    for row in found.table():
        assert any(abs(value - 100 * row.accuracy) < 1e-9 for value in shown)


def test_the_picture_of_an_answer_shows_its_numbers(pyplot):
    answer = result_of("WhichDivergence")
    ax = PlaneDisplay(answer).plot().ax_
    assert np.array_equal(ax.collections[0].get_array(), 100 * answer.map.T)
    labels = [text.get_text() for text in ax.texts]
    assert f"Burg  {answer.named['burg'].score:.1%}" in labels
    star = ax.get_legend().get_texts()[0].get_text()
    assert star.startswith(f"learned point ({answer.best[0]:g}, {answer.best[1]:g})")


LEARNERS = {
    "atoms": (
        IDDLClassifier(n_atoms=2, max_iter=1, cv=2, random_state=0),
        lambda model: np.column_stack([model.alpha_.ravel(), model.beta_.ravel()]),
    ),
    "a kernel": (
        DivergenceKernelClassifier(cv=2, random_state=0),
        lambda model: [[model.best_params_["alpha"], model.best_params_["beta"]]],
    ),
    "means": (
        DivergenceMDM("stein"),
        lambda model: [[model.divergence_.alpha, model.divergence_.beta]],
    ),
    "neighbours": (DivergenceKNN(1, "airm"), lambda model: np.zeros((0, 2))),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_the_display_marks_what_was_learned(pyplot, name):
    model, points = LEARNERS[name]
    model = clone(model).fit(X, NAMES)
    display = PlaneDisplay.from_estimator(model, X, NAMES)
    assert np.array_equal(display.plane.correct, plane_map(X, NAMES).correct)
    marks = [line.get_xydata() for line in display.ax_.lines if line.get_label() == "learned"]
    np.testing.assert_allclose(np.reshape(marks, (-1, 2)), points(model))
    given = pyplot.figure().add_subplot()
    assert display.plot(given, title="again").ax_ is given
    assert given.get_title("left") == "again"
    assert len(given.get_legend().get_texts()) == len(marks) + 1


@pytest.mark.parametrize("size", [1, 3])
def test_the_picture_of_clusters_shows_who_is_where(pyplot, size):
    matrices = np.ascontiguousarray(X[:, :size, :size])
    model = ABKMeans(2, random_state=0).fit(matrices)
    ax = ClusterDisplay.from_estimator(model, matrices).ax_
    points = ax.collections[0]
    assert np.array_equal(points.get_array(), model.labels_)
    assert [text.get_text() for text in ax.texts] == ["0", "1"]
    # An isometry in two dimensions: distances are at most those of the logarithms.
    places, logarithms = points.get_offsets(), [logm(one) for one in matrices]
    near = np.linalg.norm(np.subtract(logarithms[0], logarithms[1]))
    assert np.linalg.norm(places[0] - places[1]) <= near * (1 + 1e-9)
    mean = np.mean(logarithms, axis=0)
    spread = sum(np.linalg.norm(one - mean) ** 2 for one in logarithms)
    assert 0.5 * spread < (places**2).sum() <= spread * (1 + 1e-9)


def test_the_picture_of_a_mixture_shows_bic(pyplot):
    model = ABMixture([1, 2, 3], "wishart", random_state=0).fit(X)
    curve, best = BICDisplay.from_estimator(model).ax_.lines
    np.testing.assert_array_equal(curve.get_xydata(), list(model.bics_.items()))
    assert best.get_xydata().tolist() == [[2, model.bics_[2]]]
    with pytest.raises(NotFittedError):
        BICDisplay.from_estimator(ABMixture(2))
    with pytest.raises(NotFittedError):
        ClusterDisplay.from_estimator(ABMixture(2), X)


def test_the_picture_of_a_committee_shows_weights(pyplot):
    model = SPDClassifier(("tangent lda", "log rbf"), cv=2, random_state=0).fit(X, NAMES)
    ax = WeightsDisplay.from_estimator(model, ax=pyplot.figure().add_subplot()).ax_
    shown = {
        label.get_text(): bar.get_width()
        for label, bar in zip(ax.get_yticklabels(), ax.patches, strict=True)
    }
    assert shown == pytest.approx(model.weights_)
    accuracies = [text.get_text() for text in ax.texts]
    assert set(accuracies) == {f"{model.oof_accuracy_[name]:.1%}" for name in shown}
    with pytest.raises(NotFittedError):
        WeightsDisplay.from_estimator(SPDClassifier())


def test_names_are_no_markup():
    found = evaluate(X, NAMES, {"<u>": DivergenceKNN(1, "airm")}, cv=2)
    assert "<u>" not in found._repr_html_()
    assert "<u>" not in page_of(found).html()


@pytest.mark.parametrize(
    "estimator", [SPDClassifier(), IDDLClassifier(), ABKMeans(2), ABMixture(2)], ids=repr
)
def test_estimators_have_the_page_of_scikit_learn(estimator):
    assert type(estimator).__name__ in estimator._repr_html_()
