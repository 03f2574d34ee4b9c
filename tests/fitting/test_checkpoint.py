"""Checkpoints: what is kept, what is refused, and what becomes of the file."""

from __future__ import annotations

import errno
import os
import signal
import zipfile
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from resuming import Killed, writes
from sklearn.base import clone

import divlearn
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting import checkpoint
from divlearn.fitting.checkpoint import checkpointed, draw_seed, loop, resumable, stage

MODEL = divlearn.ABKMeans(3, n_init=3, random_state=0)


@pytest.fixture(scope="module")
def X():
    return make_wishart_clusters(3, 9, 2, separation=3, random_state=0)[0]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit"


@pytest.fixture
def killed(X, path, monkeypatch):
    """Return a model whose fit was killed; in this test all fits have its file."""
    model = clone(MODEL)
    with resumable(path):
        with writes(monkeypatch, 3), pytest.raises(Killed):
            model.fit(X)
        yield model


# ---------------------------------------------------------------------- stages and loops


def work(done: list[str], last: int):
    """Two stages of which one has a loop of stages inside; dies before some step."""

    def step(name: str, value: int) -> int:
        if len(done) == last:
            raise Killed
        done.append(name)
        return value

    def rounds() -> int:
        with loop("rounds") as kept:
            total, number = kept.state or (0, 0)
            while number < 3:
                kept.save((total, number))
                total += stage("a", lambda: step("a", 1)) + stage("b", lambda: step("b", 10))
                number += 1
        return total

    return stage("first", lambda: step("first", 100)), stage("second", rounds), draw_seed(0)


@pytest.mark.parametrize("last", range(7))
def test_nothing_is_done_twice(path, monkeypatch, last):
    done: list[str] = []
    whole = ["first", *3 * ["a", "b"]]
    expected = work([], -1)
    with writes(monkeypatch):
        for limit in (last, -1):
            try:
                with resumable(path), checkpointed(MODEL):
                    assert work(done, limit) == expected
            except Killed:
                assert done == whole[:last]
                assert path.exists() == (last > 0)
    assert done == whole
    assert not path.exists()


def test_without_a_file_nothing_is_kept():
    done: list[str] = []
    for _ in range(2):
        work(done, -1)
    assert len(done) == 14


def test_generators_stand_where_they_would_have(path, monkeypatch):
    drawn = []
    for limit in (1, None):
        random = np.random.RandomState(0)
        with writes(monkeypatch, limit):
            try:
                with resumable(path), checkpointed(MODEL):
                    first = stage("draw", lambda random=random: random.uniform(size=700), random)
                    drawn.append((first[-1], random.uniform()))
            except Killed:
                drawn.append(None)
    random = np.random.RandomState(0)
    assert drawn == [None, (random.uniform(size=700)[-1], random.uniform())]


# ---------------------------------------------------------------------- what is refused


def test_the_same_fit_goes_on(X, path, killed, monkeypatch):
    content = path.read_bytes()
    killed.set_params(verbose=0, random_state=np.int64(0))
    with writes(monkeypatch, 1), pytest.raises(Killed):
        killed.fit(X.tolist())
    assert len(path.read_bytes()) > 0.9 * len(content)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"n_init": 4}, "n_init"),
        ({"random_state": 1}, "random_state"),
        ({"divergence": (0.5, 1.25)}, "divergence"),
        ({"engine": "reference"}, "engine"),
        ({"tol": 0.01, "max_iter": 2}, "max_iter, tol"),
    ],
)
def test_other_parameters_are_refused(X, path, killed, change, name):
    before = path.read_bytes()
    if killed.engine == "auto" and divlearn.get_engine().name == change.get("engine"):
        pytest.skip("there is one engine")
    with pytest.raises(ValueError, match=f"'.*fit' belongs to another fit: {name} must be the"):
        killed.set_params(**change).fit(X)
    assert path.read_bytes() == before


def test_other_data_are_refused(X, killed, monkeypatch):
    other = X.copy()
    other[5, 0, 0] = np.nextafter(other[5, 0, 0], 9)
    for data, weights in [(other, None), (X[1:], None), (X, np.arange(1, len(X) + 1))]:
        with pytest.raises(ValueError, match="another fit: X must be the same; pass"):
            killed.fit(data, sample_weight=weights)
    monkeypatch.setattr(checkpoint, "libraries", lambda: {"divlearn": "0"})
    with pytest.raises(ValueError, match="another fit: divlearn, numpy, scikit-learn must be"):
        killed.fit(X)


def test_other_estimators_and_files_are_refused(X, path, killed):
    with pytest.raises(ValueError, match=r"another fit: .*kind of estimator"):
        divlearn.KarcherKMeans(3, random_state=0).fit(X)
    with pytest.raises(ValueError, match="not a model of divlearn; pass a file"):
        divlearn.load(path)
    divlearn.save(MODEL, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"(?s)cannot be resumed: .*fit: it is not a checkpo"):
        killed.fit(X)
    assert path.read_bytes() == before


def test_damaged_files_are_refused_and_left(X, path, killed):
    content = path.read_bytes()
    middle = content.index(b"entries")
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    for damaged in (b"", b"text", content[:-1], content[:middle], flipped):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"cannot be resumed: .*; remove the file to sta"):
            killed.fit(X)
        assert path.read_bytes() == damaged


def test_where_there_is_no_folder(X, tmp_path):
    message = r"checkpoint='.*nowhere/fit' must lie in a folder that"
    with pytest.raises(ValueError, match=message), resumable(tmp_path / "nowhere" / "fit"):
        clone(MODEL).fit(X)


def test_parameters_that_no_file_can_hold(X, path):
    class Folds:
        def split(self, X, y, groups):
            return [(np.arange(0, 27, 2), np.arange(1, 27, 2))]

    message = r"cv=.* cannot be stored in a checkpoint: .*; fit without one"
    with pytest.raises(TypeError, match=message), resumable(path):
        divlearn.IDDLClassifier(cv=Folds()).fit(X, np.arange(27) % 3)


# ---------------------------------------------------------------------- the file


def test_errors_before_the_first_write_leave_nothing(X, path):
    with pytest.raises(ValueError, match="n_init=0"), resumable(path):
        divlearn.ABKMeans(3, n_init=0).fit(X)
    assert not path.exists()


@pytest.mark.parametrize("seconds", [0, 6])
def test_short_fits_write_nothing(X, path, monkeypatch, seconds):
    """By a clock that stands still, and by one that is seconds on whenever it is looked at."""
    clock, written = count(step=seconds), []
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(checkpoint._Journal, "_write", lambda _: written.append(True))
    with resumable(path):
        clone(MODEL).fit(X)
    assert bool(written) == bool(seconds)


def test_what_kills_left_is_removed(X, path, killed):
    """A kill in the middle of writing leaves a part beside the file."""
    folder = path.parent
    (folder / ".fit.abc.part").write_bytes(b"half")
    (folder / ".other.abc.part").write_bytes(b"of another file")
    killed.fit(X)
    assert os.listdir(folder) == [".other.abc.part"]


def test_a_full_disk_costs_the_checkpoint_not_the_fit(X, path, monkeypatch):
    whole = clone(MODEL).fit(X)
    real, calls = zipfile.ZipFile.writestr, []

    def full(archive, name, content):
        real(archive, name, content)
        calls.append(name)
        if len(calls) > 2:  # the page is there, and nothing after it
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    model = clone(MODEL)
    contents = []
    write = checkpoint._Journal._write

    def noted(journal):
        write(journal)
        contents.append(path.read_bytes())

    with writes(monkeypatch):
        monkeypatch.setattr(checkpoint._Journal, "_write", noted)
        message = "could not be written: .*No space left.* intact"
        with pytest.warns(RuntimeWarning, match=message), resumable(path):
            model.fit(X)
    assert len(contents) > 5
    assert len(set(contents[1:])) == 1
    np.testing.assert_array_equal(model.cluster_centers_, whole.cluster_centers_)
    assert not os.listdir(path.parent)


def test_ctrl_c_keeps_the_best_and_the_file(X, path, monkeypatch):
    whole = clone(MODEL).fit(X)
    model = clone(MODEL).set_params(verbose=1)
    turn, turns = divlearn.cluster.lloyd._Lloyd.turn, []

    def interrupted(run, iteration, tol):
        turns.append(iteration)
        if len(turns) == 1:
            signal.raise_signal(signal.SIGINT)
        return turn(run, iteration, tol)

    with writes(monkeypatch) as done:
        monkeypatch.setattr(divlearn.cluster.lloyd._Lloyd, "turn", interrupted)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with resumable(path):
            model.fit(X)
    assert "interrupted by the user" in model.message_
    assert path.exists()
    assert done
    with resumable(path):
        again = clone(MODEL).fit(X)
    assert again.message_ == whole.message_
    np.testing.assert_array_equal(again.cluster_centers_, whole.cluster_centers_)


def test_fits_inside_a_fit_are_kept_in_its_file(X, path, monkeypatch):
    """The file of `resumable` belongs to the outer fit, and to no fit after the block."""
    with writes(monkeypatch) as done, resumable(path), checkpointed(MODEL, X=X):
        stage("fit", lambda: clone(MODEL).fit(X).cluster_centers_)
        assert done
        assert path.exists()
    assert not path.exists()
    with writes(monkeypatch) as done:
        clone(MODEL).fit(X)
    assert not done
