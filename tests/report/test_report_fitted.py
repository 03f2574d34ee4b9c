"""The page of a fitted classifier: what stands beside it is what was computed elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from divlearn import DivergenceKernelClassifier, IDDLClassifier, SPDClassifier
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import Recipe
from divlearn.judge import default_classifiers, plane_map
from divlearn.judge.evaluation import held_out_predictions
from divlearn.nearest import DivergenceKNN, DivergenceMDM
from divlearn.report import classifier_page, fitted

pytest.importorskip("plotly", reason="plotly is not installed")

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 12, 3, separation=2, random_state=0)
    return X, np.array(["bark", "moss", "sand"])[y]


@pytest.fixture(scope="module")
def kernel(data, small_grids_everywhere):
    return DivergenceKernelClassifier([0, 0.5], [0.5], random_state=0).fit(*data)


@pytest.fixture(scope="module")
def page(data, kernel):
    return classifier_page(kernel, *data)


def titles(page):
    return [section.title for section in page.sections]


def texts(section):
    rows = [*section.content["shown"], *section.content["rest"]]
    return [tuple(cell["text"] for cell in row) for row in rows]


def cells(section):
    return section.charts[0].figure.data[0].z


def learned(section):
    """Places of learned points; a map and named divergences come before them."""
    points = section.charts[0].figure.data[2:]
    return [place for trace in points for place in zip(trace.x, trace.y, strict=True)]


def test_disagreements_are_those_of_predictions_held_out(data, kernel, page):
    X, y = data
    section = page.sections[titles(page).index("Where the model and baselines disagree")]
    headings = [heading for heading, _ in section.content["headings"]]
    assert headings[2:] == [
        "DivergenceKernelClassifier",
        "1-NN, AIRM",
        "linear SVM, log-Euclidean",
    ]
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    said = [kernel.classes_[kernel.oof_proba_.argmax(axis=1)]]
    for name in headings[3:]:
        model = clone(default_classifiers()[name])
        said.append(cross_val_predict(model, X, y, cv=folds))
    expected = [
        (str(i), y[i], *answers)
        for i, answers in enumerate(zip(*said, strict=True))
        if len(set(answers)) > 1
    ]
    assert expected
    assert texts(section) == expected


def test_matrices_without_a_prediction_are_left_out(data, kernel, page):
    X, y = data
    known = held_out_predictions(kernel, y)
    said = {name: codes[5:] for name, codes in known.predictions.items()}
    some = replace(known, rows=known.rows[5:], codes=known.codes[5:], predictions=said)
    section = fitted.compare_with_baselines(some, X, y)
    whole = page.sections[titles(page).index("Where the model and baselines disagree")]
    assert texts(section) == [row for row in texts(whole) if int(row[0]) >= 5]


def test_the_plane_is_that_of_the_training_data(data, kernel, page):
    X, y = data
    section = page.sections[titles(page).index("Map of the plane")]
    expected = plane_map(X, y)
    np.testing.assert_array_equal(cells(section).T, expected.accuracy)
    best = kernel.best_params_
    assert learned(section) == [pytest.approx((best["alpha"], best["beta"]), abs=1e-3)]
    assert section.charts[0].figure.data[2].name == "chosen"
    field = classifier_page(DivergenceMDM(["log-euclidean", "stein", "burg"]).fit(X, y), X, y)
    section = field.sections[titles(field).index("Map of the plane")]
    assert learned(section) == [(0.5, 0.5), (0, 1)]
    near = classifier_page(DivergenceKNN(1, "airm").fit(X, y), X, y)
    section = near.sections[titles(near).index("Map of the plane")]
    assert learned(section) == []
    model = IDDLClassifier(n_atoms=3, max_iter=1, cv=2, random_state=0).fit(X, y)
    page = classifier_page(model, X, y)
    section = page.sections[titles(page).index("Map of the plane")]
    points = {(round(a, 3), round(b, 3)) for a, b in zip(*shapes(model), strict=True)}
    assert {*learned(section)} == points
    np.testing.assert_array_equal(cells(section).T, expected.accuracy)


def test_the_plane_of_groups_has_neighbours_of_other_groups(data, kernel):
    """Near copies: with each other for neighbours every point would be right."""
    X, y = np.repeat(data[0], 2, axis=0), np.repeat(data[1], 2)
    X[::2] *= 1.001
    groups = np.repeat(np.arange(len(X) // 2), 2)
    page = classifier_page(kernel, X, y, groups)
    section = page.sections[titles(page).index("Map of the plane")]
    expected = plane_map(X, y, groups=groups)
    assert expected.accuracy.max() < 1 == plane_map(X, y).accuracy.min()
    np.testing.assert_array_equal(cells(section).T, expected.accuracy)
    assert "nearest neighbour of another group on 72 matrices" in section.note


def test_accuracy_is_compared_with_chance(data, kernel):
    X, y = data
    shuffled = np.random.default_rng(0).permutation(y)
    model = clone(kernel).fit(X, shuffled)
    assert "not significantly above chance" in classifier_page(model, X, shuffled).sentence
    # Two groups of each class, right as a whole: the chance of that is one of 3^6 at best.
    few = np.unique(y, return_inverse=True)[1] * 2 + np.arange(len(y)) % 2
    for groups, p_value in ((None, "< 1e-16"), (few, "= 0.0014")):
        found = held_out_predictions(kernel, y, groups)
        right = replace(found, predictions={"model": found.codes})
        said = fitted._say_accuracy(right)
        assert re.search(rf"of 3 classes, better than chance \(p {p_value}\)\.$", said)


def shapes(model):
    return model.alpha_.ravel().tolist(), model.beta_.ravel().tolist()


def small(**parameters):
    known = {"n_atoms": 3, "max_iter": 2, "random_state": 0}
    recipe = {name: parameters.pop(name) for name in ("loss", "solver") if name in parameters}
    recipe = Recipe(penalty=1e-2, **{"loss": "ridge"} | recipe)
    return IDDLClassifier(recipe=recipe, **known | parameters)


PAPER = IDDLClassifier.paper().set_params(n_atoms=3, max_iter=2, random_state=0)
FITS = {
    "several models": (small(loss="auto"), 4, [0, 1, 2]),
    "several stochastic models": (small(solver="stochastic", cv=2), 2, [0, 1, 2]),
    "several models by blocks": (small(solver="bcd", cv=2), 2, [0, 1, 2]),
    "one model": (small(cv=None), 1, [0, 1, 2]),
    "one stochastic model": (small(cv=None, solver="stochastic"), 1, [0, 1, 2]),
    "no iteration": (small(cv=None, max_iter=0), 1, [0]),
    "paper": (PAPER, 1, [0, 1, 2]),
}


@pytest.mark.parametrize("name", FITS)
def test_every_fit_of_iddl_has_a_page(data, name):
    template, n_curves, iterations = FITS[name]
    model = clone(template).fit(*data)
    found = fitted.iddl_sections(model, data[0], None)
    [section] = [one for one in found if one.title == "Learning"]
    curves = section.charts[0].figure.data
    assert len(curves) == n_curves
    for curve in curves:
        assert curve.x.tolist() == iterations
        assert (np.diff(curve.y) <= 0).all()
    if template.cv is None:
        assert "held-out" not in section.note
    else:
        said = "held-out loss is {:.4g} before learning and {:.4g} after."
        assert said.format(*model.history_["held_out_loss"]) in section.note


def test_pairs_that_all_atoms_share_are_written_once(data):
    for divergence, shared in (("line", True), ("learn", False)):
        model = small(cv=None, divergence=divergence).fit(*data)
        [section] = [
            one for one in fitted.iddl_sections(model, data[0], None) if one.title == "Atoms"
        ]
        pair = "(1,\N{NO-BREAK SPACE}0)"
        assert (pair in section.note) == shared
        titles = [title.text for title in section.charts[0].figure.layout.annotations]
        assert len(titles) == 3
        assert any("," in title for title in titles) != shared


def test_models_of_a_member_are_separate_curves(data):
    """A member of a committee has several models and no held-out loss of its own."""
    model = SPDClassifier(("iddl",), cv=2, random_state=0).fit(*data)
    page = classifier_page(model, *data)
    curves = page.sections[titles(page).index("Learning")].charts[0].figure.data
    history = model.members_["iddl"].history_
    assert len(curves) == len(np.unique(history["model"])) > 1
    assert sum(len(curve.y) for curve in curves) == len(history["objective"])


def test_many_matrices_are_mapped_in_part(data, kernel, monkeypatch):
    X, y = data
    monkeypatch.setattr(fitted, "_MAX_MAPPED", 20)
    monkeypatch.setattr(fitted, "_MAX_COMPARED", 35)
    page = classifier_page(kernel, X, y)
    assert "Where the model and baselines disagree" not in titles(page)
    assert "on 20 matrices" in page.sections[titles(page).index("Map of the plane")].note


def test_classes_too_small_for_a_map_or_for_folds(data):
    X, _ = data
    single = np.array(["bark"] * 10 + ["moss"])
    assert fitted.map_training_data(X[:11], single) is None
    both = np.array(["bark"] * 5 + ["moss"] * 5 + ["sand"])
    assert fitted.map_training_data(X[:11], both).n_matrices == 10
    model = DivergenceKNN(1, "airm").fit(X[:11], single)
    assert titles(classifier_page(model, X[:11], single)) == ["Which channels matter"]  # or why not


@pytest.mark.parametrize(
    "model",
    [DivergenceMDM("choose", random_state=0), IDDLClassifier(4, rank="full", max_iter=1, cv=2)],
    ids=["means", "atoms"],
)
def test_complex_matrices_have_the_page_of_their_classifier(data, model):
    """A unitary map of real matrices changes no divergence, and so no figure."""
    X, y = data
    phases = np.exp(1j * np.arange(3))
    turned = phases[:, None] * X * phases.conj()
    found = classifier_page(clone(model).set_params(random_state=0).fit(turned, y), turned, y)
    expected = classifier_page(clone(model).set_params(random_state=0).fit(X, y), X, y)
    assert titles(found) == titles(expected)
    if isinstance(model, DivergenceMDM):
        assert found.sentence == expected.sentence
    ranked = found.sections[titles(found).index("Which channels matter")]
    assert ranked.kind == "table"
    assert len(texts(ranked)) == 3


def test_lists_are_data(data, kernel, page):
    X, y = data
    found = classifier_page(kernel, X.tolist(), y.tolist())
    assert found.sentence == page.sentence
    assert titles(found) == titles(page)
