"""Means of classes of SPD matrices, those of parts by a Newton step, and filters between them."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated

import numpy as np
from scipy import sparse

from divlearn.arrays import Indices, RealArray
from divlearn.divergence import LOG_EUCLIDEAN, Divergence
from divlearn.engines import Engine, Prepared
from divlearn.fitting.labelled import Labelled
from divlearn.geometry import compose, expm, geodesic, graded_eigh, invsqrtm, sqrtm
from divlearn.heads.discriminants import fit_lda
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.means import mean_abld
from divlearn.sharded.blocks import engine_for
from divlearn.threads import Result, map_rows

_TOLERANCE = 1e-5  # of the gradient at a mean, which has no unit
_FILTER_TOLERANCE = 1e-9  # likewise, where a filter is learned
_LEAST_DIRECTION = 1e-6  # relative to the largest
_BLOCK_ENTRIES = 1 << 15  # of matrices that a thread works on at a time: they stay in cache


class View:
    """Labelled matrices, and what means of classes of some of them are made of, computed once."""

    def __init__(self, data: Labelled) -> None:
        self.data = data

    @cached_property
    def inverses(self) -> RealArray:
        """Inverses of all matrices."""
        matrices = self.data.matrices
        parts = _in_blocks(lambda part: np.linalg.inv(matrices[part]), *matrices.shape[:2])
        return np.concatenate(parts)

    @cached_property
    def vectors(self) -> RealArray:
        """Logarithms of all matrices."""
        return LOG_EUCLIDEAN.embed(self.data.matrices)

    def arithmetic(self, rows: Indices) -> RealArray:
        """Arithmetic means of classes of some matrices."""
        return average(self.data.matrices, self.data, rows)

    def harmonic(self, rows: Indices) -> RealArray:
        """Harmonic means of classes of some matrices."""
        found = np.linalg.inv(average(self.inverses, self.data, rows))
        return 0.5 * (found + found.mT)

    @cached_property
    def recenter(self) -> Callable[[Indices], RealArray]:
        """A function to AIRM means of some matrices, by a Newton step from those of all."""
        everything = np.arange(len(self.data.codes))
        centers = geodesic(self.arithmetic(everything), self.harmonic(everything), 0.5)
        return recentering_from(self.data, recentering_from(self.data, centers)(everything))


def recentering_from(data: Labelled, centers: RealArray) -> Callable[[Indices], RealArray]:
    frames = np.linalg.cholesky(centers)
    whiteners, matrices = np.linalg.inv(frames), data.matrices
    tangents, bases, curvatures = (np.empty(matrices.shape) for _ in range(3))

    def whiten(part: slice) -> None:
        W = whiteners[data.codes[part]]
        values, bases[part] = graded_eigh(W @ matrices[part] @ W.mT)
        logarithms = np.log(np.maximum(values, 1e-300))
        tangents[part] = compose(bases[part], logarithms)
        half = np.maximum(0.5 * np.abs(logarithms[:, :, None] - logarithms[:, None]), 1e-6)
        curvatures[part] = half / np.tanh(half)  # second derivatives of half the squared distance

    _in_blocks(whiten, *matrices.shape[:2])

    def recenter(rows: Indices) -> RealArray:
        steps = average(tangents, data, rows)

        def bend(part: slice) -> None:
            some = rows[part]
            rotated = bases[some].mT @ steps[data.codes[some]] @ bases[some]
            bends[some] = (curvatures[some] * rotated**2).sum(axis=(1, 2))

        bends = np.zeros(len(matrices))
        _in_blocks(bend, len(rows), matrices.shape[1])
        lengths = (steps**2).sum(axis=(1, 2)) / np.maximum(average(bends, data, rows), 1e-300)
        return frames @ expm(lengths[:, None, None] * steps) @ frames.mT

    return recenter


def _in_blocks(function: Callable[[slice], Result], n_matrices: int, d: int) -> list[Result]:
    """Call a function for slices of matrices, side by side."""
    return map_rows(function, n_matrices, max(1, _BLOCK_ENTRIES // d**2))


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


def average(values: RealArray, data: Labelled, rows: Indices) -> RealArray:
    """Weighted means over each class, of some rows, of something that each matrix has."""
    codes, weights = data.codes[rows], data.weights[rows]
    n_codes = int(codes.max()) + 1
    largest = np.zeros(n_codes)
    np.maximum.at(largest, codes, weights)
    weights = weights / largest[codes]  # tiny ones must not underflow in the sum
    shares = weights / np.bincount(codes, weights)[codes]
    table = sparse.csr_array((shares, (codes, rows)), shape=(n_codes, len(values)))
    means: RealArray = table @ values.reshape(len(values), -1)  # the rows are not copied
    return means.reshape(n_codes, *values.shape[1:])


# The AIRM mean of some matrices, and orthonormal discriminant directions there. Projection onto
# these directions is the filter of pyRiemann's FgMDM.
Filter = tuple[
    Annotated[RealArray, "d d"],
    Annotated[RealArray, "n_entries n_directions"],
]


def project(matrices: RealArray, known: Filter) -> RealArray:
    """Project matrices onto the directions of a filter."""
    center, directions = known
    vectors, root = log_vectors(matrices, invsqrtm(center)), sqrtm(center)
    filtered = root @ from_log_vectors(vectors @ directions @ directions.T) @ root
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
    return center, directions[:, sizes > _LEAST_DIRECTION * sizes[0]]
