"""Means of the SPD matrices of every class, exact ones and those of parts by a Newton step."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse

from divlearn.arrays import Indices, RealArray
from divlearn.divergence import Divergence, get_divergence
from divlearn.engines import Engine, Prepared
from divlearn.fitting.labelled import Labelled
from divlearn.geometry import compose, expm, graded_eigh
from divlearn.sharded.blocks import engine_for

_TOLERANCE = 1e-5  # of the gradient at a mean, which has no unit


def recentering(data: Labelled, engine: Engine) -> Callable[..., RealArray]:
    """Return a function that finds AIRM means of parts by a Newton step from those of all."""
    centers = class_means(data, get_divergence("jeffreys"), engine)
    everything = np.arange(len(data.codes)), data.codes, data.weights
    return recentering_from(data, recentering_from(data, centers)(*everything))


def recentering_from(data: Labelled, centers: RealArray) -> Callable[..., RealArray]:
    frames = np.linalg.cholesky(centers)
    whiteners = np.linalg.inv(frames)[data.codes]
    values, bases = graded_eigh(whiteners @ data.matrices @ whiteners.mT)
    logarithms = np.log(np.maximum(values, 1e-300))
    tangents, gaps = compose(bases, logarithms), logarithms[:, :, None] - logarithms[:, None]
    half = np.maximum(0.5 * np.abs(gaps), 1e-6)
    bends = half / np.tanh(half)  # second derivatives of half the squared distance

    def recenter(rows: Indices, codes: Indices, weights: RealArray) -> RealArray:
        steps = average(tangents[rows], codes, weights)
        turned = bases[rows].mT @ steps[codes] @ bases[rows]
        curvature = average((bends[rows] * turned**2).sum(axis=(1, 2)), codes, weights)
        lengths = (steps**2).sum(axis=(1, 2)) / np.maximum(curvature, 1e-300)
        return frames @ expm(lengths[:, None, None] * steps) @ frames.mT

    return recenter


def class_means(
    data: Labelled, divergence: Divergence, engine: Engine, starts: RealArray | None = None
) -> RealArray:
    names = [f"class {name!s}" for name in data.classes]
    return find_means(data.matrices, data.codes, data.weights, divergence, engine, names, starts)


def find_means(
    matrices: RealArray,
    codes: Indices,
    weights: RealArray,
    divergence: Divergence,
    engine: Engine,
    names: Sequence[str],
    starts: RealArray | None = None,
) -> RealArray:
    """Means of the matrices of each code, whose names are for messages."""
    means = []
    for code, name in enumerate(names):
        rows = np.flatnonzero(codes == code)
        found = divergence.mean(
            Prepared.checked(matrices[rows]),
            weights[rows],
            engine=engine_for(engine, len(rows), matrices.shape[-1]),
            init=None if starts is None else starts[code],
            tol=_TOLERANCE,
            what=name,
        )
        means.append(found)
    return np.stack(means)


def average(values: RealArray, codes: Indices, weights: RealArray) -> RealArray:
    """Weighted means over each code of something that each matrix has."""
    n, n_codes = len(codes), int(codes.max()) + 1
    largest = np.zeros(n_codes)
    np.maximum.at(largest, codes, weights)
    weights = weights / largest[codes]  # tiny ones must not underflow in the sum
    shares = weights / np.bincount(codes, weights)[codes]
    table = sparse.csr_array((shares, (codes, np.arange(n))), shape=(n_codes, n))
    means: RealArray = table @ values.reshape(n, -1)
    return means.reshape(n_codes, *values.shape[1:])
