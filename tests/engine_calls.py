"""Something happens in the middle of a fit: when its engine is called for the nth time."""

from __future__ import annotations

from types import SimpleNamespace

from divlearn.engines import ReferenceEngine


class ActingEngine(ReferenceEngine):
    """Count calls, and act at one of them."""

    def __init__(self, act) -> None:
        super().__init__(1)
        self._calls = SimpleNamespace(act=act, count=0, at=0)  # shared by copies

    @property
    def count(self) -> int:
        return self._calls.count

    def act_at(self, call: int) -> None:
        """Count anew, and act at this call; never at 0."""
        self._calls.count, self._calls.at = 0, call

    def _note(self) -> None:
        self._calls.count += 1
        if self._calls.count == self._calls.at:
            self._calls.act()

    def prepare(self, *given, **named):
        self._note()
        return super().prepare(*given, **named)

    def encode(self, *given, **named):
        self._note()
        return super().encode(*given, **named)

    def pullback(self, *given, **named):
        self._note()
        return super().pullback(*given, **named)

    def spectra(self, *given, **named):
        self._note()
        return super().spectra(*given, **named)
