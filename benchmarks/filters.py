"""Atoms of rank p: time of a pair beside torch, and beside a pair of full rank.

    python benchmarks/filters.py              # the CPU, one thread
    python benchmarks/filters.py --engine cuda
    python benchmarks/filters.py --summary    # from results/filters.json

Values are the three divergences with alpha + beta = 1 that IDDL has, and the determinant; gradients
are those in the filters. Methods take turns in one process; the least time of several counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, machine_line, write_between_markers
from scaling_tables import table
from timing import limit_threads, wishart

from divlearn.arrays import to_host
from divlearn.engines import get_engine

RESULTS = Path(__file__).parent / "results" / "filters.json"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
SIZES, RANKS = (20, 51, 100), (1, 4, 8, 16)
N_FILTERS, ROUNDS = 32, 7
PAIRS = np.array([[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]])

Job = Callable[[], Any]


def torch_values(X: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """Compute the same values as engines do, in the plainest fast way: one product, Cholesky."""
    n_filters, d, p = V.shape
    rows = (V.mT.reshape(-1, d) @ X).reshape(-1, n_filters, p, d)
    Y = rows @ V
    eye = torch.eye(p, dtype=X.dtype, device=X.device)
    factor = torch.linalg.cholesky(Y)
    logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    mixed = 2 * torch.linalg.cholesky(0.5 * (Y + eye)).diagonal(dim1=-2, dim2=-1).log().sum(-1)
    trace = Y.diagonal(dim1=-2, dim2=-1).sum(-1)
    inverse = torch.cholesky_inverse(factor).diagonal(dim1=-2, dim2=-1).sum(-1)
    found = [4 * (mixed - 0.5 * logdet), trace - logdet - p, inverse + logdet - p]
    return torch.stack([*found, (logdet / p).exp()], dim=-1)


def jobs(name: str, d: int, p: int, n: int) -> dict[str, Job]:
    """Make the methods that are compared; each returns what can be waited for."""
    rng = np.random.default_rng(d + p)
    engine = get_engine(name)
    X, V = wishart(n, d, seed=0), rng.standard_normal((N_FILTERS, d, p)) / d**0.5
    alpha, beta = (np.tile(one, (N_FILTERS, 1)) for one in PAIRS.T)
    weights = rng.uniform(0.5, 1.5, (n, N_FILTERS, len(PAIRS) + 1))
    device = "cuda" if name == "cuda" else "cpu"
    data, atoms = engine.keep(X), wishart(N_FILTERS, d, seed=1)
    tensors = [torch.from_numpy(one).to(device) for one in (X, V, weights)]
    there = engine.place(weights, data)
    part = there[..., :-1]

    def torch_gradient() -> Any:
        filters = tensors[1].clone().requires_grad_()
        (torch_values(tensors[0], filters) * tensors[2]).sum().backward()
        return filters.grad

    return {
        "values": lambda: engine.encode_filters(data, V, alpha, beta),
        "values, torch": lambda: torch_values(*tensors[:2]),
        "values, full rank": lambda: engine.encode(data, atoms, alpha, beta),
        "gradients": lambda: engine.pull_filters(data, V, alpha, beta, there)[0],
        "gradients, torch": torch_gradient,
        "gradients, full rank": lambda: (
            engine.pullback(data, atoms, alpha, beta, part, parameters=False).atoms
        ),
    }


def measure(name: str, d: int, p: int) -> dict[str, float]:
    """Return microseconds per pair of every method."""
    n = (1 << 14 if d < 64 else 1 << 12) if name == "cuda" else (1 << 17) // d**2 + 64
    methods = jobs(name, d, p, n)
    for kind in ("values", "gradients"):
        ours, theirs = methods[kind](), methods[f"{kind}, torch"]()
        found = to_host(ours), theirs.cpu().numpy()
        np.testing.assert_allclose(*found, rtol=1e-7, atol=1e-7 * np.abs(found[1]).max())
    least = dict.fromkeys(methods, np.inf)
    for _ in range(ROUNDS):
        for method, job in methods.items():
            start = time.perf_counter()
            job()
            if name == "cuda":
                torch.cuda.synchronize()
            least[method] = min(least[method], time.perf_counter() - start)
    return {method: 1e6 * seconds / (n * N_FILTERS) for method, seconds in least.items()}


def text(known: dict[str, Any]) -> str:
    """Make a table for every engine that was measured."""
    parts = []
    for name, found in known.items():
        head = ["d", "p", "values", "torch", "full rank", "gradients", "torch", "full rank"]
        rows = []
        for row in found["rows"]:
            cells = [str(row["d"]), str(row["p"])]
            for kind in ("values", "gradients"):
                own = row[kind]
                cells += [f"{own:.3g}"] + [
                    f"{row[f'{kind}, {other}']:.3g} ({row[f'{kind}, {other}'] / own:.1f}x)"
                    for other in ("torch", "full rank")
                ]
            rows.append(cells)
        what = "one thread" if name != "cuda" else "a GPU"
        parts.append(f"Engine {name}, {what}, microseconds per pair:\n\n{table(head, rows)}")
        parts.append(machine_line(found["machine"]) + ".")
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", default="native", help="default: %(default)s")
    parser.add_argument("--summary", action="store_true", help="measure nothing")
    given = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not given.summary:
        limit_threads(1)
        rows = [
            {"d": d, "p": p} | measure(given.engine, d, p) for d in SIZES for p in RANKS if p < d
        ]
        known[given.engine] = {"rows": rows, "machine": machine()}
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    print(text(known))
    write_between_markers(PAGE, f"\n{text(known)}\n", "filters")


if __name__ == "__main__":
    main()
