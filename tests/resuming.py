"""Fits that are killed after each of their stages, and compared with uninterrupted ones."""

from __future__ import annotations

from contextlib import contextmanager
from unittest.mock import patch

from same import assert_same

from divlearn import resumable
from divlearn.fitting import checkpoint
from divlearn.threads import one_thread


class Killed(BaseException):
    """What nothing in the package catches: the end of the process."""


@contextmanager
def writes(last: int | None = None):
    """Count the writes of checkpoints, and die after some."""
    done = []
    write = checkpoint._Checkpoint._write

    def counted(file) -> None:
        write(file)
        done.append(file)
        if len(done) == last:
            raise Killed

    with patch.object(checkpoint._Checkpoint, "_write", counted):
        yield done


def comparable(model):
    """All that was learned, but not how long that took, nor where generators stand."""
    inner = (*getattr(model, "members_", {}).values(), getattr(model, "_learner", None))
    for one in (model, *inner):
        getattr(one, "history_", {}).pop("seconds", None)
    return {name: value for name, value in vars(model).items() if name != "random_state"}


def same_parameters(model):
    """Like `sklearn.clone`, with the same generator."""
    return type(model)(**model.get_params(deep=False))


def assert_resumes(model, path, *data, n_stages: int) -> None:
    """Kill a fit after every stage: nothing is computed twice, and the result is the same."""
    whole = comparable(same_parameters(model).fit(*data))
    kills = 0
    while True:
        try:
            # Stages that run side by side would survive the kill of another.
            with one_thread(), writes(1), resumable(path):
                resumed = same_parameters(model).fit(*data)
            break
        except Killed:
            assert path.exists()
            kills += 1
    assert_same(comparable(resumed), whole)
    assert kills == n_stages
    assert not list(path.parent.iterdir())
