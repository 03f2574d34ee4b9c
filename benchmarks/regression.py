"""`SPDRegressor` beside its rivals on three kinds of simulated data.

Every seed draws new training and test data. Rivals choose their parameters by cross-validation on
the training data, as `SPDRegressor` does. Results are kept in results/regression.json, and written
to the page of --docs. A seed takes about a minute on one core.

    python benchmarks/regression.py --docs docs/regression.md
    python benchmarks/regression.py --summary --docs docs/regression.md
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, machine_line, write_between_markers
from pyriemann.regression import SVR, KNearestNeighborRegressor
from pyriemann.tangentspace import TangentSpace
from scaling_tables import table
from scipy.linalg import expm
from scipy.stats import special_ortho_group
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from timing import limit_threads

from divlearn import IDDLRegressor, SPDRegressor
from divlearn.arrays import RealArray
from divlearn.fitting.folds import fit_grouped
from divlearn.log_vectors import log_vectors

RESULTS = Path(__file__).with_name("results") / "regression.json"
N_TRAIN, N_TEST, SEEDS = 200, 200, 10
Data = tuple[RealArray, RealArray]
BLOCK = 20  # days of a series that folds keep together

# --- data -----------------------------------------------------------------------------------------


def brain_age(rng: np.random.Generator, n: int) -> Data:
    """Covariances of recordings: powers of sources change with age, every head mixes its own way.

    The model of Sabbagh et al. (2019), 12 sources with log-powers that depend on age, linearly or
    not, and 1,000 samples of 12 sensors.
    """
    d, n_samples = 12, 1000
    age = rng.uniform(20, 80, n)
    years = (age - 50) / 30
    trends = np.stack([years, -years, years**2, np.tanh(2 * years)])
    powers = 0.5 * rng.standard_normal((n, d))
    powers[:, :4] += 0.5 * trends.T
    mixing = rng.standard_normal((d, d))
    turns = np.stack([expm(0.1 * rng.standard_normal((d, d))) for _ in range(n)])
    fields = turns @ mixing * np.exp(0.5 * powers)[:, None, :]
    samples = fields @ rng.standard_normal((n, d, n_samples))
    samples += 0.3 * rng.standard_normal(samples.shape)
    return samples @ samples.mT / n_samples, age


def diffusion(rng: np.random.Generator, n: int) -> Data:
    """Diffusion tensors fitted to noisy signals; the number is the anisotropy without noise.

    Eigenvalues are log-normal, directions are uniform, 30 gradients with b = 1 and Rician noise.
    """
    values = np.exp(0.5 * rng.standard_normal((n, 3)))
    frames = special_ortho_group.rvs(3, n, random_state=rng)
    tensors = frames * values[:, None, :] @ frames.mT
    directions = rng.standard_normal((30, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    signals = np.exp(-np.einsum("gi,nij,gj->ng", directions, tensors, directions))
    noise = 0.03 * rng.standard_normal((2, *signals.shape))
    measured = np.hypot(signals + noise[0], noise[1])
    upper = np.triu_indices(3)
    design = (
        directions[:, upper[0]] * directions[:, upper[1]] * np.where(upper[0] == upper[1], 1, 2)
    )
    fitted = np.linalg.lstsq(design, -np.log(measured).T, rcond=None)[0].T
    X = np.zeros((n, 3, 3))
    X[:, upper[0], upper[1]] = X[:, upper[1], upper[0]] = fitted
    lowest, frames = np.linalg.eigh(X)
    X = frames * np.maximum(lowest, 0.02)[:, None, :] @ frames.mT
    spread = values - values.mean(axis=1, keepdims=True)
    return X, np.sqrt(1.5 * (spread**2).sum(axis=1) / (values**2).sum(axis=1))


def volatility(rng: np.random.Generator, n: int) -> Data:
    """Realised covariances of 8 shares; the number is the log-variance of a portfolio the next day.

    Log-variances of a market and of every share, and the exposures to the market, are AR(1)
    processes. Every day has 78 returns of five minutes.
    """
    d, n_returns = 8, 78
    states = np.zeros((n + 101, 1 + 2 * d))
    sizes = np.repeat([0.35, 0.25, 0.1], [1, d, d])
    for t in range(1, len(states)):
        states[t] = 0.95 * states[t - 1] + sizes * rng.standard_normal(1 + 2 * d)
    market, own, exposure = np.split(states[100:], [1, 1 + d], axis=1)
    shocks = rng.standard_normal((n + 1, n_returns, 1 + d))
    returns = (1 + exposure)[:, None] * np.exp(0.5 * market)[:, None] * shocks[..., :1]
    returns = returns + np.exp(0.5 * own)[:, None] * shocks[..., 1:]
    portfolio = np.log((returns.mean(axis=2) ** 2).sum(axis=1))
    return returns[:-1].mT @ returns[:-1], portfolio[1:]


DATA: dict[str, Callable[[np.random.Generator, int], Data]] = {
    "brain age": brain_age,
    "diffusion tensors": diffusion,
    "volatility": volatility,
}

# --- methods --------------------------------------------------------------------------------------


def ridge(vectors: Any) -> Any:
    """Ridge regression whose penalty is chosen by leaving out each matrix."""
    return make_pipeline(vectors, StandardScaler(), RidgeCV(np.logspace(-3, 5, 17)))


def neighbours(cv: Any) -> Any:
    model = KNearestNeighborRegressor(metric="riemann")
    return GridSearchCV(model, {"n_neighbors": [2, 8, 32]}, cv=cv)


def support_vectors(cv: Any) -> Any:
    model = TransformedTargetRegressor(SVR(metric="riemann"), transformer=StandardScaler())
    return GridSearchCV(model, {"regressor__C": [0.01, 0.1, 1]}, cv=cv)


METHODS: dict[str, Callable[[int, Any], Any]] = {
    "ridge, logarithms": lambda seed, cv: ridge(FunctionTransformer(log_vectors)),
    "ridge, tangent vectors": lambda seed, cv: ridge(TangentSpace(metric="riemann")),
    "pyRiemann KNN": lambda seed, cv: neighbours(cv),
    "pyRiemann SVR": lambda seed, cv: support_vectors(cv),
    "IDDLRegressor": lambda seed, cv: IDDLRegressor(random_state=seed),
    "SPDRegressor": lambda seed, cv: SPDRegressor(random_state=seed),
}


def measure(data: str, method: str, seed: int) -> dict[str, Any]:
    """Fit to the first matrices and judge by the others, which are later in a series."""
    X, y = DATA[data](np.random.default_rng(seed), N_TRAIN + N_TEST)
    groups = np.arange(N_TRAIN) // BLOCK if data == "volatility" else None
    model = METHODS[method](seed, KFold(4) if groups is None else GroupKFold(4))
    began = time.perf_counter()
    fit_grouped(model, X[:N_TRAIN], y[:N_TRAIN], groups)
    seconds = time.perf_counter() - began
    said, truth = model.predict(X[N_TRAIN:]), y[N_TRAIN:]
    found = {
        "data": data,
        "method": method,
        "seed": seed,
        "r2": 1 - float(np.mean((said - truth) ** 2) / np.var(truth)),
        "mae": float(np.abs(said - truth).mean()),
        "seconds": seconds,
    }
    if method == "SPDRegressor":
        found |= {"stated": model.oof_r2_["average"], "weights": model.weights_}
    return found


# --- tables ---------------------------------------------------------------------------------------


def mean_and_error(values: Sequence[float], digits: int = 3) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.{digits}f}" + ("" if np.isnan(error) else f" +- {error:.{digits}f}")


def report(results: dict[str, Any]) -> str:
    cells = results["cells"]

    def values(data: str, method: str, key: str) -> list[float]:
        return [c[key] for c in cells if c["data"] == data and c["method"] == method]

    def rows(key: str, digits: int = 3) -> list[list[str]]:
        return [
            [name, *(mean_and_error(values(data, name, key), digits) for data in DATA)]
            for name in METHODS
        ]

    gains = [
        [name]
        + [
            mean_and_error(
                np.subtract(values(data, "SPDRegressor", "r2"), values(data, name, "r2")).tolist()
            )
            for data in DATA
        ]
        for name in METHODS
        if name != "SPDRegressor"
    ]
    stated = [
        [data, *(mean_and_error(values(data, "SPDRegressor", key)) for key in ("stated", "r2"))]
        for data in DATA
    ]
    weights = {
        data: [c["weights"] for c in cells if c["data"] == data and "weights" in c] for data in DATA
    }
    names = list(weights["brain age"][0])
    shares = [
        [name, *(f"{np.mean([one[name] for one in weights[data]]):.2f}" for data in DATA)]
        for name in names
    ]
    n_seeds = len({c["seed"] for c in cells})
    return "\n\n".join(
        [
            f"{N_TRAIN} training and {N_TEST} test matrices, mean and standard error over "
            f"{n_seeds} seeds. {machine_line(results['machine'])}, one thread.",
            table(["R2 on test data", *DATA], rows("r2")),
            table(["SPDRegressor minus ..., R2, paired", *DATA], gains),
            table(["mean absolute error", *DATA], rows("mae")),
            table(["seconds of a fit", *DATA], rows("seconds", 2)),
            table(["SPDRegressor", "held-out R2 that it states", "R2 on test data"], stated),
            table(["mean weight of a member", *DATA], shares),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="default: %(default)s")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--summary", action="store_true", help="compute nothing")
    parser.add_argument("--json", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--docs", type=Path, help="put the tables between their markers there")
    given = parser.parse_args()
    limit_threads(1)
    if not given.summary:
        cells = []
        for seed in range(given.first, given.first + given.seeds):
            for data in DATA:
                for method in given.methods:
                    cells.append(measure(data, method, seed))
                    print({k: v for k, v in cells[-1].items() if k != "weights"}, flush=True)
            found = {"cells": cells, "machine": machine()}
            given.json.write_text(json.dumps(found, indent=1) + "\n")
    text = report(json.loads(given.json.read_text()))
    print(text)
    if given.docs:
        write_between_markers(given.docs, text, "regression")


if __name__ == "__main__":
    main()
