"""Codes in the feature space of a kernel, sparse or by neighbours, and atoms for sparse ones.

Codes see matrices and atoms by their view: divergences of matrices to atoms, (n_matrices, n_atoms),
and between atoms, (n_atoms, n_atoms). A bandwidth makes kernels of them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.baselines.coded import AtomsProblem, Stage
from divlearn.baselines.spd_kernels import SPDKernel
from divlearn.checks import check_finite
from divlearn.optim.gradients import minimize_conjugate_gradient
from divlearn.optim.problem import Trial

View = tuple[RealArray, RealArray]

# Bandwidths to try, over the median divergence of matrices and atoms; the smoothest kernel first.
_MULTIPLES = (0.25, 1.0, 4.0)
_STEPS = 5  # of conjugate gradients, for each update of the atoms
_RIDGE = 1e-4  # share of the trace of local Gram matrices that is added to their diagonals
_TINY = 1e-15
_MAX_ITER = 5_000
_EVERY = 20  # iterations between looks at the gaps
_RELAXATION = 1.6


def measure(kernel: SPDKernel, data: Any, atoms: RealArray) -> View:
    return kernel.divergences(data, atoms), kernel.divergences(kernel.prepare(atoms), atoms)


def kernels(view: View, bandwidth: float) -> View:
    """Kernels of matrices and atoms, and between atoms, the latter exactly symmetric."""
    to_atoms, between = view
    gram = np.exp(-bandwidth * between)
    return np.exp(-bandwidth * to_atoms), 0.5 * (gram + gram.T)


def bandwidths(kernel: SPDKernel, view: View, d: int, given: float | str) -> Sequence[float]:
    """Bandwidths to choose from, with positive definite kernels; one given is the only choice."""
    if given != "auto":
        kernel.check_bandwidth(given, d)
        return [float(given)]
    median = float(np.median(view[0])) or 1.0
    check_finite(median, "the median divergence", "between matrices and atoms")
    found = [kernel.nearest_bandwidth(multiple / median, d) for multiple in _MULTIPLES]
    return list(dict.fromkeys(found))


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
    # Alternating directions, all samples together: kernels of similar atoms are nearly singular,
    # and coordinate descent would take thousands of rounds. Samples leave at a duality gap of tol.
    # Samples are columns here, so that a row holds one atom of all of them.
    n = len(gram)
    half = 0.5 * penalty
    weight = np.sqrt(penalty)  # of the quadratic term: what suits large and small penalties
    inverse = np.linalg.inv(gram + weight * np.eye(n))
    targets = np.ascontiguousarray(similarities.T)
    codes = np.zeros_like(targets) if start is None else np.ascontiguousarray(start.T)
    dual = np.clip(targets - gram @ codes, -half, half) / weight
    result, rows = codes.copy(), np.arange(len(similarities))
    for _ in range(0, _MAX_ITER, _EVERY):
        for _ in range(_EVERY):
            moved = inverse @ (targets + weight * (codes - dual))
            moved = _RELAXATION * moved + (1 - _RELAXATION) * codes + dual
            dual = np.clip(moved, -half / weight, half / weight)
            codes = moved - dual
        result[:, rows] = codes
        gaps = _gaps(targets, gram, penalty, codes)
        check_finite(float(gaps.max()), "a duality gap", "of sparse codes")
        left = gaps > tol
        if not left.any():
            break
        rows = rows[left]
        codes, dual, targets = (
            np.ascontiguousarray(array[:, left]) for array in (codes, dual, targets)
        )
    if start is None:
        return result.T.copy()
    new, old = (lasso_values(similarities, gram, penalty, one) for one in (result.T, start))
    return np.where((new <= old)[:, None], result.T, start)


def _gaps(targets: RealArray, gram: RealArray, penalty: float, codes: RealArray) -> RealArray:
    """Duality gaps, shape (n_samples,): the residual, scaled, is feasible in the dual problem."""
    correlations = targets - gram @ codes
    along = 1 - (codes * targets).sum(axis=0)  # <phi, residual>
    fits = along - (codes * correlations).sum(axis=0)  # ||residual||^2
    steepest = np.abs(correlations).max(axis=0)
    scale = np.minimum(1, 0.5 * penalty / np.maximum(steepest, np.finfo(float).tiny))
    duals = 2 * scale * along - scale**2 * fits
    return fits + penalty * np.abs(codes).sum(axis=0) - duals


def local_codes(view: View, bandwidth: float, n_neighbors: int) -> RealArray:
    """Affine combinations of the nearest atoms, see `KernelLLC`."""
    similarities, gram = kernels(view, bandwidth)
    k = n_neighbors
    # A kernel falls with the divergence, so both have the same neighbours.
    nearest = np.argpartition(view[0], k - 1, axis=1)[:, :k]
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


def learn_sparse(
    kernel: SPDKernel, bandwidth: float, penalty: float, matrices: RealArray, atoms: RealArray
) -> Iterator[Stage]:
    """Yield the start, then atoms and codes in turn; the objective never rises."""
    data = kernel.prepare(matrices)
    view = measure(kernel, data, atoms)
    codes = sparse_codes(*kernels(view, bandwidth), penalty)
    block = "start"
    while True:
        problem = KernelAtomsProblem(kernel, bandwidth, penalty, data, codes)
        yield block, atoms, codes, problem.objective(view)
        start = problem.start(kernel.point(atoms))
        found = minimize_conjugate_gradient(problem, start, max_iter=_STEPS, tol=0.0).trial
        if found.value < start.value:
            atoms, view = found.memo
        yield "atoms", atoms, codes, problem.objective(view)
        codes = sparse_codes(*kernels(view, bandwidth), penalty, start=codes)
        block = "codes"


class KernelAtomsProblem(AtomsProblem):
    """Lower the mean objective of sparse codes."""

    def __init__(
        self, kernel: SPDKernel, bandwidth: float, penalty: float, data: Any, codes: RealArray
    ) -> None:
        self.kernel, self.data, self.codes = kernel, data, codes
        self.bandwidth, self.penalty = bandwidth, penalty

    def objective(self, view: View) -> float:
        values = lasso_values(*kernels(view, self.bandwidth), self.penalty, self.codes)
        return float(values.mean())

    def trial(self, point: RealArray) -> Trial:
        atoms = self.kernel.atoms(point)
        if atoms is None:
            return Trial(point, np.inf)
        view = measure(self.kernel, self.data, atoms)
        return Trial(point, self.objective(view), (atoms, view))

    def gradient(self, trial: Trial) -> RealArray:
        similarities, gram = kernels(trial.memo[1], self.bandwidth)
        slopes = 2 * self.bandwidth / len(self.codes) * self.codes * similarities
        between = -self.bandwidth * (self.codes.T @ self.codes / len(self.codes)) * gram
        return self.kernel.gradient(self.data, trial.point, slopes, between).ravel()

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        return self.kernel.move(point, step.reshape(point.shape))
