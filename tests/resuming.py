"""Fits that are stopped after some writes of their checkpoint, and compared with whole ones."""

from __future__ import annotations

from contextlib import contextmanager

from same import assert_same
from sklearn.base import clone

from divlearn import resumable
from divlearn.fitting import checkpoint


class Killed(BaseException):
    """What nothing in the package catches: the end of the process."""


@contextmanager
def writes(monkeypatch, last: int | None = None):
    """Write at every chance, count that, and die after some writes."""
    done = []
    write = checkpoint._Journal._write

    def counted(journal) -> None:
        write(journal)
        done.append(len(journal.entries))
        if len(done) == last:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "EVERY", 0.0)
        patch.setattr(checkpoint, "_SHARE", 1e9)
        patch.setattr(checkpoint._Journal, "_write", counted)
        yield done


def comparable(model):
    """All that was learned, but not how long that took."""
    for inner in (
        model,
        *getattr(model, "members_", {}).values(),
        getattr(model, "_learner", None),
    ):
        if inner is not None:
            getattr(inner, "history_", {}).pop("seconds", None)
    return vars(model)


def assert_resumes(model, path, monkeypatch, *data, shares=(0.6,)):
    """Die after some shares of all writes; what is fitted then must be what is fitted at once."""
    whole = comparable(clone(model).fit(*data))
    with writes(monkeypatch) as done, resumable(path):
        assert_same(comparable(clone(model).fit(*data)), whole)
    assert not path.exists()
    for last in sorted({max(1, round(share * len(done))) for share in shares}):
        with writes(monkeypatch, last), resumable(path):
            try:
                clone(model).fit(*data)
            except Killed:
                assert path.exists()
            else:
                raise AssertionError(f"there were fewer than {last} writes")
        with writes(monkeypatch) as rest, resumable(path):
            assert_same(comparable(clone(model).fit(*data)), whole)
        assert len(rest) <= len(done) - last + 1, "work was done twice"
        assert not list(path.parent.iterdir())
