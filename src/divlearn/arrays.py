"""Types of arrays, for annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["IntArray", "RealArray"]

RealArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
