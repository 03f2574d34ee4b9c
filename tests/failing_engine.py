"""An engine that fails in the middle of a fit: one number of its results is none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from divlearn.engines import ReferenceEngine

PARTS = ("encode", "spectra", "values", "whitened", "alpha")  # the last three of pullbacks


class FailingEngine(ReferenceEngine):
    """Count how often parts of results are asked for; from one time on, one begins with NaN.

    Without arguments, nothing is spoiled.
    """

    def __init__(self, part: str = "", first: int = 0, *, once: bool = False) -> None:
        super().__init__(1)
        self.part, self.first, self.once = part, first, once
        self.asked = Counter()  # shared by copies

    def _spoil(self, part, result):
        if result is None or not result.size:
            return result
        self.asked[part] += 1
        late = self.asked[part] - self.first
        if part == self.part and (late == 0 or (late > 0 and not self.once)):
            result = result.copy()
            result.flat[0] = np.nan
        return result

    def encode(self, *given, out=None):
        return self._spoil("encode", super().encode(*given, out=out))

    def spectra(self, data, atoms):
        return self._spoil("spectra", super().spectra(data, atoms))

    def pullback(self, *given, **named):
        back = super().pullback(*given, **named)
        return replace(back, **{name: self._spoil(name, getattr(back, name)) for name in PARTS[2:]})
