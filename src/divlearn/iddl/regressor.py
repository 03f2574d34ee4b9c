"""IDDL as a regressor."""

from typing import Annotated, Self

from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin

from divlearn.arrays import RealArray
from divlearn.fitting.checkpoint import checkpointed, draw_seed
from divlearn.fitting.labelled import fit_method, takes_metric
from divlearn.iddl.base import IDDLBase, ScoreMixin
from divlearn.iddl.tasks import numbers_task
from divlearn.sharded.blocks import fingerprint_block
from divlearn.sharded.opening import open_training
from divlearn.tolerances import LEARNING_ACCURACY


@takes_metric
class IDDLRegressor(ScoreMixin, MultiOutputMixin, RegressorMixin, IDDLBase):  # type: ignore[misc]
    r"""Predict numbers from divergences to atoms, all learned together.

    Like `IDDLClassifier`, with half the squared error of one or several outputs as the loss. Each
    output is divided by its standard deviation.

    Parameters
    ----------
    n_atoms : int or "auto"
        "auto" is 3, fewer for fewer than 15 matrices.
    divergence, rank, recipe, cv, max_iter, random_state, engine, verbose, regularize
        As in `IDDLClassifier`.

    Attributes
    ----------
    atoms_, alpha_, beta_, models_, starts_, loss_, penalty_, n_iter_, message_, history_,
    n_features_in_
        As in `IDDLClassifier`.

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
        self._check_parameters(in_memory=shards.whole is not None)
        with checkpointed(self, X=lambda: shards.map(fingerprint_block), groups=groups):
            seeds = draw_seed(self.random_state), draw_seed(self.random_state)
            task, mean, scale, single = numbers_task(shards, groups, self._cv(), self.engine, seeds)
            self._fit(task, seeds[1])
        self.single_, self.mean_, self.scale_ = single, mean, scale
        return self

    def predict(self, X: ArrayLike) -> RealArray:
        """Predict numbers, shape (n_matrices,) or (n_matrices, n_outputs)."""
        numbers: RealArray = self._mean_scores(X) * self.scale_ + self.mean_
        return numbers[:, 0] if self.single_ else numbers
