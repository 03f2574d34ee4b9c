"""Coding in the feature space of a kernel: sparse, or by neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.baselines.coding import Stage
from divlearn.baselines.lasso import lasso_values, sparse_codes
from divlearn.baselines.spd_kernels import SPDKernel
from divlearn.optim.gradients import minimize_conjugate_gradient
from divlearn.optim.problem import Trial

__all__ = ["AtomsProblem", "Divergences", "LocalCoder", "SparseCoder", "bandwidths"]

# Bandwidths to try, over the median divergence of matrices and atoms; the smoothest kernel first.
_MULTIPLES = (0.25, 1.0, 4.0)
_STEPS = 5  # of conjugate gradients, for each update of the atoms
_RIDGE = 1e-4  # share of the trace of local Gram matrices that is added to their diagonals
_TINY = 1e-15


@dataclass(frozen=True, eq=False)
class Divergences:
    """Divergences of matrices to atoms, and between atoms, of which a bandwidth makes kernels."""

    to_atoms: RealArray
    between: RealArray

    @classmethod
    def measure(cls, kernel: SPDKernel, data: Any, atoms: RealArray) -> Divergences:
        """Measure those of prepared data."""
        return cls(
            kernel.divergences(data, atoms), kernel.divergences(kernel.prepare(atoms), atoms)
        )

    def kernels(self, bandwidth: float) -> tuple[RealArray, RealArray]:
        """Kernels of matrices and atoms, (n_matrices, n_atoms), and of atoms, exactly symmetric."""
        gram = np.exp(-bandwidth * self.between)
        return np.exp(-bandwidth * self.to_atoms), 0.5 * (gram + gram.T)


def bandwidths(kernel: SPDKernel, view: Divergences, d: int, given: float | str) -> Sequence[float]:
    """Bandwidths to choose from, all such that the kernel is positive definite.

    Parameters
    ----------
    kernel : SPDKernel
    view : Divergences
    d : int
    given : "auto" or float
        A number is the only choice, and must be fit for it.
    """
    if given != "auto":
        kernel.check_bandwidth(given, d)  # type: ignore[arg-type]
        return [float(given)]
    median = float(np.median(view.to_atoms)) or 1.0
    found = [kernel.nearest_bandwidth(multiple / median, d) for multiple in _MULTIPLES]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class SparseCoder:
    """Sparse codes in the feature space of a kernel. See `sparse_codes`."""

    kernel: SPDKernel
    bandwidth: float
    penalty: float

    @property
    def parameters(self) -> dict[str, float]:
        """See `Coder.parameters`."""
        return {"bandwidth": self.bandwidth, "penalty": self.penalty}

    def codes(self, view: Divergences, start: RealArray | None = None) -> RealArray:
        """See `Coder.codes`."""
        similarities, gram = view.kernels(self.bandwidth)
        return sparse_codes(gram, similarities, self.penalty, start=start)

    def objective(self, view: Divergences, codes: RealArray) -> float:
        """Mean of what the codes minimise."""
        similarities, gram = view.kernels(self.bandwidth)
        return float(lasso_values(gram, similarities, self.penalty, codes).mean())

    def learn(self, matrices: RealArray, atoms: RealArray) -> Iterator[Stage]:
        """See `Coder.learn`."""
        data = self.kernel.prepare(matrices)
        view = Divergences.measure(self.kernel, data, atoms)
        codes = self.codes(view)
        block = "start"
        while True:
            yield Stage(block, atoms, codes, self.objective(view, codes))
            problem = AtomsProblem(self, data, codes)
            start = problem.trial(self.kernel.point(atoms))
            found = minimize_conjugate_gradient(problem, start, max_iter=_STEPS, tol=0.0).trial
            if found.value < start.value:
                atoms, view = found.memo
            yield Stage("atoms", atoms, codes, self.objective(view, codes))
            codes = self.codes(view, codes)
            block = "codes"


class AtomsProblem:
    """Lower the objective of sparse coding by moving the atoms, codes held: an `optim.Problem`."""

    def __init__(self, coder: SparseCoder, data: Any, codes: RealArray) -> None:
        self.coder = coder
        self.data = data
        self.codes = codes
        self._products = codes.T @ codes / len(codes)

    def trial(self, point: RealArray) -> Trial:
        """Compute the objective. See `Problem.trial`."""
        atoms = self.coder.kernel.atoms(point)
        if atoms is None:
            return Trial(point, np.inf)
        view = Divergences.measure(self.coder.kernel, self.data, atoms)
        return Trial(point, self.coder.objective(view, self.codes), (atoms, view))

    def gradient(self, trial: Trial) -> RealArray:
        """Compute the gradient. See `Problem.gradient`."""
        _, view = trial.memo
        bandwidth = self.coder.bandwidth
        similarities, gram = view.kernels(bandwidth)
        slopes = 2 * bandwidth / len(self.codes) * self.codes * similarities
        between = -bandwidth * self._products * gram
        gradient = self.coder.kernel.gradient(self.data, trial.point, slopes, between)
        return gradient.ravel()

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        """Take a step. See `Problem.move`."""
        return self.coder.kernel.move(point, step.reshape(point.shape))

    def size(self, step: RealArray) -> float:
        """Longest way an atom goes. See `Problem.size`."""
        ways = np.linalg.norm(step.reshape(len(self._products), -1), axis=1)
        return float(ways.max())

    def limits(self, point: RealArray) -> float:
        """There are none. See `Problem.limits`."""
        return -np.inf


@dataclass(frozen=True, eq=False)
class LocalCoder:
    r"""Locality-constrained codes: affine combinations of the nearest atoms.

    .. math:: \min_a \|\phi(X) - \sum_{j \in N(X)} a_j \phi(D_j)\|^2 + \epsilon \|a\|^2
              \quad\text{s.t.}\quad \sum_j a_j = 1

    With the local Gram matrix :math:`C_{jl} = \langle \phi(D_j) - \phi(X), \phi(D_l) - \phi(X)
    \rangle` its solution is proportional to :math:`(C + \epsilon I)^{-1} 1`; :math:`\epsilon` is
    1e-4 of the trace of C.
    """

    kernel: SPDKernel
    bandwidth: float
    n_neighbors: int

    @property
    def parameters(self) -> dict[str, float]:
        """See `Coder.parameters`."""
        return {"bandwidth": self.bandwidth, "n_neighbors": self.n_neighbors}

    def codes(self, view: Divergences) -> RealArray:
        """See `Coder.codes`."""
        similarities, gram = view.kernels(self.bandwidth)
        k = self.n_neighbors
        # A kernel falls with the divergence, so both have the same neighbours.
        nearest = np.argpartition(view.to_atoms, k - 1, axis=1)[:, :k]
        near = np.take_along_axis(similarities, nearest, axis=1)
        local = gram[nearest[:, :, None], nearest[:, None, :]]
        local = local - near[:, :, None] - near[:, None, :] + 1
        diagonal = np.arange(k)
        traces = np.trace(local, axis1=1, axis2=2)
        local[:, diagonal, diagonal] += (_RIDGE * traces + _TINY)[:, None]
        weights = np.linalg.solve(local, np.ones((len(local), k, 1)))[..., 0]
        codes = np.zeros_like(similarities)
        np.put_along_axis(codes, nearest, weights / weights.sum(axis=1, keepdims=True), axis=1)
        return codes

    def learn(self, matrices: RealArray, atoms: RealArray) -> Iterator[Stage]:
        """Take the atoms as they are. See `Coder.learn`."""
        view = Divergences.measure(self.kernel, self.kernel.prepare(matrices), atoms)
        codes = self.codes(view)
        similarities, gram = view.kernels(self.bandwidth)
        yield Stage("start", atoms, codes, float(lasso_values(gram, similarities, 0, codes).mean()))
