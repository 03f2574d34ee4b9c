"""Checkpoints: stages, what is refused, and what becomes of the file."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
from interrupting import stop_at
from resuming import Killed, writes
from same import assert_same
from sklearn.base import clone

import divlearn
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting import checkpoint, listen
from divlearn.fitting.checkpoint import checkpointed, draw_seed, resumable, stage

MODEL = divlearn.ABKMeans(3, n_init=3, random_state=0)


@pytest.fixture(scope="module")
def X():
    return make_wishart_clusters(3, 9, 2, separation=3, random_state=0)[0]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit"


@pytest.fixture
def killed(X, path):
    """Return a model whose fit was killed; in this test all fits have its file."""
    model = clone(MODEL)
    with resumable(path):
        with writes(2), pytest.raises(Killed):
            model.fit(X)
        yield model


def work(done: list[str], last: int):
    """Stages, one of which has stages of the same names inside; dies before some step."""

    def step(name: str) -> int:
        if len(done) == last:
            raise Killed
        done.append(name)
        return len(done)

    def inner() -> list[int]:
        return [stage(name, lambda name=name: step(name)) for name in "aba"]

    return stage("a", lambda: step("a")), stage("inner", inner), stage("b", inner), draw_seed(0)


@pytest.mark.parametrize("last", range(7))
def test_no_stage_is_computed_twice(path, last):
    done: list[str] = []
    expected = work([], -1)
    for limit in (last, -1):
        try:
            with resumable(path), checkpointed(MODEL):
                assert work(done, limit) == expected
        except Killed:
            assert path.exists() == (last > 0)
    assert done == [*"aabaaba"]
    assert not path.exists()
    work(done, -1)  # outside, nothing is kept
    assert len(done) == 14


def test_generators_continue_where_they_were(path):
    def draw():
        random = np.random.RandomState(0)
        with resumable(path), checkpointed(MODEL):
            return stage("draw", lambda: random.uniform(size=700), random)[-1], random.uniform()

    with writes(1), pytest.raises(Killed):
        draw()
    random = np.random.RandomState(0)
    assert draw() == (random.uniform(size=700)[-1], random.uniform())


def test_a_block_keeps_its_first_fit_only(X, path):
    """The file of a later fit, as of a search, would be refused by the first one."""
    with resumable(path):
        with writes() as done:
            clone(MODEL).fit(X)
        assert len(done) == 3
        with writes() as done, pytest.warns(RuntimeWarning, match="fit of its block only.* a file"):
            clone(MODEL).set_params(n_clusters=2).fit(X)
        assert not done


def test_a_result_that_no_file_holds_is_computed_again(path):
    done = []

    def work():
        with resumable(path), checkpointed(MODEL):
            with pytest.warns(RuntimeWarning, match="cannot hold the result of 'a 1': .* again"):
                stage("a", object)
            stage("b", lambda: done.append("b"))

    with writes(1), pytest.raises(Killed):
        work()
    work()
    assert done == ["b"]


# ---------------------------------------------------------------------- what is refused


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


def test_the_same_values_of_other_types_are_accepted(X, killed):
    killed.set_params(verbose=0, random_state=np.int64(0))
    with writes() as done:
        killed.fit(X.tolist())
    assert len(done) == 1


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


def test_folders_and_parameters_that_cannot_be_used(X, path, tmp_path):
    message = r"checkpoint='.*nowhere/fit' must lie in a folder that"
    with pytest.raises(ValueError, match=message), resumable(tmp_path / "nowhere" / "fit"):
        clone(MODEL).fit(X)

    class Folds:
        def split(self, X, y, groups):
            return [(np.arange(0, 27, 2), np.arange(1, 27, 2))]

    message = r"cv=.* cannot be stored in a checkpoint: .*; fit without one"
    with pytest.raises(TypeError, match=message), resumable(path):
        divlearn.IDDLClassifier(cv=Folds()).fit(X, np.arange(27) % 3)


# ---------------------------------------------------------------------- the file


def test_what_kills_left_is_removed(X, path, killed):
    """A kill in the middle of writing leaves a part beside the file."""
    folder = path.parent
    (folder / ".fit.abc.part").write_bytes(b"half")
    (folder / ".other.abc.part").write_bytes(b"of another file")
    killed.fit(X)
    assert os.listdir(folder) == [".other.abc.part"]


def test_a_file_that_cannot_be_removed_costs_a_warning(path):
    removed = pytest.warns(RuntimeWarning, match="could not be removed: .* the fit is complete")
    with removed, resumable(path), checkpointed(MODEL):
        path.mkdir()


def test_a_full_disk_costs_the_checkpoint_not_the_fit(X, path, killed, monkeypatch):
    before, whole = path.read_bytes(), clone(MODEL)
    with resumable(None):
        whole.fit(X)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("zipfile.ZipFile.writestr", full)
        patch.setattr(checkpoint._Checkpoint, "remove", lambda _: None)
        with pytest.warns(RuntimeWarning, match="could not be written: .*No space left.* intact"):
            killed.fit(X)
    np.testing.assert_array_equal(killed.cluster_centers_, whole.cluster_centers_)
    assert path.read_bytes() == before


def test_ctrl_c_leaves_the_completed_stages(X, path):
    whole = clone(MODEL).fit(X)
    with writes() as done, resumable(path), listen(stop_at("starts", 1)):
        stopped = clone(MODEL).fit(X)
    assert stopped.message_ == "interrupted by the user in start 2"
    assert len(done) == 1
    with writes() as done, resumable(path):
        resumed = clone(MODEL).fit(X)
    assert len(done) == 2
    assert resumed.message_ == whole.message_
    assert_same(resumed.cluster_centers_, whole.cluster_centers_)
    assert not path.exists()


def test_ctrl_c_before_there_is_a_result_leaves_them_too(X, path, monkeypatch):
    model = divlearn.IDDLClassifier(3, cv=2, max_iter=1, random_state=0)

    def train(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("divlearn.iddl.learning.train", train)
    with pytest.raises(KeyboardInterrupt), resumable(path):
        model.fit(X, np.arange(27) % 3)
    assert path.exists()
    assert not hasattr(model, "models_")
