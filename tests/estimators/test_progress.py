"""How far work has come: what is told by whom, and what a terminal shows of it."""

from __future__ import annotations

import io
import itertools
import re
import signal
from functools import partial
from threading import Lock, main_thread
from time import sleep

import numpy as np
import pytest
from interrupting import press_ctrl_c, stop_at
from rich.console import Console
from sklearn.base import clone

from divlearn import (
    ABKMeans,
    DivergenceKernelClassifier,
    IDDLClassifier,
    SPDClassifier,
    evaluate,
    plane_map,
    which_divergence,
)
from divlearn.baselines import LEML, RSPDL, KernelSparseCoding
from divlearn.cli.output import Bars
from divlearn.cluster import ABMixture
from divlearn.datasets import make_wishart_clusters
from divlearn.descriptors import RegionCovariance
from divlearn.engines import get_engine
from divlearn.fitting.progress import (
    is_interrupted,
    listen,
    notify,
    print_progress,
    stoppable,
    track,
    user_call,
)
from divlearn.nearest import DivergenceKNN, DivergenceMDM
from divlearn.report import PlaneDisplay, page_of
from divlearn.threads import one_thread

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(2, 15, 3, separation=3, random_state=0)


def heard(work) -> dict[str, list[tuple[int, int]]]:
    """What is told, by its name."""
    told: dict[str, list[tuple[int, int]]] = {}
    with listen(lambda what, done, total, news: told.setdefault(what, []).append((done, total))):
        work()
    return told


def test_steps_are_counted():
    assert heard(lambda: list(track("abc", "letters"))) == {
        "letters": [(0, 3), (1, 3), (2, 3), (3, 3)]
    }
    assert list(track("abc", "letters")) == ["a", "b", "c"]  # nobody listens


def test_only_the_innermost_listener_hears():
    outer: list[str] = []
    with listen(lambda what, *_: outer.append(what)):
        with listen(None):
            notify("silence", 0, 1)
        notify("sound", 0, 1)
    notify("nobody", 0, 1)
    assert outer == ["sound"]


@pytest.mark.usefixtures("short_fits", "coarse_maps")
def test_long_work_tells_how_far_it_is(data):
    X, y = data
    images = np.random.default_rng(0).random((3, 16, 16))
    two = {"near": DivergenceKNN(1, "airm"), "mean": DivergenceMDM("airm")}
    told = heard(lambda: evaluate(X, y, two, cv=3))
    assert told["fits"] == [(k, 6) for k in range(6)]
    assert heard(lambda: plane_map(X, y))["neighbours"][-1] == (30, 30)
    told = heard(lambda: which_divergence(X, y, cv=2, random_state=0))
    assert told["blocks"] == [(0, 1), (1, 1)]
    assert told["neighbours"][-1] == (30, 30)
    grid = [0.0, 1.0]
    told = heard(lambda: which_divergence(X, alphas=grid, betas=grid))
    assert told["points of the map"][-1] == (4, 4)
    told = heard(lambda: IDDLClassifier(rank="full", max_iter=2, cv=2, random_state=0).fit(X, y))
    assert told["models"][-1] == (2, 2)
    assert (2, 2) in told["iterations"]
    members = ("tangent lda", "kernel")
    told = heard(lambda: SPDClassifier(members, cv=2, random_state=0).fit(X, y))
    assert told["kinds of classifiers"] == [(0, 2), (1, 2), (2, 2)]
    assert "candidates" in told
    options = {"n_init": 2, "random_state": 0}
    for model in (ABKMeans(2, **options), ABMixture(2, "wishart", **options)):
        told = heard(lambda model=model: model.fit(X))
        assert told["starts"] == [(0, 2), (1, 2), (2, 2)]
        assert told["iterations"][0][0] == 1
    assert heard(lambda: RegionCovariance().fit_transform(images))["images"][-1] == (3, 3)


def test_bars_show_the_whole_and_its_parts():
    terminal = io.StringIO()
    options = {"force_terminal": True, "color_system": None, "_environ": {"TERM": "xterm"}}
    console = Console(file=terminal, width=100, **options)
    bars = Bars(console, "Learning [all]")
    with bars.progress, listen(bars):
        for fold in track("ab", "folds"):
            for _ in track("xyz", f"steps of {fold}"):
                pass
            shown = [task.fields["count"] for task in bars.progress.tasks]
            done = "0" if fold == "a" else "1"
            assert shown == [f"{done} of 2 folds", f"3 of 3 steps of {fold}"]
        notify("folds", 2, 2, "the [last] one")
        assert len(bars.progress.tasks) == 1
    assert "Learning [all]" in terminal.getvalue()
    assert "2 of 2 folds, the [last] one" in terminal.getvalue()


# ------------------------------------------------------------------ interrupts


def test_an_interrupt_lasts_until_the_end_of_the_call():
    with user_call():
        with user_call(), stoppable():
            press_ctrl_c()
        assert is_interrupted()
    assert not is_interrupted()
    with pytest.raises(KeyboardInterrupt), stoppable(list):  # nothing to keep
        press_ctrl_c()


def test_an_interrupted_iddl_ends_all_its_models(data):
    X, y = data
    classifier = IDDLClassifier(random_state=0)
    with one_thread(), listen(stop_at("iterations", 2)):  # one model after the other
        classifier.fit(X, y)
    assert classifier.message_.count("interrupted by the user") == 1
    assert classifier.n_iter_ <= 2
    lengths = np.bincount(classifier.history_["model"])
    assert lengths[0] <= 3
    assert lengths[1:].tolist() == [1, 1, 1]  # where they start
    assert classifier.score(X, y) > 0.5


def test_models_that_are_trained_side_by_side_end_together(data):
    X, y = data

    pressed = Lock()

    def listener(what, done, total, news):
        if (what, done) != ("iterations", 3):
            return
        if pressed.acquire(blocking=False):  # once
            signal.pthread_kill(main_thread().ident, signal.SIGINT)
        while not is_interrupted():
            sleep(0.001)  # until the main thread has heard of it

    classifier = IDDLClassifier(random_state=0, max_iter=50, engine=get_engine("auto", 2))
    with listen(listener):
        classifier.fit(X, y)
    assert "interrupted by the user" in classifier.message_
    lengths = np.bincount(classifier.history_["model"])
    assert len(lengths) == 4
    assert (lengths <= 5).all()
    assert classifier.score(X, y) > 0.5


def test_an_interrupted_committee_has_the_members_so_far(data):
    X, y = data
    members = ("iddl", "tangent lda", "tangent logistic", "log rbf")
    classifier = SPDClassifier(members, cv=2, random_state=0)
    with listen(stop_at("kinds of classifiers", 2)):
        classifier.fit(X, y)
    assert classifier.message_ == "2 of 4 members were fitted; interrupted by the user"
    assert list(classifier.members_) == ["tangent lda", "tangent logistic"]
    assert sum(classifier.weights_.values()) == pytest.approx(1)
    assert classifier.score(X, y) > 0.5
    with listen(stop_at("iterations", 1)):  # inside a member that keeps its best
        classifier.fit(X, y)
    assert classifier.message_ == "4 of 4 members were fitted; interrupted by the user"
    with pytest.raises(KeyboardInterrupt), listen(stop_at("kinds of classifiers", 0)):
        classifier.fit(X, y)
    assert classifier.fit(X, y).message_ == "4 of 4 members were fitted"


@pytest.mark.usefixtures("short_fits", "coarse_maps", "small_blocks")
@pytest.mark.usefixtures("coarse_maps")
def test_an_interrupted_map_answers_from_the_matrices_judged(data):
    X, y = data
    whole = which_divergence(X, y, cv=2, random_state=0)
    assert whole.message == "all 30 matrices were judged"
    with listen(stop_at("blocks", 2)):
        part = which_divergence(X, y, cv=2, random_state=0)
    assert part.message == "interrupted by the user: 20 of 30 matrices were judged"
    assert part.n_matrices == 20
    assert part.summary()
    with listen(stop_at("blocks", 2)):
        plane = plane_map(X, y)
    judged = np.sort(np.random.RandomState(0).permutation(30)[:20])
    np.testing.assert_array_equal(plane.correct, plane_map(X, y).correct[..., judged])
    with pytest.raises(KeyboardInterrupt), listen(stop_at("blocks", 0)):
        which_divergence(X, y, cv=2, random_state=0)
    grid = [0.0, 1.0]
    with listen(stop_at("points of the map", 3)):
        part = which_divergence(X, alphas=grid, betas=grid)
    assert part.message == "interrupted by the user: 3 of 4 points of the map computed"
    assert np.isnan(part.map).tolist() == [[False, False], [True, False]]
    assert PlaneDisplay(part).plot().ax_.has_data()
    assert "Map of the plane" in page_of(part).html()


def test_interrupted_starts_keep_the_best(data):
    model = ABKMeans(2, n_init=3, random_state=0)
    with listen(stop_at("starts", 1)):
        model.fit(data[0])
    assert model.message_ == "interrupted by the user in start 2"
    first = ABKMeans(2, n_init=1, random_state=0).fit(data[0])
    np.testing.assert_array_equal(model.labels_, first.labels_)
    with pytest.raises(KeyboardInterrupt), listen(stop_at("starts", 0)):
        model.fit(data[0])


def test_an_interrupted_evaluation_has_whole_folds(data):
    X, y = data
    two = {"near": DivergenceKNN(1, "airm"), "mean": DivergenceMDM("airm")}
    whole = evaluate(X, y, two, cv=3)
    assert whole.message == "all 3 folds completed"
    np.testing.assert_array_equal(whole.rows, np.arange(30))
    with listen(stop_at("fits", 3)):  # before the second classifier of the second fold
        found = evaluate(X, y, two, cv=3)
    assert found.message == "interrupted by the user: 1 of 3 folds completed"
    assert found.n_folds == 1
    assert len(found.rows) == 10
    for name in two:
        expected = whole.predictions[name][found.rows]
        np.testing.assert_array_equal(found.predictions[name], expected)
    np.testing.assert_array_equal(found.codes, y[found.rows])
    with listen(stop_at("fits", 1)):
        found = evaluate(X, y, two, cv=3)
    assert list(found.predictions) == ["near"]
    assert found.message.endswith("1 of 2 classifiers completed the first fold")
    with pytest.raises(KeyboardInterrupt), listen(stop_at("fits", 0)):
        evaluate(X, y, two, cv=3)
    # What keeps its best so far is not taken for a model that was learned.
    with listen(stop_at("iterations", 1)):
        found = evaluate(X, y, two | {"iddl": IDDLClassifier(rank="full", random_state=0)}, cv=3)
    assert list(found.predictions) == ["near", "mean"]


# ------------------------------------------------------------------ verbose


@pytest.fixture
def ticking(monkeypatch):
    """A clock that moves on by a second whenever somebody looks."""
    seconds = itertools.count()
    monkeypatch.setattr("divlearn.fitting.progress.clock", lambda: float(next(seconds)))


def test_lines_come_less_often_the_longer_work_takes(ticking, capsys):
    with print_progress("work", 1):
        for _ in track(range(100), "steps"):
            pass
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[0] == "[work] 2 s: 1 of 100 steps"
    assert last == "[work] 102 s: 100 of 100 steps"
    seconds = np.array([int(line.split()[1]) for line in lines])
    waited, gaps = np.array([0, *seconds[:-1]]), np.diff([0, *seconds])
    assert (gaps >= 2 + 0.1 * waited).all()
    assert (gaps < 3 + 0.1 * waited).all()


def test_lines_name_the_whole_and_its_parts(ticking, capsys):
    for verbose in (1, 2):
        with print_progress("work", verbose):
            notify("folds", 0, 2, "fitting a")
            notify("steps", 5, 9)
            notify("folds", 1, 2)
            notify("pages", 1, 3)
            notify("pages", 2, 3)
        lines = capsys.readouterr().out.splitlines()
        wanted = [1, 4] if verbose == 1 else [0, 1, 2, 3, 4]
        texts = [
            "1 s: 0 of 2 folds, fitting a",
            "2 s: 0 of 2 folds, fitting a; 5 of 9 steps",
            "3 s: 1 of 2 folds",
            "4 s: 1 of 2 folds; 1 of 3 pages",
            "5 s: 1 of 2 folds; 2 of 3 pages",
        ]
        assert lines == [f"[work] {texts[index]}" for index in wanted]


def test_lines_leave_other_listeners_alone(ticking, capsys):
    told = heard(lambda: narrate_steps(1))
    assert told["steps"][-1] == (9, 9)
    narrate_steps(0)
    assert capsys.readouterr().out == ""


def narrate_steps(verbose: int) -> None:
    with print_progress("work", verbose):
        list(track(range(9), "steps"))


VERBOSE = {
    "SPDClassifier": (SPDClassifier(("tangent lda", "kernel"), cv=2), "kinds of classifiers"),
    "IDDLClassifier": (IDDLClassifier(rank="full", max_iter=2, cv=2, random_state=0), "models"),
    "DivergenceKernelClassifier": (DivergenceKernelClassifier(cv=2), "candidates"),
    "ABKMeans": (ABKMeans(2, random_state=0), "iterations"),
    "ABMixture": (ABMixture([1, 2], "wishart", random_state=0), "numbers of components"),
    "LEML": (LEML(20, 0.5, max_iter=3, random_state=0), "passes"),
    "KernelSparseCoding": (KernelSparseCoding(4, max_iter=1, random_state=0), "candidates"),
    "RSPDL": (RSPDL(4, max_iter=1, random_state=0), "candidates"),
}


@pytest.mark.usefixtures("short_fits", "coarse_maps")
@pytest.mark.parametrize("name", VERBOSE)
def test_verbose_estimators_say_how_far_they_are(data, ticking, capsys, name):
    estimator, what = VERBOSE[name]
    clone(estimator).set_params(verbose=1).fit(*data)
    assert re.search(rf"\[{name}\] \d+ s: .*\d+ of \d+ {what}", capsys.readouterr().out)
    clone(estimator).fit(*data)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("short_fits", "coarse_maps")
def test_verbose_questions_say_how_far_they_are(data, ticking, capsys):
    X, y = data
    near, grid = {"near": DivergenceKNN(1, "airm")}, {"alphas": [0.0, 1.0], "betas": [1.0]}
    for ask in (
        partial(evaluate, X, y, near),
        partial(plane_map, X, y, **grid),
        partial(which_divergence, X, y, **grid),
        partial(which_divergence, X, **grid),
    ):
        ask(verbose=0)
        assert capsys.readouterr().out == ""
        ask(verbose=1)
        assert f"[{ask.func.__name__}]" in capsys.readouterr().out


def test_the_committee_says_what_it_fits_and_what_it_has_reached(data, ticking, capsys):
    X, y = data
    model = SPDClassifier(("tangent lda", "log rbf"), cv=2, random_state=0, verbose=2).fit(X, y)
    first, second = (
        f"held-out accuracy: {name} {model.oof_accuracy_[name]:.1%}" for name in model.members
    )
    lines = capsys.readouterr().out.splitlines()
    lines.remove(f"[SPDClassifier] {model.summary()}")
    begun = [re.fullmatch(r"\[SPDClassifier\] (\d+) s: (.*)", line) for line in lines]
    assert [int(line[1]) for line in begun] == list(range(1, len(lines) + 1))  # by one clock
    kinds, said = "of 2 kinds of classifiers", [line[2] for line in begun]
    assert said[0] == f"0 {kinds}, fitting tangent lda"
    assert f"1 {kinds}, fitting log rbf; {first}" in said
    assert said[-1] == f"2 {kinds}, {second}"
