"""IDDL as a regressor."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _num_samples

from divlearn.arrays import RealArray
from divlearn.folds import check_groups, make_folds
from divlearn.iddl.goals import numbers_goal
from divlearn.iddl.streaming import StreamingBase
from divlearn.labelled import all_or_nothing
from divlearn.sharded.opening import is_sharded
from divlearn.sharded.scoring import ScoreMixin
from divlearn.targets import check_numbers
from divlearn.weights import check_weights

__all__ = ["IDDLRegressor"]


class IDDLRegressor(ScoreMixin, MultiOutputMixin, RegressorMixin, StreamingBase):  # type: ignore[misc]
    r"""Predict numbers from divergences to atoms, all learned together.

    As `IDDLClassifier`, with half the squared error of one or several outputs, each divided by its
    standard deviation.

    Parameters
    ----------
    n_atoms : int or "auto"
        "auto" is 5.
    loss : {"auto", "ridge"}
        Both are the squared error.
    init : {"kmeans", "class-kmeans", "samples", "identity"} or array of atoms
        Without classes the first two are the same.
    variant, pairs, gamma, logarithm, standardize, tangent, bias, margin, solver, learn_atoms,
    learn_parameters, max_iter, tol, ensemble, warm_start, random_state, engine, verbose,
    checkpoint
        As in `IDDLClassifier`.
    head : {"auto", "linear"}
        Both are the head that is learned with the atoms.

    Attributes
    ----------
    atoms_, alpha_, beta_, models_, recipe_, n_iter_, message_, history_, n_features_in_,
    n_samples_seen_
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

            self._check_kind()
            fit_numbers(self, self._open_shards(X, y, sample_weight))
            return self
        matrices, targets, weights, kept = self._check_numbers(X, y, sample_weight, reset=True)
        weights = weights / weights.sum()
        columns = targets.reshape(len(targets), -1)
        mean, scale = _units(columns, weights)
        known = check_groups(groups, _num_samples(X))
        chosen = None if known is None else known[kept]
        with self._checkpointed(X=matrices, y=targets, weights=weights, groups=chosen):
            folds = make_folds(
                self._cv(), _num_samples(X), np.asarray(y), known, kept=kept,
                random_state=self._seed(), name="ensemble", classes=False,
            )  # fmt: skip
            self._fit(matrices, numbers_goal((columns - mean) / scale, weights, folds))
        self.single_, self.mean_, self.scale_ = targets.ndim == 1, mean, scale
        return self

    @all_or_nothing
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from a batch of a stream, as `IDDLClassifier.partial_fit` does.

        Means and deviations of the outputs in the first batch are the units of their errors.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
        y : array-like, shape (n_matrices,) or (n_matrices, n_outputs)
        sample_weight : array-like, shape (n_matrices,), optional

        Returns
        -------
        self

        Examples
        --------
        >>> from divlearn.datasets import make_wishart_clusters
        >>> X, _ = make_wishart_clusters(1, 500, 3, random_state=0)
        >>> y = np.linalg.slogdet(X)[1]
        >>> regressor = IDDLRegressor(random_state=0)
        >>> for start in range(0, 400, 100):
        ...     batch = slice(start, start + 100)
        ...     regressor = regressor.partial_fit(X[batch], y[batch])
        >>> bool(regressor.score(X[400:], y[400:]) > 0.9)
        True
        """
        matrices, targets, weights, _ = self._check_numbers(
            X, y, sample_weight, reset=not hasattr(self, "models_")
        )
        columns, single = targets.reshape(len(targets), -1), targets.ndim == 1
        if not hasattr(self, "mean_"):
            mean, scale = _units(columns, weights / weights.sum())
        else:
            mean, scale = self.mean_, self.scale_
            if single != self.single_ or columns.shape[1] != len(mean):
                raise ValueError(
                    f"y has shape {targets.shape}, must have {len(mean)} outputs "
                    f"{'in one dimension' if self.single_ else 'in two dimensions'}, as before"
                )
        self._partial_fit(matrices, (columns - mean) / scale, weights, "ridge")
        self.single_, self.mean_, self.scale_ = single, mean, scale
        return self

    def _check_numbers(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[RealArray, RealArray, RealArray, NDArray[np.intp]]:
        """Matrices, targets and weights other than zero, and where these are."""
        self._check_kind()
        matrices = self._check_matrices(X, reset=reset)
        targets = check_numbers(y, len(matrices))
        weights = check_weights(sample_weight, len(matrices))
        kept = np.flatnonzero(weights)  # a weight of zero is no sample at all
        return matrices[kept], targets[kept], weights[kept], kept

    def _check_kind(self) -> None:
        if self.loss not in ("auto", "ridge"):
            raise ValueError(f'loss={self.loss!r} must be "auto" or "ridge" for numbers')
        if self.head not in ("auto", "linear"):
            raise ValueError(f'head={self.head!r} must be "auto" or "linear" for numbers')

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
