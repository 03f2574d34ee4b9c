"""Tables of symmetrised divergences, which estimators with the same training data share."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import pairwise
from math import isqrt
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from divlearn.alpha_beta import Point, encode_pairs, keep_prepared, nonnegative_point
from divlearn.arrays import Indices, RealArray
from divlearn.divergence import ABDivergence, Divergence, EmbeddedMetric
from divlearn.engines import Engine, Prepared, compiled
from divlearn.engines.compiled import compiles
from divlearn.engines.plane import evaluate_plane
from divlearn.fitting.held_out import FoldedData, Memo, prepare_once
from divlearn.fitting.progress import track
from divlearn.threads import side_by_side

_BLOCKS = 16  # of a square table; only those on and below the diagonal are computed
_ROWS = 1024  # of a block of a table with landmarks
LARGE = 4000  # matrices, above which tables of all pairs take too long
_LANDMARKS, _PER_CLASS = 500, 10  # the larger number of both; more gain little accuracy
_SMALL = 64  # matrices, up to which a table is one block
_SPECTRUM_ENTRIES = 1 << 16  # that estimators share; one that is alone would be slower by more
_LARGEST_TABLE = 2**32  # bytes, of all divergences
_DIVERGENCES = 6  # with tables for all landmarks: as many as the default grid has
_KERNELS = 4  # kept at a time, for candidates whose folds are fitted in parallel


def symmetric_point(alpha: float, beta: float) -> Point:
    """Parameters of a symmetrised divergence, both >= 0 and in ascending order."""
    # D^(a,b)(X || Y) = D^(b,a)(Y || X): the average of both directions is symmetric in a and b.
    low, high = sorted(nonnegative_point(alpha, beta))
    return low, high


def training_table(
    estimator: Any, divergence: Divergence, engine: Engine, new: Prepared
) -> RealArray:
    """Symmetrised divergences of new matrices to ``matrices_`` of a fitted estimator."""
    training = prepare_once(estimator, estimator.matrices_, Prepared.checked)
    return symmetric_table(divergence, engine, new, training)


def symmetric_table(
    divergence: Divergence,
    engine: Engine,
    X: RealArray | Prepared,
    Y: RealArray | Prepared | None = None,
) -> RealArray:
    """Means of both directions in the textbook form, between checked sets of matrices."""
    first = X if isinstance(X, Prepared) else Prepared.checked(X)
    second = Prepared.checked(Y) if isinstance(Y, np.ndarray) else Y
    if isinstance(divergence, ABDivergence):
        point = symmetric_point(divergence.alpha, divergence.beta)
        if second is None:
            table = square_tables(engine, first.matrices, [point])[0]
        else:
            table = cross_table(engine, first, second, point)
        return divergence.scale * table
    if isinstance(divergence, EmbeddedMetric) and second is not None:
        return cdist(divergence.vectors(first), divergence.vectors(second), "sqeuclidean")
    table = divergence.pairwise(first, second)
    if divergence.squared_distance:  # is symmetric
        return table
    reverse = table if second is None else divergence.pairwise(second, first)
    return 0.5 * (table + reverse.T)


def square_tables(engine: Engine, matrices: RealArray, points: Sequence[Point]) -> RealArray:
    """Symmetrised divergences of all matrices, (n_points, n, n), zero on the diagonal."""
    # The other direction has the spectrum -t, and f(-t; alpha, beta) = f(t; beta, alpha): one pass
    # over half of the pairs serves all points and both directions.
    n = len(matrices)
    tables = np.empty((len(points), n, n), matrices.dtype)
    bounds = np.linspace(0, n, (_BLOCKS if n > _SMALL else 1) + 1).astype(int)

    def fill(table: RealArray, mean: Callable[[], RealArray], start: int, stop: int) -> None:
        """Write columns from the diagonal down, and their transposes as rows."""
        below = mean()
        lower = np.tril(below[: stop - start], -1)
        table[start:stop, start:stop] = lower + lower.T
        table[stop:, start:stop] = below[stop - start :]
        table[start:stop, stop:] = below[stop - start :].T

    for start, stop in track(list(pairwise(bounds)), "blocks of divergences"):
        data = Prepared.checked(matrices[start:])
        means = _both_directions(engine, data, matrices[start:stop], points)
        # On several threads: this takes as long as some spectra.
        pairs = zip(tables, means, strict=True)
        calls = [partial(fill, table, mean, start, stop) for table, mean in pairs]
        for _ in side_by_side(calls, engine.n_threads):
            pass
    return tables


def cross_tables(
    engine: Engine, matrices: RealArray, landmarks: RealArray, points: Sequence[Point]
) -> RealArray:
    """Symmetrised divergences to landmarks, (n_points, n_matrices, n_landmarks).

    They are in the memory of the engine, on the host or on a device.
    """
    tables: RealArray | None = None
    shape = len(points), len(matrices), len(landmarks)
    bounds = np.linspace(0, len(matrices), len(matrices) // _ROWS + 2).astype(int)
    for start, stop in track(list(pairwise(bounds)), "blocks of divergences"):
        data = engine.keep(Prepared.checked(matrices[start:stop]))
        part = np.stack([mean() for mean in _both_directions(engine, data, landmarks, points)])
        if tables is None:
            tables = np.empty(shape, matrices.dtype, like=part)
        tables[:, start:stop] = part
    assert tables is not None
    return tables


def cross_table(engine: Engine, X: Prepared, Y: Prepared, point: Point) -> RealArray:
    """Symmetrised divergences of every matrix of X to every matrix of Y, shape (n_X, n_Y)."""
    both = [point, point[::-1]][: len(set(point))]
    few = X.n_matrices < Y.n_matrices and X.n_matrices * Y.working[:, 0].size <= _SPECTRUM_ENTRIES
    if sum(point) == 1 or not few or np.result_type(X.dtype, Y.dtype) != np.float64:
        return encode_pairs(engine, X, Y, both).mean(axis=2)
    # Estimators with the same training matrices share the spectra; the array in the cache keeps
    # its id from being that of another.
    key = "spectra", id(Y.working), repr(engine)
    data = keep_prepared(engine, Y, X.dtype)
    t, _ = X.cached(key, lambda: (engine.spectra(data, X), Y.working))
    values = evaluate_plane(t.reshape(-1, X.d), np.array(both)).mean(axis=1)
    return values.reshape(t.shape[:2]).T


def _both_directions(
    engine: Engine, data: Prepared, atoms: RealArray, points: Sequence[Point]
) -> list[Callable[[], RealArray]]:
    """Encode, and return functions that compute the mean of both directions, for every point."""
    swapped = [(beta, alpha) for alpha, beta in points]
    columns = list(dict.fromkeys([*points, *swapped]))
    parameters = np.array(columns).T[:, None, :]
    alpha, beta = np.broadcast_to(parameters, (2, len(atoms), len(columns)))
    values = engine.encode(data, Prepared.checked(atoms), alpha, beta)

    def mean(point: Point, other: Point) -> RealArray:
        forward = values[..., columns.index(point)]
        if point == other:
            return forward
        return 0.5 * (forward + values[..., columns.index(other)])

    return [partial(mean, *pair) for pair in zip(points, swapped, strict=True)]


def cut(table: RealArray, rows: Indices, columns: Indices) -> RealArray:
    """Return rows and columns of a table, in two thirds of the time of `numpy.ix_`."""
    return table.take(rows, axis=0).take(columns, axis=1)


def decay(divergences: RealArray, scale: float) -> RealArray:
    """Return exp(-scale D); an infinite divergence gives zero."""
    if compiles(divergences):
        return compiled.decay(divergences, scale)
    with np.errstate(over="ignore", under="ignore"):
        exponents = divergences * -scale
        return np.exp(exponents, out=exponents)


def find_copies(matrices: RealArray) -> Indices:
    """For every matrix the index of the first that is exactly equal to it."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(X.tobytes(), i) for i, X in enumerate(matrices)])


def median_scale(
    divergences: RealArray,
    copies: Indices,
    weights: RealArray | None = None,
    *,
    of: str = "X",
    fix: str = "pass other matrices",
) -> float:
    """One over the median divergence of all pairs of matrices that differ."""
    # Copies of a matrix count, but not the zeros between them. The weight of a pair is the product
    # of the weights of its matrices, so that integer weights are equivalent to copies.
    n = len(divergences)
    differ = np.triu(copies[:, None] != copies, 1)
    if not differ.any():
        equal = "" if n == 1 else ", all equal"
        raise ValueError(
            f"the median divergence needs at least two matrices that differ, but {of} has "
            f"n_samples={n}{equal}; {fix}"
        )
    values = divergences[differ].astype(np.float64, copy=False)
    if weights is None or np.ptp(weights) == 0:
        median = float(np.median(values))
    else:
        median = _weighted_median(values, np.multiply.outer(weights, weights)[differ])
    if not np.finfo(np.float64).tiny <= median < np.inf:
        raise ValueError(
            f"the median divergence of X is {median:g}, but must be > 0 and finite; {fix}"
        )
    return 1 / median


def _weighted_median(values: RealArray, counts: RealArray) -> float:
    """Median of the values, each repeated by its count, which need not be an integer."""
    order = np.argsort(values)
    cumulative = np.cumsum(counts[order])
    half = cumulative[-1] / 2
    middle = [int(np.searchsorted(cumulative, half, side)) for side in ("left", "right")]
    return float(values[order[middle]].mean())


# --- tables shared by estimators with the same training data --------------------------------------


def by_class(codes: Indices) -> Indices:
    """Return the stable order of rows by class."""
    return np.argsort(codes, kind="stable")


def pick_landmarks(codes: Indices, most: int | None = None) -> Indices:
    """Rows of at most `most` landmarks, in proportion to the sizes of classes, or strata."""
    n = max(_LANDMARKS, _PER_CLASS * (int(codes.max()) + 1))
    places = np.linspace(0, len(codes) - 1, min(n, most or n, len(codes))).astype(int)
    return by_class(codes)[places]


def are_many(training: FoldedData, most: int | None = None) -> bool:
    """Whether there are more matrices than `most`, by default too many for tables of all pairs."""
    return len(training.data.matrices) > (LARGE if most is None else most)


def shared_columns(training: FoldedData, most: int | None = None) -> Indices:
    """Rows of the matrices that are columns of tables: all, or landmarks if there are many."""
    strata = training.data.strata
    if not are_many(training, most):
        return np.arange(len(strata))
    limit = max(1, _LARGEST_TABLE // (8 * len(strata) * _DIVERGENCES))
    return training.cached("landmarks", lambda: pick_landmarks(strata, limit))


def shared_matrices(training: FoldedData, most: int | None = None) -> RealArray:
    """Return the matrices that are columns of tables; no copy if these are all."""
    matrices = training.data.matrices
    return matrices[shared_columns(training, most)] if are_many(training, most) else matrices


def shared_tables(
    training: FoldedData, points: Sequence[Point], columns: Indices | None = None
) -> dict[Point, RealArray]:
    """Tables of divergences to the matrices `columns`, computed once for all estimators."""
    matrices = training.data.matrices
    whole = columns is None or len(columns) == len(matrices)

    def compute() -> dict[Point, RealArray]:
        landmarks = None if whole else matrices[columns]
        return make_tables(training.engine, matrices, points, landmarks)

    return training.cached(("tables", tuple(points), whole), compute)


def shared_table(
    training: FoldedData,
    divergence: Divergence,
    points: Sequence[Point],
    columns: Indices | None = None,
) -> RealArray:
    """Symmetrised table of a divergence, computed once, together with those of all `points`."""
    if isinstance(divergence, ABDivergence):
        point = symmetric_point(divergence.alpha, divergence.beta)
        table = shared_tables(training, points if point in points else [point], columns)[point]
        return table if divergence.scale == 1 else divergence.scale * table
    matrices = training.data.matrices
    whole = columns is None or len(columns) == len(matrices)

    def compute() -> RealArray:
        landmarks = None if whole else matrices[columns]
        return symmetric_table(divergence, training.engine, matrices, landmarks)

    return training.cached(("table", divergence, whole), compute)


def shared_kernel(
    training: FoldedData, table: RealArray, scale: float, name: Hashable
) -> RealArray:
    """Return exp(-scale D), computed once for all folds and penalties."""
    recent = training.cached("kernels", lambda: Memo(_KERNELS))
    return recent.cached((name, scale), lambda: decay(table, scale))


def make_tables(
    engine: Engine, matrices: RealArray, points: Sequence[Point], landmarks: RealArray | None = None
) -> dict[Point, RealArray]:
    """Compute symmetrised divergences of all matrices, to each other or to landmarks, by point."""
    n_matrices, n_points = len(matrices), len(points)
    n_bytes = 8 * n_matrices * (n_matrices if landmarks is None else len(landmarks)) * n_points
    if n_bytes > _LARGEST_TABLE:
        most = _LARGEST_TABLE * n_matrices // n_bytes  # with as many landmarks
        if landmarks is None or most <= LARGE:
            most = isqrt(_LARGEST_TABLE // (8 * n_points))
        raise ValueError(
            f"n_matrices={n_matrices} with {n_points} divergences (alpha, beta) need "
            f"{n_bytes / 2**30:.1f} GiB for tables of pairs, but must need <= "
            f"{_LARGEST_TABLE / 2**30:g} GiB; fit to a random subset of at most {most} matrices"
        )
    if landmarks is None:
        tables = square_tables(engine, matrices, points)
    else:
        tables = cross_tables(engine, matrices, landmarks, points)
    return dict(zip(points, tables, strict=True))
