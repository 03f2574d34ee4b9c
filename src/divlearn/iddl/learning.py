"""What an IDDL estimator learns: one model of everything, or several of parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.engines import Engine
from divlearn.fitting.interrupts import see_through
from divlearn.iddl.ensemble import Ensemble, Part, train_ensemble
from divlearn.iddl.goals import Goal
from divlearn.iddl.selection import Screened
from divlearn.iddl.training import Model, Recipe, Start, Task, train

__all__ = ["Learned", "Teller", "learn_ensemble", "learn_single"]

Teller = Callable[[int, str], None]  # the level of detail, and what is to be told


@dataclass(frozen=True, eq=False)
class Learned:
    """Models that predict together, and what they say of data held out.

    Attributes
    ----------
    recipe : Recipe
    models : list of Model
    n_iter : int
    message : str
    history : dict of arrays
    rows : ndarray of int, what was held out.
    scores : ndarray, shape (n_rows, n_outputs), of these rows.
    loss : float, of these scores.
    start : Learned or None, what they were before atoms and divergences moved.
    """

    recipe: Recipe
    models: list[Model]
    n_iter: int
    message: str
    history: dict[str, NDArray[np.generic]]
    rows: NDArray[np.intp]
    scores: RealArray
    loss: float
    start: Learned | None = None


def learn_single(
    engine: Engine, task: Task, start: Start, screened: Screened, tell: Teller
) -> Learned:
    """Train one model on everything; what is held out was judged at the start.

    Parameters
    ----------
    engine : Engine
    task : Task
    start : Start
    screened : Screened
    tell : Teller
    """
    recipe = screened.recipe
    model, fit = train(engine, task, start, recipe, report=_reporter(tell))
    tell(1, f"loss {recipe.loss.name}, gamma {recipe.gamma:g}: {fit.message}")
    return Learned(
        recipe, [model], fit.n_iter, fit.message, fit.history, screened.rows,
        screened.scores, screened.loss,
    )  # fmt: skip


def learn_ensemble(
    engine: Engine, task: Task, parts: Sequence[Part], recipe: Recipe, goal: Goal, tell: Teller
) -> Learned:
    """Train one model per fold, and stop all where they do best on average on what is held out.

    In the end their heads are solved for once more, on everything.

    Parameters
    ----------
    engine : Engine
    task : Task
    parts : sequence of Part
    recipe : Recipe
    goal : Goal
    tell : Teller
    """
    found = train_ensemble(engine, parts, recipe, goal.loss, report=_reporter(tell))
    tell(
        1,
        f"loss {recipe.loss.name}, gamma {recipe.gamma:g}, {recipe.n_tangent} tangent components: "
        f"held-out loss {found.path[0]:.4g} at the start, {found.path[found.best]:.4g} after "
        f"{found.best} iterations",
    )
    rows = np.concatenate([part.held for part in parts])
    start, best = (
        see_through(partial(_refit, engine, task, _at(found, iteration, recipe, rows)))
        for iteration in (0, found.best)
    )
    return replace(best, start=start)


def _refit(engine: Engine, task: Task, learned: Learned) -> Learned:
    """Solve for the heads of models on everything."""
    recipe = learned.recipe
    models = []
    for model in learned.models:
        seen = model.embed(engine, task.X, task.data)
        head = recipe.loss.best_head(seen, task.targets, task.weights, recipe.gamma, model.head)
        models.append(replace(model, head=head))
    return replace(learned, models=models)


def _at(ensemble: Ensemble, iteration: int, recipe: Recipe, rows: NDArray[np.intp]) -> Learned:
    """Take an ensemble as it was after some iterations."""
    loss = float(ensemble.path[iteration])
    models = ensemble.models(iteration)
    message = (
        f"iteration {iteration} has the lowest held-out loss, {loss:.4g}, of {len(ensemble.path)}; "
        f"{len(models)} models averaged"
    )
    if iteration != ensemble.best:
        message = f"iteration {iteration}, held-out loss {loss:.4g}; {len(models)} models averaged"
    history = _join(ensemble.histories)
    history["held_out_loss"] = ensemble.path
    scores = ensemble.scores(iteration)
    return Learned(recipe, models, iteration, message, history, rows, scores, loss)


def _join(histories: list[dict[str, NDArray[np.generic]]]) -> dict[str, NDArray[np.generic]]:
    """Histories of several models one after the other, with the number of the model."""
    joined = {name: np.concatenate([h[name] for h in histories]) for name in histories[0]}
    joined["model"] = np.repeat(np.arange(len(histories)), [len(h["objective"]) for h in histories])
    return joined


def _reporter(tell: Teller) -> Callable[[int, float], None]:
    return lambda iteration, value: tell(2, f"iteration {iteration}: objective {value:.6g}")
