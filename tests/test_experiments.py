"""Every experiment on tiny data: cells, results, sentences, and the paper's figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from divlearn.datasets import Dataset, make_wishart_clusters
from divlearn.datasets.dataset import SplitRule
from divlearn.experiments import EXPERIMENTS, FULL, QUICK, Cache, Row, Shelf, paper, run
from divlearn.experiments.cells import Cell, Outcomes, Task
from divlearn.experiments.classification import make_problem, measure_accuracy
from divlearn.experiments.clustering import measure_clusters
from divlearn.experiments.convergence import trace_objective
from divlearn.experiments.estimates import accuracy_of, mean_of
from divlearn.experiments.gradient_time import measure_gradient
from divlearn.experiments.heat_map import map_accuracy
from divlearn.experiments.methods import (
    CODED,
    LOSSES,
    NEIGHBOURS,
    OURS,
    make_classifier,
    settings_of,
)
from divlearn.experiments.protocol import Limits
from divlearn.experiments.rendering import markdown, to_page, write_figure, write_results
from divlearn.experiments.sentences import judge, tell_differences
from divlearn.experiments.shelf import SOURCES
from divlearn.experiments.trajectories import follow

# Sizes of nothing but the code: seconds for all experiments together.
TINY = replace(
    QUICK,
    limits={"": Limits(3, 6, 4)},
    cluster_limits={"": Limits(3, 8)},
    atoms_per_class=1,
    sweep=(1,),
    joint_atoms=(15,),
    iterations=1,
    plane_step=1.0,
    convergence_iterations=1,
    trajectory_iterations=2,
    gradient_dimensions=(2, 3),
    gradient_atoms=(2, 4),
    rounds=1,
    runs=1,
    dimensions=(2, 3),
    n_per_dimension=6,
    numbers=(2, 3),
    n_per_number=6,
    mixture_dimension=1,
    parameters={
        **QUICK.parameters,
        **{method: {"pairs": [[1.0, 1.0]], "gamma": 0.1, "iterations": 1} for method in LOSSES},
        "SPDClassifier": {"members": ["start softmax", "tangent lda"], "cv": 2},
        "IDDLClassifier": {"n_atoms": "1 per class", "max_iter": 1, "ensemble": 2},
        "DivergenceKernelClassifier": {"alphas": [1.0], "betas": [1.0], "Cs": [1.0], "cv": 2},
    },
)


def make_data(seed: int, n_splits: int = 2) -> Dataset:
    X, y = make_wishart_clusters(3, 12, 3, separation=4, random_state=seed)
    return Dataset("tiny", y, "nobody", "none", stored=X, rule=SplitRule(n_splits, 0.6))


@pytest.fixture(scope="module")
def shelf():
    """One data set of every kind of table."""
    return Shelf.of({"virus": make_data(0), "kth": make_data(1, 1)})


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def results(shelf, cache):
    return {name: run(one, shelf, TINY, cache) for name, one in EXPERIMENTS.items()}


# ------------------------------------------------------------------ every experiment


def test_there_are_thirteen():
    assert len(EXPERIMENTS) == 13
    assert all(name == one.name for name, one in EXPERIMENTS.items())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_from_data_to_text(name, results, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    result = results[name]
    assert not result.failures
    assert result.n_done == result.n_cells > 0
    assert result.rows
    assert all(row.value is not None and np.isfinite(row.value) for row in result.rows if row.value)
    if result.unit == "accuracy in %":
        assert all(0 <= row.value <= 100 for row in result.rows)
    assert result.seconds > 0
    assert result.effort
    assert not result.effort.endswith(".")
    assert result.text  # each has something to say of the paper
    text = markdown(result)
    assert result.title in text
    assert "| " in text
    drawn = write_figure(result, tmp_path / "figure.png")
    assert drawn == EXPERIMENTS[name].draws == (tmp_path / "figure.png").exists()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_without_data_it_names_what_is_missing(name, tmp_path):
    result = run(EXPERIMENTS[name], Shelf(), TINY, Cache(tmp_path), compute=False)
    wanted = {SOURCES[key].paper for key in EXPERIMENTS[name].sources}
    assert set(result.missing) == wanted
    assert result.n_done == 0
    assert all(paper_name in markdown(result) for paper_name in wanted)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_some_cells_are_enough_for_a_result(name, shelf, cache, results, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    experiment = EXPERIMENTS[name]
    cells = {cell.key: cell for cell in experiment.cells(shelf, TINY)}
    done = [(cell, cache.read(cell).outcome) for cell in list(cells.values())[::3]]
    result = experiment.collect(shelf, TINY, Outcomes(done), n_cells=len(cells), seconds=1.0)
    if len(done) < len(cells):
        assert "Still to be computed" in markdown(result)
    assert write_figure(result, tmp_path / "figure.png") == experiment.draws


def test_tables_share_their_cells(shelf):
    keys = [
        {cell.key for cell in EXPERIMENTS[name].cells(shelf, TINY)}
        for name in ("standard-measures", "state-of-the-art", "losses", "atoms")
    ]
    assert all(len(one & keys[1]) >= 5 for one in keys)


def test_a_missing_set_has_a_stand_in(shelf):
    assert shelf.missing(["kth-images", "kth"]) == []
    assert shelf.missing(["jhmdb", "hmdb", "virus"]) == ["JHMDB", "HMDB"]


# ------------------------------------------------------------------ what they compute


@pytest.fixture(scope="module")
def problem():
    return make_problem(make_data(0), 0, Limits())


@pytest.mark.parametrize("method", [*NEIGHBOURS, "SVM-LE", "LEML", *CODED, *LOSSES, *OURS])
def test_every_method_fits(method, problem):
    settings = {"atoms_per_class": 1} if method in CODED else {}
    if method in LOSSES:
        settings = {"atoms_per_class": 1, "solver": "joint", "iterations": 1, "gamma": 0.1}
    settings |= TINY.parameters.get(method, {})
    found = measure_accuracy(problem, make_classifier(method, settings, 0, 3))
    assert 0.5 < found["accuracy"] <= 1  # of three classes well apart
    assert found["n_test"] == len(problem.y_test)


def test_what_is_tied_does_not_start_at_the_origin(problem):
    """There it would stay: f(t; a, a) is even in a. A grid search could choose it."""
    settings = {"atoms_per_class": 1, "solver": "joint", "iterations": 3, "gamma": 0.1}
    stuck = make_classifier("IDDL-V", settings | {"pairs": [[0.0, 0.0]]}, 0, 3)
    assert (stuck.fit(problem.X_train, problem.y_train).alpha_ == 0).all()
    for protocol in (QUICK, FULL):
        assert settings_of("IDDL-V", protocol)["pairs"] == [[1.0, 1.0]]


def test_an_unknown_method():
    with pytest.raises(ValueError, match="method='IDDL-Z' is none"):
        make_classifier("IDDL-Z", {}, 0, 3)


def test_accuracy_is_that_of_the_classifier(problem):
    found = measure_accuracy(problem, make_classifier("AIRM 1-NN", {}, 0, 3))
    model = make_classifier("AIRM 1-NN", {}, 0, 3).fit(problem.X_train, problem.y_train)
    assert found["accuracy"] == model.score(problem.X_test, problem.y_test)


def test_problems_keep_train_and_test_apart():
    data = make_data(3)
    problem = make_problem(data, 1, Limits(2, 3, 2))
    assert problem.X_train.shape == (6, 3, 3)
    assert problem.X_test.shape == (4, 3, 3)
    assert set(problem.y_train) == set(problem.y_test) == {0, 1}
    train, test = ({X.tobytes() for X in part} for part in (problem.X_train, problem.X_test))
    assert not train & test
    assert make_problem(data, 0, Limits(2, 3, 2)).mark != problem.mark


def test_the_map_knows_named_points(problem):
    found = map_accuracy(problem, 4, 1.0, 0)
    assert np.shape(found["accuracy"]) == (3, 3)
    assert found["grid"].tolist() == [0, 1, 2]
    assert 0.4 < np.max(found["accuracy"]) <= 1


def test_descents_fall(problem):
    found = trace_objective(problem, 3, 2, 0)
    assert (np.diff(found["objective"]) <= 1e-9).all()
    assert found["block"].tolist() == ["start", *["atoms", "parameters", "head"] * 2]
    moved = follow(problem, (0.5, 1.5), 3, 2, 0)
    assert (moved["alpha"][0], moved["beta"][0]) == (0.5, 1.5)
    assert len(moved["objective"]) == len(moved["train_accuracy"]) == 3
    assert (np.diff(moved["objective"]) <= 1e-9).all()


def test_larger_gradients_take_longer():
    assert measure_gradient(12, 40, 3)["seconds"] > measure_gradient(2, 1, 3)["seconds"] > 0


def test_clusters_are_compared_with_classes():
    X, y = make_wishart_clusters(3, 20, 3, separation=40, random_state=0)
    found = measure_clusters(X, y, "E", 0)
    assert found["f1"] == found["matched_f1"] == 1
    assert set(found["block_seconds"]) == {"start", "centroids", "parameters", "assignment"}


# ------------------------------------------------------------------ estimates and sentences


def outcomes(*found):
    cells = [Cell(Task("t", 1), "Virus", "", "m", i, {}, dict) for i in range(len(found))]
    return Outcomes(list(zip(cells, found, strict=True)))


def test_errors_over_test_sets_and_on_one():
    split = [{"accuracy": a, "n_test": 100, "test": t} for a, t in ((0.5, "a"), (0.7, "b"))]
    assert accuracy_of(outcomes(*split)) == pytest.approx((60, 10))  # sd 0.1414 over sqrt(2)
    same = [one | {"test": "a"} for one in split]
    assert accuracy_of(outcomes(*same)) == pytest.approx((60, 100 * (0.6 * 0.4 / 100) ** 0.5))
    assert accuracy_of(outcomes()) is None
    assert mean_of([1.0, None, 3.0]) == pytest.approx((2, 1))


def test_a_difference_is_told_from_two_standard_errors_on():
    near, far = Row("Virus", "LE", 70.0, 1.0, 68.1), Row("Virus", "LE", 70.0, 1.0, 67.9)
    assert not near.differs
    assert far.differs
    assert "within two standard errors" in tell_differences([near], {})[0]
    (told,) = tell_differences([far], {"Virus": "the splits are ours"})
    assert told.startswith("Virus: LE +2.1")
    assert told.endswith("the splits are ours.")
    assert tell_differences([far], {}, {"LE": "so it is"})[0].endswith("errors: so it is.")
    assert tell_differences([far], {})[0].endswith("for no reason we know.")
    assert tell_differences([Row("Virus", "LE", None, None, 67.9)], {}) == []
    assert not Row("Virus", "LE", 70.0, None, 10.0).differs  # nothing is known of a single run


def test_claims_are_judged():
    assert "not hold on A and B" in judge("x", {"A": False, "B": False})[0]
    assert "holds on A, but not on B" in judge("x", {"A": True, "B": False})[0]


def test_differences_come_with_the_full_protocol_only(shelf, cache, results):
    name = "standard-measures"
    experiment = EXPERIMENTS[name]
    assert not any("standard errors" in sentence for sentence in results[name].text)
    pairs = [(c, cache.read(c).outcome) for c in experiment.cells(shelf, TINY)]
    full = replace(TINY, name="full")
    result = experiment.collect(shelf, full, Outcomes(pairs), n_cells=9, seconds=0.0)
    assert any("standard errors" in sentence for sentence in result.text)


# ------------------------------------------------------------------ the paper


def test_the_papers_figures():
    """Spot checks against its tables."""
    assert paper.STANDARD["VIRUS"]["LE 1-NN"] == 66.67
    assert paper.STANDARD["BRODATZ"]["SVM-LE"] == 86.80
    assert paper.STATE_OF_THE_ART["VIRUS"]["IDDL-N"] == 79.44
    assert paper.STATE_OF_THE_ART["KTH TIPS"]["RSPDL"] == 64.5
    assert paper.STATE_OF_THE_ART["JHMDB"]["kSP_JBLD"] == 44.40
    assert paper.LOSSES["BRODATZ"]["IDDL-N, structured SVM"] == 82.1
    assert paper.LOSSES["VIRUS"]["IDDL-V, structured SVM"] == 79.6
    assert paper.JOINT[45] == {"Fix(alpha, beta)": 80.33, "Fix(B)": 70.00, "joint": 83.67}
    assert paper.CLUSTERS["KTH TIPS"] == {"LE": 0.379, "Karcher": 0.400, "E": 0.429, "NE": 0.419}


def test_protocols_know_every_experiment():
    assert set(FULL.minutes) == set(QUICK.minutes) == set(EXPERIMENTS)
    assert sum(QUICK.minutes.values()) < 10


def test_what_takes_too_long_is_left_out():
    shelf = Shelf.of({"brodatz": make_data(0), "virus": make_data(1)})
    cells = {
        protocol.name: [str(cell) for cell in EXPERIMENTS["losses"].cells(shelf, protocol)]
        for protocol in (QUICK, FULL)
    }
    assert "Brodatz, IDDL-V, structured SVM, 0" in cells["quick"]
    assert not any("Brodatz" in name and "structured" in name for name in cells["full"])
    assert "Virus, IDDL-V, structured SVM, 0" in cells["full"]
    assert "no structured SVM on Brodatz" in EXPERIMENTS["losses"].effort(FULL)


def test_the_effort_tells_what_is_smaller():
    told = EXPERIMENTS["standard-measures"].effort(QUICK)
    assert "IDDLClassifier with n_atoms='2 per class', max_iter=5, ensemble=2" in told
    assert "1 split of every data set" in told


def test_the_papers_protocol():
    assert FULL.dimensions == (5, 15, 30, 50, 75, 100)
    assert FULL.numbers == (2, 5, 10, 20, 50, 100)
    assert (FULL.n_per_dimension, FULL.n_per_number, FULL.runs) == (50, 25, 10)
    assert FULL.joint_atoms == (15, 45, 75)
    assert FULL.atoms_per_class == 5


# ------------------------------------------------------------------ files


def test_all_results_in_one_file(results, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "docs" / "results.md"
    write_results(path, list(results.values()), replace(TINY, name="full"))
    text = path.read_text()
    assert "`divlearn reproduce --full`" in text
    for result in results.values():
        assert f"## {result.title}" in text
    pictures = {picture.name for picture in (tmp_path / "docs" / "results").iterdir()}
    assert pictures == {f"{name}.png" for name, one in EXPERIMENTS.items() if one.draws}
    assert all(f"(results/{picture})" in text for picture in pictures)
    value = next(row for row in results["standard-measures"].rows if row.paper is not None)
    assert f"{value.value:.1f} +- {value.error:.1f} ({value.paper:g})" in text
    assert "not complete" not in text


def test_a_file_says_that_something_is_missing(results, tmp_path):
    some = replace(results["heat-map"], n_done=results["heat-map"].n_cells - 1)
    write_results(tmp_path / "results.md", [some], TINY)
    assert f"not complete: 1 of {some.n_cells} parts" in (tmp_path / "results.md").read_text()


def test_a_claim_with_an_exception_holds_where_that_is_one():
    """The paper: joint learning is best, but for 15 atoms."""
    scenarios = "Fix(alpha, beta)", "Fix(B)", "joint"
    values = {
        "15 atoms": (80.0, 60.0, 70.0),
        "45 atoms": (60.0, 70.0, 80.0),
        "75 atoms": (9.0, 8.0, 7.0),
    }
    rows = [
        Row(name, scenario, value)
        for name, found in values.items()
        for scenario, value in zip(scenarios, found, strict=True)
    ]
    (told,) = EXPERIMENTS["joint-learning"].claims(rows, Outcomes([]))
    assert told.endswith("Here that holds on 15 atoms and 45 atoms, but not on 75 atoms.")


def test_a_page_for_a_browser(results):
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    pytest.importorskip("plotly", reason="plotly is not installed")
    page = to_page(list(results.values()), TINY).html()
    assert all(result.title in page for result in results.values())
