"""What an IDDL estimator learns: one model of everything, or one per fold, and their average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.fitting.checkpoint import stage
from divlearn.fitting.interrupts import note_interrupt, see_through
from divlearn.fitting.progress import tell, track
from divlearn.iddl.heads import Head, Samples, scores_of, solve_head
from divlearn.iddl.losses import Loss
from divlearn.iddl.training import History, Judge, Model, Part, Recipe, train
from divlearn.iddl.variants import Variant
from divlearn.sharded.blocks import Block

_WORSE = 1.03  # times the least held-out loss, from which on no weaker penalty is tried
_JUDGED = 1e-3  # tolerance of heads: beyond it, predictions do not change but by noise
_CHOOSING_ITERATIONS = 10  # of models that only choose a penalty


@dataclass(frozen=True, eq=False)
class Choice:
    """A head that was chosen, and what heads of its kind say of held-out data."""

    loss: Loss
    gamma: float
    held_out_loss: float
    rows: Indices  # what was held out
    scores: RealArray  # of these rows, shape (n_rows, n_outputs)
    heads: Sequence[Head | None] = ()  # of the folds, near to those of everything


@dataclass(frozen=True, eq=False)
class Learned:
    """Models that predict together, how their heads were chosen, and how they were learned."""

    choice: Choice
    models: list[Model]
    starts: list[Model]  # of the first atoms, which predict with them
    n_iter: int
    message: str
    history: History


def choose_heads(
    parts: Sequence[Part], models: Sequence[Model], losses: Sequence[Loss],
    gammas: Sequence[float], judge: Judge,
) -> list[Choice]:  # fmt: skip
    """Choose the penalty for every loss by held-out data; `models` has one model per fold."""
    designs = []
    for part, model in zip(parts, models, strict=True):
        assert part.shards.whole is not None
        assert part.held is not None
        designs.append((model.embed(part.shards.whole), model.embed(part.held)))
    return [_follow_penalties(parts, designs, loss, gammas, judge) for loss in losses]


def _follow_penalties(
    parts: Sequence[Part], designs: Sequence[tuple[RealArray, RealArray]], loss: Loss,
    gammas: Sequence[float], judge: Judge,
) -> Choice:  # fmt: skip
    """Judge heads, the largest penalty first; weaker ones take longest, and end where they lose."""
    rows = np.concatenate([part.rows for part in parts])
    samples = [
        Samples(part.shards, part.targets, [seen], loss.bias)
        for part, (seen, _) in zip(parts, designs, strict=True)
    ]
    heads: list[Head | None] = [None] * len(parts)
    choices: list[Choice] = []
    for gamma in track(sorted(gammas, reverse=True), "penalties"):
        heads = [
            solve_head(loss.roughly(_JUDGED), one, gamma, warm)[0]
            for one, warm in zip(samples, heads, strict=True)
        ]
        scores = np.concatenate([
            to_host(scores_of(head, unseen))
            for head, (_, unseen) in zip(heads, designs, strict=True)
            if head is not None
        ])  # fmt: skip
        choices.append(Choice(loss, gamma, judge(scores, rows), rows, scores, heads))
        if choices[-1].held_out_loss > _WORSE * min(one.held_out_loss for one in choices):
            break
    return min(choices, key=lambda choice: choice.held_out_loss)


def choose_gamma(
    parts: Sequence[Part], recipe: Recipe, variant: Variant, gammas: Sequence[float], judge: Judge
) -> Choice:
    """Choose the penalty by held-out data of models that were learned with it, as the paper does.

    Models are learned by the joint solver, whichever learns the final one, for a few iterations.
    From the largest penalty on, each starts from the atoms of the one before.
    """
    rows = np.concatenate([part.rows for part in parts])
    quick = replace(recipe, solver="joint", max_iter=min(recipe.max_iter, _CHOOSING_ITERATIONS))
    choices = []
    for gamma in sorted(gammas, reverse=True):
        models, scores = [], []
        for part in track(parts, "models"):
            one = partial(train, part, replace(quick, gamma=gamma), variant)
            models.append(stage("model", one)[0])
            assert part.held is not None
            scores.append(models[-1].scores(part.held))
        parts = [
            replace(part, atoms=model.atoms) for part, model in zip(parts, models, strict=True)
        ]
        said = np.concatenate(scores)
        choices.append(Choice(recipe.loss, gamma, judge(said, rows), rows, said))
        tell("penalties", len(choices), len(gammas), f"loss {choices[-1].held_out_loss:.4g}")
    return min(choices, key=lambda choice: choice.held_out_loss)


def learn_single(whole: Part, recipe: Recipe, variant: Variant, choice: Choice | None) -> Learned:
    if choice is not None:
        recipe = replace(recipe, loss=choice.loss, gamma=choice.gamma)
    model, n_iter, message, history = train(whole, recipe, variant)
    if choice is None:
        none = np.zeros(0, dtype=np.intp)
        choice = Choice(recipe.loss, recipe.gamma, np.inf, none, np.zeros((0, 1)))
    return Learned(choice, [model], [], n_iter, message, history)


def learn_ensemble(
    whole: Part, parts: Sequence[Part], first: Sequence[Model], starts: Sequence[Choice],
    recipe: Recipe, variant: Variant, choose: Callable[[Sequence[Model]], list[Choice]],
    judge: Judge | None,
) -> list[tuple[Learned, Learned | None]]:  # fmt: skip
    """Train one model per fold, then choose heads for them, one of every loss.

    `first` are the models to start from, and `starts` the heads chosen for these. Without a judge,
    returns what was learned for every loss beside what it started from. With one, these are
    averaged where it says so, and only the best loss, which comes first, gets heads on everything.

    The head that is solved for while atoms move does not tell whether they generalise: a held-out
    loss that rises with it may fall with a head that is chosen later. So nothing stops early; a
    strong penalty and a tether keep atoms from overfitting.
    """
    runs = []
    for part in track(parts, "models"):
        one = partial(train, part, recipe, variant)
        try:
            runs.append(stage("model", one))
        except KeyboardInterrupt:
            if not runs:
                raise
            note_interrupt()  # which makes the rest short: an average needs all folds
            runs.append(one())
    models = [model for model, *_ in runs]
    n_iter = max(n for _, n, *_ in runs)
    history = _join([history for *_, history in runs])

    ends = see_through(partial(choose, models)) if n_iter else starts
    pairs = []
    for before, after in zip(starts, ends, strict=True):
        losses = before.held_out_loss, after.held_out_loss
        said = "held-out loss {:.4g} at the start, {:.4g} after {} iterations".format(
            *losses, n_iter
        )
        known = history | {"held_out_loss": np.array(losses)}
        learned = Learned(after, models, [], n_iter, said, known)
        start = replace(learned, choice=before, models=list(first)) if n_iter else learned
        pairs.append((learned, start))

    def refit(learned: Learned) -> Learned:
        return see_through(partial(_refit, whole, learned))

    if judge is None and not n_iter:
        return [(both, both) for both in (refit(learned) for learned, _ in pairs)]
    if judge is None:
        return [(refit(learned), refit(start)) for learned, start in pairs]
    averaged = [_average(*pair, judge) if n_iter else (pair[0], None) for pair in pairs]
    best, joined = min(averaged, key=lambda one: one[0].choice.held_out_loss)
    kept = replace(refit(best), starts=[] if joined is None else refit(joined).models)
    return [(kept, None), *((one, None) for one, _ in averaged if one is not best)]


def _average(learned: Learned, start: Learned, judge: Judge) -> tuple[Learned, Learned | None]:
    """Join what learning started from, where the average predicts held-out data better.

    Learned models err on other matrices than the first ones, and are too sure on shifted data.
    """
    choice = learned.choice
    scores = (choice.scores + start.choice.scores) / 2
    loss = judge(scores, choice.rows)
    learned = replace(learned, message=f"{learned.message}, {loss:.4g} with both averaged")
    if not loss < choice.held_out_loss:
        return learned, None
    return replace(learned, choice=replace(choice, scores=scores, held_out_loss=loss)), start


def _refit(whole: Part, learned: Learned) -> Learned:
    choice, refitted = learned.choice, []
    loss = choice.loss.roughly(_JUDGED)
    for model, warm in zip(learned.models, choice.heads, strict=True):
        features = whole.shards.hold(_embed_rows, model)
        samples = Samples(whole.shards, whole.targets, features, loss.bias)
        refitted.append(replace(model, head=solve_head(loss, samples, choice.gamma, warm)[0]))
    return replace(learned, models=refitted)


def _embed_rows(block: Block, model: Model) -> RealArray:
    return model.embed(block)


def _join(histories: Sequence[History]) -> History:
    """Histories of several models one after the other, with the number of the model."""
    joined = {name: np.concatenate([h[name] for h in histories]) for name in histories[0]}
    joined["model"] = np.repeat(np.arange(len(histories)), [len(h["objective"]) for h in histories])
    return joined
