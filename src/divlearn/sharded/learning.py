"""IDDL estimators on shards."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.engines import cpu_engine
from divlearn.engines.dask import as_dask
from divlearn.fitting.checkpoint import checkpointed, draw_seed, stage
from divlearn.fitting.interrupts import Interrupts
from divlearn.fitting.labelled import Labelled
from divlearn.iddl.base import IDDLBase
from divlearn.iddl.ensemble import make_parts
from divlearn.iddl.goals import classes_goal
from divlearn.iddl.learning import Learned
from divlearn.iddl.losses import LOSSES, Loss, RidgeLoss
from divlearn.iddl.selection import Screened, screen
from divlearn.iddl.training import Model, Recipe, Start, Task, run_solver
from divlearn.iddl.variants import starts_from_grid
from divlearn.sharded.blocks import Block
from divlearn.sharded.fingerprints import fingerprint_block
from divlearn.sharded.heads import Targets
from divlearn.sharded.minibatches import ShardedBatches
from divlearn.sharded.objective import ShardedObjective, start_features
from divlearn.sharded.shards import SAMPLE, Parts, Shards, draw_rows
from divlearn.sharded.targets import class_targets, number_targets
from divlearn.threads import limit_blas

__all__ = ["fit_classes", "fit_numbers", "mean_scores"]


def fit_classes(estimator: Any, shards: Shards) -> None:
    """Fit a classifier."""
    estimator._check_parameters()
    _check_settings(estimator)
    classes, targets = class_targets(shards, estimator.class_weight)
    loss = estimator.loss if isinstance(estimator.loss, Loss) else LOSSES[estimator.loss]()
    learned, sample = _fit(estimator, shards, targets, loss, classes)
    assert sample is not None
    estimator.classes_ = classes
    estimator._calibrate(learned, sample)
    estimator.oof_proba_ = np.zeros((0, len(classes)))  # those of a sample are nobody's


def fit_numbers(estimator: Any, shards: Shards) -> None:
    """Fit a regressor."""
    estimator._check_parameters()
    _check_settings(estimator)
    mean, scale, single, targets = number_targets(shards)
    _fit(estimator, shards, targets, RidgeLoss(), None)
    estimator.single_, estimator.mean_, estimator.scale_ = single, mean, scale


def mean_scores(models: list[Model], shards: Shards) -> RealArray:
    """Scores of all matrices, the mean of those of several models."""
    return np.concatenate(shards.map(_scores_block, models))


def _fit(
    estimator: Any, shards: Shards, targets: Parts, loss: Loss, classes: NDArray[Any] | None
) -> tuple[Learned, Labelled | None]:
    """Fit, and return what was learned and the sample that was held out on the way."""
    n_seen = shards.reduce(_count_block, beside=[targets])
    marks = checkpointed(estimator, X=lambda: shards.map(fingerprint_block))
    with limit_blas(1), marks, Interrupts() as interrupts:
        learned, sample = _learn(estimator, shards, targets, n_seen, loss, classes)
    estimator._keep(learned)
    if interrupts.seen and "interrupted" not in estimator.message_:
        estimator.message_ += "; interrupted by the user"
    estimator.n_features_in_ = shards.d
    return learned, sample


def _learn(
    estimator: Any, shards: Shards, targets: Parts, n_seen: int, loss: Loss,
    classes: NDArray[Any] | None,
) -> tuple[Learned, Labelled | None]:  # fmt: skip
    # As for data in memory.
    fold_seed, seed = draw_seed(estimator.random_state), draw_seed(estimator.random_state)
    recipe = estimator._recipe(loss, seed)
    n_atoms = estimator._count_atoms(n_seen, 1 if classes is None else len(classes))
    X: RealArray = np.eye(shards.d)[None]
    sample, codes, screened = None, None, Screened.nothing(recipe)
    if classes is not None or _draws_start(estimator):
        X, wanted, weights = _sample(shards, targets, n_seen, seed)
    if classes is not None:
        codes, rows = wanted.argmax(axis=1), np.arange(len(X))
        sample = Labelled(X, codes, classes, weights, rows, classes[codes])
        judge = partial(_screen, estimator, sample, wanted, recipe, n_atoms, fold_seed, seed)
        screened = stage("screen", judge)
    start = stage("start", partial(estimator._start, X, codes, n_atoms, seed))
    feature_map = start_features(shards, targets, start, recipe)
    objective = ShardedObjective(shards, targets, start, recipe, feature_map)
    options: dict[str, Any] = {"batches": ShardedBatches} if recipe.solver == "stochastic" else {}

    def report(iteration: int, value: float) -> None:
        estimator._tell(2, f"iteration {iteration}: objective {value:.6g}")

    model, fit = run_solver(objective, start, recipe, feature_map, None, report, **options)
    estimator._tell(1, f"loss {recipe.loss.name}, gamma {recipe.gamma:g}: {fit.message}")
    learned = Learned(
        recipe, [model], fit.n_iter, fit.message, fit.history, screened.rows,
        screened.scores, screened.loss,
    )  # fmt: skip
    return learned, sample


def _draws_start(estimator: Any) -> bool:
    """Whether atoms start from matrices of the data."""
    return isinstance(estimator.init, str) and estimator.init != "identity"


def _screen(
    estimator: Any, sample: Labelled, wanted: RealArray, recipe: Recipe, n_atoms: int,
    fold_seed: int, seed: int,
) -> Screened:  # fmt: skip
    """Score a sample by heads that have not seen it, to calibrate by.

    As for data in memory, with the same folds where the sample is all there is.
    """
    X, codes, weights = sample.matrices, sample.codes, sample.weights / sample.weights.sum()
    folds = sample.folds(estimator._cv(), fold_seed)
    if not folds:
        return Screened.nothing(recipe)

    def make_start(rows: NDArray[np.intp]) -> Start:
        start: Start = estimator._start(X[rows], codes[rows], n_atoms, seed)
        return start

    engine = estimator._engine() if as_dask(estimator.engine) is None else cpu_engine()
    parts = make_parts(engine, Task(X, engine.keep(X), wanted, weights), make_start, folds)
    loss = classes_goal(codes, weights, folds).loss
    return screen(engine, parts, [recipe], [recipe.gamma], [0], loss)[0]


def _sample(
    shards: Shards, targets: Parts, n_seen: int, seed: int
) -> tuple[RealArray, RealArray, RealArray]:
    """Draw matrices with a weight, their targets and weights; all in their order if few."""
    parts = shards.map(_draw_block, min(1.0, SAMPLE / n_seen), seed, beside=[targets])
    X, wanted, weights = map(np.concatenate, zip(*parts, strict=True))
    return X, wanted, weights


def _draw_block(
    block: Block, targets: Targets, share: float, seed: int
) -> tuple[RealArray, RealArray, RealArray]:
    wanted, weights = targets
    rows = draw_rows(block, weights, share, seed)
    return block.data.matrices[rows], wanted[rows], weights[rows]


def _count_block(block: Block, targets: Targets) -> int:
    return int(np.count_nonzero(targets[1]))


def _check_settings(estimator: IDDLBase) -> None:
    """Raise where a setting needs folds, or all data in one place."""
    wrong = {
        "cv": (estimator.cv is not None, "None: there are no folds"),
        "loss": (estimator.loss == "auto" and hasattr(estimator, "class_weight"),
                 "given: nothing is held out to choose it by"),
        "gamma": (isinstance(estimator.gamma, str), "given: nothing is held out to choose it by"),
        "features": (estimator.features == "log+tangent",
                     '"log", "plain" or "auto", which is "log" here'),
        "divergence": (starts_from_grid(estimator.divergence),
                       '"learn", fixed, or pairs: nothing is held out to search a grid by'),
        "solver": (estimator.solver.startswith("bcd"), '"joint" or "stochastic"'),
    }  # fmt: skip
    for name, (bad, rule) in wrong.items():
        if bad:
            value = getattr(estimator, name)
            raise ValueError(
                f"{name}={value!r} must be {rule} for data in shards; set {name}, or pass an array "
                "that fits in memory"
            )


def _scores_block(block: Block, models: list[Model]) -> RealArray:
    matrices = block.data.matrices
    scores = [model.scores(block.engine, matrices, block.data) for model in models]
    mean: RealArray = np.mean(scores, axis=0)
    return mean
