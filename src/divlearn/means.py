r"""Centroids: the matrix nearest to a set of SPD matrices in an alpha-beta log-det divergence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.geometry import geodesic
from divlearn.spd import check_spd
from divlearn.spectral import abld_scalar, invert_f_t

__all__ = ["MeanResult", "mean_abld"]


_ATTEMPTS = 40
_SMALLEST_SAFE = 0.25  # the proved step shrinks with the larger parameter
# The objective is a sum of positive terms; differences below this part of it are rounding.
_ROUNDING = 64 * np.finfo(np.float64).eps


@dataclass(frozen=True, eq=False)
class MeanResult:
    """A centroid and how it was found. ``np.asarray(result)`` is the centroid.

    Attributes
    ----------
    mean : ndarray, shape (d, d)
    objective : float, the weighted mean divergence to it.
    gradient_norm : float, of the Riemannian gradient, per square root of d.
    n_iter : int
    converged : bool
    message : str, why the iteration stopped.
    history : ndarray, the objective after each iteration, never rising.
    """

    mean: RealArray
    objective: float
    gradient_norm: float
    n_iter: int
    converged: bool
    message: str
    history: RealArray

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        """Return the centroid."""
        if copy is None:
            return np.asarray(self.mean, dtype=dtype)
        return np.array(self.mean, dtype=dtype, copy=copy)


def mean_abld(
    X: ArrayLike | Prepared, alpha: float, beta: float, sample_weight: ArrayLike | None = None,
    init: ArrayLike | None = None, *, tol: float = 1e-10, max_iter: int = 200,
    engine: str | Engine = "auto", n_threads: int | None = None,
) -> MeanResult:  # fmt: skip
    r"""Centroid :math:`\arg\min_C \sum_i w_i D^{(\alpha,\beta)}(X_i \,\|\, C)`.

    The objective is strictly geodesically convex, so the centroid exists and is unique. At (0, 1)
    it is the arithmetic and at (1, 0) the harmonic mean. Elsewhere, with C = L L^T and
    :math:`G = \sum_i w_i f_t(\log(L^{-1} X_i L^{-T}))`, the iteration is
    :math:`C \leftarrow L \exp(h(G)) L^T`, where h inverts :math:`f_t` ("ratio": exact if the data
    commutes and has one spectrum) or, for alpha + beta > 1 off the axes, divides by the mean
    curvature. A step that raises the objective is replaced by one that provably does not, or is
    shortened until it does not.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d), or data prepared by an engine
    alpha, beta : float of the same sign
    sample_weight : array-like, shape (n_matrices,), optional
        Non-negative weights; equal by default. Only their ratios matter.
    init : array-like, shape (d, d), optional
        Where to start; by default the geometric mean of the arithmetic and the harmonic mean.
    tol : float, default=1e-10
        Stop when the norm of the gradient, which has no unit, falls below it.
    max_iter : int, default=200
    engine, n_threads : as in `pairwise_abld`

    Returns
    -------
    MeanResult

    Examples
    --------
    >>> result = mean_abld([[[1.0]], [[4.0]]], 0, 0)  # the geometric mean
    >>> result.mean.round(9)
    array([[2.]])
    >>> result.converged
    True
    """
    chosen = get_engine(engine, n_threads)
    given = chosen.prepare(X)
    # float32 data is averaged in double precision; only the result is rounded.
    data = chosen.prepare(given.matrices.astype(np.float64)) if given.dtype != np.float64 else given
    a, b = _same_signs(alpha, beta)
    weights = _check_weights(sample_weight, data.n_matrices)
    if not tol > 0:
        raise ValueError(f"tol={tol} must be > 0")
    if max_iter < 0:
        raise ValueError(f"max_iter={max_iter} must be >= 0")
    problem = _Problem(chosen, data, weights, a, b, given.dtype)
    closed = {(0.0, 1.0): arithmetic_mean, (1.0, 0.0): harmonic_mean}.get((a, b))
    if closed is not None:
        state = problem.evaluate(closed(data.matrices, weights))
        kind = closed.__name__.replace("_", " ")
        return _result(
            given.dtype, state, 0, True, f"the {kind}, in closed form", [state.objective]
        )
    if init is None:
        start = geodesic(
            arithmetic_mean(data.matrices, weights), harmonic_mean(data.matrices, weights), 0.5
        )
    else:
        start = check_spd(init, ndim=2, name="init", dtype=np.float64)
        if start.shape[0] != data.d:
            raise ValueError(f"init has shape {start.shape}, but must have {(data.d, data.d)}")
    return _iterate(problem, start, tol, max_iter)


def arithmetic_mean(matrices: RealArray, weights: RealArray) -> RealArray:
    """``sum_i w_i X_i``."""
    total: RealArray = np.einsum("n,nij->ij", weights, matrices)
    return total


def harmonic_mean(matrices: RealArray, weights: RealArray) -> RealArray:
    """``(sum_i w_i X_i^-1)^-1``."""
    inverse = np.linalg.inv(arithmetic_mean(np.linalg.inv(matrices), weights))
    return 0.5 * (inverse + inverse.T)


@dataclass(frozen=True, eq=False)
class _State:
    """An iterate C = L L^T with its objective and G in the frame of L."""

    mean: RealArray
    objective: float
    G: RealArray

    @property
    def gradient_norm(self) -> float:
        return float(np.linalg.norm(self.G) / np.sqrt(len(self.G)))


@dataclass(frozen=True, eq=False)
class _Problem:
    engine: Engine
    data: Prepared
    weights: RealArray
    alpha: float
    beta: float
    dtype: np.dtype[Any]  # of the result

    def evaluate(self, mean: RealArray) -> _State:
        back = self.engine.pullback(
            self.data, mean[None], self.alpha, self.beta, self.weights[:, None],
            parameters=False, values=True,
        )  # fmt: skip
        assert back.values is not None
        objective = float(self.weights @ back.values[:, 0])
        return _State(mean, objective, -back.whitened[0])

    def curvature(self, mean: RealArray) -> float:
        """Weighted mean of f_t(t)/t over all eigenvalues: 1 for t = 0."""
        t = self.engine.spectra(self.data, mean[None])[:, 0]
        t = np.where(np.abs(t) < 1e-8, 1e-8, t)
        slope = abld_scalar(t, self.alpha, self.beta, derivatives="f_t").f_t
        assert slope is not None
        return float(self.weights @ (slope / t).mean(axis=1))

    def in_range(self, slopes: RealArray) -> RealArray:
        """Keep eigenvalues of G inside the open range of f_t, where they are up to rounding."""
        margin = 1 - 1e-12
        low = -margin / self.beta if self.beta else -np.inf
        high = margin / self.alpha if self.alpha else np.inf
        return np.clip(slopes, low, high)

    def fast_step(self, slopes: RealArray, curvature: float | None) -> RealArray:
        """Tangent step h(g) for the eigenvalues g of G."""
        if curvature is not None:
            return slopes / curvature
        return invert_f_t(slopes, self.alpha, self.beta)

    def safe_step(self, slopes: RealArray) -> RealArray | None:
        """Step that provably does not raise the objective; None beside the origin: too short."""
        power = 1 / max(1.0, self.alpha + self.beta)
        if max(self.alpha, self.beta) < _SMALLEST_SAFE:
            return None
        if self.beta >= self.alpha:
            return np.asarray(power * np.log1p(self.beta * slopes))
        return np.asarray(-power * np.log1p(-self.alpha * slopes))


def _iterate(problem: _Problem, start: RealArray, tol: float, max_iter: int) -> MeanResult:
    state = problem.evaluate(start)
    history = [state.objective]
    off_axes = problem.alpha > 0 and problem.beta > 0
    use_curvature = problem.alpha + problem.beta > 1 and off_axes
    curvature = None
    length = 1.0  # of the fast step; halved where it overshoots
    for iteration in range(max_iter):
        if state.gradient_norm <= tol:
            message = f"gradient norm {state.gradient_norm:.2g} <= tol={tol:g}"
            return _result(problem.dtype, state, iteration, True, message, history)
        if use_curvature and iteration < 2:  # it settles as fast as the iterates do
            curvature = problem.curvature(state.mean)
        following, length = _descend(problem, state, curvature, min(1.0, 2 * length))
        if following is None:
            message = (
                f"no step lowers the objective beyond rounding; gradient norm "
                f"{state.gradient_norm:.2g} > tol={tol:g}"
            )
            return _result(problem.dtype, state, iteration, False, message, history)
        state = following
        history.append(state.objective)
    converged = state.gradient_norm <= tol
    relation = "<=" if converged else ">"
    message = (
        f"max_iter={max_iter} reached; gradient norm {state.gradient_norm:.2g} {relation} "
        f"tol={tol:g}"
    )
    return _result(problem.dtype, state, max_iter, converged, message, history)


def _descend(
    problem: _Problem, state: _State, curvature: float | None, length: float
) -> tuple[_State | None, float]:
    """First step that does not raise the objective, or None at the level of rounding."""
    slopes, vectors = np.linalg.eigh(state.G)
    slopes = problem.in_range(slopes)
    frame = np.linalg.cholesky(state.mean) @ vectors
    allowance = _ROUNDING * abs(state.objective)
    fast, safe = problem.fast_step(slopes, curvature), problem.safe_step(slopes)
    for attempt in range(_ATTEMPTS):
        use_safe = attempt == 1 and safe is not None
        step = safe if use_safe and safe is not None else length * fast
        half = frame * np.exp(0.5 * step)
        trial = problem.evaluate(half @ half.T)
        if trial.objective < state.objective:
            return trial, length
        # Near the centroid the objective is flat to rounding while the gradient still falls.
        flat = trial.objective <= state.objective + allowance
        if flat and trial.gradient_norm < 0.9 * state.gradient_norm:
            return _State(trial.mean, min(trial.objective, state.objective), trial.G), length
        if not use_safe:
            length *= 0.5
    return None, length


def _result(
    dtype: np.dtype[Any], state: _State, n_iter: int, converged: bool, message: str,
    history: list[float],
) -> MeanResult:  # fmt: skip
    return MeanResult(
        state.mean.astype(dtype), state.objective, state.gradient_norm, n_iter, converged,
        message, np.array(history),
    )  # fmt: skip


def _same_signs(alpha: float, beta: float) -> tuple[float, float]:
    a, b = float(alpha), float(beta)
    if not (np.isfinite(a) and np.isfinite(b)):
        raise ValueError(f"(alpha, beta) = ({a:g}, {b:g}) must be finite")
    if a >= 0 and b >= 0:
        return a + 0.0, b + 0.0
    if a <= 0 and b <= 0:
        return -b, -a  # D^(-a,-b) = D^(b,a)
    raise ValueError(
        f"(alpha, beta) = ({a:g}, {b:g}) have opposite signs; a centroid is unique only for "
        "parameters of the same sign"
    )


def _check_weights(sample_weight: ArrayLike | None, n_matrices: int) -> RealArray:
    if sample_weight is None:
        return np.full(n_matrices, 1 / n_matrices)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_matrices,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, but must have ({n_matrices},): one weight "
            "per matrix"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.max() > 0):
        raise ValueError("sample_weight must be finite, non-negative and not all zero")
    weights = weights / weights.max()  # tiny and huge weights must not underflow in the sum
    normalized: RealArray = weights / weights.sum()
    return normalized
