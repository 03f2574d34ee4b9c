"""Gaussian discriminants of the features of IDDL models, beside their linear heads."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.fitting.held_out import Memo, in_turn
from divlearn.fitting.selection import HeldOut, Nest
from divlearn.heads.discriminants import RDA, NoSpreadError
from divlearn.iddl.learning import Choice, Learned, join_scores, scaled
from divlearn.iddl.tasks import Task
from divlearn.iddl.training import Discriminant, count_workers


class _Amounts(NamedTuple):
    """How far covariances of classes are pooled, and shrunk to a multiple of the identity."""

    pool: float
    shrink: float


_GRID = in_turn([_Amounts(*one) for one in product((0.1, 0.5, 0.9), (0.003, 0.01, 0.03, 0.1, 0.3))])


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
    discriminants = [
        Discriminant(
            own,
            factor / len(task.folds),
            RDA(seen, codes, task.weights).learn(**best._asdict()),
        )
        for view, factor, (best, *_) in zip(views, factors[1:], judged, strict=True)
        for own, seen in zip(view.T, _join(features, view), strict=True)
    ]
    return replace(
        learned,
        choice=choice,
        without=without_each,
        models=[scaled(one, factors[0]) for one in learned.models],
        starts=[scaled(one, factors[0]) for one in learned.starts],
        discriminants=discriminants,
        message=message,
    )


def _join(features: Sequence[RealArray], view: Indices) -> list[RealArray]:
    """Features of the models of each fold side by side; `view` has a column of each."""
    return [np.concatenate([features[one] for one in own], axis=1) for own in view.T]


def _choose(
    features: Sequence[RealArray], learned: Learned, task: Task, n_workers: int
) -> tuple[_Amounts, Choice, list[Choice]]:
    """Choose amounts by all folds, and without each."""
    codes, folds, learners = task.codes, task.folds, Memo()
    assert codes is not None

    def decide(amounts: _Amounts, number: int) -> RealArray:
        (train, held), own = folds[number], features[number]
        fitted = learners.once(number, lambda: RDA(own[train], codes[train], task.weights[train]))
        return to_host(fitted.learn(**amounts._asdict()).decide(own[held]))

    def judge(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        return -task.judge(np.concatenate(parts), np.concatenate(rows))

    none = Nest([], [[] for _ in folds])
    held_out = HeldOut(decide, judge, folds, none, nested=False, n_jobs=n_workers)

    def choice(amounts: _Amounts) -> Choice:
        scores = np.concatenate(held_out.decisions([amounts] * len(folds)))
        return replace(learned.choice, scores=scores, shares=-held_out.shares(amounts))

    best = held_out.best(*_GRID)
    without = [held_out.best(*_GRID, without=number) for number in range(len(folds))]
    return best, choice(best), [choice(one) for one in without]
