"""SPD matrices as rows of numbers, for tools of scikit-learn that take 2-D data only."""

from __future__ import annotations

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from divlearn.arrays import RealArray, as_real
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.spd import check_spd


def to_rows(X: ArrayLike) -> RealArray:
    r"""Upper triangles of :math:`\log X`, off-diagonal entries times :math:`\sqrt 2`, as rows.

    SPD matrices of shape (n_matrices, d, d) become rows of shape (n_matrices, d (d + 1) / 2).
    Every row of that length belongs to an SPD matrix, so that columns may be permuted or perturbed.

    Examples
    --------
    >>> import numpy as np
    >>> to_rows([np.diag([1.0, np.e])])
    array([[0., 0., 1.]])
    """
    return log_vectors(check_spd(X, ndim=3))


def from_rows(rows: ArrayLike) -> RealArray:
    """SPD matrices, shape (n_matrices, d, d), from the rows of `to_rows`.

    Examples
    --------
    >>> from_rows([[0.0, 0.0, 1.0]]).round(4)
    array([[[1.    , 0.    ],
            [0.    , 2.7183]]])
    """
    vectors = as_real(rows, "rows")
    d = int((2 * vectors.shape[-1]) ** 0.5)
    if vectors.ndim != 2 or d * (d + 1) != 2 * vectors.shape[1]:
        raise ValueError(
            f"rows has shape {vectors.shape}, must have (n_matrices, d (d + 1) / 2); pass all "
            "columns of to_rows(X)"
        )
    return from_log_vectors(vectors)


def vectorized(estimator: BaseEstimator) -> Pipeline:
    """Let an estimator of SPD matrices take the rows of `to_rows`.

    `BaggingClassifier`, `permutation_importance` and other tools refuse 3-D data. The first step of
    the returned pipeline turns rows into matrices.

    Examples
    --------
    >>> from sklearn.ensemble import BaggingClassifier
    >>> from sklearn.inspection import permutation_importance
    >>> from divlearn import DivergenceMDM, to_rows, vectorized
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> bagged = BaggingClassifier(vectorized(DivergenceMDM()), 3, random_state=0)
    >>> bagged.fit(to_rows(X[::2]), y[::2]).score(to_rows(X[1::2]), y[1::2])
    1.0
    >>> importance = permutation_importance(bagged, to_rows(X), y, n_repeats=2, random_state=0)
    >>> importance.importances_mean.shape  # one per entry of log X
    (10,)
    """
    matrices = FunctionTransformer(from_rows, to_rows, check_inverse=False)
    matrices.set_output(transform="default")  # matrices are no table, whatever is configured
    return make_pipeline(matrices, estimator)
