"""Where alpha and beta of IDDL-S go from several starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from divlearn.engines import get_engine
from divlearn.experiments.cells import Cell, Outcome, Outcomes, Task
from divlearn.experiments.classification import Problem, make_problem
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import clauses
from divlearn.experiments.shelf import Holding, Shelf
from divlearn.iddl.initialization import initial_atoms
from divlearn.iddl.losses import RidgeLoss
from divlearn.iddl.training import Model, Recipe, Start, train
from divlearn.iddl.training import Task as Learning
from divlearn.iddl.variants import make_variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Trajectories", "follow"]

TASK = Task("trajectory", 1)
_ATOMS, _GAMMA = 15, 1e-3
_ACCURACY = 1e-6  # of eigenvalues, as in our classifiers


def follow(
    problem: Problem, start: tuple[float, float], n_atoms: int, iterations: int, seed: int
) -> Outcome:
    """Descend as the paper does, and note where alpha, beta and objective are.

    Parameters
    ----------
    problem : Problem
    start : (alpha, beta)
    n_atoms, iterations, seed : int

    Returns
    -------
    Outcome
        "alpha", "beta", "objective" and "train_accuracy", of the start and after every iteration.
    """
    X = problem.X_train
    engine = get_engine(accuracy=_ACCURACY)
    classes, codes = np.unique(problem.y_train, return_inverse=True)
    weights = np.full(len(X), 1 / len(X))
    task = Learning(X, engine.prepare(X), np.eye(len(classes))[codes], weights)
    atoms = initial_atoms(X, None, n_atoms, "kmeans", np.random.RandomState(seed))
    recipe = Recipe(
        RidgeLoss(bias=False), _GAMMA, logarithm=False, standardize=False, solver="bcd",
        max_iter=iterations, tol=0.0,
    )  # fmt: skip
    rows: list[tuple[float, float, float]] = []

    def watch(iteration: int, model: Model) -> None:
        right = model.scores(engine, X, task.data).argmax(axis=1) == codes
        rows.append((float(model.alpha[0, 0]), float(model.beta[0, 0]), float(right.mean())))

    start_at = Start(atoms, make_variant("S", n_atoms, [start]))
    _, fit = train(engine, task, start_at, recipe, watch)
    whole = np.isin(fit.history["block"], ("start", "head"))
    alpha, beta, accuracy = (list(column) for column in zip(*rows, strict=True))
    return {
        "alpha": alpha, "beta": beta, "objective": fit.history["objective"][whole],
        "train_accuracy": accuracy,
    }  # fmt: skip


class Trajectories(Experiment):
    """Different starts, the same data and atoms."""

    name = "trajectories"
    title = "Trajectories of alpha and beta (IDDL-S)"
    where = 'Figure "Trajectory of alpha and beta over BCD iterations"'
    unit = "parameters, objective, training accuracy in %"
    sources = ("virus",)

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        return [
            self._cell(holding, start, protocol)
            for holding in shelf.find(self.sources)
            for start in protocol.starts
        ]

    def _cell(self, holding: Holding, start: tuple[float, float], protocol: Protocol) -> Cell:
        limits, iterations = protocol.limit(holding.source.key), protocol.trajectory_iterations

        def compute() -> Outcome:
            problem = make_problem(holding.dataset, 0, limits)
            return follow(problem, start, _ATOMS, iterations, 0)

        settings = {
            "atoms": _ATOMS, "iterations": iterations, "gamma": _GAMMA, "limits": str(limits),
            "start": f"({start[0]:g}, {start[1]:g})",
        }  # fmt: skip
        return Cell(TASK, holding.source.title, holding.digest, "IDDL-S", 0, settings, compute)

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        rows = []
        for cell, outcome in done:
            name = f"start {cell.settings['start']}"
            rows += [
                Row(name, "alpha", outcome["alpha"][-1], decimals=3),
                Row(name, "beta", outcome["beta"][-1], decimals=3),
                Row(name, "objective", outcome["objective"][-1], decimals=4),
                Row(name, "training accuracy, %", 100 * outcome["train_accuracy"][-1]),
            ]
        return rows

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        if len(done) < 2:
            return []
        ends = np.array([(one["alpha"][-1], one["beta"][-1]) for _, one in done])
        objectives = np.array([one["objective"][-1] for _, one in done])
        apart = float(np.linalg.norm(ends[:, None] - ends, axis=-1).max())
        spread = float(np.ptp(objectives) / objectives.min())
        best = [cell.settings["start"] for cell, _ in done][int(objectives.argmin())]
        return [
            "The paper: different starts lead to different points with similar objectives, "
            f"slightly better from (1, 1). Here the ends are up to {apart:.2f} apart, the largest "
            f"objective is {100 * spread:.0f} % above the smallest, which is reached from {best}."
        ]

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        return clauses(
            f"{protocol.trajectory_iterations} iterations of block-coordinate descent, {_ATOMS} "
            f"atoms, gamma = {_GAMMA:g}, the first split",
            self.limits(protocol),
        )

    def draw(self, figure: Figure, done: Outcomes) -> None:
        """See `Experiment.draw`."""
        plane, objective, accuracy = figure.subplots(1, 3)
        for cell, one in done:
            name = cell.settings["start"]
            (line,) = plane.plot(one["alpha"], one["beta"], marker=".", label=name)
            plane.plot(one["alpha"][-1], one["beta"][-1], "*", color=line.get_color(), ms=12)
            objective.plot(one["objective"], color=line.get_color())
            accuracy.plot(100 * np.array(one["train_accuracy"]), color=line.get_color())
        plane.set(xlabel=r"$\alpha$", ylabel=r"$\beta$")
        plane.legend(title="start")
        objective.set(xlabel="iterations", ylabel="objective")
        accuracy.set(xlabel="iterations", ylabel="training accuracy, %")
