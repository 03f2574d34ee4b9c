"""Means of classes of SPD matrices, those of parts by a Newton step, and filters between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy import sparse

from divlearn.arrays import Indices, RealArray
from divlearn.divergence import Divergence, get_divergence
from divlearn.engines import Engine, Prepared
from divlearn.fitting.labelled import Labelled
from divlearn.geometry import compose, expm, graded_eigh, invsqrtm, sqrtm
from divlearn.heads.discriminants import fit_lda
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.means import mean_abld
from divlearn.sharded.blocks import engine_for

_TOLERANCE = 1e-5  # of the gradient at a mean, which has no unit
_FILTER_TOLERANCE = 1e-9  # likewise, where a filter is learned
_LEAST_DIRECTION = 1e-6  # relative to the largest


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
    curvatures = half / np.tanh(half)  # second derivatives of half the squared distance

    def recenter(rows: Indices, codes: Indices, weights: RealArray) -> RealArray:
        steps = average(tangents[rows], codes, weights)
        rotated = bases[rows].mT @ steps[codes] @ bases[rows]
        curvature = average((curvatures[rows] * rotated**2).sum(axis=(1, 2)), codes, weights)
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


@dataclass(frozen=True, eq=False)
class Filter:
    """The AIRM mean of some matrices, and orthonormal discriminant directions there.

    Projection onto these directions is the filter of pyRiemann's FgMDM.
    """

    center: Annotated[RealArray, "d d"]
    directions: Annotated[RealArray, "n_entries n_directions"]

    def apply(self, matrices: RealArray) -> RealArray:
        """Project matrices onto the directions."""
        vectors, root = log_vectors(matrices, invsqrtm(self.center)), sqrtm(self.center)
        projected = vectors @ self.directions @ self.directions.T
        filtered = root @ from_log_vectors(projected) @ root
        return 0.5 * (filtered + filtered.mT)


def learn_filter(data: Labelled, rows: Indices, engine: Engine) -> Filter:
    """Learn a filter from some of the matrices."""
    matrices, weights = data.matrices[rows], data.weights[rows]
    center = mean_abld(matrices, 0, 0, weights, tol=_FILTER_TOLERANCE, engine=engine).mean
    vectors = log_vectors(matrices, invsqrtm(center))
    codes = data.codes[rows]
    found = fit_lda(vectors, codes, np.bincount(codes) / len(codes)).coefficients
    found = found[1:] - found[:1] if len(found) == 2 else found  # as scikit-learn has them
    directions, sizes, _ = np.linalg.svd(found.T, full_matrices=False)
    # Vectors at the mean add up to zero, so that one direction of classes is rounding.
    return Filter(center, directions[:, sizes > _LEAST_DIRECTION * sizes[0]])
