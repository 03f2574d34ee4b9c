"""Moves out of local maxima: one component of a mixture is given up, another is split in two.

Expectation maximisation hardly ever moves a centre from one cluster to another, so that it may end
with one component on two clusters and two on another. The likelihood tells such ends apart by far.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from divlearn.arrays import RealArray, to_host
from divlearn.cluster.clusters import find_nearest
from divlearn.cluster.mixture.em import EMRun, EMSettings, run_em
from divlearn.cluster.mixture.expectation import Mixture
from divlearn.fitting.checkpoint import stage
from divlearn.geometry import compose
from divlearn.likelihood.members import Point
from divlearn.means import mean_abld
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Shards
from divlearn.spectral import abld_scalar
from divlearn.vector_kmeans import fit_vectors

__all__ = ["relocate"]

Split = tuple[float, RealArray]  # what two centres gain over one, and these

_ROUNDS = 3  # of 2-means, to see what a split is worth
_STEPS = 3  # towards the centroids in each
_TRIALS = 3  # of a split
_FEWEST = 4  # matrices that may be split


def relocate(
    shards: Shards, block: Block, run: EMRun, settings: EMSettings,
    random_state: np.random.RandomState,
) -> EMRun:  # fmt: skip
    """Go on from the end of a run with moves that raise the likelihood, at most one per component.

    Parameters
    ----------
    shards : Shards
    block : Block
        All matrices, or a sample: what moves are judged by, before they are tried.
    run : EMRun
    settings : EMSettings
    random_state : RandomState

    Returns
    -------
    EMRun
        With the histories of all moves that were made, one after the other. Within each the
        likelihood never falls, and each ends higher than the one before.
    """
    moves = _Moves(block, random_state)
    for _ in range(len(run.mixture.weights)):
        if run.interrupted:
            break
        try:
            start = moves.propose(run.mixture)
            if start is None:
                break
            following = stage("em", partial(run_em, shards, start, settings))
        except KeyboardInterrupt:
            return replace(run, interrupted=True, message="interrupted by the user in a move")
        rise = following.lower_bound - run.lower_bound
        settings.watch(f"a move changes the log-likelihood by {rise:.3g} per matrix")
        if not rise > settings.tol:
            return replace(run, interrupted=following.interrupted)
        run = _joined(run, following)
    return run


def _joined(first: EMRun, second: EMRun) -> EMRun:
    history = {
        name: np.concatenate([first.history[name], second.history[name]]) for name in first.history
    }
    return replace(second, n_iter=first.n_iter + second.n_iter, history=history)


class _Moves:
    """What is looked at to find a move; splits are kept while their component stays."""

    def __init__(self, block: Block, random_state: np.random.RandomState) -> None:
        self._block = block
        self._random_state = random_state
        self._known: dict[str, Split] = {}

    def propose(self, mixture: Mixture) -> Mixture | None:
        """Return the mixture after the move that promises most, or None if none does."""
        found, self._known = stage("move", partial(self._propose, mixture), self._random_state)
        return found

    def _propose(self, mixture: Mixture) -> tuple[Mixture | None, dict[str, Split]]:
        log_joint = mixture.log_joint(self._block)
        labels = log_joint.argmax(axis=1)
        cost = self._cost_of_giving_up(log_joint)
        splits = [
            self._split(mixture, k, np.flatnonzero(labels == k))
            for k in range(len(mixture.weights))
        ]
        net = np.array([gain for gain, _ in splits])[:, None] - cost
        np.fill_diagonal(net, -np.inf)
        split, given_up = np.unravel_index(net.argmax(), net.shape)
        if not net[split, given_up] > 0:
            return None, self._known
        means, weights = mixture.means.copy(), mixture.weights.copy()
        means[[split, given_up]] = splits[split][1]
        weights[[split, given_up]] = 0.5 * weights[split]
        family = mixture.parameters
        moved = family.replaced(np.array([given_up]), family.only(np.array([split])))
        return Mixture(weights / weights.sum(), means, moved), dict(self._known)

    def _cost_of_giving_up(self, log_joint: RealArray) -> RealArray:
        """Log-likelihood that is lost without each component, if the others stay as they are."""
        density = logsumexp(log_joint, axis=1)
        lost = [
            density - logsumexp(np.delete(log_joint, k, axis=1), axis=1)
            for k in range(log_joint.shape[1])
        ]
        cost: RealArray = np.array(lost) @ self._block.weights
        return cost

    def _split(
        self, mixture: Mixture, component: int, rows: NDArray[np.intp]
    ) -> tuple[float, RealArray]:
        """Log-likelihood that two centres gain over one, if nothing else changes, and these."""
        key = hashlib.sha256(rows.tobytes()).hexdigest()
        if key not in self._known:
            self._known[key] = (
                self._divide(mixture, component, rows)
                if len(rows) >= _FEWEST
                else (-np.inf, mixture.means[[component] * 2])
            )
        return self._known[key]

    def _divide(
        self, mixture: Mixture, component: int, rows: NDArray[np.intp]
    ) -> tuple[float, RealArray]:
        engine, family, middle = self._block.engine, mixture.parameters, mixture.means[component]
        point = float(family.alpha[component]), float(family.beta[component])
        matrices, weights = self._block.matrices[rows], self._block.weights[rows]
        data = engine.take(self._block.data, rows)
        one = to_host(engine.encode(data, middle[None], *point))[:, 0]
        # Equal matrices cannot be split, which is seen in the gain.
        halves = KMeans(2, n_init=_TRIALS, random_state=self._random_state)
        found = fit_vectors(halves, _scores(matrices, middle, point), weights)
        labels, centers = found.labels_, np.stack([middle, middle])
        for _ in range(_ROUNDS):
            for k in np.unique(labels):
                own = np.flatnonzero(labels == k)
                centers[k] = mean_abld(
                    engine.take(data, own), *point, weights[own], centers[k], max_iter=_STEPS,
                    engine=engine,
                ).mean  # fmt: skip
            labels, two = find_nearest(engine.encode(data, centers, *point))
        # Each of the two has half of the weight.
        gain = family.kappa[component] * (one - two) - np.log(2)
        return float(weights @ gain), centers


def _scores(matrices: RealArray, middle: RealArray, point: Point) -> RealArray:
    r"""Gradients :math:`f_t(\log(L^{-1} X L^{-T}))` of the divergences to a matrix L L^T, as rows.

    Their mean vanishes at the centroid, and they do not grow where divergences hardly do: unlike
    logarithms they make no outliers of what the density takes for ordinary.
    """
    whitener = np.linalg.inv(np.linalg.cholesky(middle))
    values, vectors = np.linalg.eigh(whitener @ matrices @ whitener.T)
    logarithms = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    slopes = abld_scalar(logarithms, *point, derivatives="f_t").f_t
    assert slopes is not None
    return compose(vectors, slopes).reshape(len(matrices), -1)
