"""Kinds of models that predict together: atoms of several ranks, and discriminants."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.fitting.held_out import Memo, in_turn
from divlearn.fitting.selection import HeldOut, mean_with_error
from divlearn.heads.discriminants import RDA, NoSpreadError
from divlearn.iddl.judging import Choice, positions_without_each
from divlearn.iddl.learning import Learned
from divlearn.iddl.tasks import Task
from divlearn.iddl.training import Discriminant, Model, count_workers
from divlearn.threads import side_by_side

_CLEARLY = 3.0  # standard errors by which one kind alone must be better than all
# How far covariances of classes are pooled, and shrunk to a multiple of the identity.
Amounts = tuple[float, float]
_GRID = in_turn(list(product((0.1, 0.5, 0.9), (0.003, 0.01, 0.03, 0.1, 0.3))))


def join_scores(
    kinds: Sequence[Choice], without: Sequence[Sequence[Choice]], task: Task
) -> tuple[list[float], Choice, list[Choice]]:
    """Average scores of several kinds of models, unless the first kind alone is clearly better.

    `without` has the choices made without each fold. Returned are the factors of the kinds in the
    average, none if it is not kept, and the choices that result.
    """
    rows = kinds[0].rows

    def decide(choices: Sequence[Choice], positions: Indices) -> tuple[list[float], Choice]:
        known = [one.scores[positions] for one in choices]
        factors = [task.scale(one, rows[positions]) / len(choices) for one in known]
        scaled = [factor * one.scores for factor, one in zip(factors, choices, strict=True)]
        scores = np.sum(scaled, axis=0)
        joined = replace(choices[0], scores=scores, shares=task.judge(scores, rows))
        loss, error = mean_with_error((joined.shares - choices[0].shares)[positions])
        if loss > _CLEARLY * error:
            return [], choices[0]
        return factors, joined

    factors, choice = decide(kinds, np.arange(len(rows)))
    judged = positions_without_each([held for _, held in task.folds])
    return factors, choice, [decide(*one)[1] for one in zip(without, judged, strict=True)]


def join_ranks(ranks: Sequence[Learned], task: Task) -> Learned:
    """Average models of several ranks, unless full rank, which comes first, is clearly better.

    Models have heads such that the mean over all models is the mean over ranks.
    """
    factors, choice, without = join_scores(
        [one.choice for one in ranks],
        list(zip(*(one.without for one in ranks), strict=True)),
        task,
    )
    losses = ", ".join(f"{one.choice.held_out_loss:.4g}" for one in ranks)
    said = f"held-out losses of ranks {losses}, averaged {choice.held_out_loss:.4g}"
    if not factors:
        return replace(ranks[0], without=without, message=f"{ranks[0].message}; {said}, not kept")
    n_models = sum(len(one.models) + len(one.starts) for one in ranks)
    models, starts = [], []
    for one, factor in zip(ranks, factors, strict=True):
        share = factor * n_models / (len(one.models) + len(one.starts))
        models += [scaled(model, share) for model in one.models]
        starts += [scaled(model, share) for model in one.starts]
    return replace(
        ranks[0],
        choice=choice,
        without=without,
        models=models,
        features=[own for one in ranks for own in one.features],
        starts=starts,
        message=f"{ranks[0].message}; {said}",
        stop_reasons=[reason for one in ranks for reason in one.stop_reasons],
    )


def scaled(model: Model, factor: float) -> Model:
    """Multiply the head of a model."""
    weights, bias = model.head
    return replace(model, head=(factor * weights, factor * bias))


def add_discriminants(learned: Learned, task: Task) -> Learned:
    """Average linear heads and discriminants, unless linear heads alone are clearly better.

    Models come rank by rank, with one of every fold. Discriminants see the features of the models
    of a fold: those of full rank, and those of all ranks side by side.
    """
    codes, features = task.codes, learned.features
    assert codes is not None
    numbers = np.arange(len(learned.models)).reshape(-1, len(task.folds))
    n_workers = count_workers(task.shards, task.targets)
    views = [numbers[:1], numbers] if len(numbers) > 1 else [numbers]
    try:
        judged = [_choose(_join(features, view), learned, task, n_workers) for view in views]
    except NoSpreadError:
        return learned
    kinds = [learned.choice, *(choice for _, choice, _ in judged)]
    without = list(zip(learned.without, *(some for *_, some in judged), strict=True))
    factors, choice, without_each = join_scores(kinds, without, task)
    message = (
        f"{learned.message}; held-out loss {learned.choice.held_out_loss:.4g} of linear heads, "
        f"{choice.held_out_loss:.4g} averaged with discriminants"
    )
    if not factors:
        return replace(learned, without=without_each, message=f"{message}, not kept")

    def fit(own: Indices, seen: RealArray, factor: float, best: Amounts) -> Discriminant:
        gaussians = RDA(seen, codes, task.weights).learn(*best)
        return Discriminant(own, factor / len(task.folds), gaussians)

    calls = [
        partial(fit, own, seen, factor, best)
        for view, factor, (best, *_) in zip(views, factors[1:], judged, strict=True)
        for own, seen in zip(view.T, _join(features, view), strict=True)
    ]
    return replace(
        learned,
        choice=choice,
        without=without_each,
        models=[scaled(one, factors[0]) for one in learned.models],
        starts=[scaled(one, factors[0]) for one in learned.starts],
        discriminants=list(side_by_side(calls, n_workers)),
        message=message,
    )


def _join(features: Sequence[RealArray], view: Indices) -> list[RealArray]:
    """Features of the models of each fold side by side; `view` has a column of each."""
    return [np.concatenate([features[one] for one in own], axis=1) for own in view.T]


def _choose(
    features: Sequence[RealArray], learned: Learned, task: Task, n_workers: int
) -> tuple[Amounts, Choice, list[Choice]]:
    """Choose amounts by all folds, and without each."""
    codes, folds, learners = task.codes, task.folds, Memo()
    assert codes is not None

    def decide(amounts: Amounts, number: int) -> RealArray:
        (train, held), own = folds[number], features[number]
        fitted = learners.once(number, lambda: RDA(own[train], codes[train], task.weights[train]))
        return to_host(fitted.learn(*amounts).decide(own[held]))

    def judge(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        return -task.judge(np.concatenate(parts), np.concatenate(rows))

    held_out = HeldOut(decide, judge, folds, ([], []), nested=False, n_jobs=n_workers)

    def choice(amounts: Amounts) -> Choice:
        scores = np.concatenate(held_out.decisions([amounts] * len(folds)))
        return replace(learned.choice, scores=scores, shares=-held_out.shares(amounts))

    best = held_out.best(*_GRID)
    without = [held_out.best(*_GRID, without=number) for number in range(len(folds))]
    return best, choice(best), [choice(one) for one in without]
