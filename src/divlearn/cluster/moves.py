"""A mixture from several starts, with moves out of local maxima.

A move removes one component and splits another in two: expectation maximisation may end with one
component on two clusters and two on another. In the end, named members are fitted from the same
components: where one of them, which is a special case, finds a higher maximum, the fit goes there.
"""

from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from divlearn.alpha_beta import Point
from divlearn.arrays import Indices, RealArray, to_host
from divlearn.cluster.clusters import find_nearest
from divlearn.cluster.em import (
    EM,
    FEWEST_MEMBERS,
    FIRST_POINT,
    LARGEST_KAPPA,
    Mixture,
    expect,
    log_joint,
)
from divlearn.cluster.runs import Run, Starts, best_of
from divlearn.fitting.checkpoint import stage
from divlearn.fitting.progress import is_interrupted, notify, stoppable, track
from divlearn.geometry import compose
from divlearn.log_vectors import fit_vectors
from divlearn.means import mean_abld
from divlearn.sharded.blocks import Block
from divlearn.spectral import abld_scalar

Split = tuple[float, RealArray]  # gain of two centres over one, and the two centres

_ALMOST = 0.999  # share of a limit that counts as reaching it
_ROUNDS = 3  # of 2-means, for the gain of a split
_STEPS = 3  # towards the centroids in each round
_TRIALS = 3  # initializations of a split
_FEWEST = 4  # matrices of a component that may be split
_HOPELESS = 10.0  # by which a named member's log-likelihood is lower before its centres move


def fit_mixture(
    em: EM,
    n_components: int,
    init: str | RealArray,
    n_init: int,
    random_state: np.random.RandomState,
) -> Run[Mixture]:
    """Return the best of several runs; with an array as ``init`` one run, without moves."""
    block = em.shards.draw(3 * n_components)
    starts = Starts(block, n_components)

    def run() -> Run[Mixture]:
        centers = starts.draw(init, *FIRST_POINT, random_state)
        result = em.run(em.start(centers))
        if isinstance(init, str) and len(centers) > 1:
            result = _relocate(em, block, result, random_state)
        return result

    n_init = n_init if isinstance(init, str) else 1
    best = _exceed_members(em, best_of(n_init, partial(stage, "start", run, random_state)))
    return replace(best, message="; ".join([best.message, *_remarks(em, best.result)]))


def _remarks(em: EM, mixture: Mixture) -> list[str]:
    alpha, beta, kappa, _ = mixture.densities
    per_kappa, per_point = em.share != "all", em.share == "none"
    remarks = []
    small = mixture.weights * em.shards.n_seen < FEWEST_MEMBERS
    if small.any():
        suffix = " and the kappa of the start" * per_kappa
        remarks.append(f"{_name(small, True)} fewer than {FEWEST_MEMBERS:g} matrices{suffix}")
    narrow = kappa >= _ALMOST * LARGEST_KAPPA
    if narrow.any():
        remarks.append(
            f"{_name(narrow, per_kappa)} kappa at its limit {LARGEST_KAPPA:g}: matrices differ "
            "by a relative 1e-4 or less, and without a limit the likelihood could be unbounded; "
            "ABKMeans has none"
        )
    if em.members.n_free == 2:
        (_, difference), (_, product) = em.members.bounds
        beyond = np.abs(beta - alpha) >= _ALMOST * difference
        beyond |= alpha * beta >= _ALMOST * product
        if beyond.any():
            remarks.append(
                f"{_name(beyond, per_point)} alpha and beta at the limit of the search: tails are "
                "heavier than any member's"
            )
    return remarks


def _name(mask: NDArray[np.bool_], separate: bool) -> str:
    """Subject of a remark: the components of a mask, or all where parameters are shared."""
    if not separate:
        return "all components have"
    indices = np.flatnonzero(mask)
    noun, verb = ("components", "have") if len(indices) > 1 else ("component", "has")
    return f"{noun} {', '.join(map(str, indices))} {verb}"


def _relocate(
    em: EM, block: Block, run: Run[Mixture], random_state: np.random.RandomState
) -> Run[Mixture]:
    """Continue a run with moves that raise the likelihood, at most one for each component."""
    moves = _Moves(block, random_state)  # the block holds all matrices or a sample
    n_components = len(run.result.weights)
    with stoppable():
        for number in range(n_components):
            start = None if is_interrupted() else moves.propose(run.result)
            if start is None:
                break
            continued = em.run(start)
            rise = run.objective - continued.objective
            notify("moves", number + 1, n_components, f"log-likelihood {rise:+.3g} per matrix")
            if not rise > em.tol:
                break
            run = _join(run, continued)
        return run
    return replace(run, message="interrupted by the user in a move")


def _exceed_members(em: EM, run: Run[Mixture]) -> Run[Mixture]:
    """Continue a run from the best named member if that is more likely, in another maximum."""
    with stoppable():
        best = run
        for members in track(em.members.named_cases(), "named members"):
            if is_interrupted():
                return run
            case = EM(em.shards, members, em.share, em.max_iter, em.tol)
            _, likelihood = expect(em.shards, case.refit(run.result, center_steps=0))
            if -likelihood > run.objective + _HOPELESS / em.shards.n_seen:
                continue
            best = min(best, case.run(case.refit(run.result)), key=attrgetter("objective"))
        return run if best is run else _join(run, em.run(best.result))
    return replace(run, message="interrupted by the user in a fit of a named member")


def _join(run: Run[Mixture], continued: Run[Mixture]) -> Run[Mixture]:
    history = {
        name: np.concatenate([values, continued.history[name]])
        for name, values in run.history.items()
    }
    # The step between both has a row of the history, as an iteration has.
    return replace(continued, n_iter=run.n_iter + 1 + continued.n_iter, history=history)


class _Moves:
    """Proposals of moves; splits are cached while their component has the same matrices."""

    def __init__(self, block: Block, random_state: np.random.RandomState) -> None:
        self._block, self._random_state = block, random_state
        self._splits: dict[bytes, Split] = {}  # by the rows of the component

    def propose(self, mixture: Mixture) -> Mixture | None:
        """Return the mixture after the most promising move, or None if no move has a gain."""
        joint = log_joint(self._block, mixture)
        labels, cost = joint.argmax(axis=1), self._removal_cost(joint)
        splits = [
            self._split(mixture, k, np.flatnonzero(labels == k))
            for k in range(len(mixture.weights))
        ]
        net = np.array([gain for gain, _ in splits])[:, None] - cost
        np.fill_diagonal(net, -np.inf)
        split, removed = np.unravel_index(net.argmax(), net.shape)
        if not net[split, removed] > 0:
            return None
        means, weights = mixture.means.copy(), mixture.weights.copy()
        means[[split, removed]] = splits[split][1]
        weights[[split, removed]] = 0.5 * weights[split]
        densities = mixture.densities.copy()
        densities[:, removed] = densities[:, split]
        return Mixture(weights / weights.sum(), means, densities)

    def _removal_cost(self, joint: RealArray) -> RealArray:
        """Loss of log-likelihood without each component, if the others stay as they are."""
        density = logsumexp(joint, axis=1)
        losses = [
            density - logsumexp(np.delete(joint, k, axis=1), axis=1) for k in range(joint.shape[1])
        ]
        return np.array(losses) @ self._block.weights

    def _split(self, mixture: Mixture, component: int, rows: Indices) -> Split:
        """Gain of log-likelihood of two centres over one, all else unchanged, and the centres."""
        if len(rows) < _FEWEST:
            return -np.inf, mixture.means[[component] * 2]
        key = rows.tobytes()
        if key not in self._splits:
            self._splits[key] = self._divide(mixture, component, rows)
        return self._splits[key]

    def _divide(self, mixture: Mixture, component: int, rows: Indices) -> Split:
        engine, center = self._block.engine, mixture.means[component]
        alpha, beta, kappa, _ = mixture.densities[:, component].tolist()
        point = alpha, beta
        matrices, weights = self._block.matrices[rows], self._block.weights[rows]
        data = engine.take(self._block.data, rows)
        single = to_host(engine.encode(data, center[None], *point))[:, 0]
        # Equal matrices cannot be split; their gain is negative.
        halves = KMeans(2, n_init=_TRIALS, random_state=self._random_state)
        fitted = fit_vectors(halves, _scores(matrices, center, point), weights)
        labels, centers = fitted.labels_, np.stack([center, center])
        for _ in range(_ROUNDS):
            for k in np.unique(labels):
                members = np.flatnonzero(labels == k)
                centers[k] = mean_abld(
                    engine.take(data, members),
                    *point,
                    weights[members],
                    centers[k],
                    max_iter=_STEPS,
                    engine=engine,
                ).mean
            labels, divided = find_nearest(engine.encode(data, centers, *point))
        # Each of the two has half of the weight.
        gain = kappa * (single - divided) - np.log(2)
        return float(weights @ gain), centers


def _scores(matrices: RealArray, center: RealArray, point: Point) -> RealArray:
    r"""Gradients :math:`f_t(\log(L^{-1} X L^{-T}))` of the divergences to L L^T, as rows."""
    # Unlike logarithms, they have no outliers where the density has heavy tails.
    whitener = np.linalg.inv(np.linalg.cholesky(center))
    values, vectors = np.linalg.eigh(whitener @ matrices @ whitener.T)
    logarithms = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    slopes = abld_scalar(logarithms, *point, derivatives="f_t").f_t
    return compose(vectors, slopes).reshape(len(matrices), -1)
