"""Something happens in the middle of a fit: when an engine is called for the nth time."""

from __future__ import annotations

from functools import wraps

from divlearn.engines.base import Engine


class EngineCalls:
    """Count the calls of all engines, and act at one of them."""

    def __init__(self, monkeypatch, act):
        self._act = act
        self.act_at(0)
        for verb in ("encode", "pullback", "spectra", "prepare"):
            monkeypatch.setattr(Engine, verb, self._watched(getattr(Engine, verb)))

    def act_at(self, call):
        """Count anew, and act at this call; never at 0."""
        self.count, self._call = 0, call

    def _watched(self, verb):
        @wraps(verb)
        def watched(*given, **named):
            self.count += 1
            if self.count == self._call:
                self._act()
            return verb(*given, **named)

        return watched
