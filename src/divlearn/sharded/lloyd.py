"""One run of k-means on shards: as `divlearn.cluster.lloyd`, with sums for rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.checkpoint import Loop, loop
from divlearn.cluster.centroids import SOLVERS, Cluster, fixed_point, is_plain, safeguarded
from divlearn.cluster.lloyd import RISE, ROUNDING, Run
from divlearn.cluster.parameters import Point
from divlearn.cluster.samples import Labels
from divlearn.cluster.turns import History, Settings, settled, take_turns
from divlearn.sharded.averages import AverageEngine, Members, weighted_slopes
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards

__all__ = ["assign_block", "run_sharded_lloyd"]

_Nearest = tuple[Labels, RealArray]  # of a block: the nearest centre, and the divergence to it
_Far = tuple[RealArray, RealArray, RealArray]  # losses, divergences and matrices


@dataclass(frozen=True, eq=False)
class _State:
    """Clusters, with the sums of weights and of weighted divergences in each."""

    centers: RealArray
    found: Parts
    totals: RealArray
    losses: RealArray


def run_sharded_lloyd(shards: Shards, centers: RealArray, point: Point, settings: Settings) -> Run:
    """Cluster from given centroids, in a given divergence; see `divlearn.cluster.lloyd.run_lloyd`.

    Parameters
    ----------
    shards : Shards
    centers : ndarray, shape (n_clusters, d, d)
    point : Point
    settings : Settings

    Returns
    -------
    Run
    """
    with loop("lloyd") as rounds:
        return _run(shards, centers, point, settings, rounds)


def _run(shards: Shards, centers: RealArray, point: Point, settings: Settings, rounds: Loop) -> Run:
    iteration, centers, rows = rounds.state or (0, centers, [])
    run = _ShardedLloyd(shards, point, settings, centers, History.of(rows))
    ended = take_turns(run, iteration, settings, rounds)
    state = run.state
    labels = np.concatenate(shards.map(_labels_block, beside=[state.found]))
    inertia = float(state.losses.sum())
    return Run(
        state.centers, labels, point, inertia, inertia, *ended, run.history.arrays(ended.n_iter)
    )


class _ShardedLloyd:
    """A run that is under way; its state is whole between turns."""

    def __init__(
        self, shards: Shards, point: Point, settings: Settings, centers: RealArray,
        history: History,
    ) -> None:  # fmt: skip
        self.shards, self.point, self.settings = shards, point, settings
        self.history = history
        found = shards.hold(assign_block, centers, point.alpha, point.beta)
        self.state = self._sum(centers, found)
        if not history.rows:
            self.state = self._relocate(self.state)
            self._note(0, "start", self.state.losses, shards.n_seen)

    def kept(self) -> tuple[RealArray, list[Any]]:
        """Return what it takes to go on from here; where matrices belong follows from it."""
        return self.state.centers, list(self.history.rows)

    def turn(self, iteration: int) -> str | None:
        """Update centroids and assignment; returns why to stop, if so."""
        before, shards = self.state, self.shards
        members = shards.hold(_members_block, len(before.centers), beside=[before.found])
        filled = np.flatnonzero(before.totals)
        centers = before.centers.copy()
        centers[filled] = self._move(members, filled, centers[filled])
        both = shards.hold(_reassign_block, centers, *self.point[:2], beside=[before.found])
        own = shards.reduce(_own_block, len(centers), beside=[before.found, both])
        risen = np.flatnonzero(own > (1 + RISE) * before.losses)
        if len(risen):
            for z in risen.tolist():
                cluster = self._cluster(members, z)
                centers[z] = safeguarded(cluster, before.centers[z], self.settings.steps)
            both = shards.hold(_reassign_block, centers, *self.point[:2], beside=[before.found])
            own = shards.reduce(_own_block, len(centers), beside=[before.found, both])
        self._note(iteration, "centroids", own)
        found = shards.hold(_second_block, beside=[both])
        self.state = self._relocate(self._sum(centers, found))
        changed = int(shards.reduce(_changed_block, beside=[before.found, self.state.found]))
        objective = self._note(iteration, "assignment", self.state.losses, changed)
        self.settings.watch(f"iteration {iteration}: objective {objective:.6g}, {changed} changed")
        return settled(changed, shards.n_seen, self.settings.tol)

    def _note(self, iteration: int, block: str, losses: RealArray, changed: int = 0) -> float:
        objective = float(losses.sum())
        self.history.add(iteration, block, objective, self.point, changed)
        return objective

    def _move(self, members: Parts, filled: NDArray[np.intp], centers: RealArray) -> RealArray:
        """Move all centroids by the solver; those of fixed points together, in one pass a step."""
        alpha, beta = self.point[:2]
        totals = self.state.totals[filled]

        def slopes(moved: RealArray, active: NDArray[np.intp]) -> RealArray:
            sums = self.shards.reduce(
                weighted_slopes, moved[active], filled[active].tolist(), alpha, beta,
                beside=[members],
            )  # fmt: skip
            mean: RealArray = sums / totals[active, None, None]
            return mean

        steps = self.settings.steps
        if self.settings.solver is SOLVERS["fixed-point"] and is_plain(alpha, beta):
            moved = fixed_point(slopes, centers, alpha, beta, steps)
            if moved is not None:
                return moved
        clusters = [self._cluster(members, int(z)) for z in filled]
        return self.settings.solver(clusters, centers, steps)

    def _cluster(self, members: Parts, z: int) -> Cluster:
        alpha, beta = self.point[:2]
        engine = AverageEngine(self.shards, members, z, float(self.state.totals[z]))
        data = engine.stand_in(alpha, beta)
        return Cluster(engine, np.zeros(1, dtype=np.intp), data, np.ones(1), alpha, beta)

    def _sum(self, centers: RealArray, found: Parts) -> _State:
        totals, losses = self.shards.reduce(_totals_block, len(centers), beside=[found])
        return _State(centers, found, totals, losses)

    def _relocate(self, state: _State) -> _State:
        """Move centroids of empty clusters to the matrices that are worst off."""
        for _ in range(len(state.centers)):
            empty = np.flatnonzero(state.totals == 0)
            if not len(empty):
                break
            losses, divergences, matrices = (
                np.concatenate(part)
                for part in zip(
                    *self.shards.map(_far_block, len(empty), beside=[state.found]), strict=True
                )
            )
            far = np.argsort(-losses, kind="stable")[: len(empty)]
            far = far[divergences[far] > ROUNDING]
            if not len(far):
                break
            centers = state.centers.copy()
            centers[empty[: len(far)]] = matrices[far]
            found = self.shards.hold(assign_block, centers, *self.point[:2])
            state = self._sum(centers, found)
        return state


def assign_block(block: Block, centers: RealArray, alpha: float, beta: float) -> _Nearest:
    """Find the nearest centre of every matrix of a block, and the divergence to it."""
    table = block.engine.encode(block.data, centers, alpha, beta)
    return _nearest(table)


def _nearest(table: RealArray) -> _Nearest:
    labels = table.argmin(axis=1)
    return labels, table[np.arange(len(table)), labels]


def _reassign_block(
    block: Block, found: _Nearest, centers: RealArray, alpha: float, beta: float
) -> tuple[RealArray, _Nearest]:
    table = block.engine.encode(block.data, centers, alpha, beta)
    return table[np.arange(len(table)), found[0]], _nearest(table)


def _members_block(block: Block, found: _Nearest, n_clusters: int) -> Members:
    seen = np.where(block.weights > 0, found[0], n_clusters)
    order = np.argsort(seen, kind="stable")
    ends = np.searchsorted(seen[order], np.arange(1, n_clusters + 1))
    return [(rows, block.weights[rows]) for rows in np.split(order, ends)[:n_clusters]]


def _totals_block(block: Block, found: _Nearest, n_clusters: int) -> tuple[RealArray, RealArray]:
    labels, divergences = found
    weights = block.weights
    return (
        np.bincount(labels, weights, n_clusters).astype(float),
        np.bincount(labels, weights * divergences, n_clusters).astype(float),
    )


def _own_block(
    block: Block, found: _Nearest, both: tuple[RealArray, _Nearest], n_clusters: int
) -> RealArray:
    sums: RealArray = np.bincount(found[0], block.weights * both[0], n_clusters).astype(float)
    return sums


def _second_block(block: Block, both: tuple[RealArray, _Nearest]) -> _Nearest:
    return both[1]


def _changed_block(block: Block, before: _Nearest, after: _Nearest) -> int:
    return int(np.count_nonzero((before[0] != after[0]) & (block.weights > 0)))


def _labels_block(block: Block, found: _Nearest) -> Labels:
    return found[0]


def _far_block(block: Block, found: _Nearest, count: int) -> _Far:
    losses = block.weights * found[1]
    far = np.sort(np.argsort(-losses, kind="stable")[:count])
    return losses[far], found[1][far], block.data.matrices[far]
