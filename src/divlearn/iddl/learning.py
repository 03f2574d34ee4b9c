"""What an IDDL estimator learns: one model of everything, or several of parts, and their heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, to_host
from divlearn.engines import Engine
from divlearn.iddl.ensemble import Ensemble, Part, train_ensemble
from divlearn.iddl.goals import Goal
from divlearn.iddl.losses import Head
from divlearn.iddl.machines import Fold, choose_machine
from divlearn.iddl.selection import Screened, make_designs
from divlearn.iddl.training import Model, Recipe, Start, Task, train
from divlearn.interrupts import see_through

__all__ = ["Learned", "Teller", "learn_ensemble", "learn_heads", "learn_single"]

Teller = Callable[[int, str], None]  # the level of detail, and what is to be told


@dataclass(frozen=True, eq=False)
class Learned:
    """Models that predict together, and what they say of data held out.

    Attributes
    ----------
    recipe : Recipe
    head : {"linear", "svm", "rbf"}
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
    head: str
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
        recipe, "linear", [model], fit.n_iter, fit.message, fit.history, screened.rows,
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


def learn_heads(
    engine: Engine, kind: str, learned: Learned, parts: Sequence[Part], task: Task, goal: Goal,
    tell: Teller,
) -> Learned:  # fmt: skip
    """Put support vector machines in the place of the heads of models.

    Parameters
    ----------
    engine : Engine
    kind : {"svm", "rbf"}
    learned : Learned
        With a model for each part; or one of everything, where the machine is chosen on embeddings
        by the atoms the parts start from. Those the model has learned know what is held out.
    parts : sequence of Part
    task : Task
    goal : Goal, of classes.
    tell : Teller
    """
    assert goal.codes is not None
    if len(learned.models) != len(parts):
        embeddings = make_designs(engine, parts, learned.recipe)
    else:
        embeddings = [
            (model.embed(engine, p.task.X, p.task.data), model.embed(engine, p.X, p.data))
            for model, p in zip(learned.models, parts, strict=True)
        ]
    folds: list[Fold] = [
        (to_host(seen), part.task.targets.argmax(axis=1), part.task.weights, to_host(unseen))
        for part, (seen, unseen) in zip(parts, embeddings, strict=True)
    ]
    rows = np.concatenate([part.held for part in parts])
    chosen = choose_machine(kind, folds, goal.n_groups, lambda scores: goal.loss(scores, rows))
    machine = chosen.machine
    models = []
    for model in learned.models:
        seen = to_host(model.embed(engine, task.X, task.data))
        head = machine.fit(seen, goal.codes, task.weights, goal.n_groups)
        models.append(replace(model, head=head))
    tell(1, f"{machine} on what loss {learned.recipe.loss.name} learned: loss {chosen.loss:.4g}")
    return replace(
        learned, head=kind, models=models, rows=rows, scores=chosen.scores, loss=chosen.loss,
        message=f"{learned.message}; the head is {machine}",
    )  # fmt: skip


def _refit(engine: Engine, task: Task, learned: Learned) -> Learned:
    """Solve for the heads of models on everything."""
    recipe = learned.recipe
    models = []
    for model in learned.models:
        seen = model.embed(engine, task.X, task.data)
        assert isinstance(model.head, Head)
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
    return Learned(recipe, "linear", models, iteration, message, history, rows, scores, loss)


def _join(histories: list[dict[str, NDArray[np.generic]]]) -> dict[str, NDArray[np.generic]]:
    """Histories of several models one after the other, with the number of the model."""
    joined = {name: np.concatenate([h[name] for h in histories]) for name in histories[0]}
    joined["model"] = np.repeat(np.arange(len(histories)), [len(h["objective"]) for h in histories])
    return joined


def _reporter(tell: Teller) -> Callable[[int, float], None]:
    return lambda iteration, value: tell(2, f"iteration {iteration}: objective {value:.6g}")
