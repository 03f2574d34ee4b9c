"""Several models, each stopped early by the data it did not see, and their average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared
from divlearn.iddl.solvers import Fit
from divlearn.iddl.training import Model, Recipe, Start, Task, train

__all__ = ["Ensemble", "Folds", "Part", "make_parts", "train_ensemble"]

Folds = Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]]
_T = TypeVar("_T")

_PATIENCE = 8  # iterations without a better held-out score before a fold stops


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Models of one recipe, trained on different parts of the data.

    Attributes
    ----------
    models : list of Model
    fits : list of Fit
    iteration : int, the common iteration they were taken from; 0 is the start.
    out_of_fold : ndarray, shape (n_matrices, n_outputs)
        Scores of every matrix by the model that has not seen it; NaN for those no fold holds out.
    loss : float, of these scores.
    path : ndarray, that loss at every iteration.
    """

    models: list[Model]
    fits: list[Fit]
    iteration: int
    out_of_fold: RealArray
    loss: float
    path: RealArray


@dataclass(frozen=True, eq=False)
class Part:
    """One fold, prepared once for all that is tried on it.

    Attributes
    ----------
    task : Task, its training part.
    start : Start, where models of it start.
    held : ndarray of int, the rows it holds out.
    X : ndarray, the matrices of these rows.
    data : the same, prepared by the engine.
    """

    task: Task
    start: Start
    held: NDArray[np.intp]
    X: RealArray
    data: Prepared


def make_parts(
    engine: Engine, task: Task, make_start: Callable[[NDArray[np.intp]], Start], folds: Folds
) -> list[Part]:
    """Prepare the folds of a task.

    Parameters
    ----------
    engine : Engine
    task : Task
    make_start : callable
        From the rows of the training part of a fold to where its models start.
    folds : sequence of (train, held out), row indices.
    """
    return [
        Part(
            task.part(engine, rows), make_start(rows), held, task.X[held],
            engine.prepare(task.X[held]),
        )
        for rows, held in folds
    ]  # fmt: skip


def train_ensemble(
    engine: Engine, parts: Sequence[Part], recipe: Recipe, n_matrices: int,
    loss: Callable[[RealArray, NDArray[np.intp]], float],
) -> Ensemble:  # fmt: skip
    """Train one model per fold and stop all of them at the iteration that is best on average.

    Parameters
    ----------
    engine : Engine
    parts : sequence of Part
    recipe : Recipe
    n_matrices : int
        Of the whole task.
    loss : callable
        From scores and the rows they belong to to a number, the lower the better.

    Returns
    -------
    Ensemble
    """
    runs = [_Run(engine, part) for part in parts]
    fits = [
        train(engine, part.task, part.start, recipe, run.watcher(loss))[1]
        for part, run in zip(parts, runs, strict=True)
    ]
    length = max(len(run.models) for run in runs)
    held = np.concatenate([part.held for part in parts])
    path = np.array([
        loss(np.concatenate([_at(run.scores, i) for run in runs]), held) for i in range(length)
    ])  # fmt: skip
    best = int(np.argmin(path))
    out_of_fold = np.full((n_matrices, parts[0].task.targets.shape[1]), np.nan)
    out_of_fold[held] = np.concatenate([_at(run.scores, best) for run in runs])
    models = [_at(run.models, best) for run in runs]
    return Ensemble(models, fits, best, out_of_fold, float(path[best]), path)


class _Run:
    """The models of one fold, iteration by iteration, and their scores of what is held out."""

    def __init__(self, engine: Engine, part: Part) -> None:
        self.models: list[Model] = []
        self.scores: list[RealArray] = []
        self._engine = engine
        self._part = part
        self._beside: RealArray | None = None

    def watcher(
        self, loss: Callable[[RealArray, NDArray[np.intp]], float]
    ) -> Callable[[int, Model], str | None]:
        losses: list[float] = []
        part = self._part

        def watch(iteration: int, model: Model) -> str | None:
            if self._beside is None and model.tangent is not None:
                self._beside = model.tangent.compute(part.X)
            self.models.append(model)
            self.scores.append(model.scores(self._engine, part.X, part.data, self._beside))
            losses.append(loss(self.scores[-1], part.held))
            waited = iteration - int(np.argmin(losses))
            if waited >= _PATIENCE:
                return f"held-out loss did not fall for {waited} iterations"
            return None

        return watch


def _at(sequence: list[_T], iteration: int) -> _T:
    """Where a run stood; one that has stopped stays where it was."""
    return sequence[min(iteration, len(sequence) - 1)]
