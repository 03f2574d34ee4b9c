"""Class means: of parts of the data, in several divergences, running means, and filters."""

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
_FILTER_TOLERANCE = 1e-9  # likewise, for filters
_LEAST_DIRECTION = 1e-6  # relative to the largest
_BLOCK_ENTRIES = 1 << 15  # of matrices that a thread works on at a time: they stay in cache


class View:
    """Labelled matrices, and features for class means of their parts, computed once."""

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
        """Arithmetic class means of the matrices `rows`."""
        return average(self.data.matrices, self.data, rows)

    def harmonic(self, rows: Indices) -> RealArray:
        """Harmonic class means of the matrices `rows`."""
        means = np.linalg.inv(average(self.inverses, self.data, rows))
        return 0.5 * (means + means.mT)

    @cached_property
    def recenter(self) -> Callable[[Indices], RealArray]:
        """A function of rows to AIRM class means, by a Newton step from those of all data."""
        all_rows = np.arange(len(self.data.codes))
        centers = geodesic(self.arithmetic(all_rows), self.harmonic(all_rows), 0.5)
        return recentering_from(self.data, recentering_from(self.data, centers)(all_rows))


def recentering_from(data: Labelled, centers: RealArray) -> Callable[[Indices], RealArray]:
    """Return a function of rows to AIRM class means, by a Newton step from `centers`."""
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

        def differentiate(part: slice) -> None:
            block = rows[part]
            rotated = bases[block].mT @ steps[data.codes[block]] @ bases[block]
            derivatives[block] = (curvatures[block] * rotated**2).sum(axis=(1, 2))

        derivatives = np.zeros(len(matrices))  # second, along the steps
        _in_blocks(differentiate, len(rows), matrices.shape[1])
        lengths = (steps**2).sum(axis=(1, 2)) / np.maximum(average(derivatives, data, rows), 1e-300)
        return frames @ expm(lengths[:, None, None] * steps) @ frames.mT

    return recenter


def _in_blocks(function: Callable[[slice], Result], n_matrices: int, d: int) -> list[Result]:
    """Call a function for slices of matrices, on several threads."""
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
    """Means of the matrices of each code; `names` of codes are for messages."""
    means = []
    for code, name in enumerate(names):
        rows = np.flatnonzero(codes == code)
        mean = divergence.mean(
            Prepared.checked(matrices[rows]),
            weights[rows],
            engine=engine_for(engine, len(rows), matrices.shape[-1]),
            init=None if starts is None else starts[code],
            tol=_TOLERANCE,
            what=name,
        )
        means.append(mean)
    return np.stack(means)


def average(values: RealArray, data: Labelled, rows: Indices) -> RealArray:
    """Weighted class means of values, over the matrices `rows`."""
    codes, weights = data.codes[rows], data.weights[rows]
    n_codes = int(codes.max()) + 1
    largest = np.zeros(n_codes)
    np.maximum.at(largest, codes, weights)
    weights = weights / largest[codes]  # tiny ones must not underflow in the sum
    shares = weights / np.bincount(codes, weights)[codes]
    table = sparse.csr_array((shares, (codes, rows)), shape=(n_codes, len(values)))
    means: RealArray = table @ values.reshape(len(values), -1)  # the rows are not copied
    return means.reshape(n_codes, *values.shape[1:])


# The AIRM mean of some matrices, and orthonormal discriminant directions in its tangent space.
# pyRiemann's FgMDM filters by projection onto these directions.
Filter = tuple[
    Annotated[RealArray, "d d"],
    Annotated[RealArray, "n_entries n_directions"],
]


def project(matrices: RealArray, filter_: Filter) -> RealArray:
    """Project matrices onto the directions of a filter."""
    center, directions = filter_
    vectors, root = log_vectors(matrices, invsqrtm(center)), sqrtm(center)
    filtered = root @ from_log_vectors(vectors @ directions @ directions.T) @ root
    return 0.5 * (filtered + filtered.mT)


def learn_filter(data: Labelled, rows: Indices, engine: Engine) -> Filter:
    """Learn a filter from the matrices `rows`."""
    matrices, weights = data.matrices[rows], data.weights[rows]
    center = mean_abld(matrices, 0, 0, weights, tol=_FILTER_TOLERANCE, engine=engine).mean
    vectors = log_vectors(matrices, invsqrtm(center))
    codes = data.codes[rows]
    normals = fit_lda(vectors, codes, np.bincount(codes) / len(codes)).coefficients
    normals = normals[1:] - normals[:1] if len(normals) == 2 else normals  # as in scikit-learn
    directions, sizes, _ = np.linalg.svd(normals.T, full_matrices=False)
    # Vectors at the mean add up to zero, so that one direction is rounding error.
    return center, directions[:, sizes > _LEAST_DIRECTION * sizes[0]]


def typical(table: RealArray) -> float:
    """Typical divergence to the nearest class; if that is zero, to any."""
    nearest, any_class = float(np.median(table.min(axis=1))), float(np.median(table))
    return max(nearest if nearest > 0 else any_class, 1e-100)


# --- running means --------------------------------------------------------------------------------


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


def decay_totals(
    totals: RealArray, codes: Indices, forgetting: float
) -> tuple[RealArray, RealArray]:
    """Weights of the old totals of codes, and of new matrices: one for the last of each code."""
    counts, n_later = np.zeros(len(totals)), np.empty(len(codes))
    for row in range(len(codes) - 1, -1, -1):
        n_later[row] = counts[codes[row]]
        counts[codes[row]] += 1
    return totals * (1 - forgetting) ** counts, (1 - forgetting) ** n_later


def continue_means(
    before: tuple[RealArray, RealArray],
    new: tuple[RealArray, RealArray, Indices],
    divergence: Divergence,
    engine: Engine,
    names: Sequence[str],
) -> tuple[RealArray, RealArray]:
    """Update means and their weights (`before`) with new matrices, their weights and codes.

    The new mean is that of the old mean and the new matrices; its weight is the sum of theirs. It
    is the mean of all matrices so far if means are averages of vectors. In AIRM a single matrix
    moves the mean along the geodesic. A mean of weight zero has no matrices yet.
    """
    (means, totals), (matrices, weights, codes) = before, new
    means = means.copy()
    for code in np.unique(codes):  # the other means do not change, not even by rounding
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


# --- fields of metrics: weighted sums of divergences, each with its own class means ---------------


def is_sequence(divergence: object) -> bool:
    """Tell several divergences from one, such as a pair of numbers."""
    if not isinstance(divergence, list | tuple | np.ndarray):
        return False
    return not len(divergence) or not all(isinstance(item, Real) for item in divergence)


def check_field(divergences: Any) -> list[Divergence]:
    """Return divergences by their names; raise if two are equal up to a factor."""
    field = [get_divergence(name) for name in divergences]
    keys = [_without_scale(divergence) for divergence in field]
    equal = [name for name, key in zip(divergences, keys, strict=True) if keys.count(key) > 1]
    if equal or not field:
        raise ValueError(
            f"divergence={divergences!r} must hold one divergence, or several that differ by more "
            f"than a factor; {f'leave out all but one of {equal}' if equal else 'name one'}"
        )
    return field


def _without_scale(divergence: Divergence) -> object:
    if isinstance(divergence, ABDivergence):
        return divergence.alpha, divergence.beta, divergence.symmetrized
    return divergence


def measure_field(
    matrices: RealArray, field: list[Divergence], means: RealArray, engine: Engine
) -> RealArray:
    """Divergences (n_divergences, n_matrices, n_classes) in their usual form."""
    prepared = engine.prepare(Prepared.checked(matrices))
    # `pairwise` takes complex means, and then halves the divergences of real forms.
    atoms = means if is_complex(means) else map(Prepared.checked, means)
    pairs = zip(field, atoms, strict=True)
    return np.stack([D.pairwise(prepared, centers, engine=engine) for D, centers in pairs])


def balance(data: Labelled, field: list[Divergence], means: RealArray, engine: Engine) -> RealArray:
    """Weights of divergences, fitted to each alone, so that none outweighs the others."""
    scales = []
    for table in measure_field(data.matrices, field, means, engine):
        unit = typical(table)
        shares = data.weights / data.weights.sum()
        scales.append(1 / (unit * fit_temperature(-table / unit, data.codes, shares)[0]))
    return np.array(scales) / len(field)
