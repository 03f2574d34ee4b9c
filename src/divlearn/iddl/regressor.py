"""IDDL as a regressor."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin

from divlearn.arrays import RealArray
from divlearn.fitting.checkpoint import checkpointed, draw_seed
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import fit_method, takes_metric
from divlearn.fitting.regression import Numbered, NumberedTraining, number
from divlearn.fitting.selection import average_held_out
from divlearn.fitting.targets import check_numbers
from divlearn.iddl.base import IDDLBase, ScoreMixin
from divlearn.iddl.tasks import numbered_task, sharded_numbers_task
from divlearn.sharded.blocks import block_in_memory, fingerprint_block
from divlearn.sharded.opening import open_training
from divlearn.sharded.shards import MemoryShards, Shards
from divlearn.tolerances import LEARNING_ACCURACY


@takes_metric
class IDDLRegressor(ScoreMixin, MultiOutputMixin, RegressorMixin, IDDLBase):  # type: ignore[misc]
    r"""Predict numbers from divergences to atoms, all learned together.

    Like `IDDLClassifier`, with half the squared error of one or several outputs as the loss. Each
    output is divided by its standard deviation.

    Parameters
    ----------
    n_atoms : int or "auto"
        "auto" is 48, fewer for fewer than 144 matrices.
    divergence, rank, recipe, cv, max_iter, random_state, engine, verbose, regularize
        As in `IDDLClassifier`.

    Attributes
    ----------
    atoms_, alpha_, beta_, models_, starts_, loss_, penalty_, n_iter_, message_, history_,
    n_features_in_
        As in `IDDLClassifier`.
    oof_prediction_ : ndarray, shape of y
        Predictions of the training matrices by models that have not seen them, with all choices
        for a fold made on the other folds; see ``oof_proba_`` of `IDDLClassifier`.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> import numpy as np
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> regressor = IDDLRegressor(random_state=0).fit(X[::2], y[::2])
    >>> bool(regressor.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    mean_: Annotated[RealArray, "n_outputs"]
    scale_: Annotated[RealArray, "n_outputs"]
    single_: bool
    oof_prediction_: RealArray
    _optimistic_prediction: RealArray

    @fit_method
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Learn atoms, divergences and head.

        As `IDDLClassifier.fit`, with numbers for y, shape (n_matrices,) or (n_matrices, n_outputs).
        """
        shards = open_training(self, X, y, sample_weight, accuracy=LEARNING_ACCURACY)
        block = shards.whole
        self._check_parameters(in_memory=block is not None)
        with checkpointed(self, X=lambda: shards.map(fingerprint_block), groups=groups):
            seeds = draw_seed(self.random_state), draw_seed(self.random_state)
            if block is not None:
                numbers = check_numbers(block.y, len(block))
                data = number(block.matrices, numbers, block.weights, groups)
                here = MemoryShards(block.only(data.kept))
                self._fit_numbered(here, data, data.folds(self._cv(), seeds[0]), seeds[1])
            else:
                task, mean, scale, self.single_ = sharded_numbers_task(
                    shards, groups, self._cv(), self.engine, seeds
                )
                self._fit(task, seeds[1])
                self.mean_, self.scale_ = mean, scale
                self.oof_prediction_ = np.zeros(0)  # of a sample: nobody's
        return self

    def fit_training(self, training: NumberedTraining) -> Self:
        """Fit to data that was checked."""
        self._check_parameters()
        data = training.data
        block = block_in_memory(training.engine, data.matrices, None, np.ones(len(data.matrices)))
        seed = draw_seed(self.random_state)
        self._fit_numbered(MemoryShards(block), data, training.folds, seed)
        return self

    def _fit_numbered(self, shards: Shards, data: Numbered, folds: Folds, seed: int) -> None:
        task = numbered_task(shards, data, folds)
        learned = self._fit(task, seed)
        self.single_ = data.y.ndim == 1
        self.mean_, self.scale_ = np.atleast_1d(data.mean), np.atleast_1d(data.scale)
        n = len(data.matrices)
        self.oof_prediction_ = self._optimistic_prediction = np.full(data.y.shape, np.nan)
        if not len(learned.choice.rows):
            return
        ends = np.cumsum([len(held) for _, held in folds])[:-1]
        own = [np.split(one.scores, ends)[number] for number, one in enumerate(learned.without)]
        rows, said = average_held_out(own, folds, n)
        self.oof_prediction_ = data.spread(rows, self._restore(said))
        _, final = average_held_out(np.split(learned.choice.scores, ends), folds, n)
        self._optimistic_prediction = data.spread(rows, self._restore(final))

    def _restore(self, scores: RealArray) -> RealArray:
        numbers: RealArray = scores * self.scale_ + self.mean_
        return numbers[:, 0] if self.single_ else numbers

    def predict(self, X: ArrayLike) -> RealArray:
        """Predict numbers, shape (n_matrices,) or (n_matrices, n_outputs)."""
        return self._restore(self._scores(X))
