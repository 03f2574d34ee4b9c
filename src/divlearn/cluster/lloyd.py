"""One run of k-means: centroids, parameters and clusters take turns until clusters stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, to_host
from divlearn.checkpoint import Loop, loop
from divlearn.cluster.centroids import Cluster, safeguarded
from divlearn.cluster.parameters import LearnedRule, Point, Rule
from divlearn.cluster.samples import Assignment, Labels, Samples
from divlearn.cluster.turns import History, Settings, settled, take_turns
from divlearn.likelihood.spectra import Spectra

__all__ = ["RISE", "ROUNDING", "Run", "run_lloyd"]

_T = TypeVar("_T")

# Divergence of a matrix from its centroid up to which it may be rounding that holds them apart.
ROUNDING = 1e-16
RISE = 1e-12  # of the divergences in a cluster, relative to them, that means nothing


@dataclass(frozen=True, eq=False)
class Run:
    """Where a run ended.

    Attributes
    ----------
    centers : ndarray, shape (n_clusters, d, d)
    labels : ndarray of int, shape (n_matrices,)
    point : Point, the parameters.
    inertia : float, weighted sum of divergences to the nearest centroids.
    objective : float, what was minimised.
    n_iter : int
    interrupted : bool, whether the user stopped it.
    message : str, why it stopped.
    history : dict of arrays, one entry per block.
    """

    centers: RealArray
    labels: Labels
    point: Point
    inertia: float
    objective: float
    n_iter: int
    interrupted: bool
    message: str
    history: dict[str, NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class State:
    """Clusters whose matrices are nearer to their own centroid than to any other."""

    centers: RealArray
    labels: Labels
    divergences: RealArray  # of every matrix to its centroid
    point: Point


def run_lloyd(samples: Samples, centers: RealArray, rule: Rule, settings: Settings) -> Run:
    """Cluster from given centroids.

    Blocks are, in this order as in the paper: all centroids, the parameters of the divergence,
    and the assignment of matrices to their nearest centroids. None raises the objective.

    Parameters
    ----------
    samples : Samples
    centers : ndarray, shape (n_clusters, d, d)
    rule : Rule
    settings : Settings

    Returns
    -------
    Run
    """
    with loop("lloyd") as rounds:
        return _run(samples, centers, rule, settings, rounds)


def _run(samples: Samples, centers: RealArray, rule: Rule, settings: Settings, rounds: Loop) -> Run:
    run = _Lloyd(samples, rule, settings)
    if rounds.state is None:
        run.begin(centers)
        iteration = 0
    else:
        iteration, run.state, rows = rounds.state
        run.history = History.of(rows)
    ended = take_turns(run, iteration, settings, rounds)
    state = run.state
    return Run(
        state.centers, state.labels, state.point, float(samples.weights @ state.divergences),
        run.objective(state.divergences, state.point), *ended, run.history.arrays(ended.n_iter),
    )  # fmt: skip


class _Lloyd:
    """A run that is under way; its state is whole between turns."""

    state: State

    def __init__(self, samples: Samples, rule: Rule, settings: Settings) -> None:
        self.samples, self.rule, self.settings = samples, rule, settings
        self.history = History()
        self._clusters: dict[int, Cluster] = {}

    def begin(self, centers: RealArray) -> None:
        """Assign matrices to the first centroids."""
        samples, rule = self.samples, self.rule
        state = self._relocate(centers, self._assign(centers, rule.start), rule.start)
        mean = float(samples.weights @ state.divergences) / samples.total_weight
        self.state = replace(state, point=rule.begin(mean, samples.d))
        self._note(0, "start", self.state.divergences, self.state.point, len(state.labels))

    def kept(self) -> tuple[State, list[Any]]:
        """Return what it takes to go on from here."""
        return self.state, list(self.history.rows)

    def turn(self, iteration: int) -> str | None:
        """Update centroids, parameters and assignment; returns why to stop, if so."""
        before, point = self.state, self.state.point
        self._gather()
        if isinstance(self.rule, LearnedRule):
            centers, own, spectra = self._move(self._spectra)
            self._note(iteration, "centroids", own, point)
            point, objective, shift = self.rule.update(point, spectra)
            centers *= np.exp(shift)
            objective *= self.samples.total_weight
            self.history.add(iteration, "parameters", objective, point)
            found = self._assign(centers, point)
        else:
            # One table of divergences shows both how far centroids came and the next clusters.
            centers, own, found = self._move(self._reassign)
            self._note(iteration, "centroids", own, point)
        self.state = self._relocate(centers, found, point)
        changed = int(np.count_nonzero(self.state.labels != before.labels))
        objective = self._note(iteration, "assignment", self.state.divergences, point, changed)
        self.settings.watch(f"iteration {iteration}: objective {objective:.6g}, {changed} changed")
        trouble = self.rule.trouble(point)
        if trouble is not None or not self.rule.settled(before.point, point):
            return trouble
        return settled(changed, len(before.labels), self.settings.tol)

    def objective(self, divergences: RealArray, point: Point) -> float:
        """Compute what is minimised, given the divergence of every matrix to its centroid."""
        total = self.samples.total_weight
        mean = float(self.samples.weights @ divergences) / total
        return total * self.rule.objective(mean, point, total, self.samples.d)

    def _note(
        self, iteration: int, block: str, divergences: RealArray, point: Point, changed: int = 0
    ) -> float:
        objective = self.objective(divergences, point)
        self.history.add(iteration, block, objective, point, changed)
        return objective

    # ------------------------------------------------------------------ centroids

    def _gather(self) -> None:
        """Prepare the matrices of every cluster that has any, anew where they have changed."""
        samples, state = self.samples, self.state
        order = np.argsort(state.labels, kind="stable")
        ends = np.searchsorted(state.labels[order], np.arange(1, len(state.centers)))
        known, self._clusters = self._clusters, {}
        for z, rows in enumerate(np.split(order, ends)):
            before = known.pop(z, None)  # gone before the next ones come: they are as large as X
            if not len(rows):
                continue
            same = before is not None and np.array_equal(before.rows, rows)
            data = before.data if before is not None and same else samples.take(rows)
            weights = samples.weights[rows]
            self._clusters[z] = Cluster(
                samples.engine_for(len(rows)), rows, data, weights / weights.sum(),
                state.point.alpha, state.point.beta,
            )  # fmt: skip

    def _move(
        self, measure: Callable[[RealArray], tuple[RealArray, _T]]
    ) -> tuple[RealArray, RealArray, _T]:
        """Move centroids; returns them, the divergences of matrices to them and what comes along.

        Where divergences have risen, in some cluster, that centroid moves again with more care.
        """
        state, steps = self.state, self.settings.steps
        filled = list(self._clusters)
        centers = state.centers.copy()
        centers[filled] = self.settings.solver(
            list(self._clusters.values()), centers[filled], steps
        )
        own, measured = measure(centers)
        weights = self.samples.weights
        sums, limits = (
            np.bincount(state.labels, weights * values, len(centers))
            for values in (own, (1 + RISE) * state.divergences)
        )
        risen = np.flatnonzero(sums > limits)
        if len(risen):
            for z in risen.tolist():
                centers[z] = safeguarded(self._clusters[z], state.centers[z], steps)
            own, measured = measure(centers)
        return centers, own, measured

    def _spectra(self, centers: RealArray) -> tuple[RealArray, Spectra]:
        samples = self.samples
        t = np.empty(samples.matrices.shape[:2])
        for z, cluster in self._clusters.items():
            found = cluster.engine.spectra(cluster.data, centers[z : z + 1])
            t[cluster.rows] = to_host(found)[:, 0]
        spectra = Spectra(samples.engine, [(t, samples.weights)])
        return spectra.divergences(self.state.point.alpha, self.state.point.beta), spectra

    # ------------------------------------------------------------------ assignment

    def _assign(self, centers: RealArray, point: Point) -> Assignment:
        return self.samples.assign(centers, point.alpha, point.beta)

    def _reassign(self, centers: RealArray) -> tuple[RealArray, Assignment]:
        point = self.state.point
        return self.samples.reassign(centers, point.alpha, point.beta, self.state.labels)

    def _relocate(self, centers: RealArray, found: Assignment, point: Point) -> State:
        """Move centroids of empty clusters to the matrices that are worst off.

        An empty cluster has nothing to lose, and a matrix that becomes a centroid much to gain.
        """
        for _ in range(len(centers)):
            empty = np.flatnonzero(np.bincount(found.labels, minlength=len(centers)) == 0)
            if not len(empty):
                break
            losses = self.samples.weights * found.divergences
            far = np.argsort(-losses, kind="stable")[: len(empty)]
            far = far[found.divergences[far] > ROUNDING]
            if not len(far):
                break
            centers = centers.copy()
            centers[empty[: len(far)]] = self.samples.matrices[far]
            found = self._assign(centers, point)
        return State(centers, found.labels, found.divergences, point)
