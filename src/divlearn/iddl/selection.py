"""Which loss, penalty and features suit the data: decided by scores of data held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.engines import Engine
from divlearn.iddl.ensemble import Folds
from divlearn.iddl.features import FeatureMap
from divlearn.iddl.losses import Head
from divlearn.iddl.tangent import TangentBlock
from divlearn.iddl.training import Recipe, Start, Task

__all__ = ["Screened", "screen"]


@dataclass(frozen=True, eq=False)
class Screened:
    """What `screen` chose: the recipe, the loss of its held-out scores, and these by rows."""

    recipe: Recipe
    loss: float
    rows: NDArray[np.intp]
    scores: RealArray


def screen(
    engine: Engine, task: Task, make_start: Callable[[NDArray[np.intp]], Start],
    recipe: Recipe, gammas: Sequence[float], tangents: Sequence[int], folds: Folds,
    loss: Callable[[RealArray, NDArray[np.intp]], float],
) -> Screened:  # fmt: skip
    """Choose the penalty and the tangent block of a recipe, before anything is learned.

    Divergences to the first atoms are computed once; what differs are the heads.

    Parameters
    ----------
    engine, task, make_start, folds, loss : as in `divlearn.iddl.ensemble.train_ensemble`
    recipe : Recipe
    gammas : sequence of float
    tangents : sequence of int
        Numbers of components of the tangent block to try; 0 is none.

    Returns
    -------
    Screened
    """
    parts = [_Part(engine, task, make_start(rows), recipe, rows, held) for rows, held in folds]
    held = np.concatenate([part.held for part in parts])
    best = None
    for n_tangent in tangents:
        designs = [part.design(n_tangent) for part in parts]
        warm: list[Head | None] = [None] * len(parts)
        for gamma in sorted(gammas, reverse=True):  # each head starts from that of a larger one
            heads = [
                recipe.loss.solve(train, part.task.targets, part.task.weights, gamma, start).head
                for part, (train, _), start in zip(parts, designs, warm, strict=True)
            ]
            scores = [head.scores(test) for head, (_, test) in zip(heads, designs, strict=True)]
            found = loss(np.concatenate(scores), held)
            if best is None or found < best.loss:
                chosen = replace(recipe, gamma=gamma, n_tangent=n_tangent)
                best = Screened(chosen, found, held, np.concatenate(scores))
            warm = list(heads)
    assert best is not None
    return best


class _Part:
    """One fold: features of its training part and of what it holds out."""

    def __init__(
        self, engine: Engine, task: Task, start: Start, recipe: Recipe,
        rows: NDArray[np.intp], held: NDArray[np.intp],
    ) -> None:  # fmt: skip
        self.task, self.held = task.part(engine, rows), held
        self._unseen = task.X[held]
        alpha, beta = start.variant.expand(start.variant.start)
        V, W = (
            engine.encode(data, start.atoms, alpha, beta).reshape(data.n_matrices, -1)
            for data in (self.task.data, engine.prepare(self._unseen))
        )
        feature_map = FeatureMap.for_data(
            V, self.task.weights, logarithm=recipe.logarithm, standardize=recipe.standardize
        )
        seen = feature_map.compute(V, self.task.weights)
        self._features = seen.values, feature_map.compute(W, np.ones(len(W)), seen).values

    def design(self, n_tangent: int) -> tuple[RealArray, RealArray]:
        """Put together what heads see, in training and held out."""
        if not n_tangent:
            return self._features
        block = TangentBlock.fit(self.task.X, self.task.weights, n_tangent)
        seen, unseen = self._features
        return (
            np.concatenate([seen, block.compute(self.task.X)], axis=1),
            np.concatenate([unseen, block.compute(self._unseen)], axis=1),
        )
