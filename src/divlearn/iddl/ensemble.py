"""Several models, each stopped early by the data it did not see, and their average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared
from divlearn.fitting.checkpoint import stage
from divlearn.fitting.folds import Folds
from divlearn.fitting.interrupts import see_through
from divlearn.fitting.progress import track
from divlearn.iddl.training import Model, Recipe, Report, Start, Task, train

__all__ = ["Ensemble", "Part", "make_parts", "train_ensemble"]

History = dict[str, NDArray[np.generic]]
# Models of a fold, iteration by iteration, their scores of what is held out, and the history.
Run = tuple[list[Model], list[RealArray], History]
_T = TypeVar("_T")

_PATIENCE = 8  # iterations without a better held-out score before a fold stops


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Models of one recipe, trained on different parts of the data.

    Attributes
    ----------
    path : ndarray, the loss of what is held out at every iteration; the first is the start.
    runs : list of runs, one for each part.
    """

    path: RealArray
    runs: list[Run]

    @property
    def histories(self) -> list[History]:
        """What happened on the way."""
        return [history for _, _, history in self.runs]

    @property
    def best(self) -> int:
        """Iteration of the lowest loss."""
        return int(np.argmin(self.path))

    def models(self, iteration: int) -> list[Model]:
        """Models after some iterations."""
        return [_at(models, iteration) for models, _, _ in self.runs]

    def scores(self, iteration: int) -> RealArray:
        """Scores of what is held out after some iterations, one fold after the other."""
        return np.concatenate([_at(scores, iteration) for _, scores, _ in self.runs])


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
        From the rows of a training part to where its models start.
    folds : sequence of (train, held out), row indices.
    """
    return [
        Part(
            task.part(engine, rows), make_start(rows), held, task.X[held],
            engine.take(task.data, held),
        )
        for rows, held in folds
    ]  # fmt: skip


def train_ensemble(
    engine: Engine, parts: Sequence[Part], recipe: Recipe,
    loss: Callable[[RealArray, NDArray[np.intp]], float], report: Report | None = None,
) -> Ensemble:  # fmt: skip
    """Train one model per fold, each watched on what the fold holds out.

    Parameters
    ----------
    engine : Engine
    parts : sequence of Part
    recipe : Recipe
    loss : callable
        From scores and the rows they belong to to a number, the lower the better.
    report : callable, optional
        Called with the iteration and the objective then.

    Returns
    -------
    Ensemble
    """
    recipe = replace(recipe, loss=recipe.loss.roughly())  # what stops early need not be exact

    def train_part(part: Part) -> Run:
        watcher = _Watcher(engine, part, loss)
        model, fit = train(engine, part.task, part.start, recipe, watcher, report=report)
        if not watcher.models:  # it was interrupted before there was any to watch
            watcher(0, model)
        return watcher.models, watcher.scores, fit.history

    runs: list[Run] = []
    for part in track(parts, "models"):
        one = partial(train_part, part)
        runs.append(stage("model", partial(see_through, one) if runs else one))
    held = np.concatenate([part.held for part in parts])
    path = [
        loss(np.concatenate([_at(scores, i) for _, scores, _ in runs]), held)
        for i in range(max(len(models) for models, _, _ in runs))
    ]
    return Ensemble(np.array(path), runs)


class _Watcher:
    """Watch a model on what its fold holds out, and stop it when that gets no better."""

    def __init__(
        self, engine: Engine, part: Part, loss: Callable[[RealArray, NDArray[np.intp]], float]
    ) -> None:
        self.models: list[Model] = []
        self.scores: list[RealArray] = []
        self._losses: list[float] = []
        self._engine, self._part, self._loss = engine, part, loss
        self._beside: RealArray | None = None

    def __call__(self, iteration: int, model: Model) -> str | None:
        part = self._part
        if self._beside is None and model.tangent is not None:
            self._beside = model.tangent.compute(part.X)
        scores = model.scores(self._engine, part.X, part.data, self._beside)
        self._losses.append(self._loss(scores, part.held))
        self.scores.append(scores)
        self.models.append(model)
        waited = iteration - int(np.argmin(self._losses))
        if waited >= _PATIENCE:
            return f"held-out loss did not fall for {waited} iterations"
        return None


def _at(sequence: list[_T], iteration: int) -> _T:
    """Where a run stood; one that has stopped stays where it was."""
    return sequence[min(iteration, len(sequence) - 1)]
