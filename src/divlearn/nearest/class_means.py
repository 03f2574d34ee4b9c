"""Means of classes: of parts, in several divergences, running ones, and filters between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from numbers import Real
from typing import Annotated, Any

import numpy as np
from scipy import sparse

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import is_number
from divlearn.divergence import LOG_EUCLIDEAN, ABDivergence, Divergence, get_divergence
from divlearn.engines import Engine, Prepared
from divlearn.fitting.calibration import fit_temperature
from divlearn.fitting.labelled import Labelled
from divlearn.geometry import compose, expm, geodesic, graded_eigh, invsqrtm, sqrtm
from divlearn.heads.discriminants import fit_lda
from divlearn.hermitian import is_complex
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


def typical(table: RealArray) -> float:
    """Typical divergence to the nearest class; if that is zero, to any."""
    near, any_class = float(np.median(table.min(axis=1))), float(np.median(table))
    return max(near if near > 0 else any_class, 1e-100)


# --- running means of matrices that arrive one after the other ------------------------------------


def check_forgetting(forgetting: object) -> float:
    """Return the share of all weights that every new matrix removes."""
    if not is_number(forgetting) or not 0 <= forgetting < 1:
        raise ValueError(
            f"forgetting={forgetting!r} must be a number >= 0 and < 1; 0 forgets nothing, 0.05 "
            "remembers about 20 matrices"
        )
    return float(forgetting)


def find_codes(labels: Labels, classes: Labels) -> Indices:
    """Return indices of labels among the classes of a fitted model."""
    unknown = labels[~np.isin(labels, classes)]
    if len(unknown):
        raise ValueError(
            f"class {unknown[0]!s} must be one of those of the first fit, {classes.tolist()}; name "
            "all in classes of the first call"
        )
    return np.searchsorted(classes, labels)


def fade(totals: RealArray, codes: Indices, forgetting: float) -> tuple[RealArray, RealArray]:
    """Weights of what each code had before, and of new matrices: one for the latest of a code."""
    seen, later = np.zeros(len(totals)), np.empty(len(codes))
    for row in range(len(codes) - 1, -1, -1):
        later[row] = seen[codes[row]]
        seen[codes[row]] += 1
    return totals * (1 - forgetting) ** seen, (1 - forgetting) ** later


def continue_means(
    before: tuple[RealArray, RealArray],
    new: tuple[RealArray, RealArray, Indices],
    divergence: Divergence,
    engine: Engine,
    names: Sequence[str],
) -> tuple[RealArray, RealArray]:
    """Move means, of which each has a weight, to new matrices with weights and codes.

    The result is the mean of the old mean and the new matrices, and the sum of their weights. If
    means are averages of vectors, it is the mean of all matrices so far; in AIRM a single matrix
    moves the mean along the geodesic. A mean of weight zero is none yet.
    """
    (means, totals), (matrices, weights, codes) = before, new
    means = means.copy()
    for code in np.unique(codes):  # the others stay as they are, to the last bit
        rows = np.flatnonzero(codes == code)
        old = [code] if totals[code] > 0 else []
        means[code] = find_means(
            np.concatenate([means[old], matrices[rows]]),
            np.zeros(len(old) + len(rows), np.intp),
            np.append(totals[old], weights[rows]),
            divergence,
            engine,
            [names[code]],
            means[old] if old else None,
        )[0]
    return means, totals + np.bincount(codes, weights, len(totals))


# --- fields of metrics: divergences that are added up, each to means of its own -------------------


def is_sequence(divergence: Any) -> bool:
    """Tell several divergences from one, such as a pair of numbers."""
    listed = isinstance(divergence, list | tuple | np.ndarray)
    return listed and not (len(divergence) and all(isinstance(one, Real) for one in divergence))


def known_field(divergences: Any) -> list[Divergence]:
    """Return divergences by their names; raise where two are the same up to a factor."""
    field = [get_divergence(one) for one in divergences]
    points = [_without_scale(one) for one in field]
    twice = [one for one, at in zip(divergences, points, strict=True) if points.count(at) > 1]
    if twice or not field:
        raise ValueError(
            f"divergence={divergences!r} must hold one divergence, or several that differ by more "
            f"than a factor; {f'leave out all but one of {twice}' if twice else 'name one'}"
        )
    return field


def _without_scale(divergence: Divergence) -> Any:
    if isinstance(divergence, ABDivergence):
        return divergence.alpha, divergence.beta, divergence.symmetrized
    return divergence


def measure_field(
    matrices: RealArray, field: list[Divergence], means: RealArray, engine: Engine
) -> RealArray:
    """Divergences (n_divergences, n_matrices, n_classes) in their usual form."""
    prepared = engine.prepare(Prepared.checked(matrices))
    # Complex means are given their real form with each table, which halves the divergences.
    known = means if is_complex(means) else map(Prepared.checked, means)
    pairs = zip(field, known, strict=True)
    return np.stack([one.pairwise(prepared, some, engine=engine) for one, some in pairs])


def balance(data: Labelled, field: list[Divergence], means: RealArray, engine: Engine) -> RealArray:
    """Weights of divergences, each as if it were alone, so that none outweighs the others."""
    scales = []
    for table in measure_field(data.matrices, field, means, engine):
        unit = typical(table)
        shares = data.weights / data.weights.sum()
        scales.append(1 / (unit * fit_temperature(-table / unit, data.codes, shares)[0]))
    return np.array(scales) / len(field)
