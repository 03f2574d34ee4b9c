"""Any regressor of matrices as a member of the committee."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from divlearn.arrays import RealArray
from divlearn.committee.wrapped import Wrapped
from divlearn.fitting.regression import HeldOutRegressor


class CrossValidatedRegressor(Wrapped, HeldOutRegressor[tuple[()]]):
    """A regressor of SPD matrices, with its held-out predictions.

    It is fitted to all data and to the training part of every fold. `SPDRegressor` wraps its users'
    regressors in this.

    Parameters
    ----------
    estimator : regressor or pipeline
        It takes matrices, shape (n_matrices, d, d), and has `predict`. Sample weights and groups
        are passed to it if its `fit` takes them.
    cv : int or splitter, default=4
    random_state : int, RandomState or None, default=None
        Shuffles the folds.
    n_jobs : int or None, default=1
        Threads that fit copies of the estimator, as in scikit-learn; None for all that
        ``OMP_NUM_THREADS`` allows.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    estimator_ : the estimator, fitted to all data.
    oof_prediction_ : ndarray, shape (n_matrices,), held-out predictions.
    held_out_r2_, held_out_mae_ : float, of these predictions.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.iddl import IDDLRegressor
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> own = IDDLRegressor(2, rank="full", max_iter=0, random_state=0)
    >>> model = CrossValidatedRegressor(own, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.8)
    True
    """

    def _check_parameters(self) -> None:
        if not (hasattr(self.estimator, "fit") and hasattr(self.estimator, "predict")):
            raise ValueError(f"{self.estimator!r} must have fit and predict; pass a regressor")

    def _answer(self, model: BaseEstimator, matrices: RealArray) -> RealArray:
        numbers: RealArray = np.asarray(model.predict(matrices), float).reshape(len(matrices))
        return (numbers - self.mean_) / self.scale_
