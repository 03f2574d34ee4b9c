"""Other ways to the same numbers, each at its best: NumPy, SciPy, pyRiemann and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pyriemann.geometry.mean
import scipy.linalg
from array_api_compat import array_namespace
from pyriemann.geometry.distance import distance_kullback, distance_logdet, pairwise_distance
from timing import Array, Job

Make = Callable[[int], Job]
Across = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]

MEAN_ITERATIONS = 500


@dataclass(frozen=True, eq=False)
class Workload:
    """Data, atoms and the weights of their divergences."""

    matrices: Array
    atoms: Array
    cotangent: Array

    @property
    def d(self) -> int:
        return self.atoms.shape[-1]


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Batched linear algebra of one array library; both spell everything used here alike.

    Data is whitened by two matrix products per atom over all matrices, with no product per pair.
    With `singular`, by one: the singular values of L_B^-1 L_X are the roots of the eigenvalues, and
    the small ones keep twice as many digits. `across` maps a function over atoms: in a loop, or on
    a pool of threads.
    """

    xp: Any
    convert: Callable[[Array], Any]
    work: Workload
    across: Across

    def values(self, alpha: float, beta: float, *, singular: bool = False) -> Make:
        """Divergences from eigenvalues."""

        def make(count: int) -> Job:
            rows, atoms = self._rows(count, singular), self._atoms()

            def column(whitener: Any) -> Any:
                if singular:
                    t = 2 * self.xp.log(self.xp.linalg.svdvals(self._left(rows, whitener)))
                else:
                    t = self.xp.log(self.xp.linalg.eigvalsh(self._whiten(rows, whitener)))
                return divergence(self.xp, t, alpha, beta)

            return lambda: (self.xp.stack(self.across(column, self._whiteners(atoms)), 1),)

        return make

    def pullback(self, alpha: float, beta: float, *, singular: bool = False) -> Make:
        """Gradients from eigenvectors, summed over the data by one product per atom."""

        def make(count: int) -> Job:
            rows, atoms = self._rows(count, singular), self._atoms()
            cotangent = self.convert(self.work.cotangent[:count].T[:, :, None].copy())

            def sums(whitener_and_weights: tuple[Any, Any]) -> tuple[Any, Any, Any]:
                whitener, weights = whitener_and_weights
                if singular:
                    vectors, values, _ = self.xp.linalg.svd(self._left(rows, whitener))
                    t = 2 * self.xp.log(values)
                else:
                    values, vectors = self.xp.linalg.eigh(self._whiten(rows, whitener))
                    t = self.xp.log(values)
                f_t, f_alpha, f_beta = slopes(self.xp, t, alpha, beta)
                flat = vectors.mT.reshape(-1, self.work.d)
                inner = flat.T @ (flat * (weights * f_t).reshape(-1, 1))
                return inner, (weights * f_alpha).sum(), (weights * f_beta).sum()

            def job() -> tuple[Any, ...]:
                whiteners = self._whiteners(atoms)
                parts = self.across(sums, zip(whiteners, cotangent, strict=True))
                inner, *parameters = (self.xp.stack(part) for part in zip(*parts, strict=True))
                return -(whiteners.mT @ inner @ whiteners), *parameters

            return job

        return make

    def logdet(self, alpha: float, beta: float, *, lu: bool = False) -> Make:
        """Members alpha + beta = 1 from the Cholesky (or LU) factor of alpha X + beta B."""

        def make(count: int) -> Job:
            scaled = self.convert(alpha * self.work.matrices[:count])
            own = alpha * self._logdet(scaled / alpha, lu)
            atoms = self._atoms()

            def column(atom: Any) -> Any:
                return self._logdet(scaled + atom, lu)

            def job() -> tuple[Any, ...]:
                mixed = self.xp.stack(self.across(column, beta * atoms), 1)
                mixed -= own[:, None]
                mixed -= beta * self._logdet(atoms, lu)
                mixed /= alpha * beta
                return (mixed,)

            return job

        return make

    def burg(self) -> Make:
        """Member (0, 1): all traces by one matrix product."""
        d = self.work.d

        def make(count: int) -> Job:
            matrices = self.convert(self.work.matrices[:count])
            flat, own = matrices.reshape(count, -1), self._logdet(matrices, False) + d
            atoms = self._atoms()

            def job() -> tuple[Any, ...]:
                traces = flat @ self.xp.linalg.inv(atoms).reshape(len(atoms), -1).T
                traces -= own[:, None]
                traces += self._logdet(atoms, False)
                return (traces,)

            return job

        return make

    def _atoms(self) -> Any:
        return self.convert(self.work.atoms)

    def _rows(self, count: int, factors: bool) -> Any:
        """Data, or its factors, as one wide matrix: row after row of all matrices."""
        matrices = self.work.matrices[:count]
        matrices = np.linalg.cholesky(matrices) if factors else matrices
        return self.convert(matrices.swapaxes(0, 1).reshape(self.work.d, -1))

    def _whiteners(self, atoms: Any) -> Any:
        return self.xp.linalg.inv(self.xp.linalg.cholesky(atoms))

    def _whiten(self, rows: Any, whitener: Any) -> Any:
        d = self.work.d
        product = (whitener @ rows).reshape(-1, d) @ whitener.T
        return product.reshape(d, -1, d).swapaxes(0, 1)

    def _left(self, rows: Any, whitener: Any) -> Any:
        d = self.work.d
        return (whitener @ rows).reshape(d, -1, d).swapaxes(0, 1)

    def _logdet(self, matrices: Any, lu: bool) -> Any:
        if lu:
            return self.xp.linalg.slogdet(matrices)[1]
        factor = self.xp.linalg.cholesky(matrices)
        return 2 * self.xp.log(factor.diagonal(0, -2, -1)).sum(-1)


def divergence(xp: Any, t: Any, alpha: float, beta: float) -> Any:
    """Sum of f over log-eigenvalues by the plain formula, which serves away from the axes."""
    if alpha == beta == 0:
        return 0.5 * (t * t).sum(-1)
    mixture = alpha * xp.exp(beta * t) + beta * xp.exp(-alpha * t)
    return xp.log(mixture / (alpha + beta)).sum(-1) / (alpha * beta)


def slopes(xp: Any, t: Any, alpha: float, beta: float) -> tuple[Any, Any, Any]:
    """f_t, f_alpha and f_beta, likewise."""
    theta = alpha + beta
    rise, fall = xp.exp(beta * t), xp.exp(-alpha * t)
    mixture = alpha * rise + beta * fall
    log = xp.log(mixture / theta)
    f_alpha = (rise - beta * t * fall) / mixture - 1 / theta - log / alpha
    f_beta = (alpha * t * rise + fall) / mixture - 1 / theta - log / beta
    return (rise - fall) / mixture, f_alpha / (alpha * beta), f_beta / (alpha * beta)


def scipy_values(work: Workload, alpha: float, beta: float) -> Make:
    """A loop over pairs of generalized eigenvalue problems."""

    def make(count: int) -> Job:
        def value(X: Array, B: Array) -> float:
            values = scipy.linalg.eigh(X, B, eigvals_only=True, check_finite=False)
            return float(divergence(np, np.log(values), alpha, beta))

        return lambda: (
            np.array([[value(X, B) for B in work.atoms] for X in work.matrices[:count]]),
        )

    return make


def pyriemann_airm(work: Workload, convert: Callable[[Array], Any]) -> Make:
    """Half the squared Riemannian distances; whitens by its first argument, so atoms come first."""

    def make(count: int) -> Job:
        atoms, matrices = convert(work.atoms), convert(work.matrices[:count])
        return lambda: (0.5 * pairwise_distance(atoms, matrices, "riemann", squared=True).T,)

    return make


def pyriemann_stein(work: Workload, convert: Callable[[Array], Any]) -> Make:
    """Member (1/2, 1/2)."""
    return _pyriemann(work, convert, lambda X, B: 4 * distance_logdet(X, B, squared=True))


def pyriemann_burg(work: Workload, convert: Callable[[Array], Any]) -> Make:
    """Member (0, 1)."""
    return _pyriemann(work, convert, lambda X, B: 2 * distance_kullback(X, B))


def _pyriemann(
    work: Workload, convert: Callable[[Array], Any], distance: Callable[[Any, Any], Any]
) -> Make:
    """Batched over the data, a loop over atoms."""

    def make(count: int) -> Job:
        matrices = convert(work.matrices[:count])
        atoms = [convert(np.broadcast_to(B, matrices.shape).copy()) for B in work.atoms]
        stack = array_namespace(matrices).stack
        return lambda: (stack([distance(matrices, B) for B in atoms], axis=1),)

    return make


def pyriemann_mean(X: Array, name: str, tol: float, convert: Callable[[Array], Any]) -> Make:
    """Mean by ``mean_riemann`` or ``mean_logdet``."""
    matrices = convert(X)
    function = getattr(pyriemann.geometry.mean, name)
    return lambda _: lambda: (function(matrices, tol=tol, maxiter=MEAN_ITERATIONS),)


def pyriemann_iterations(X: Array, name: str, tol: float) -> int:
    """Iterations of a mean, which pyRiemann does not return: calls of what each one calls."""
    module = pyriemann.geometry.mean
    owner, called, times = {
        "mean_riemann": (module, "expm", 1),
        "mean_logdet": (array_namespace(X).linalg, "solve", 2),
    }[name]
    with mock.patch.object(owner, called, wraps=getattr(owner, called)) as spy:
        getattr(module, name)(X, tol=tol, maxiter=MEAN_ITERATIONS)
    return spy.call_count // times
