"""What an IDDL estimator learns: one model of everything, or one per fold, and their average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, beside, to_host
from divlearn.fitting.checkpoint import stage
from divlearn.fitting.interrupts import note_interrupt, see_through
from divlearn.fitting.progress import track
from divlearn.iddl.features import FeatureMap, Tangent, fit_tangent, tangent_values
from divlearn.iddl.heads import Head, Samples, scores_of, solve_head
from divlearn.iddl.objective import encode_rows
from divlearn.iddl.training import Judge, Model, Part, Recipe, Report, train
from divlearn.iddl.variants import Variant
from divlearn.sharded.blocks import Block

Teller = Callable[..., None]  # of a sentence, and from which level of detail on
History = dict[str, NDArray[np.generic]]
# Models of a fold, iteration by iteration, their scores of what is held out, and the history.
_Run = tuple[list[Model], list[RealArray], History]
_T = TypeVar("_T")
_Features = tuple[RealArray, RealArray]  # of the matrices of a fold, and of those it holds out

_PATIENCE = 8  # iterations without a better held-out score before a fold stops


@dataclass(frozen=True, eq=False)
class Learned:
    """Models that predict together, and what they say of held-out data."""

    recipe: Recipe
    models: list[Model]
    n_iter: int
    message: str
    history: History
    rows: NDArray[np.intp]  # what was held out
    scores: RealArray  # of these rows, shape (n_rows, n_outputs)
    loss: float  # of these scores
    start: Learned | None = None  # what they were before atoms and divergences moved


# By a recipe's place: penalty, number of tangent components, held-out loss, held-out scores.
Screened = tuple[float, int, float, RealArray]


def screen(
    parts: Sequence[Part], recipes: Sequence[Recipe], variant: Variant, gammas: Sequence[float],
    tangents: Sequence[int], judge: Judge,
) -> list[Screened]:  # fmt: skip
    """Choose the penalty and the number of tangent components before anything is learned.

    Divergences to the first atoms and tangent components are computed once; what differs are the
    heads. Recipes have the same features, and losses of their own.
    """
    features = [_first_features(part, recipes[0], variant) for part in parts]
    best: list[Screened | None] = [None] * len(recipes)
    for n_tangent in tangents:
        designs = [_add_tangent(*pair, n_tangent) for pair in zip(parts, features, strict=True)]
        for index, recipe in enumerate(recipes):
            for found in _along(parts, designs, recipe, gammas, n_tangent, judge):
                before = best[index]
                if before is None or found[2] < before[2]:
                    best[index] = found
    return [found for found in best if found is not None]


def _along(
    parts: Sequence[Part], designs: Sequence[_Features], recipe: Recipe, gammas: Sequence[float],
    n_tangent: int, judge: Judge,
) -> list[Screened]:  # fmt: skip
    """Try penalties, the largest first: each head starts from that of a larger one."""
    rows = np.concatenate([part.rows for part in parts])
    loss = recipe.loss.roughly()
    samples = [
        Samples(part.shards, part.targets, [seen], loss.bias)
        for part, (seen, _) in zip(parts, designs, strict=True)
    ]
    heads: list[Head | None] = [None] * len(parts)
    found = []
    for gamma in sorted(gammas, reverse=True):
        heads = [
            solve_head(loss, one, gamma, warm)[0] for one, warm in zip(samples, heads, strict=True)
        ]
        scores = np.concatenate([
            to_host(scores_of(head, unseen))
            for head, (_, unseen) in zip(heads, designs, strict=True)
            if head is not None
        ])  # fmt: skip
        found.append((gamma, n_tangent, judge(scores, rows), scores))
    return found


def _first_features(part: Part, recipe: Recipe, variant: Variant) -> _Features:
    """Features of the training part of a fold, and of what it holds out, at the start."""
    assert part.shards.whole is not None
    assert part.held is not None
    pairs = variant.expand(variant.start)
    V, W = (encode_rows(block, part.atoms, *pairs) for block in (part.shards.whole, part.held))
    known = part.shards, part.targets, [V]
    feature_map = FeatureMap.start(
        *known, logarithm=recipe.logarithm, standardize=recipe.standardize
    )
    units = feature_map.units(*known)
    return feature_map.compute(V, units), feature_map.compute(W, units)


def _add_tangent(part: Part, features: _Features, n_tangent: int) -> _Features:
    tangent = find_tangent(part, n_tangent)
    if tangent is None:
        return features
    assert part.shards.whole is not None
    assert part.held is not None
    seen, unseen = (
        np.concatenate([old, beside(tangent_values(block.matrices, tangent), old)], axis=1)
        for old, block in zip(features, (part.shards.whole, part.held), strict=True)
    )
    return seen, unseen


def find_tangent(part: Part, n_components: int) -> Tangent | None:
    """Find components beside the divergences of matrices that are in memory; None for none."""
    if not n_components:
        return None
    assert part.shards.whole is not None
    return fit_tangent(part.shards.whole.matrices, to_host(part.targets[0][1]), n_components)


def learn_single(
    part: Part, recipe: Recipe, variant: Variant, tangent: Tangent | None, tell: Teller
) -> Learned:
    """Train one model on everything."""
    model, fit = train(part, recipe, variant, tangent, report=_reporter(tell))
    tell(f"loss {recipe.loss.name}, gamma {recipe.gamma:g}: {fit.message}")
    none = np.zeros(0, dtype=np.intp)
    return Learned(
        recipe, [model], fit.n_iter, fit.message, fit.history, none, np.zeros((0, 1)), np.inf
    )


def learn_ensemble(
    whole: Part, parts: Sequence[Part], recipe: Recipe, variant: Variant, judge: Judge, tell: Teller
) -> Learned:
    """Train one model per fold, and stop all where they do best on average on held-out data.

    In the end their heads are solved for once more, on everything.
    """
    rough = replace(recipe, loss=recipe.loss.roughly())  # what stops early need not be exact
    runs: list[_Run] = []
    for part in track(parts, "models"):
        one = partial(_train_part, part, rough, variant, judge, _reporter(tell))
        try:
            runs.append(stage("model", one))
        except KeyboardInterrupt:
            if not runs:
                raise
            note_interrupt()  # which makes the rest short: an average needs all folds
            runs.append(one())
    rows = np.concatenate([part.rows for part in parts])
    path = np.array([
        judge(_scores_at(runs, i), rows) for i in range(max(len(models) for models, _, _ in runs))
    ])  # fmt: skip
    best = int(np.argmin(path))
    tell(
        f"loss {recipe.loss.name}, gamma {recipe.gamma:g}, {recipe.n_tangent} tangent components: "
        f"held-out loss {path[0]:.4g} at the start, {path[best]:.4g} after {best} iterations",
    )
    history = _join([history for _, _, history in runs])
    history["held_out_loss"] = path

    def at(iteration: int) -> Learned:
        models = [_at(models, iteration) for models, _, _ in runs]
        models = see_through(partial(_refit, whole, models, recipe))
        message = f"iteration {iteration}, held-out loss {path[iteration]:.4g}; "
        if iteration == best:
            message = (
                f"iteration {iteration} has the lowest held-out loss, {path[iteration]:.4g}, of "
                f"{len(path)}; "
            )
        message += f"{len(models)} models averaged"
        loss, scores = float(path[iteration]), _scores_at(runs, iteration)
        return Learned(recipe, models, iteration, message, history, rows, scores, loss)

    start, learned = at(0), at(best)
    return replace(learned, start=start)


def _train_part(part: Part, recipe: Recipe, variant: Variant, judge: Judge, report: Report) -> _Run:
    """Train a model, watch it on what its fold holds out, and stop it when that gets no better."""
    seen: list[tuple[Model, RealArray, float]] = []
    tangent = find_tangent(part, recipe.n_tangent)
    assert part.held is not None
    assert part.rows is not None
    held, rows = part.held, part.rows
    values = None if tangent is None else tangent_values(held.matrices, tangent)

    def watch(iteration: int, model: Model) -> str | None:
        scores = model.scores(held, values)
        seen.append((model, scores, judge(scores, rows)))
        waited = iteration - int(np.argmin([loss for *_, loss in seen]))
        if waited >= _PATIENCE:
            return f"held-out loss did not fall for {waited} iterations"
        return None

    model, fit = train(part, recipe, variant, tangent, watch, report)
    if not seen:  # it was interrupted before there was any to watch
        watch(0, model)
    return [model for model, *_ in seen], [scores for _, scores, _ in seen], fit.history


def _refit(whole: Part, models: Sequence[Model], recipe: Recipe) -> list[Model]:
    """Solve for the heads of models on everything."""
    shards, targets = whole.shards, whole.targets
    refitted = []
    for model in models:
        features = shards.hold(_embed_rows, model)
        samples = Samples(shards, targets, features, recipe.loss.bias)
        head, _ = solve_head(recipe.loss, samples, recipe.gamma, model.head)
        refitted.append(replace(model, head=head))
    return refitted


def _embed_rows(block: Block, model: Model) -> RealArray:
    return model.embed(block)


def _at(sequence: list[_T], iteration: int) -> _T:
    """Where a run stood; one that has stopped stays where it was."""
    return sequence[min(iteration, len(sequence) - 1)]


def _scores_at(runs: Sequence[_Run], iteration: int) -> RealArray:
    return np.concatenate([_at(scores, iteration) for _, scores, _ in runs])


def _join(histories: Sequence[History]) -> History:
    """Histories of several models one after the other, with the number of the model."""
    joined = {name: np.concatenate([h[name] for h in histories]) for name in histories[0]}
    joined["model"] = np.repeat(np.arange(len(histories)), [len(h["objective"]) for h in histories])
    return joined


def _reporter(tell: Teller) -> Report:
    return lambda iteration, value: tell(f"iteration {iteration}: objective {value:.6g}", 2)
