r"""Sums over the matrices of clusters, and steps towards centroids.

With C = L L^T, :math:`T_i = L^{-1} X_i L^{-T}` and :math:`G = \sum_i w_i f_t(\log T_i)` a centroid
is where G = 0. The fixed point :math:`C \leftarrow L \exp(h(G)) L^T`, with h the inverse of
:math:`f_t`, is the arithmetic mean at (0, 1), the harmonic mean at (1, 0) and a step of Karcher's
iteration at the origin; elsewhere few steps come close.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divlearn.alpha_beta import Point
from divlearn.arrays import DeviceArray, Indices, IntArray, RealArray, to_device_of, to_host
from divlearn.checks import check_finite
from divlearn.engines import Engine, Prepared
from divlearn.geometry import in_frames, move_frames
from divlearn.means import Slope, arithmetic_mean, run_searches, search_mean
from divlearn.optim import Problem, Trial, minimize_conjugate_gradient
from divlearn.sharded.blocks import Block, engine_for
from divlearn.sharded.shards import Parts, Shards
from divlearn.spd import usable
from divlearn.spectral import clip_f_t, invert_f_t

# Size of a step, without unit, below which fixed points stop: the remaining distance is smaller.
_SMALL_STEP = 1e-2
_TOLERANCE = 1e-4
# Fixed points get slow as alpha + beta grows: divergences turn into sums of |t|.
_LARGEST_SUM = 2.0
_LEAST_COLUMNS = 8  # of a table, so that calls of engines are efficient
_RANGE = (-700.0, 700.0)  # of exp
_CLOSED = {(0.0, 1.0): False, (1.0, 0.0): True}  # centroids that are means of X or of its inverse

Cloud = tuple[RealArray, RealArray]  # log-eigenvalues, shape (n_matrices, d), and weights
# Log-eigenvalues of the matrices of a block around a centre, weights, and the numbers e^t.
HeldCloud = tuple[RealArray, RealArray, Prepared | None]


class Memberships(NamedTuple):
    """Rows of a block in every cluster, and their weights; a row may be in several clusters."""

    rows: list[Indices]
    weights: list[RealArray]
    # Of a mixture: the responsibilities of every component, and the log-likelihood.
    totals: RealArray = np.empty(0)
    log_likelihood: float = 0.0


class Clusters:
    """Clusters, given by `Memberships` of every block, and sums over their matrices."""

    def __init__(self, shards: Shards, members: Parts, totals: RealArray) -> None:
        self._shards, self._members, self._totals = shards, members, totals

    def fixed_point(
        self, numbers: Indices, centers: RealArray, point: Point, steps: int
    ) -> RealArray:
        """Take fixed-point steps, or those of `settle` where these are slow or fail."""
        points = [point] * len(centers)
        if sum(point) > _LARGEST_SUM:
            return self.settle(numbers, centers, points, steps)
        moved, active = centers.copy(), np.arange(len(centers))
        for _ in range(steps):
            slopes = self.slopes(numbers[active], moved[active], points)[1]
            if not np.isfinite(slopes).all():
                return self.settle(numbers, centers, points, steps)
            proposed, sizes = fixed_point_step(moved[active], slopes, *point)
            if not usable(proposed):
                return self.settle(numbers, centers, points, steps)
            moved[active] = proposed
            active = active[sizes > _SMALL_STEP]
            if not len(active):
                break
        return moved

    def settle(
        self,
        numbers: Indices,
        centers: RealArray,
        points: Sequence[Point],
        steps: int,
        tol: RealArray | None = None,
    ) -> RealArray:
        """Take steps that never raise the objective, until gradients are below ``tol``."""
        moved = centers.copy()
        tol = np.full(len(centers), _TOLERANCE) if tol is None else tol
        is_closed = np.array([point in _CLOSED for point in points])
        if is_closed.any():
            inverse = np.array([_CLOSED[point] for point in points if point in _CLOSED])
            moved[is_closed] = self._means(numbers[is_closed], centers[is_closed], inverse)
        iterative = np.flatnonzero(~is_closed).tolist()
        searches = [search_mean(*points[i], centers[i], tol[i], steps) for i in iterative]

        def evaluate(indices: list[int], trials: RealArray) -> Iterable[Slope]:
            rows = [iterative[i] for i in indices]
            values, slopes = self.slopes(numbers[rows], trials, [points[i] for i in rows])
            return zip(values.tolist(), slopes, strict=True)

        for i, result in zip(iterative, run_searches(searches, evaluate), strict=True):
            moved[i] = result.mean
        return moved

    def conjugate_gradient(
        self, numbers: Indices, centers: RealArray, point: Point, steps: int
    ) -> RealArray:
        """Take steps of Riemannian conjugate gradients, as the paper does; see `fixed_point`."""
        moved = centers.copy()
        for i, z in enumerate(numbers):
            problem = _Centroid(self, z, point)
            start = problem.trial(np.linalg.cholesky(centers[i]))
            result = minimize_conjugate_gradient(problem, start, max_iter=steps, tol=_TOLERANCE)
            moved[i] = result.trial.point @ result.trial.point.T
        return moved

    def spectra(self, numbers: Indices, centers: RealArray) -> Spectra:
        def hold(block: Block, members: Memberships) -> list[HeldCloud]:
            pairs = zip(numbers, centers, strict=True)
            clouds = ((spectra_block(block, members, *pair), pair[0]) for pair in pairs)
            return [hold_cloud(block.engine, t, members.weights[z]) for t, z in clouds]

        clouds = self._shards.hold(hold, parts=[self._members])
        return Spectra(self._shards, clouds, self._totals[numbers])

    def slopes(
        self, numbers: Indices, centers: RealArray, points: Sequence[Point]
    ) -> tuple[RealArray, RealArray]:
        """Mean divergences, and all G: minus the gradients in the frames of Cholesky factors."""

        def add_up(block: Block, members: Memberships) -> tuple[RealArray, RealArray]:
            values, slopes = np.zeros(len(numbers)), np.zeros_like(centers)
            for i, z in enumerate(numbers):
                rows, weights = members.rows[z], members.weights[z]
                if not len(rows):
                    continue
                data, columns = block.take(z, rows), weights[:, None]
                pullback = engine_for(block.engine, len(rows), block.data.d).pullback
                back = pullback(
                    data, centers[[i]], *points[i], columns, parameters=False, values=True
                )
                values[i] = weights @ to_host(back.values)[:, 0]
                slopes[i] = -to_host(back.whitened)[0]
            return values, slopes

        values, slopes = self._shards.reduce(add_up, parts=[self._members])
        totals = self._totals[numbers]
        return values / totals, slopes / totals[:, None, None]

    def _means(self, numbers: Indices, centers: RealArray, inverse: NDArray[np.bool_]) -> RealArray:
        # In units of a power of two, which changes no bit but lets no inverse overflow.
        exponents = np.frexp(np.abs(centers).max(axis=(1, 2)))[1]

        def add_up(block: Block, members: Memberships) -> RealArray:
            sums = np.zeros(centers.shape)
            for i, z in enumerate(numbers):
                rows, weights = members.rows[z], members.weights[z]
                if len(rows):
                    matrices = np.ldexp(block.take(z, rows).device_matrices, -exponents[i])
                    matrices = np.linalg.inv(matrices) if inverse[i] else matrices
                    sums[i] = to_host(arithmetic_mean(matrices, to_device_of(weights, matrices)))
            return sums

        sums = self._shards.reduce(add_up, parts=[self._members])
        means: RealArray = sums / self._totals[numbers, None, None]
        means[inverse] = np.linalg.inv(means[inverse])
        means = np.ldexp(means, exponents[:, None, None])
        return 0.5 * (means + means.mT)


def fixed_point_step(
    centers: RealArray, slopes: RealArray, alpha: float, beta: float
) -> tuple[RealArray, RealArray]:
    """Take the step C <- L exp(h(G)) L^T; returns also its size, per square root of d."""
    values, vectors = np.linalg.eigh(slopes)
    steps = invert_f_t(clip_f_t(values, alpha, beta), alpha, beta)
    roots = np.linalg.cholesky(centers) @ (vectors * np.exp(0.5 * steps)[:, None, :])
    moved = roots @ roots.mT
    return 0.5 * (moved + moved.mT), np.sqrt((steps**2).mean(axis=1))


class _Centroid(Problem):
    """The mean divergence of a cluster to a centroid A A^T, by its frame A."""

    def __init__(self, clusters: Clusters, number: int, point: Point) -> None:
        self._clusters, self._number, self._point = clusters, number, point

    def trial(self, frame: RealArray) -> Trial:
        center = (frame @ frame.T)[None]
        if not usable(center):
            return Trial(frame, np.inf)
        values, slopes = self._clusters.slopes(np.array([self._number]), center, [self._point])
        return Trial(frame, float(values[0]), (slopes, center))

    def gradient(self, trial: Trial) -> RealArray:
        slopes, center = trial.memo
        return in_frames(-slopes, center, trial.point[None])[0]

    def move(self, frame: RealArray, step: RealArray) -> RealArray:
        return move_frames(frame[None], step[None])[0]

    def size(self, step: RealArray) -> float:
        return float(np.linalg.norm(step) / np.sqrt(len(step)))


class Spectra:
    """Log-eigenvalues around centres, held with the blocks: a list of `HeldCloud` for each."""

    def __init__(self, shards: Shards, clouds: Parts, totals: RealArray) -> None:
        self._shards, self._clouds, self.totals, self.d = shards, clouds, totals, shards.d
        self.share = totals / totals.sum()
        self._chosen = list(range(len(totals)))
        self._thinned: dict[int, list[Cloud]] = {}

    def __len__(self) -> int:
        return len(self.totals)

    def only(self, component: int) -> Spectra:
        part = Spectra(self._shards, self._clouds, self.totals[component : component + 1])
        part._chosen, part._thinned = [self._chosen[component]], self._thinned
        return part

    def sums(self, alpha: float, beta: float, shift: RealArray) -> RealArray:
        """Mean f(t - shift), f_alpha, f_beta and f_t over all weights, shape (4, n_components)."""
        chosen = self._chosen

        def add_up(block: Block, clouds: Sequence[HeldCloud]) -> RealArray:
            sums = np.zeros((4, len(chosen)))
            for i, k in enumerate(chosen):
                _, weights, numbers = clouds[k]
                if numbers is None:
                    continue
                cotangent = np.repeat(weights, numbers.n_matrices // len(weights))[:, None]
                center = np.exp(shift[i]).reshape(1, 1, 1)
                args = numbers, center, alpha, beta, cotangent
                back: Any = block.engine.pullback(*args, values=True)
                value = np.vdot(cotangent, back.values)
                sums[:, i] = value, back.alpha[0], back.beta[0], -back.whitened[0, 0, 0]
            return sums

        sums = self._shards.reduce(add_up, parts=[self._clouds])
        return sums / self.totals.sum()

    def thinned(self, enough: int) -> list[Cloud]:
        """Every m-th matrix around each centre, at most so many, in the order of the blocks."""
        if enough not in self._thinned:
            sizes = np.array(
                self._shards.map(
                    lambda _, clouds: [len(t) for t, *_ in clouds], parts=[self._clouds]
                )
            )
            ends = sizes.cumsum(axis=0)
            steps = [math.ceil(count / enough) for count in ends[-1]]
            thinned = self._shards.map(_thin_block, steps, ends - sizes, parts=[self._clouds])
            self._thinned[enough] = [
                (np.concatenate([t for t, _ in cloud]), np.concatenate([w for _, w in cloud]))
                for cloud in zip(*thinned, strict=True)
            ]
        return [self._thinned[enough][i] for i in self._chosen]


def nearest_block(
    block: Block, centers: RealArray, alpha: float, beta: float, previous: Indices | None = None
) -> tuple[Indices, RealArray, RealArray]:
    """Find the nearest centres: labels, divergences to them, and to the ``previous`` centres."""
    engine, n = block.engine, len(block)
    step = max(_LEAST_COLUMNS, engine.table_entries // n)
    labels, divergences = np.zeros(n, dtype=np.intp), np.full(n, np.inf)
    to_previous = np.zeros(n)
    for start in range(0, len(centers), step):
        table = engine.encode(block.data, centers[start : start + step], alpha, beta)
        nearest, values = find_nearest(table)
        nearer = values < divergences
        labels[nearer], divergences[nearer] = start + nearest[nearer], values[nearer]
        if previous is not None:
            columns = previous - start
            in_table = (columns >= 0) & (columns < table.shape[1])
            to_previous[in_table] = _pick(table, np.where(in_table, columns, 0))[in_table]
    return labels, divergences, to_previous


def find_nearest(table: RealArray) -> tuple[Indices, RealArray]:
    """Find the nearest centres on the device of the table; results are on the host."""
    labels = table.argmin(axis=1)  # of the first NaN, if there is one
    divergences = _pick(table, labels)
    largest = float(divergences.max(initial=0.0))
    check_finite(largest, "a divergence", "to the nearest centre", or_infinite=True)
    return to_host(labels).astype(np.intp, copy=False), divergences


def _pick(table: RealArray, columns: DeviceArray) -> RealArray:
    indices: DeviceArray = to_device_of(columns, table)
    return to_host(np.take_along_axis(table, indices[:, None], axis=1)[:, 0])


def spectra_block(block: Block, members: Memberships, number: int, center: RealArray) -> RealArray:
    rows = members.rows[number]
    if not len(rows):
        return np.empty((0, block.data.d))
    engine = engine_for(block.engine, len(rows), block.data.d)
    return to_host(engine.spectra(block.take(number, rows), center[None]))[:, 0]


def hold_cloud(engine: Engine, t: RealArray, weights: RealArray) -> HeldCloud:
    """Prepare log-eigenvalues, of which there may be none, for many sums: the numbers e^t."""
    # A divergence is the sum of those of the 1 x 1 matrices e^t, which take no linear algebra. They
    # need no check: e^t is positive if it does not underflow.
    numbers = Prepared.checked(np.exp(np.clip(t, *_RANGE)).reshape(-1, 1, 1))
    return t, weights, engine.prepare(numbers) if len(t) else None


def _thin_block(
    block: Block, clouds: Sequence[HeldCloud], steps: Sequence[int], starts: IntArray
) -> list[Cloud]:
    rows = [slice(int(-starts[block.number, k] % m), None, m) for k, m in enumerate(steps)]
    return [(t[part], weight[part]) for part, (t, weight, _) in zip(rows, clouds, strict=True)]
