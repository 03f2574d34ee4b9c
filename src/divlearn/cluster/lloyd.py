"""Lloyd's algorithm: centroids, parameters and clusters are updated in turn."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.checks import check_finite
from divlearn.cluster import clusters
from divlearn.cluster.clusters import HeldCloud, Members, Spectra
from divlearn.cluster.parameters import Learned, Parameters, Rule
from divlearn.cluster.runs import Run, repeat
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards

# Divergence of a matrix from its centroid up to which it may be rounding that holds them apart.
_ROUNDING = 1e-16
_RISE = 1e-12  # of the divergences in a cluster, relative to them, that means nothing
_STEPS = 3  # towards centroids in a turn; the next turn goes on from there
_PAPER_STEPS = 10
_HISTORY = ("iteration", "block", "objective", "alpha", "beta", "kappa", "changed", "seconds")
_Row = tuple[int, str, float, float, float, float, int, float]

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Partition:
    """Matrices in clusters."""

    centers: RealArray
    parameters: Parameters
    labels: Indices
    inertia: float


class Found(NamedTuple):
    """The nearest centres of the matrices of a block, divergences to them, and sums of these."""

    labels: Indices
    divergences: RealArray
    # Over clusters: of weights, of weighted divergences, of those to the new centres in the
    # clusters before; and how many matrices have another cluster than before.
    sums: tuple[RealArray, RealArray, RealArray, int]


class _State:
    """Matrices with their nearest centroids, `Found` of every block, and sums over clusters."""

    def __init__(
        self, shards: Shards, centers: RealArray, parameters: Parameters, found: Parts
    ) -> None:
        self.centers, self.parameters, self.found = centers, parameters, found
        sums = shards.reduce(lambda _, one: one.sums, parts=[found])
        self.totals, self.losses, self.moved, self.changed = sums


def run_lloyd(
    shards: Shards, centers: RealArray, rule: Rule, max_iter: int, tol: float
) -> Run[Partition]:
    """Cluster from given centroids until less than the share ``tol`` of the assignments changes."""
    lloyd = _Lloyd(shards, rule, centers)
    n_iter, converged, message = repeat(partial(lloyd.turn, tol), max_iter)
    state = lloyd.state
    columns = zip(*(row for row in lloyd.history if row[0] <= n_iter), strict=True)
    history = {name: np.array(values) for name, values in zip(_HISTORY, columns, strict=True)}
    if np.isnan(history["kappa"]).all():
        del history["kappa"]
    labels = np.concatenate(shards.map(lambda _, found: found.labels, parts=[state.found]))
    objective, inertia = lloyd.objective(state.losses, state.parameters), float(state.losses.sum())
    found = Partition(state.centers, state.parameters, labels, inertia)
    return Run(found, objective, n_iter, converged, message, history)


class _Lloyd:
    """A run that is under way; its state is whole between turns."""

    def __init__(self, shards: Shards, rule: Rule, centers: RealArray) -> None:
        self.shards, self.rule = shards, rule
        self.history: list[_Row] = []
        self._started = time.perf_counter()
        self.state = state = self._relocate(self._assign(centers, rule.start))
        state.parameters = rule.begin(float(state.losses.sum()) / shards.n_seen, shards.d)
        objective = self.objective(state.losses, state.parameters)
        self._note(0, "start", objective, state.parameters, shards.n_seen)

    def turn(self, tol: float, iteration: int) -> tuple[str, str | None]:
        """Update centroids, parameters and assignment; returns news, and why to stop, if so."""
        before, parameters, rule = self.state, self.state.parameters, self.rule
        members = self.shards.hold(_members_block, len(before.centers), parts=[before.found])
        if isinstance(rule, Learned):
            centers, moved, spectra = self._move(members, self._measure_spectra)
            self._note(iteration, "centroids", self.objective(moved, parameters), parameters)
            n_seen = self.shards.n_seen
            parameters, objective, shift = rule.update(parameters, spectra, n_seen)
            centers *= np.exp(shift)
            self._note(iteration, "parameters", n_seen * objective, parameters)
            state = self._assign(centers, parameters, before)
        else:
            # One table of divergences shows both how far centroids came and the next clusters.
            _, moved, state = self._move(members, self._measure_table)
            self._note(iteration, "centroids", self.objective(moved, parameters), parameters)
        self.state = self._relocate(state, before)
        changed = self.state.changed
        objective = self.objective(self.state.losses, parameters)
        self._note(iteration, "assignment", objective, parameters, changed)
        news = f"objective {objective:.6g}, {changed} changed"
        trouble = rule.trouble(parameters)
        share = changed / self.shards.n_seen
        few = not changed or share < tol
        if trouble is not None or not (few and rule.settled(before.parameters, parameters)):
            return news, trouble
        return news, f"{share:.2%} of the assignments changed, < tol={tol:g}"

    def objective(self, losses: RealArray, parameters: Parameters) -> float:
        """Compute what is minimised, given the sums of weighted divergences in the clusters."""
        n_seen = self.shards.n_seen
        return n_seen * self.rule.objective(
            losses.sum() / n_seen, parameters, n_seen, self.shards.d
        )

    def _note(
        self, iteration: int, block: str, objective: float, parameters: Parameters, changed: int = 0
    ) -> None:
        check_finite(objective, "the objective", f"in iteration {iteration}, of {block}")
        seconds = time.perf_counter() - self._started
        self.history.append((iteration, block, objective, *parameters, changed, seconds))

    def _move(
        self, members: Parts, measure: Callable[[Parts, RealArray], tuple[RealArray, _T]]
    ) -> tuple[RealArray, RealArray, _T]:
        """Move centroids, more carefully where losses rose; returns these losses, and more."""
        state, (alpha, beta, _) = self.state, self.state.parameters
        mover = clusters.Clusters(self.shards, members, state.totals)
        filled, centers = np.flatnonzero(state.totals), state.centers.copy()
        move = mover.conjugate_gradient if self.rule.paper else mover.fixed_point
        steps = _PAPER_STEPS if self.rule.paper else _STEPS
        centers[filled] = move(filled, centers[filled], (alpha, beta), steps)
        moved, measured = measure(members, centers)
        risen = np.flatnonzero(moved > (1 + _RISE) * state.losses)
        if len(risen):
            points = [(alpha, beta)] * len(risen)
            centers[risen] = mover.settle(risen, state.centers[risen], points, steps)
            moved, measured = measure(members, centers)
        return centers, moved, measured

    def _measure_table(self, members: Parts, centers: RealArray) -> tuple[RealArray, _State]:
        state = self._assign(centers, self.state.parameters, self.state)
        return state.moved, state

    def _measure_spectra(self, members: Parts, centers: RealArray) -> tuple[RealArray, Spectra]:
        shards, parameters = self.shards, self.state.parameters
        clouds = shards.hold(_own_cloud_block, centers, parts=[members])
        moved = shards.reduce(
            _own_losses_block, len(centers), parameters, parts=[self.state.found, clouds]
        )
        return moved, Spectra(shards, clouds, np.array([float(shards.n_seen)]))

    def _assign(
        self, centers: RealArray, parameters: Parameters, before: _State | None = None
    ) -> _State:
        known = [None] * len(self.shards) if before is None else before.found
        found = self.shards.hold(_assign_block, centers, *parameters[:2], parts=[known])
        return _State(self.shards, centers, parameters, found)

    def _relocate(self, state: _State, before: _State | None = None) -> _State:
        """Move centroids of empty clusters, which have nothing to lose, to matrices worst off."""
        for _ in range(len(state.centers)):
            empty = np.flatnonzero(state.totals == 0)
            if not len(empty):
                break
            found = self.shards.map(_far_block, len(empty), parts=[state.found])
            losses, matrices = (np.concatenate(part) for part in zip(*found, strict=True))
            far = np.argsort(-losses, kind="stable")[: len(empty)]
            if not len(far):
                break
            centers = state.centers.copy()
            centers[empty[: len(far)]] = matrices[far]
            state = self._assign(centers, state.parameters, before)
        return state


def _assign_block(
    block: Block, found: Found | None, centers: RealArray, alpha: float, beta: float
) -> Found:
    before = None if found is None else found.labels
    labels, divergences, moved = clusters.nearest_block(block, centers, alpha, beta, before)
    weights, k = block.weights, len(centers)
    totals, losses = (
        np.bincount(labels, values, k).astype(float) for values in (weights, weights * divergences)
    )
    if before is None:
        return Found(labels, divergences, (totals, losses, losses, len(block)))
    others = np.bincount(before, weights * moved, k).astype(float)
    changed = int(np.count_nonzero((before != labels) & (weights > 0)))
    return Found(labels, divergences, (totals, losses, others, changed))


def _members_block(block: Block, found: Found, n_clusters: int) -> Members:
    seen = np.where(block.weights > 0, found.labels, n_clusters)
    order = np.argsort(seen, kind="stable")
    ends = np.searchsorted(seen[order], np.arange(1, n_clusters + 1))
    rows = np.split(order, ends)[:n_clusters]
    return Members(rows, [block.weights[some] for some in rows])


def _own_cloud_block(block: Block, members: Members, centers: RealArray) -> list[HeldCloud]:
    """Log-eigenvalues of each matrix relative to its own centre, in one cloud."""
    t, weights = np.empty((len(block), block.data.d)), np.zeros(len(block))
    for z, rows in enumerate(members.rows):
        t[rows] = clusters.spectra_block(block, members, z, centers[z])
        weights[rows] = members.weights[z]
    seen = np.flatnonzero(weights)
    return [clusters.hold_cloud(block.engine, t[seen], weights[seen])]


def _own_losses_block(
    block: Block, found: Found, clouds: list[HeldCloud], n_clusters: int, parameters: Parameters
) -> RealArray:
    ((t, weights, numbers),) = clouds
    if numbers is None:
        return np.zeros(n_clusters)
    divergences = block.engine.encode(numbers, np.ones((1, 1, 1)), *parameters[:2])
    losses = weights * divergences.reshape(t.shape).sum(axis=1)
    labels = found.labels[block.weights > 0]
    return np.bincount(labels, losses, n_clusters).astype(float)


def _far_block(block: Block, found: Found, count: int) -> tuple[RealArray, RealArray]:
    divergences, weights = found.divergences, block.weights
    losses = weights * divergences
    worst = np.argsort(-losses, kind="stable")[:count]
    worst = np.sort(worst[(divergences[worst] > _ROUNDING) & (weights[worst] > 0)])
    return losses[worst], block.matrices[worst]
