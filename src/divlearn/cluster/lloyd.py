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
from divlearn.cluster.clusters import HeldCloud, Memberships, Spectra
from divlearn.cluster.parameters import Learned, Parameters, Rule
from divlearn.cluster.runs import Run, repeat
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards

# Smaller divergences of a matrix from its centroid may be rounding.
_ROUNDING = 1e-16
_RISE = 1e-12  # relative rise of the divergences in a cluster that is rounding
_STEPS = 3  # towards centroids in each turn
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


class Assignment(NamedTuple):
    """The nearest centres of the matrices of a block, divergences to them, and sums of these."""

    labels: Indices
    divergences: RealArray
    # Over clusters: of weights, of weighted divergences, of those to the new centres in the
    # clusters before; and how many matrices have another cluster than before.
    sums: tuple[RealArray, RealArray, RealArray, int]


class _State:
    """Centroids, parameters, the `Assignment` of every block, and sums over clusters."""

    def __init__(
        self, shards: Shards, centers: RealArray, parameters: Parameters, assignments: Parts
    ) -> None:
        self.centers, self.parameters, self.assignments = centers, parameters, assignments
        sums = shards.reduce(lambda _, assignment: assignment.sums, parts=[assignments])
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
    labels = np.concatenate(shards.map(lambda _, part: part.labels, parts=[state.assignments]))
    objective, inertia = lloyd.objective(state.losses, state.parameters), float(state.losses.sum())
    partition = Partition(state.centers, state.parameters, labels, inertia)
    return Run(partition, objective, n_iter, converged, message, history)


class _Lloyd:
    """A run of the algorithm; its state is consistent between turns."""

    def __init__(self, shards: Shards, rule: Rule, centers: RealArray) -> None:
        self.shards, self.rule = shards, rule
        self.history: list[_Row] = []
        self._started = time.perf_counter()
        self.state = state = self._relocate(self._assign(centers, rule.start))
        state.parameters = rule.begin(float(state.losses.sum()) / shards.n_seen, shards.d)
        objective = self.objective(state.losses, state.parameters)
        self._record(0, "start", objective, state.parameters, shards.n_seen)

    def turn(self, tol: float, iteration: int) -> tuple[str, str | None]:
        """Update centroids, parameters and assignment; return news and, if done, why to stop."""
        before, parameters, rule = self.state, self.state.parameters, self.rule
        members = self.shards.hold(_members_block, len(before.centers), parts=[before.assignments])
        if isinstance(rule, Learned):
            centers, moved, spectra = self._move(members, self._measure_spectra)
            self._record(iteration, "centroids", self.objective(moved, parameters), parameters)
            n_seen = self.shards.n_seen
            parameters, objective, shift = rule.update(parameters, spectra, n_seen)
            centers *= np.exp(shift)
            self._record(iteration, "parameters", n_seen * objective, parameters)
            state = self._assign(centers, parameters, before)
        else:
            # One table of divergences serves the new losses and the next assignment.
            _, moved, state = self._move(members, self._measure_table)
            self._record(iteration, "centroids", self.objective(moved, parameters), parameters)
        self.state = self._relocate(state, before)
        changed = self.state.changed
        objective = self.objective(self.state.losses, parameters)
        self._record(iteration, "assignment", objective, parameters, changed)
        news = f"objective {objective:.6g}, {changed} changed"
        warning = rule.warning(parameters)
        share = changed / self.shards.n_seen
        few = not changed or share < tol
        if warning is not None or not (few and rule.settled(before.parameters, parameters)):
            return news, warning
        return news, f"{share:.2%} of the assignments changed, < tol={tol:g}"

    def objective(self, losses: RealArray, parameters: Parameters) -> float:
        """Compute the objective from the sums of weighted divergences in the clusters."""
        n_seen = self.shards.n_seen
        return n_seen * self.rule.objective(
            losses.sum() / n_seen, parameters, n_seen, self.shards.d
        )

    def _record(
        self, iteration: int, block: str, objective: float, parameters: Parameters, changed: int = 0
    ) -> None:
        check_finite(objective, "the objective", f"in iteration {iteration}, of {block}")
        seconds = time.perf_counter() - self._started
        self.history.append((iteration, block, objective, *parameters, changed, seconds))

    def _move(
        self, members: Parts, measure: Callable[[Parts, RealArray], tuple[RealArray, _T]]
    ) -> tuple[RealArray, RealArray, _T]:
        """Move centroids, by `settle` where losses rose; return losses and the measurement."""
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
        shards, (alpha, beta, _) = self.shards, self.state.parameters

        def hold(block: Block, members: Memberships) -> list[HeldCloud]:
            """Log-eigenvalues of each matrix relative to its own centre, in one cloud."""
            t, weights = np.empty((len(block), block.data.d)), np.zeros(len(block))
            for z, rows in enumerate(members.rows):
                t[rows] = clusters.spectra_block(block, members, z, centers[z])
                weights[rows] = members.weights[z]
            weighted = np.flatnonzero(weights)
            return [clusters.hold_cloud(block.engine, t[weighted], weights[weighted])]

        def add_up(block: Block, assigned: Assignment, clouds: list[HeldCloud]) -> RealArray:
            ((t, weights, numbers),) = clouds
            if numbers is None:
                return np.zeros(len(centers))
            divergences = block.engine.encode(numbers, np.ones((1, 1, 1)), alpha, beta)
            losses = weights * divergences.reshape(t.shape).sum(axis=1)
            labels = assigned.labels[block.weights > 0]
            return np.bincount(labels, losses, len(centers)).astype(float)

        clouds = shards.hold(hold, parts=[members])
        moved = shards.reduce(add_up, parts=[self.state.assignments, clouds])
        return moved, Spectra(shards, clouds, np.array([float(shards.n_seen)]))

    def _assign(
        self, centers: RealArray, parameters: Parameters, before: _State | None = None
    ) -> _State:
        previous = [None] * len(self.shards) if before is None else before.assignments
        assignments = self.shards.hold(_assign_block, centers, *parameters[:2], parts=[previous])
        return _State(self.shards, centers, parameters, assignments)

    def _relocate(self, state: _State, before: _State | None = None) -> _State:
        """Move centroids of empty clusters to the matrices with the largest losses."""
        for _ in range(len(state.centers)):
            empty = np.flatnonzero(state.totals == 0)
            if not len(empty):
                break
            candidates = self.shards.map(_far_block, len(empty), parts=[state.assignments])
            losses, matrices = (np.concatenate(part) for part in zip(*candidates, strict=True))
            far = np.argsort(-losses, kind="stable")[: len(empty)]
            if not len(far):
                break
            centers = state.centers.copy()
            centers[empty[: len(far)]] = matrices[far]
            state = self._assign(centers, state.parameters, before)
        return state


def _assign_block(
    block: Block, assignment: Assignment | None, centers: RealArray, alpha: float, beta: float
) -> Assignment:
    previous = None if assignment is None else assignment.labels
    labels, divergences, to_previous = clusters.nearest_block(block, centers, alpha, beta, previous)
    weights, k = block.weights, len(centers)
    totals, losses = (
        np.bincount(labels, values, k).astype(float) for values in (weights, weights * divergences)
    )
    if previous is None:
        return Assignment(labels, divergences, (totals, losses, losses, len(block)))
    moved_losses = np.bincount(previous, weights * to_previous, k).astype(float)
    changed = int(np.count_nonzero((previous != labels) & (weights > 0)))
    return Assignment(labels, divergences, (totals, losses, moved_losses, changed))


def _members_block(block: Block, assignment: Assignment, n_clusters: int) -> Memberships:
    labels = np.where(block.weights > 0, assignment.labels, n_clusters)
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(1, n_clusters + 1))
    rows = np.split(order, ends)[:n_clusters]
    return Memberships(rows, [block.weights[row] for row in rows])


def _far_block(block: Block, assignment: Assignment, count: int) -> tuple[RealArray, RealArray]:
    divergences, weights = assignment.divergences, block.weights
    losses = weights * divergences
    worst = np.argsort(-losses, kind="stable")[:count]
    worst = np.sort(worst[(divergences[worst] > _ROUNDING) & (weights[worst] > 0)])
    return losses[worst], block.matrices[worst]
