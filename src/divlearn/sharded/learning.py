"""IDDL estimators on shards."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from divlearn.arrays import RealArray
from divlearn.checkpoint import stage
from divlearn.iddl.base import IDDLBase
from divlearn.iddl.learning import Learned
from divlearn.iddl.selection import Screened
from divlearn.iddl.training import Model, Start, run_solver
from divlearn.interrupts import Interrupts
from divlearn.sharded.blocks import Block
from divlearn.sharded.fingerprints import fingerprint_block
from divlearn.sharded.minibatches import ShardedBatches
from divlearn.sharded.objective import ShardedObjective, start_features
from divlearn.sharded.shards import SAMPLE, Parts, Shards
from divlearn.sharded.targets import class_targets, number_targets
from divlearn.threads import limit_blas

__all__ = ["fit_classes", "fit_numbers", "mean_scores"]


def fit_classes(estimator: Any, shards: Shards) -> None:
    """Fit a classifier."""
    estimator._check_parameters()
    _check_settings(estimator)
    classes, targets = class_targets(shards, estimator.class_weight)
    _fit(estimator, shards, targets, estimator.loss, classes)
    estimator.classes_, estimator.temperature_ = classes, 1.0
    estimator.oof_proba_ = np.zeros((0, len(classes)))


def fit_numbers(estimator: Any, shards: Shards) -> None:
    """Fit a regressor."""
    estimator._check_parameters()
    _check_settings(estimator)
    mean, scale, single, targets = number_targets(shards)
    _fit(estimator, shards, targets, "ridge", None)
    estimator.single_, estimator.mean_, estimator.scale_ = single, mean, scale


def mean_scores(models: list[Model], shards: Shards) -> RealArray:
    """Scores of all matrices, the mean of those of several models."""
    return np.concatenate(shards.map(_scores_block, models))


def _fit(estimator: Any, shards: Shards, targets: Parts, loss: str, classes: Any) -> None:
    found = estimator.checkpoint and shards.map(fingerprint_block)
    with limit_blas(1), estimator._checkpointed(X=found), Interrupts() as interrupts:
        learned = _learn(estimator, shards, targets, loss, classes)
    estimator._keep(learned)
    if interrupts.seen and "interrupted" not in estimator.message_:
        estimator.message_ += "; interrupted by the user"
    estimator.n_features_in_, estimator.n_samples_seen_ = shards.d, shards.n_seen


def _learn(estimator: Any, shards: Shards, targets: Parts, loss: str, classes: Any) -> Learned:
    seed = estimator._seed()
    n_groups = 1 if classes is None else len(classes)
    n_atoms = estimator._count_atoms(shards.n_seen, n_groups)
    recipe = estimator._recipe(loss, seed)
    start = stage("start", partial(_start, estimator, shards, classes, n_atoms, seed))
    feature_map = start_features(shards, targets, start, recipe)
    objective = ShardedObjective(shards, targets, start, recipe, feature_map)
    options: dict[str, Any] = {"batches": ShardedBatches} if recipe.solver == "stochastic" else {}

    def report(iteration: int, value: float) -> None:
        estimator._tell(2, f"iteration {iteration}: objective {value:.6g}")

    model, fit = run_solver(objective, start, recipe, feature_map, None, report, **options)
    estimator._tell(1, f"loss {recipe.loss.name}, gamma {recipe.gamma:g}: {fit.message}")
    nothing = Screened.nothing(recipe)
    return Learned(
        recipe, "linear", [model], fit.n_iter, fit.message, fit.history, nothing.rows,
        nothing.scores, nothing.loss,
    )  # fmt: skip


def _start(estimator: Any, shards: Shards, classes: Any, n_atoms: int, seed: int) -> Start:
    """Start from a sample of the data, or from all where there is little."""
    known = estimator.warm_start and hasattr(estimator, "models_")
    drawn = isinstance(estimator.init, str) and estimator.init != "identity" and not known
    X: RealArray = np.eye(shards.d)[None]
    codes = None
    if drawn:
        X, y, _ = shards.sample(SAMPLE, seed)
        codes = None if classes is None else np.searchsorted(classes, column_or_1d(y))
    start: Start = estimator._start(X, codes, n_atoms, seed)
    return start


def _check_settings(estimator: IDDLBase) -> None:
    """Raise where a setting needs folds, or all data in one place."""
    wrong = {
        "ensemble": (estimator.ensemble is not None, "None: there are no folds"),
        "loss": (estimator.loss == "auto" and hasattr(estimator, "class_weight"),
                 "given, not chosen by data held out"),
        "gamma": (isinstance(estimator.gamma, str), "given, not chosen by data held out"),
        "tangent": (estimator._has_tangent(), 'False or "auto", which is the same here'),
        "pairs": (isinstance(estimator.pairs, str) and estimator.pairs == "grid",
                  '"auto" or given, not chosen by data held out'),
        "solver": (estimator.solver == "bcd", '"joint" or "stochastic"'),
        "head": (estimator.head not in ("auto", "linear"), '"auto" or "linear"'),
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
