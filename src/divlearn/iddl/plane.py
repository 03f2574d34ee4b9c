"""Where divergences start: the point of a grid of the (alpha, beta) plane that does best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, to_host
from divlearn.engines import Engine, Prepared
from divlearn.iddl.ensemble import Part
from divlearn.iddl.features import FeatureMap
from divlearn.iddl.training import Recipe

__all__ = ["search_plane"]

_VALUES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)


def search_plane(
    engine: Engine, parts: Sequence[Part], recipe: Recipe, *, tied: bool,
    loss: Callable[[RealArray, NDArray[np.intp]], float],
) -> tuple[float, float]:  # fmt: skip
    """Find the point whose divergences to the first atoms, with a head, do best on data held out.

    One pass of spectra serves all points.

    Parameters
    ----------
    engine : Engine
    parts : sequence of Part
    recipe : Recipe
        Its loss, penalty and features are those of the heads.
    tied : bool
        Whether alpha = beta, and then not zero.
    loss : callable, as in `divlearn.iddl.ensemble.train_ensemble`

    Returns
    -------
    (alpha, beta)
    """
    points = list(product(_VALUES, _VALUES))
    if tied:
        # f(t; a, a) is even in a: what starts at the origin would stay there.
        points = [(a, b) for a, b in points if a == b > 0]
    held = np.concatenate([part.held for part in parts])
    seen = [_encode(engine, part.task.data, part.start.atoms, points) for part in parts]
    unseen = [_encode(engine, part.data, part.start.atoms, points) for part in parts]

    def judge(index: int) -> float:
        scores = [
            _scores(part, recipe, V[..., index], W[..., index])
            for part, V, W in zip(parts, seen, unseen, strict=True)
        ]
        return loss(np.concatenate(scores), held)

    return points[int(np.argmin([judge(index) for index in range(len(points))]))]


def _encode(
    engine: Engine, data: Prepared, atoms: RealArray, points: Sequence[tuple[float, float]]
) -> RealArray:
    alpha, beta = np.array(points).T
    shape = len(atoms), len(points)
    return engine.encode(data, atoms, np.broadcast_to(alpha, shape), np.broadcast_to(beta, shape))


def _scores(part: Part, recipe: Recipe, V: RealArray, W: RealArray) -> RealArray:
    """Scores of what is held out, W, by a head of what is seen, V."""
    weights = part.task.weights
    feature_map = FeatureMap.for_data(
        V, weights, logarithm=recipe.logarithm, standardize=recipe.standardize
    )
    features = feature_map.compute(V, weights)
    loss = recipe.loss.roughly()
    head = loss.best_head(features.values, part.task.targets, weights, recipe.gamma)
    return to_host(head.scores(feature_map.compute(W, np.ones(len(W)), features).values))
