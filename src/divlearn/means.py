r"""Centroids: the matrix nearest to a set of SPD matrices in an alpha-beta log-det divergence."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from divlearn.alpha_beta import nonnegative_point, real_forms
from divlearn.arrays import RealArray, as_real, to_device_of, to_host
from divlearn.checks import check_count, check_finite, check_number
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.geometry import geodesic, in_frames, move_frames
from divlearn.hermitian import from_real_form
from divlearn.optim import Memory
from divlearn.spd import check_spd
from divlearn.spectral import clip_f_t, invert_f_t
from divlearn.text import counted
from divlearn.weights import check_weights

__all__ = ["MeanResult", "mean_abld"]

_HALVINGS = 40  # of the last steps
_PAIRS = 10  # of steps and changes of the gradient that quasi-Newton steps use
_SMALLEST_SAFE = 0.25  # the proved step is tried if the larger parameter is at least this
# The objective is a sum of positive terms, each accurate to some hundred units of rounding.
# Relative differences below this one are noise.
_ROUNDING = 4096 * np.finfo(np.float64).eps


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

    def summary(self) -> str:
        """Say how good the centroid is and why the iteration stopped."""
        return (
            f"Centroid of size {len(self.mean)} with mean divergence {self.objective:.4g}; "
            f"{self.message} ({counted(self.n_iter, 'iterations')})."
        )

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.mean, dtype=dtype, copy=copy)


def mean_abld(
    X: ArrayLike | Prepared,
    alpha: float,
    beta: float,
    sample_weight: ArrayLike | None = None,
    init: ArrayLike | None = None,
    *,
    tol: float = 1e-10,
    max_iter: int = 200,
    engine: str | Engine = "auto",
    n_threads: int | None = None,
) -> MeanResult:
    r"""Centroid :math:`\arg\min_C \sum_i w_i D^{(\alpha,\beta)}(X_i \,\|\, C)`.

    The objective is strictly geodesically convex, so the centroid exists and is unique. At (0, 1)
    it is the arithmetic and at (1, 0) the harmonic mean. Elsewhere, with C = L L^T and
    :math:`G = \sum_i w_i f_t(\log(L^{-1} X_i L^{-T}))`, steps are
    :math:`C \leftarrow L \exp(S) L^T`. The first is :math:`S = h(G)` where h inverts :math:`f_t`
    (at the origin the Karcher step); later ones are quasi-Newton steps. A step that raises the
    objective is replaced by h(G), by one that provably does not raise it, or by shorter ones.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d), or data prepared by an engine
        SPD matrices, real or complex Hermitian; the centroid is of the same kind.
    alpha, beta : float of the same sign
    sample_weight : array-like, shape (n_matrices,), optional
        Non-negative weights; equal by default. Only their ratios matter.
    init : array-like, shape (d, d), optional
        Where to start; by default the geometric mean of the arithmetic and the harmonic mean.
    tol : float, default=1e-10
        Stop when the norm of the gradient, which has no unit, falls below it.
    max_iter : int, default=200
    engine, n_threads : as in `pairwise_abld`

    Examples
    --------
    >>> mean_abld([[[1.0]], [[4.0]]], 0, 0).mean.round(9)  # the geometric mean
    array([[2.]])
    """
    check_number(tol, "tol", positive=True)
    max_iter = check_count(max_iter, "max_iter", least=0)
    (X, init), share = real_forms(X, init)
    objective = _Objective(X, alpha, beta, sample_weight, get_engine(engine, n_threads))
    result = objective.closed_form()
    if result is None:
        search = search_mean(*objective.point, objective.start(init), tol, max_iter)
        (result,) = run_searches([search], lambda _, trials: [objective.at(trials[0])])
    result = replace(result, mean=result.mean.astype(objective.dtype))
    if share == 1:
        return result
    mean, history = from_real_form(result.mean), share * result.history
    return replace(result, mean=mean, objective=share * result.objective, history=history)


# Mean divergence to a matrix L L^T, and the mean of f_t(log(L^-1 X L^-T)), both weighted.
Slope = tuple[float, RealArray]
MeanSearch = Generator[RealArray, Slope, MeanResult]


class _Objective:
    """The weighted mean divergence of matrices, in double precision, to a matrix."""

    def __init__(
        self,
        X: ArrayLike | Prepared,
        alpha: float,
        beta: float,
        sample_weight: ArrayLike | None,
        engine: Engine,
    ) -> None:
        first, second = as_real(alpha, "alpha"), as_real(beta, "beta")
        if first.ndim or second.ndim:
            raise ValueError("alpha and beta must be single numbers")
        self.point = nonnegative_point(float(first), float(second))
        self.engine, data = engine, engine.prepare(X)
        self.dtype = data.dtype  # of the result, which alone is rounded to it
        if data.dtype != np.float64:
            data = engine.prepare(data.matrices.astype(np.float64))
        weights = check_weights(sample_weight, data.n_matrices)
        rows = np.flatnonzero(weights)
        if len(rows) < len(weights):  # others may have infinite divergences
            data, weights = engine.take(data, rows), weights[rows]
        self.data, self.weights = data, weights / weights.sum()

    def at(self, mean: RealArray) -> Slope:
        weights = self.weights
        back = self.engine.pullback(
            self.data, mean[None], *self.point, weights[:, None], parameters=False, values=True
        )
        return float(weights @ to_host(back.values)[:, 0]), -to_host(back.whitened)[0]

    def closed_form(self) -> MeanResult | None:
        mean = {(0.0, 1.0): arithmetic_mean, (1.0, 0.0): harmonic_mean}.get(self.point)
        if mean is None:
            return None
        matrices = self.data.device_matrices
        frame = np.linalg.cholesky(to_host(mean(matrices, to_device_of(self.weights, matrices))))
        state = _Iterate(frame, *self.at(frame @ frame.T))
        state.check("at the mean in closed form", or_infinite=True)
        message = f"the {mean.__name__.replace('_', ' ')}, in closed form"
        return state.result(0, True, message, [state.objective])

    def start(self, init: ArrayLike | None) -> RealArray:
        matrices, d = self.data.matrices, self.data.d
        if init is None:
            arithmetic = arithmetic_mean(matrices, self.weights)
            return geodesic(arithmetic, harmonic_mean(matrices, self.weights), 0.5)
        start = check_spd(init, ndim=2, name="init").astype(np.float64, copy=False)
        if len(start) != d:
            raise ValueError(f"init has shape {start.shape}, but must have {(d, d)}")
        return start


def arithmetic_mean(matrices: RealArray, weights: RealArray) -> RealArray:
    """``sum_i w_i X_i``."""
    return np.einsum("n,nij->ij", weights, matrices)


def harmonic_mean(matrices: RealArray, weights: RealArray) -> RealArray:
    """``(sum_i w_i X_i^-1)^-1``."""
    # In units of a power of two, which changes no bit but lets no inverse overflow.
    exponent = np.frexp(np.abs(matrices).max())[1]
    try:
        inverses = np.linalg.inv(np.ldexp(matrices, -exponent))
    except np.linalg.LinAlgError as error:
        sizes = np.abs(matrices).max(axis=(1, 2))
        raise ValueError(
            f"matrices of sizes {sizes.min():.2g} to {sizes.max():.2g} differ too much in scale, "
            "inverses overflow; divide each by its trace"
        ) from error
    inverse: RealArray = np.ldexp(np.linalg.inv(arithmetic_mean(inverses, weights)), exponent)
    return 0.5 * (inverse + inverse.T)


def check_spread(mean_divergence: float, alpha: float, beta: float) -> None:
    """Raise if the mean divergence is infinite."""
    if mean_divergence == np.inf:
        raise ValueError(
            f"the mean divergence at (alpha, beta) = ({alpha:g}, {beta:g}) is inf, must be finite: "
            "the matrices differ too much in scale; divide each by its trace"
        )


class _Iterate:
    """A matrix C = A A^T with its objective and G in the frame A."""

    def __init__(self, frame: RealArray, objective: float, slope: RealArray) -> None:
        self.frame, self.objective = frame, objective
        self.G = in_frames(slope, frame @ frame.T, frame)
        self.gradient_norm = float(np.linalg.norm(self.G) / np.sqrt(len(frame)))

    def check(self, where: str, *, or_infinite: bool = False) -> None:
        check_finite(self.objective, "the mean divergence", where, or_infinite=or_infinite)
        # The norm would overflow first.
        largest = float(np.abs(self.G).max())
        check_finite(largest, "an entry of the gradient", where, or_infinite=or_infinite)

    def result(
        self, n_iter: int, converged: bool, message: str, history: list[float]
    ) -> MeanResult:
        mean, norm = self.frame @ self.frame.T, self.gradient_norm
        return MeanResult(mean, self.objective, norm, n_iter, converged, message, np.array(history))


def _propose_steps(alpha: float, beta: float, G: RealArray, memory: Memory) -> Iterator[RealArray]:
    """Tangent steps, the most promising first; the last ones can only fail by rounding."""
    learned = memory.multiply(G) if len(memory) else np.zeros_like(G)
    is_descent = np.vdot(learned, G) > 0
    short = is_descent and np.linalg.norm(learned) <= 1  # no eigenvalues needed
    if short:
        yield learned
    slopes, vectors = np.linalg.eigh(G)
    slopes = clip_f_t(slopes, alpha, beta)
    ratio = invert_f_t(slopes, alpha, beta)
    # A learned step much longer than h(G) comes from noise.
    longest = 1 + 4 * np.abs(ratio).max()
    if is_descent and not short and np.linalg.norm(learned, 2) <= longest:
        yield learned
    yield (vectors * ratio) @ vectors.T
    if max(alpha, beta) >= _SMALLEST_SAFE:  # the proved step shrinks with the parameters
        rising = beta >= alpha
        logarithm = np.log1p(beta * slopes if rising else -alpha * slopes)
        safe = (1.0 if rising else -1.0) / max(1.0, alpha + beta) * logarithm
        yield (vectors * safe) @ vectors.T
    for halving in range(1, _HALVINGS):
        yield (vectors * (0.5**halving * ratio)) @ vectors.T


def search_mean(
    alpha: float, beta: float, start: RealArray, tol: float, max_iter: int
) -> MeanSearch:
    r"""Take the steps of `mean_abld` with parameters >= 0.

    Yields a matrix L L^T with Cholesky factor L, and expects to be sent the weighted mean
    divergence to it and the weighted mean of :math:`f_t(\log(L^{-1} X L^{-T}))`.
    """
    frame = np.linalg.cholesky(start)
    state = _Iterate(frame, *(yield frame @ frame.T))
    check_spread(state.objective, alpha, beta)
    history, memory, iteration = [state.objective], Memory(_PAIRS), 0
    while True:
        state.check(f"in iteration {iteration}")
        converged = state.gradient_norm <= tol
        message = (
            f"gradient norm {state.gradient_norm:.2g} {'<=' if converged else '>'} tol={tol:g}"
        )
        if iteration == max_iter:
            message = f"max_iter={max_iter} reached; {message}"
        if converged or iteration == max_iter:
            return state.result(iteration, converged, message, history)
        next_state = yield from _descend(alpha, beta, state, memory)
        if next_state is None:
            message = f"no step lowers the objective beyond rounding; {message}"
            return state.result(iteration, False, message, history)
        state, iteration = next_state, iteration + 1
        history.append(state.objective)


def run_searches(
    searches: Sequence[MeanSearch], evaluate: Callable[[list[int], RealArray], Iterable[Slope]]
) -> list[MeanResult]:
    """Run searches side by side; `evaluate` takes indices of searches and their matrices."""
    results: dict[int, MeanResult] = {}
    with np.errstate(over="ignore", invalid="ignore"):  # steps that overflow are rejected
        trials = {i: next(search) for i, search in enumerate(searches)}
        while trials:
            active = list(trials)
            slopes = evaluate(active, np.stack(list(trials.values())))
            for i, slope in zip(active, slopes, strict=True):
                try:
                    trials[i] = searches[i].send(slope)
                except StopIteration as end:
                    results[i] = end.value
                    del trials[i]
    return [results[i] for i in range(len(searches))]


def _descend(
    alpha: float, beta: float, state: _Iterate, memory: Memory
) -> Generator[RealArray, Slope, _Iterate | None]:
    """Take the first step that does not raise the objective; None at the level of rounding."""
    allowance = _ROUNDING * abs(state.objective)
    for step in _propose_steps(alpha, beta, state.G, memory):
        frame = move_frames(state.frame[None], step[None])[0]
        trial = _Iterate(frame, *(yield frame @ frame.T))
        # Near the centroid the objective is flat to rounding while the gradient still falls.
        flat = trial.objective <= state.objective + allowance
        falling = trial.gradient_norm < state.gradient_norm
        if trial.objective < state.objective - allowance or (flat and falling):
            memory.learn(step, state.G - trial.G)
            trial.objective = min(trial.objective, state.objective)
            return trial
    trial.check("after a step that is next to none", or_infinite=True)
    return None


def __getattr__(name: str) -> NoReturn:
    if name == "for_pyriemann":  # until 0.2
        raise ImportError(f"{name} is now in divlearn.divergence; import it from there")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
