"""Pencils with hostile spectra, and a comparison of two engines on many of them.

``python tests/hostile_spectra.py 1e8`` compares the CUDA engine with the native one on that many
pairs, with dimensions from 3 to 120.
"""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np

POINTS = np.array([(0.5, 0.5), (0.0, 1.0), (1.0, 0.0), (0.7, 0.9), (0.0, 0.0), (1.0, 1.0)])
DIMENSIONS = (3, 4, 6, 8, 9, 12, 16, 18, 20, 24, 29, 32, 33, 42, 51, 64, 80, 102, 120)
EPS = float(np.finfo(float).eps)


def rotations(rng, n, d):
    return np.linalg.qr(rng.standard_normal((n, d, d)))[0]


def rank_and_ridge(rng, n, d):
    """Rank-deficient covariances plus a ridge, as few samples per covariance give them."""
    rank = rng.integers(1, d)
    ridge = 10.0 ** rng.uniform(-6, -1)
    factors = rng.standard_normal((n, d, rank)) @ np.diag(rng.lognormal(0, 1, rank))
    variant = rng.integers(3)
    if variant == 1:  # all in one subspace, so that null spaces overlap
        factors = rng.standard_normal((d, rank)) @ rng.standard_normal((n, rank, rank))
    if variant == 2:  # variables that do not vary, such as joints that rest
        moving = rng.random((n, d, 1)) < rng.uniform(0.3, 0.9)
        moving[:, 0] = True
        factors = factors * moving
    X = factors @ factors.mT
    return X + ridge * np.trace(X, axis1=1, axis2=2)[:, None, None] * np.eye(d)


def multiple(rng, n, d):
    """Few different eigenvalues, each exactly repeated, in frames of their own or common ones."""
    values = np.exp(rng.uniform(-4, 4, rng.integers(1, 4)))
    frames = rotations(rng, 1 if rng.random() < 0.5 else n, d)
    return (frames * rng.choice(values, (n, 1, d))) @ frames.mT


def clustered(rng, n, d):
    """Clusters of eigenvalues that differ by a relative 1e-4 to 1e-15."""
    centres = np.exp(rng.uniform(-3, 3, rng.integers(1, 4)))
    spacing = 10.0 ** -rng.uniform(4, 15)
    values = rng.choice(centres, (n, 1, d)) * (1 + spacing * rng.standard_normal((n, 1, d)))
    frames = rotations(rng, 1 if rng.random() < 0.5 else n, d)
    return (frames * values) @ frames.mT


def wide(rng, n, d):
    """Condition numbers up to 1e10, in frames of their own."""
    decades = rng.uniform(1, 10)
    frames = rotations(rng, n, d)
    return (frames * 10.0 ** rng.uniform(-decades, 0, (n, 1, d))) @ frames.mT


def structured(rng, n, d):
    """Diagonal, block-diagonal and tridiagonal matrices, and multiples of the identity."""
    X = np.zeros((n, d, d))
    X[:, np.arange(d), np.arange(d)] = rng.choice([1.0, 2.0, 2.0 + 1e-9, 5.0], (n, d))
    kind = rng.integers(4)
    if kind == 1:
        X[:, : d // 2, : d // 2] += 0.5
    if kind == 2:
        X[:, np.arange(d - 1), np.arange(1, d)] = X[:, np.arange(1, d), np.arange(d - 1)] = -0.4
    if kind == 3:
        X[:] = np.eye(d) * np.exp(rng.standard_normal(n))[:, None, None]
    return X


KINDS = (rank_and_ridge, multiple, clustered, wide, structured)


def hostile_problem(rng, n, n_atoms, d):
    """Data of a hostile kind; atoms are means of data, data, other data, or multiples of data."""
    kind = KINDS[rng.integers(len(KINDS))]
    X = symmetric(kind(rng, n, d))
    chosen = rng.integers(n, size=(n_atoms, rng.choice([2, 3, 20])))
    B = X[chosen].mean(axis=1)
    how = rng.integers(4)
    if how == 1:
        B = X[chosen[:, 0]] * rng.choice([0.5, 1.0, 3.0], n_atoms)[:, None, None]
    if how == 2:
        B = kind(rng, n_atoms, d)
    if how == 3:
        B = KINDS[rng.integers(len(KINDS))](rng, n_atoms, d)
    scale = 10.0 ** (rng.uniform(-60, 60) if rng.random() < 0.1 else 0.0)
    return scale * X, scale * symmetric(B), (kind.__name__, int(how))


def symmetric(X):
    return 0.5 * (X + X.mT)


def differences(engine, other, rng, n, n_atoms, d):
    """Largest difference of values and gradients in units of what rounding may do; the kind."""
    X, B, kind = hostile_problem(rng, n, n_atoms, d)
    points = POINTS[rng.integers(len(POINTS), size=n_atoms)]
    cotangent = rng.standard_normal((n, n_atoms))
    with_parameters = bool(rng.integers(2))
    found, right = (
        one.pullback(X, B, *points.T, cotangent, parameters=with_parameters, values=True)
        for one in (engine, other)
    )
    encoded = engine.encode(X, B, *points.T)
    # Sums of gradients may cancel: their size is that of the sum without signs.
    sizes = other.pullback(X, B, *points.T, np.abs(cotangent), parameters=False).whitened
    size = np.abs(sizes).max(axis=(1, 2)) + np.abs(right.whitened).max(axis=(1, 2)) + 1e-5 * n
    value_size = 1e-3 + np.abs(right.values)
    errors = [
        (np.abs(encoded - right.values) / value_size).max(),
        (np.abs(found.values - right.values) / value_size).max(),
        (np.abs(found.whitened - right.whitened).max(axis=(1, 2)) / size).max(),
    ]
    assert np.isfinite(right.whitened).all()
    assert np.isfinite(right.values).all()
    # Rounding the entries of a matrix moves its smallest eigenvalue by eps times its condition.
    allowed = 1e-9 + 8 * EPS * (np.linalg.cond(X).max() + np.linalg.cond(B).max())
    return float(np.max(errors)) / allowed if np.isfinite(found.atoms).all() else np.nan, kind


def compile_kernels(d):
    from divlearn.engines import get_engine

    rng = np.random.default_rng(d)
    for _ in range(6):
        differences(get_engine("cuda"), get_engine("cuda"), rng, 40, 4, d)


def compare(d, n_pairs):
    """Compare engines on about so many pairs of a size; return the worst difference and kind."""
    from divlearn.engines import get_engine

    rng, done, worst = np.random.default_rng(d), 0, (0.0, None)
    n, n_atoms = (4000 if d < 30 else 1000 if d < 60 else 200), 25
    while done < n_pairs:
        found = differences(get_engine("cuda"), get_engine("native"), rng, n, n_atoms, d)
        done += n * n_atoms
        if not found[0] <= worst[0]:
            worst = found
        if not found[0] < 1:
            print(f"d = {d}: {found[0]:.2g} times what is allowed, {found[1]}", flush=True)
    print(f"d = {d}: {done:.2g} pairs, at most {worst[0]:.2g} of what is allowed", flush=True)
    return worst


def main(n_pairs):
    warnings.simplefilter("error")  # gradients that the CPU had to compute are failures, too
    with ProcessPoolExecutor(16) as pool:
        list(pool.map(compile_kernels, DIMENSIONS))
    shares = np.array(DIMENSIONS) ** -1.5
    pairs = n_pairs * shares / shares.sum()
    return all(compare(d, n)[0] < 1 for d, n in zip(DIMENSIONS, pairs, strict=True))


if __name__ == "__main__":
    sys.exit(not main(float(sys.argv[1])))
