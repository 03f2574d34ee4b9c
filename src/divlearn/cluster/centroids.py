r"""Steps towards the centroids of clusters, from where they were.

With C = L L^T, :math:`T_i = L^{-1} X_i L^{-T}` and :math:`G = \sum_i w_i f_t(\log T_i)` a centroid
is where G = 0. The fixed point :math:`C \leftarrow L \exp(h(G)) L^T`, with h the inverse of
:math:`f_t`, is the arithmetic mean at (0, 1), the harmonic mean at (1, 0) and a step of Karcher's
iteration at the origin; elsewhere few steps come close.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from divlearn.arrays import RealArray, beside, to_host
from divlearn.cluster.samples import Labels
from divlearn.engines import Engine, Prepared
from divlearn.geometry import geodesic
from divlearn.means import mean_abld
from divlearn.optim.conjugate_gradient import minimize_conjugate_gradient
from divlearn.optim.frames import in_frames, move_frames, usable
from divlearn.optim.problem import Trial
from divlearn.spectral import invert_f_t

__all__ = [
    "SOLVERS", "Cluster", "Solver", "fixed_point", "fixed_point_step", "is_plain", "partial_step",
    "safeguarded",
]  # fmt: skip

# Sizes of steps have no unit. Where one is below this, what is left to go is a share of it.
_SMALL_STEP = 1e-2
_TOLERANCE = 1e-4
# Fixed points get slow as alpha + beta grows: divergences turn into sums of |t|.
_LARGEST_SUM = 2.0
_CAREFUL_STEPS = 3
_MARGIN = 1 - 1e-12  # slopes lie in the open range of f_t, but for rounding


@dataclass(frozen=True, eq=False)
class Cluster:
    """Matrices of one cluster, with weights whose sum is one; a `Problem` in its centroid.

    Attributes
    ----------
    engine : Engine
    rows : ndarray of int, where the matrices are among all.
    data : Prepared
    weights : ndarray, shape (n_matrices,)
    alpha, beta : float
    """

    engine: Engine
    rows: Labels
    data: Prepared
    weights: RealArray
    alpha: float
    beta: float

    def slopes(self, center: RealArray) -> RealArray:
        """Compute G, minus the gradient in the frame of the centroid's Cholesky factor."""
        back = self.engine.pullback(
            self.data, center[None], self.alpha, self.beta, self.weights[:, None], parameters=False
        )
        slopes: RealArray = -to_host(back.whitened)[0]
        return slopes

    def trial(self, frame: RealArray) -> Trial:
        """Compute the mean divergence to the centroid A A^T. See `Problem.trial`."""
        center = (frame @ frame.T)[None]
        if not usable(center):
            return Trial(frame, np.inf)
        divergences = self.engine.encode(self.data, center, self.alpha, self.beta)
        return Trial(frame, float(beside(self.weights, divergences) @ divergences[:, 0]))

    def gradient(self, trial: Trial) -> RealArray:
        """Compute the gradient in the frame A. See `Problem.gradient`."""
        frame = trial.point
        center = frame @ frame.T
        gradient = in_frames(-self.slopes(center)[None], center[None], frame[None])
        in_frame: RealArray = gradient[0]
        return in_frame

    def move(self, frame: RealArray, step: RealArray) -> RealArray:
        """Take a step. See `Problem.move`."""
        moved: RealArray = move_frames(frame[None], step[None])[0]
        return moved

    def size(self, step: RealArray) -> float:
        """How far the centroid goes, per square root of d. See `Problem.size`."""
        return float(np.linalg.norm(step) / np.sqrt(len(step)))

    def limits(self, frame: RealArray) -> float:
        """Nothing is limited. See `Problem.limits`."""
        return -np.inf


def fixed_point_step(
    centers: RealArray, slopes: RealArray, alpha: float, beta: float
) -> tuple[RealArray, RealArray]:
    """Take the step C <- L exp(h(G)) L^T for several centroids.

    Parameters
    ----------
    centers : ndarray, shape (n, d, d)
    slopes : ndarray, shape (n, d, d), the G of each.
    alpha, beta : float, both >= 0.

    Returns
    -------
    centers : ndarray, shape (n, d, d)
    sizes : ndarray, shape (n,), of the steps, per square root of d.
    """
    values, vectors = np.linalg.eigh(slopes)
    lowest = -_MARGIN / beta if beta else -np.inf
    highest = _MARGIN / alpha if alpha else np.inf
    steps = invert_f_t(np.clip(values, lowest, highest), alpha, beta)
    roots = np.linalg.cholesky(centers) @ (vectors * np.exp(0.5 * steps)[:, None, :])
    moved = roots @ roots.mT
    return 0.5 * (moved + moved.mT), np.sqrt((steps**2).mean(axis=1))


def is_plain(alpha: float, beta: float) -> bool:
    """Whether fixed points are fast enough to go without care."""
    return alpha + beta <= _LARGEST_SUM


def fixed_point(
    slopes: Callable[[RealArray, Labels], RealArray], centers: RealArray, alpha: float,
    beta: float, steps: int,
) -> RealArray | None:  # fmt: skip
    """Take steps of fixed points for several centroids.

    Parameters
    ----------
    slopes : callable
        From all centroids and the numbers of those that still move to the G of the latter.
    centers : ndarray, shape (n, d, d)
    alpha, beta : float
    steps : int

    Returns
    -------
    ndarray, shape (n, d, d), or None where steps lead out of what can be computed with
    """
    moved, active = centers.copy(), np.arange(len(centers))
    for _ in range(steps):
        following, sizes = fixed_point_step(moved[active], slopes(moved, active), alpha, beta)
        if not usable(following):
            return None
        moved[active] = following
        active = active[sizes > _SMALL_STEP]
        if not len(active):
            break
    return moved


def _fixed_point(clusters: Sequence[Cluster], centers: RealArray, steps: int) -> RealArray:
    one = clusters[0]
    if not is_plain(one.alpha, one.beta):
        return _careful(clusters, centers, steps)

    def slopes(moved: RealArray, active: Labels) -> RealArray:
        return np.stack([clusters[int(z)].slopes(moved[z]) for z in active])

    moved = fixed_point(slopes, centers, one.alpha, one.beta, steps)
    return _careful(clusters, centers, steps) if moved is None else moved


def _careful(clusters: Sequence[Cluster], centers: RealArray, steps: int) -> RealArray:
    return np.stack([safeguarded(*pair, steps) for pair in zip(clusters, centers, strict=True)])


def _conjugate_gradient(clusters: Sequence[Cluster], centers: RealArray, steps: int) -> RealArray:
    centers = centers.copy()
    for z, cluster in enumerate(clusters):
        start = cluster.trial(np.linalg.cholesky(centers[z]))
        found = minimize_conjugate_gradient(cluster, start, max_iter=steps, tol=_TOLERANCE)
        centers[z] = found.trial.point @ found.trial.point.T
    return centers


Solver = Callable[[Sequence[Cluster], RealArray, int], RealArray]
SOLVERS: dict[str, Solver] = {
    "fixed-point": _fixed_point,
    "conjugate-gradient": _conjugate_gradient,
}


def safeguarded(cluster: Cluster, center: RealArray, steps: int) -> RealArray:
    """Take steps none of which raises the objective; see `divlearn.mean_abld`."""
    return mean_abld(
        cluster.data, cluster.alpha, cluster.beta, cluster.weights, center, tol=_TOLERANCE,
        max_iter=steps, engine=cluster.engine,
    ).mean  # fmt: skip


def partial_step(cluster: Cluster, center: RealArray, rate: float) -> RealArray:
    """Go part of the way to the centroid of some matrices, for those that came before.

    Parameters
    ----------
    cluster : Cluster
    center : ndarray, shape (d, d)
    rate : float
        Share of the weight of these matrices in all.

    Returns
    -------
    ndarray, shape (d, d)
        With G scaled by the rate the fixed point is exact where it is without: the arithmetic mean
        of all at (0, 1), and so on.
    """
    if cluster.alpha + cluster.beta > _LARGEST_SUM:
        return geodesic(center, safeguarded(cluster, center, _CAREFUL_STEPS), rate)
    slopes = rate * cluster.slopes(center)
    moved, _ = fixed_point_step(center[None], slopes[None], cluster.alpha, cluster.beta)
    first: RealArray = moved[0]
    return first
