"""Codes in the feature space of a kernel, sparse or by neighbours; see `KernelSparseCoding`."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.baselines.coded import Parameters, View
from divlearn.checks import check_finite, check_number
from divlearn.divergence import (
    DIVERGENCES,
    ABDivergence,
    Divergence,
    EmbeddedMetric,
    get_divergence,
    get_member,
)
from divlearn.engines import Engine, get_engine
from divlearn.geometry import in_frames
from divlearn.kernels.definiteness import theory
from divlearn.log_vectors import squared_distances
from divlearn.tolerances import LEARNING_ACCURACY

# Candidates of bandwidths, over the median divergence of matrices and atoms; the smoothest first.
_MULTIPLES = (0.25, 1.0, 4.0)
_RIDGE = 1e-4  # added to the diagonals of local Gram matrices, relative to their traces
_TINY = 1e-15
_MAX_ITER = 5_000
_INTERVAL = 20  # iterations between checks of the duality gaps
_RELAXATION = 1.6


class KernelView(View):
    """Divergences of matrices to atoms, (n_matrices, n_atoms), and between atoms; their kernels."""

    def __init__(self, divergence: Divergence, matrices: RealArray, atoms: RealArray) -> None:
        self.divergence = divergence
        self.data = self.prepare(matrices)
        self._set_atoms(atoms)

    def _set_atoms(self, atoms: RealArray) -> None:
        self.atoms, self.to_atoms = atoms, self.divergences(self.data, atoms)
        self.between = self.divergences(self.prepare(atoms), atoms)

    @abstractmethod
    def prepare(self, matrices: RealArray) -> Any:
        """Prepare matrices for `divergences`."""

    @abstractmethod
    def divergences(self, data: Any, atoms: RealArray) -> RealArray:
        """Divergences of prepared data and atoms, shape (n_matrices, n_atoms)."""

    @abstractmethod
    def pull(self, point: RealArray, cotangent: RealArray, between: RealArray) -> RealArray:
        """Gradient in the point, given slopes in divergences to the data and between atoms."""

    def kernels(self, bandwidth: float) -> tuple[RealArray, RealArray]:
        """Kernels of matrices and atoms, and between atoms, the latter exactly symmetric."""
        gram = np.exp(-bandwidth * self.between)
        return np.exp(-bandwidth * self.to_atoms), 0.5 * (gram + gram.T)

    def objective(
        self, codes: RealArray, parameters: Parameters
    ) -> tuple[float, tuple[RealArray, RealArray]]:
        kernels = self.kernels(parameters["bandwidth"])
        values = lasso_values(*kernels, parameters.get("penalty", 0.0), codes)
        return float(values.mean()), kernels

    def gradient(
        self,
        point: RealArray,
        codes: RealArray,
        parameters: Parameters,
        memo: tuple[RealArray, RealArray],
    ) -> RealArray:
        (similarities, gram), bandwidth = memo, parameters["bandwidth"]
        slopes = 2 * bandwidth / len(codes) * codes * similarities
        between = -bandwidth * (codes.T @ codes / len(codes)) * gram
        return self.pull(point, slopes, between)


class EmbeddedView(KernelView):
    """Squared distances of vectors; points are vectors of atoms, (n_atoms, d (d + 1) / 2)."""

    divergence: EmbeddedMetric

    def prepare(self, matrices: RealArray) -> RealArray:
        return self.divergence.embed(matrices)

    def divergences(self, data: RealArray, atoms: RealArray) -> RealArray:
        return squared_distances(data, self.divergence.embed(atoms))

    def to_point(self, atoms: RealArray) -> RealArray:
        return self.divergence.embed(atoms)

    def from_point(self, point: RealArray) -> RealArray:
        return self.divergence.restore(point)

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        return point + step

    def pull(self, point: RealArray, cotangent: RealArray, between: RealArray) -> RealArray:
        totals = cotangent.sum(axis=0) + 2 * between.sum(axis=0)
        sums = cotangent.T @ self.data + 2 * between @ point
        return 2 * (totals[:, None] * point - sums)


class SteinView(KernelView):
    """Stein divergences."""

    divergence: ABDivergence

    def __init__(self, matrices: RealArray, atoms: RealArray, engine: str | Engine) -> None:
        self.engine = get_engine(engine, accuracy=LEARNING_ACCURACY)
        super().__init__(get_member("stein"), matrices, atoms)

    def prepare(self, matrices: RealArray) -> Any:
        return self.engine.prepare(matrices)

    def divergences(self, data: Any, atoms: RealArray) -> RealArray:
        member = self.divergence
        return member.scale * self.engine.encode(data, atoms, member.alpha, member.beta)

    def pull(self, point: RealArray, cotangent: RealArray, between: RealArray) -> RealArray:
        atoms = point @ point.mT
        alpha, beta, scale = self.divergence.alpha, self.divergence.beta, self.divergence.scale
        # D is symmetric: both atoms of a pair get the same gradient.
        first, second = (
            self.engine.pullback(data, atoms, alpha, beta, scale * slopes, parameters=False)
            for data, slopes in ((self.data, cotangent), (atoms, 2 * between))
        )
        return in_frames(first.whitened + second.whitened, atoms, point)


def view_by(
    name: str, matrices: RealArray, atoms: RealArray, engine: str | Engine = "auto"
) -> KernelView:
    """Return the view of matrices and atoms by the divergence of that name."""
    try:
        divergence = get_divergence(name)
    except ValueError:
        divergence = None
    if isinstance(divergence, EmbeddedMetric):
        return EmbeddedView(divergence, matrices, atoms)
    if divergence == get_member("stein"):
        return SteinView(matrices, atoms, engine)
    names = [metric.name for metric in DIVERGENCES.values() if isinstance(metric, EmbeddedMetric)]
    raise ValueError(f"kernel={name!r} must be one of {', '.join(names)}, stein")


def bandwidths(view: KernelView, bandwidth: float | str) -> Sequence[float]:
    """Bandwidths of positive definite kernels: candidates for "auto", or the number itself."""
    d = view.atoms.shape[-1]
    if bandwidth != "auto":
        return [check_bandwidth(bandwidth, view.divergence, d)]
    median = float(np.median(view.to_atoms)) or 1.0
    check_finite(median, "the median divergence", "between matrices and atoms")
    values = [nearest_bandwidth(multiple / median, view.divergence, d) for multiple in _MULTIPLES]
    return list(dict.fromkeys(values))


def check_bandwidth(bandwidth: float | str, divergence: Divergence, d: int) -> float:
    """Raise unless the kernel is positive definite on all matrices of size d."""
    check_number(bandwidth, "bandwidth", positive=True, word="auto")
    scale = float(bandwidth)
    proved, reason = theory(divergence, scale, d)
    if not proved:
        raise ValueError(
            f"bandwidth={bandwidth!r} must make the Stein kernel positive definite: {reason}. "
            f"Pass {nearest_bandwidth(scale, divergence, d)}, which is the nearest"
        )
    return scale


def nearest_bandwidth(bandwidth: float, divergence: Divergence, d: int) -> float:
    """Return the nearest bandwidth of a positive definite kernel."""
    if isinstance(divergence, EmbeddedMetric) or bandwidth >= (d - 1) / 2:
        return bandwidth
    return max(1, round(2 * bandwidth)) / 2


def lasso_values(
    similarities: RealArray, gram: RealArray, penalty: float, codes: RealArray
) -> RealArray:
    fits = 1 + ((codes @ gram - 2 * similarities) * codes).sum(axis=1)
    return fits + penalty * np.abs(codes).sum(axis=1)


def sparse_codes(
    similarities: RealArray,
    gram: RealArray,
    penalty: float,
    *,
    start: RealArray | None = None,
    tol: float = 1e-5,
) -> RealArray:
    """Code samples of unit length: min over a of 1 - 2 a^T k + a^T K a + lambda |a|_1."""
    # Alternating directions (ADMM), for all samples at once: kernels of similar atoms are nearly
    # singular, and coordinate descent would take thousands of rounds. A sample is done at a duality
    # gap of tol. Samples are columns here, and atoms are rows.
    n = len(gram)
    half = 0.5 * penalty
    weight = np.sqrt(penalty)  # of the quadratic term; suits large and small penalties
    inverse = np.linalg.inv(gram + weight * np.eye(n))
    targets = np.ascontiguousarray(similarities.T)
    codes = np.zeros_like(targets) if start is None else np.ascontiguousarray(start.T)
    dual = np.clip(targets - gram @ codes, -half, half) / weight
    result, rows = codes.copy(), np.arange(len(similarities))
    for _ in range(0, _MAX_ITER, _INTERVAL):
        for _ in range(_INTERVAL):
            moved = inverse @ (targets + weight * (codes - dual))
            moved = _RELAXATION * moved + (1 - _RELAXATION) * codes + dual
            dual = np.clip(moved, -half / weight, half / weight)
            codes = moved - dual
        result[:, rows] = codes
        gaps = _gaps(targets, gram, penalty, codes)
        check_finite(float(gaps.max()), "a duality gap", "of sparse codes")
        active = gaps > tol
        if not active.any():
            break
        rows = rows[active]
        codes, dual, targets = (
            np.ascontiguousarray(array[:, active]) for array in (codes, dual, targets)
        )
    result = result.T.copy()
    if start is None:
        return result
    new, old = (lasso_values(similarities, gram, penalty, codes) for codes in (result, start))
    return np.where((new <= old)[:, None], result, start)


def _gaps(targets: RealArray, gram: RealArray, penalty: float, codes: RealArray) -> RealArray:
    """Duality gaps, shape (n_samples,): the scaled residual is feasible in the dual problem."""
    correlations = targets - gram @ codes
    products = 1 - (codes * targets).sum(axis=0)  # <phi, residual>
    fits = products - (codes * correlations).sum(axis=0)  # ||residual||^2
    largest = np.abs(correlations).max(axis=0)
    scale = np.minimum(1, 0.5 * penalty / np.maximum(largest, np.finfo(float).tiny))
    duals = 2 * scale * products - scale**2 * fits
    return fits + penalty * np.abs(codes).sum(axis=0) - duals


def local_codes(view: KernelView, bandwidth: float, k: int) -> RealArray:
    """Affine combinations of the k nearest atoms, see `KernelLLC`."""
    similarities, gram = view.kernels(bandwidth)
    # A kernel decreases with the divergence, so both have the same neighbours.
    nearest = np.argpartition(view.to_atoms, k - 1, axis=1)[:, :k]
    near = np.take_along_axis(similarities, nearest, axis=1)
    # With C_jl = <phi(D_j) - phi(X), phi(D_l) - phi(X)> codes are proportional to (C + eps I)^-1 1.
    local = gram[nearest[:, :, None], nearest[:, None, :]]
    local = local - near[:, :, None] - near[:, None, :] + 1
    diagonal = np.arange(k)
    traces = np.trace(local, axis1=1, axis2=2)
    local[:, diagonal, diagonal] += (_RIDGE * traces + _TINY)[:, None]
    weights = np.linalg.solve(local, np.ones((len(local), k, 1)))[..., 0]
    codes = np.zeros_like(similarities)
    np.put_along_axis(codes, nearest, weights / weights.sum(axis=1, keepdims=True), axis=1)
    return codes
