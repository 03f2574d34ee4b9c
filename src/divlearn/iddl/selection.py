"""Which loss, penalty and features suit the data: decided by scores of data held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, beside, to_host
from divlearn.engines import Engine
from divlearn.iddl.ensemble import Part
from divlearn.iddl.features import FeatureMap
from divlearn.iddl.losses import Head
from divlearn.iddl.tangent import TangentBlock
from divlearn.iddl.training import Recipe

__all__ = ["Screened", "screen"]

_Pair = tuple[RealArray, RealArray]


@dataclass(frozen=True, eq=False)
class Screened:
    """What `screen` chose: the recipe, the loss of its held-out scores, and these by rows."""

    recipe: Recipe
    loss: float
    rows: NDArray[np.intp]
    scores: RealArray

    @classmethod
    def nothing(cls, recipe: Recipe) -> Screened:
        """Take a recipe as it is, where there are too few matrices to hold some out."""
        return cls(recipe, np.inf, np.zeros(0, dtype=np.intp), np.zeros((0, 1)))


def screen(
    engine: Engine, parts: Sequence[Part], recipes: Sequence[Recipe], gammas: Sequence[float],
    tangents: Sequence[int], loss: Callable[[RealArray, NDArray[np.intp]], float],
) -> list[Screened]:  # fmt: skip
    """Choose the penalty and the tangent block of recipes, before anything is learned.

    Divergences to the first atoms and tangent blocks are computed once; what differs are the heads.

    Parameters
    ----------
    engine, parts, loss : as in `divlearn.iddl.ensemble.train_ensemble`
    recipes : sequence of Recipe
        With the same features, and losses of their own.
    gammas : sequence of float
    tangents : sequence of int
        Numbers of components of the tangent block to try; 0 is none.

    Returns
    -------
    list of Screened, one for each recipe.
    """
    features = [_features(engine, part, recipes[0]) for part in parts]
    best: list[Screened | None] = [None] * len(recipes)
    for n_tangent in tangents:
        designs = [_design(*pair, n_tangent) for pair in zip(parts, features, strict=True)]
        for index, recipe in enumerate(recipes):
            for found in _along(parts, designs, recipe, gammas, n_tangent, loss):
                before = best[index]
                if before is None or found.loss < before.loss:
                    best[index] = found
    return [found for found in best if found is not None]


def _along(
    parts: Sequence[Part], designs: Sequence[_Pair], recipe: Recipe, gammas: Sequence[float],
    n_tangent: int, loss: Callable[[RealArray, NDArray[np.intp]], float],
) -> Iterator[Screened]:  # fmt: skip
    """Try penalties, the largest first: each head starts from that of a larger one."""
    held = np.concatenate([part.held for part in parts])
    heads: list[Head | None] = [None] * len(parts)
    judge = recipe.loss.roughly()
    for gamma in sorted(gammas, reverse=True):
        solved = [
            judge.best_head(seen, part.task.targets, part.task.weights, gamma, warm)
            for part, (seen, _), warm in zip(parts, designs, heads, strict=True)
        ]
        scores = np.concatenate(
            [
                to_host(head.scores(unseen))
                for head, (_, unseen) in zip(solved, designs, strict=True)
            ]
        )
        chosen = replace(recipe, gamma=gamma, n_tangent=n_tangent)
        yield Screened(chosen, loss(scores, held), held, scores)
        heads = list(solved)


def _features(engine: Engine, part: Part, recipe: Recipe) -> _Pair:
    """Features of the training part of a fold, and of what it holds out."""
    weights, start = part.task.weights, part.start
    alpha, beta = start.variant.expand(start.variant.start)
    V, W = (
        engine.encode(data, start.atoms, alpha, beta).reshape(data.n_matrices, -1)
        for data in (part.task.data, part.data)
    )
    feature_map = FeatureMap.for_data(
        V, weights, logarithm=recipe.logarithm, standardize=recipe.standardize
    )
    seen = feature_map.compute(V, weights)
    return seen.values, feature_map.compute(W, np.ones(len(W)), seen).values


def _design(part: Part, features: _Pair, n_tangent: int) -> _Pair:
    """Put together what heads see, in training and held out."""
    if not n_tangent:
        return features
    block = TangentBlock.fit(part.task.X, part.task.weights, n_tangent)
    seen, unseen = features
    return (
        np.concatenate([seen, beside(block.compute(part.task.X), seen)], axis=1),
        np.concatenate([unseen, beside(block.compute(part.X), unseen)], axis=1),
    )
