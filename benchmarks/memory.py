"""Peak memory of one encoding, data preparation included: ``memory.py N_MATRICES N_ATOMS D``.

A process of its own: libraries that others load leave a high-water mark that would count.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np


def fill(matrices: np.ndarray, seed: int) -> np.ndarray:
    """Wishart matrices, in small parts: making data must not set the peak."""
    rng = np.random.default_rng(seed)
    d = matrices.shape[-1]
    for start in range(0, len(matrices), 100):
        part = matrices[start : start + 100]
        factors = rng.standard_normal((len(part), d, 2 * d + 5))
        part[:] = factors @ factors.mT / (2 * d + 5)
    return matrices


def main() -> None:
    from divlearn.engines.native import NativeEngine  # others import this file without it

    n_matrices, n_atoms, d = (int(argument) for argument in sys.argv[1:])
    X, atoms = fill(np.empty((n_matrices, d, d)), 0), fill(np.empty((n_atoms, d, d)), 1)
    out = np.full((n_matrices, n_atoms), np.nan)
    engine = NativeEngine()
    engine.encode(X[:64], atoms[:4], 0.7, 1.2)  # loads what is loaded once
    before = resident("VmRSS")
    start = time.perf_counter()
    engine.encode(X, atoms, 0.7, 1.2, out=out)
    seconds = time.perf_counter() - start
    peak = max(0, resident("VmHWM") - before)
    inputs = X.nbytes + atoms.nbytes
    print(json.dumps({"seconds": seconds, "inputs": inputs, "output": out.nbytes, "peak": peak}))


def resident(field: str) -> int:
    """Bytes; unlike ru_maxrss, which a new process inherits, these are of this process alone."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


if __name__ == "__main__":
    main()
