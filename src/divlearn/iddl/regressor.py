"""IDDL as a regressor."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin

from divlearn.arrays import RealArray
from divlearn.fitting.checkpoint import checkpointed, draw_seed
from divlearn.fitting.folds import check_groups, make_folds
from divlearn.fitting.labelled import all_or_nothing
from divlearn.fitting.targets import check_numbers
from divlearn.iddl.base import IDDLBase
from divlearn.iddl.goals import numbers_goal
from divlearn.sharded.opening import is_sharded
from divlearn.sharded.scoring import ScoreMixin
from divlearn.spd import check_spd
from divlearn.weights import check_weights

__all__ = ["IDDLRegressor"]


class IDDLRegressor(ScoreMixin, MultiOutputMixin, RegressorMixin, IDDLBase):  # type: ignore[misc]
    r"""Predict numbers from divergences to atoms, all learned together.

    As `IDDLClassifier`, with half the squared error of one or several outputs, each divided by its
    standard deviation.

    Parameters
    ----------
    n_atoms : int or "auto"
        "auto" is 5.
    init : {"kmeans", "class-kmeans", "samples", "identity"} or array of atoms
        Without classes the first two are the same.
    divergence, gamma, features, solver, cv, max_iter, random_state, engine, verbose
        As in `IDDLClassifier`.

    Attributes
    ----------
    atoms_, alpha_, beta_, models_, recipe_, n_iter_, message_, history_, n_features_in_
        As in `IDDLClassifier`.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> regressor = IDDLRegressor(random_state=0).fit(X[::2], y[::2])
    >>> bool(regressor.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    @all_or_nothing
    def fit(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Learn atoms, divergences and head.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards as in `IDDLClassifier.fit`
        y : array-like, shape (n_matrices,) or (n_matrices, n_outputs)
        sample_weight : array-like, shape (n_matrices,), optional
        groups : array-like, shape (n_matrices,), optional
            What belongs together, as patches of one image do, and must not be split by a fold.

        Returns
        -------
        self
        """
        if is_sharded(X, self.engine):
            from divlearn.sharded.learning import fit_numbers

            fit_numbers(self, self._open_shards(X, y, sample_weight))
            return self
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        targets = check_numbers(y, len(matrices))
        weights = check_weights(sample_weight, len(matrices))
        known = check_groups(groups, len(matrices))
        kept = np.flatnonzero(weights)  # a weight of zero is no sample at all
        chosen = None if known is None else known[kept]
        X, weights = matrices[kept], weights[kept] / weights[kept].sum()
        columns = targets[kept].reshape(len(kept), -1)
        mean, scale = _units(columns, weights)
        with checkpointed(self, X=X, y=columns, weights=weights, groups=chosen):
            folds = make_folds(
                self._cv(), len(matrices), targets, known, kept=kept,
                random_state=draw_seed(self.random_state), classes=False,
            )  # fmt: skip
            self._fit(X, numbers_goal((columns - mean) / scale, weights, folds))
        self.single_, self.mean_, self.scale_ = targets.ndim == 1, mean, scale
        return self

    def predict(self, X: ArrayLike) -> RealArray:
        """Predict numbers.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices,) or (n_matrices, n_outputs)
        """
        numbers: RealArray = self._mean_scores(X) * self.scale_ + self.mean_
        return numbers[:, 0] if self.single_ else numbers


def _units(columns: RealArray, weights: RealArray) -> tuple[RealArray, RealArray]:
    """Means and deviations of columns; one where there is no deviation."""
    mean: RealArray = weights @ columns
    deviation = np.sqrt(weights @ (columns - mean) ** 2)
    return mean, np.where(deviation > 0, deviation, 1)
