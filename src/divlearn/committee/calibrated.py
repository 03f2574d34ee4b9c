"""Any classifier of matrices as a member of the committee."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from divlearn.arrays import RealArray
from divlearn.committee.wrapped import Wrapped
from divlearn.fitting.training import HeldOutClassifier

_LEAST = 1e-12  # of a probability


class CalibratedClassifier(Wrapped, HeldOutClassifier[tuple[()]]):
    """A classifier of SPD matrices, with probabilities that are calibrated on held-out data.

    It is fitted to all data, to the training part of every fold, and to parts without two folds,
    which calibrate held-out probabilities. `SPDClassifier` wraps its users' classifiers in this.

    Parameters
    ----------
    estimator : classifier or pipeline
        It takes matrices, shape (n_matrices, d, d), and has `predict_proba` or `decision_function`.
        Sample weights and groups are passed to it if its `fit` takes them.
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
    classes_ : ndarray, shape (n_classes,)
    oof_proba_ : ndarray, shape (n_matrices, n_classes), held-out probabilities.
    held_out_accuracy_ : float, of these probabilities.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.nearest import DivergenceKNN
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = CalibratedClassifier(DivergenceKNN(5), random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    """

    def _check_parameters(self) -> None:
        known = [hasattr(self.estimator, name) for name in ("predict_proba", "decision_function")]
        if not hasattr(self.estimator, "fit") or not any(known):
            raise ValueError(
                f"{self.estimator!r} must have fit, and predict_proba or decision_function; pass a "
                "classifier that has"
            )

    def _answer(self, model: BaseEstimator, matrices: RealArray) -> RealArray:
        if hasattr(model, "predict_proba"):
            return np.log(np.maximum(model.predict_proba(matrices), _LEAST))
        decisions = np.asarray(model.decision_function(matrices))
        return np.stack([-decisions, decisions], axis=1) / 2 if decisions.ndim == 1 else decisions
