"""Accuracy over the (alpha, beta) plane, with a dictionary that is not learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from divlearn.arrays import RealArray
from divlearn.divergence import divergence_plane
from divlearn.experiments.cells import Cell, Outcome, Outcomes, Task
from divlearn.experiments.classification import Problem, make_problem
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import clauses, judge
from divlearn.experiments.shelf import SOURCES, Holding, Shelf
from divlearn.iddl.initialization import initial_atoms
from divlearn.iddl.losses import RidgeLoss
from divlearn.judge.significance import share_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["HeatMap", "map_accuracy"]

TASK = Task("plane", 1)
_ATOMS = {"kth": 22, "virus": 30, "kth-images": 22}
_LARGEST = 2.0
_GAMMAS, _FOLDS = (1e-1, 1e-2, 1e-3, 1e-4), 4  # penalties, and folds to choose one by
_NAMED = {"AIRM": (0.0, 0.0), "JBLD": (0.5, 0.5), '"Burg" (1, 1)': (1.0, 1.0)}


def map_accuracy(problem: Problem, n_atoms: int, step: float, seed: int) -> Outcome:
    """Test accuracy of the paper's ridge head at every point of a grid, atoms from k-means.

    Parameters
    ----------
    problem : Problem
    n_atoms : int
    step : float
        Of the grid, from 0 to 2 in both directions.
    seed : int

    Returns
    -------
    Outcome
        "grid", "accuracy" (a row for each alpha), "n_test".
    """
    grid = np.arange(0, _LARGEST + step / 2, step)
    classes, codes = np.unique(problem.y_train, return_inverse=True)
    targets, truth = np.eye(len(classes))[codes], np.searchsorted(classes, problem.y_test)
    atoms = initial_atoms(problem.X_train, None, n_atoms, "kmeans", np.random.RandomState(seed))
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    parts = list(folds.split(codes, codes))
    # Divergences at all points of the grid, from one pass of spectra each.
    train, test = (
        divergence_plane(X, atoms, grid, grid) for X in (problem.X_train, problem.X_test)
    )
    accuracy = np.empty((len(grid), len(grid)))
    for i, j in np.ndindex(accuracy.shape):
        V, point = train[:, :, i, j], (slice(None), slice(None), i, j)
        gamma = max(
            _GAMMAS,
            key=lambda g: sum(_right(V[a], targets[a], V[b], codes[b], g) for a, b in parts),
        )
        accuracy[i, j] = _right(V, targets, test[point], truth, gamma) / len(truth)
    return {"grid": grid, "accuracy": accuracy, "n_test": len(problem.y_test)}


def _right(
    V: RealArray, targets: RealArray, W: RealArray, codes: NDArray[np.intp], gamma: float
) -> int:
    """Matrices W that a ridge head of V puts into the right class."""
    weights = np.full(len(V), 1 / len(V))
    head = RidgeLoss(bias=False).solve(V, targets, weights, gamma).head
    return int((head.scores(W).argmax(axis=1) == codes).sum())


class HeatMap(Experiment):
    """How much the accuracy depends on the divergence."""

    name = "heat-map"
    title = "Accuracy over the (alpha, beta) plane"
    where = 'Figures "accuracy on KTH-TIPS2 and Virus as we change alpha and beta"'
    unit = "accuracy in %"
    sources = ("kth", "virus", "kth-images")

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        return [self._cell(holding, protocol) for holding in shelf.find(self.sources)]

    def _cell(self, holding: Holding, protocol: Protocol) -> Cell:
        limits = protocol.limit(holding.source.key)
        n_atoms, step = _ATOMS[holding.source.key], protocol.plane_step

        def compute() -> Outcome:
            return map_accuracy(make_problem(holding.dataset, 0, limits), n_atoms, step, 0)

        settings = {"atoms": n_atoms, "step": step, "limits": str(limits)}
        return Cell(TASK, holding.source.title, holding.digest, "ridge", 0, settings, compute)

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        rows = []
        for cell, outcome in done:
            accuracy, grid = 100 * np.array(outcome["accuracy"]), np.array(outcome["grid"])
            for name, (alpha, beta) in _NAMED.items():
                i, j = np.abs(grid - alpha).argmin(), np.abs(grid - beta).argmin()
                rows.append(_row(cell.data, name, accuracy[i, j], outcome))
            rows.append(_row(cell.data, "highest", accuracy.max(), outcome))
            rows.append(_row(cell.data, "lowest", accuracy.min(), outcome))
        return rows

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        told, varies = [], {}
        for cell, outcome in done:
            accuracy, grid = np.array(outcome["accuracy"]), outcome["grid"]
            i, j = np.unravel_index(accuracy.argmax(), accuracy.shape)
            spread = 100 * (accuracy.max() - accuracy.min())
            error = 100 * share_error(accuracy.max(), outcome["n_test"])
            varies[cell.data] = bool(spread > 2 * error)
            told.append(
                f"{cell.data}: highest at alpha = {grid[i]:g}, beta = {grid[j]:g}; the plane "
                f"spans {spread:.1f} points, and one figure has a standard error of {error:.1f}."
            )
        return [*told, *judge("the accuracy varies with alpha and beta", varies)]

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        atoms = ", ".join(f"{SOURCES[key].title} {n}" for key, n in _ATOMS.items())
        return clauses(
            f"Atoms from log-Euclidean k-means, not learned ({atoms})",
            f"the ridge head is fitted at every point of a grid of step {protocol.plane_step:g}",
            "the first split", self.limits(protocol),
        )  # fmt: skip

    def draw(self, figure: Figure, done: Outcomes) -> None:
        """See `Experiment.draw`."""
        from divlearn.report.planes import edges

        axes = figure.subplots(1, len(done), squeeze=False)[0]
        for ax, (cell, outcome) in zip(axes, done, strict=True):
            grid = np.array(outcome["grid"])
            percent = 100 * np.array(outcome["accuracy"])
            image = ax.pcolormesh(edges(grid), edges(grid), percent.T, cmap="cividis")
            figure.colorbar(image, ax=ax, label="test accuracy, %")
            ax.set(title=cell.data, xlabel=r"$\alpha$", ylabel=r"$\beta$")
            ax.set_box_aspect(1)


def _row(data: str, name: str, percent: float, outcome: Outcome) -> Row:
    error = 100 * share_error(percent / 100, outcome["n_test"])
    return Row(data, name, float(percent), float(error))
