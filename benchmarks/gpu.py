"""The CUDA engine beside torch.linalg, CuPy and the native engine, on one machine with a GPU.

Data lies on the GPU already for everything that runs there; the verbs are the public ones, so that
checks and the preparation of atoms are included. torch.linalg gets chunks of 16,384 matrices: its
eigensolver fails above some 1e5.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from cuda_tables import markdown

import divlearn

DIMENSIONS = (5, 8, 18, 23, 29, 42, 51, 102)
POINT = (0.7, 0.9)  # nothing special: the spectral route
CHUNK = 16_384
ROUNDS = 5
HARD = (
    "well-conditioned",
    "rank d/2 + ridge 1e-3",
    "rank d/4 + ridge 1e-6",
    "condition 1e4, independent frames",
)


def pairs_for(d: int) -> tuple[int, int]:
    """Matrices and atoms of a job that fills the GPU for some ten milliseconds or more."""
    wanted = 1 << (24 if d <= 8 else 22 if d <= 32 else 18 if d <= 64 else 15)
    return wanted // 128, 128


def wishart(count: int, d: int, seed: int) -> Any:
    """Random SPD matrices on the GPU, 2d + 5 degrees of freedom."""
    import cupy as cp

    generator = cp.random.default_rng(seed)
    samples = generator.standard_normal((count, d, 2 * d + 5))
    return cp.matmul(samples, samples.transpose(0, 2, 1)) / (2 * d + 5)


def seconds(job: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Median wall time of a job, the GPU waited for; once more before, to warm up."""
    import cupy as cp

    times = []
    for _ in range(rounds + 1):
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        job()
        cp.cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    return median(times[1:])


# ------------------------------------------------------------------ peers


def peer_rates(d: int) -> dict[str, dict[str, float]]:
    """Pairs per second of whitening + eigvalsh + f, and of eigh + the gradient's products."""
    import cupy as cp
    import torch

    count = CHUNK if d <= 32 else 1024
    X = torch.from_dlpack(wishart(count, d, 1))
    B = torch.from_dlpack(wishart(1, d, 2))[0]
    alpha, beta = POINT
    weight = torch.randn(count, dtype=torch.float64, device="cuda")
    inverse = torch.linalg.inv(torch.linalg.cholesky(B))

    def divergences(t: Any, xp: Any) -> Any:
        mixture = alpha * xp.exp(beta * t) + beta * xp.exp(-alpha * t)
        return (xp.log(mixture / (alpha + beta)) / (alpha * beta)).sum(-1)

    def torch_values() -> Any:
        return divergences(torch.linalg.eigvalsh(inverse @ X @ inverse.T).log(), torch)

    def torch_gradient() -> Any:
        values, vectors = torch.linalg.eigh(inverse @ X @ inverse.T)
        u = values ** (alpha + beta)
        slopes = weight[:, None] * (u - 1) / (alpha * u + beta)
        flat = vectors.transpose(0, 1).reshape(d, -1)
        inner = (vectors * slopes[:, None, :]).transpose(0, 1).reshape(d, -1) @ flat.T
        return inverse.T @ -inner @ inverse

    few = 2048 if d <= 32 else 64
    X_cupy, inverse_cupy = cp.from_dlpack(X[:few]), cp.from_dlpack(inverse)

    def cupy_values() -> Any:
        whitened = cp.matmul(cp.matmul(inverse_cupy, X_cupy), inverse_cupy.T)
        return divergences(cp.log(cp.linalg.eigvalsh(whitened)), cp)

    rounds = 3 if d <= 32 else 1
    return {
        "torch": {
            "values": count / seconds(torch_values, rounds),
            "gradient": count / seconds(torch_gradient, rounds),
        },
        "cupy": {"values": few / seconds(cupy_values, rounds)},
    }


def native_rates(d: int) -> dict[str, float]:
    """Pairs per second of the native engine on all cores of the machine."""
    from divlearn.engines import available_engines, get_engine

    if "native" not in available_engines():
        return {}
    count = (400_000 if d <= 8 else 60_000 if d <= 32 else 8_000) // 16
    X, B = wishart(count, d, 1).get(), wishart(16, d, 2).get()
    engine = get_engine("native")
    data, cotangent = engine.prepare(X), np.ones((count, 16))
    return {
        "values": 16 * count / seconds(lambda: engine.encode(data, B, *POINT), 3),
        "gradient": 16 * count / seconds(lambda: engine.pullback(data, B, *POINT, cotangent), 3),
        "theta = 1": 16 * count / seconds(lambda: engine.encode(data, B, 0.5, 0.5), 3),
    }


# ------------------------------------------------------------------ ours


def our_rates(d: int) -> dict[str, float]:
    import cupy as cp

    from divlearn.engines import ReferenceEngine, get_engine

    n_matrices, n_atoms = pairs_for(d)
    pairs = n_matrices * n_atoms
    X, B = wishart(n_matrices, d, 1), wishart(n_atoms, d, 2).get()
    engine = get_engine("cuda")
    data, cotangent = engine.prepare(X), cp.ones((n_matrices, n_atoms))
    right = ReferenceEngine(1).encode(X[:8].get(), B[:4], *POINT)
    error = np.abs(engine.encode(data, B, *POINT)[:8, :4].get() - right) / right
    return {
        "values": pairs / seconds(lambda: engine.encode(data, B, *POINT)),
        "gradient": pairs / seconds(lambda: engine.pullback(data, B, *POINT, cotangent)),
        "theta = 1": pairs / seconds(lambda: engine.encode(data, B, 0.5, 0.5)),
        "theta = 1, gradient": pairs
        / seconds(lambda: engine.pullback(data, B, 0.5, 0.5, cotangent, parameters=False)),
        "(0, 1)": pairs / seconds(lambda: engine.encode(data, B, 0, 1)),
        "accurate": accurate_rate(X[: 4096 if d <= 32 else 256], B),
        "relative difference": float(error.max()),
    }


def hard_matrices(kind: str, count: int, d: int, seed: int) -> Any:
    """SPD matrices on the GPU whose pencils have wide spectra, or many equal eigenvalues."""
    import cupy as cp

    if kind == "well-conditioned":
        return wishart(count, d, seed)
    generator = cp.random.default_rng(seed)
    if kind == "condition 1e4, independent frames":
        frames = np.linalg.qr(generator.standard_normal((count, d, d)).get())[0]
        matrices = cp.asarray((frames * np.geomspace(1, 1e-4, d)) @ frames.mT)
        return 0.5 * (matrices + matrices.transpose(0, 2, 1))
    rank, ridge = (d // 2, 1e-3) if kind == "rank d/2 + ridge 1e-3" else (d // 4, 1e-6)
    samples = generator.standard_normal((count, d, rank))
    return cp.matmul(samples, samples.transpose(0, 2, 1)) / rank + ridge * cp.eye(d)


def hard_rates() -> dict[str, Any]:
    """Pairs per second of values and gradients on matrices of every kind, 32 atoms."""
    import cupy as cp

    from divlearn.engines import get_engine

    found: dict[str, Any] = {}
    for d, accuracy, kind in product((24, 60), ("auto", 1e-6), HARD):
        count = 4096 if d <= 32 else 1024
        engine = get_engine("cuda", accuracy=accuracy)
        data, B = engine.prepare(hard_matrices(kind, count, d, 1)), hard_matrices(kind, 32, d, 2)
        cotangent = cp.ones((count, 32))
        jobs = {
            "values": lambda e=engine, x=data, b=B: e.encode(x, b, *POINT),
            "gradient": lambda e=engine, x=data, b=B, c=cotangent: e.pullback(x, b, *POINT, c),
        }
        rates = {name: 32 * count / seconds(job, 3) for name, job in jobs.items()}
        found.setdefault(str(d), {}).setdefault(str(accuracy), {})[kind] = rates
    return found


def accurate_rate(X: Any, B: Any) -> float:
    """Pairs per second of values if every pencil takes the accurate route."""
    from divlearn.engines import get_engine

    engine = get_engine("cuda", accuracy="accurate")
    data = engine.prepare(X)
    return float(len(X) * len(B) / seconds(lambda: engine.encode(data, B, *POINT), 2))


def encode_times() -> dict[str, float]:
    """12,000 x 255, d = 18, with data where it is said to be."""
    from divlearn.engines import get_engine

    X, B = wishart(12_000, 18, 1), wishart(255, 18, 2).get()
    engine, host = get_engine("cuda"), X.get()
    on_gpu, from_host = engine.prepare(X), engine.prepare(host)
    return {
        "prepared data and result on the GPU": seconds(lambda: engine.encode(on_gpu, B, *POINT)),
        "prepared data, NumPy result": seconds(lambda: engine.encode(from_host, B, *POINT)),
        "data on the GPU, checks and preparation included": seconds(
            lambda: engine.encode(X, B, *POINT)
        ),
        "NumPy in and out, checks and preparation included": seconds(
            lambda: engine.encode(host, B, *POINT)
        ),
    }


def ten_million() -> dict[str, float]:
    """1e7 pairs in one call, d = 18."""
    from divlearn.engines import get_engine

    X, B = wishart(100_000, 18, 1), wishart(100, 18, 2).get()
    engine = get_engine("cuda")
    data = engine.prepare(X)
    return {"seconds": seconds(lambda: engine.encode(data, B, *POINT), 2)}


# ------------------------------------------------------------------ learning


def objective_time() -> dict[str, float]:
    """One objective and gradient of IDDL, 13,375 x 775, d = 51, the data on the GPU."""
    from divlearn.heads.losses import RidgeLoss
    from divlearn.heads.samples import FeatureMap
    from divlearn.iddl.atoms import Dictionary, make_variant
    from divlearn.iddl.objective import Objective, Settings, encode_rows
    from divlearn.sharded.opening import open_data

    n, n_atoms, d = 13_375, 775, 51
    X, B = wishart(n, d, 1).get(), wishart(n_atoms, d, 2).get()
    shards = open_data(X, engine="cuda", accuracy=1e-6)
    variant = make_variant([(0.7, 0.9)], n_atoms)
    arrays = np.eye(20)[np.arange(n) % 20], np.full(n, 1 / n)
    targets = [tuple(map(shards.place, arrays))]
    V = shards.hold(encode_rows, B, *variant.expand(variant.start))
    features = FeatureMap.start(shards, targets, V, plain=False)
    objective = Objective(shards, targets, variant, features, Settings(RidgeLoss(), 1e-3))
    point = Dictionary(np.linalg.cholesky(B), variant.start)
    found: dict[str, float] = {}
    for _ in range(2):  # the first time loads kernels
        start = time.perf_counter()
        trial = objective.trial(objective.reside(point))
        middle = time.perf_counter()
        objective.gradient(trial)
        found = {"objective": middle - start, "gradient": time.perf_counter() - middle}
    return found


def fit_times() -> dict[str, Any]:
    """Fits of IDDL to 1,000 matrices, d = 29: 75 atoms and 40 joint iterations, and by default."""
    from divlearn.engines import available_engines
    from divlearn.iddl import IDDLClassifier

    rng = np.random.default_rng(0)
    centres = wishart(10, 29, 3).get()
    labels = np.arange(1000) % 10
    roots = np.linalg.cholesky(centres)[labels]
    samples = roots @ rng.standard_normal((1000, 29, 80))
    X = samples @ samples.mT / 80
    found: dict[str, Any] = {}
    paper = IDDLClassifier.paper(solver="joint", penalty=1e-3).set_params(
        n_atoms=75, max_iter=40, random_state=0
    )
    for engine in ("cuda", *available_engines()[:1]):
        for name, classifier in (("", paper), (", default", IDDLClassifier(random_state=0))):
            classifier.set_params(engine=engine)
            times = []
            for _ in range(6):  # the first time loads kernels
                start = time.perf_counter()
                classifier.fit(X, labels)
                times.append(time.perf_counter() - start)
            found[engine + name] = median(times[1:])
            objective = float(classifier.history_["objective"][-1])
            found[f"{engine}{name}, objective"] = objective
    return found


def roofs() -> dict[str, float]:
    """What the GPU reaches on a large product and a large copy."""
    import cupy as cp

    A = cp.random.default_rng(0).standard_normal((8192, 8192))
    big, other = cp.empty(1 << 29), cp.empty(1 << 29)
    return {
        "dgemm": 2 * 8192**3 / seconds(lambda: A @ A),
        "copy": 2 * big.nbytes / seconds(lambda: cp.copyto(other, big)),
    }


SECTIONS: dict[str, Callable[[], Any]] = {
    "roofs": roofs,
    "encode": encode_times,
    "ten million": ten_million,
    "objective": objective_time,
    "fit": fit_times,
    "hard": hard_rates,
}


def measure_some(names: list[str], results: dict[str, Any]) -> None:
    """Measure some sections, into what is known."""
    import cupy as cp

    for name in names:
        results[name] = SECTIONS[name]()
        print(name, results[name], flush=True)
        cp.get_default_memory_pool().free_all_blocks()


def measure(dimensions: tuple[int, ...]) -> dict[str, Any]:
    import cupy as cp
    import torch

    from divlearn.engines.native import instruction_sets

    results: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "cores": len(os.sched_getaffinity(0)),
        "instruction_set": instruction_sets()[0],
        "versions": {
            "divlearn": divlearn.__version__,
            "cupy": cp.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "rates": {},
    }
    measure_some(list(SECTIONS), results)
    for d in dimensions:
        found = {"cuda": our_rates(d), "native": native_rates(d), **peer_rates(d)}
        results["rates"][str(d)] = found
        print(d, found, flush=True)
        cp.get_default_memory_pool().free_all_blocks()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="+", default=DIMENSIONS)
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--tables", type=Path, help="only make --markdown, from this JSON")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="measure these anew, in --json")
    parser.add_argument("--markdown", type=Path, help="write the tables here")
    given = parser.parse_args()
    if given.tables:
        results = json.loads(given.tables.read_text())
    elif given.only:
        results = json.loads(given.json.read_text())
        measure_some(given.only, results)
    else:
        results = measure(tuple(given.dims))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    if given.markdown:
        given.markdown.write_text(markdown(results))


if __name__ == "__main__":
    main()
