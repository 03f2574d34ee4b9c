"""Classifiers on tangent vectors at the mean, with what they say of data held out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.fitting.folds import Folds
from divlearn.geometry import invsqrtm
from divlearn.kernels.coupling import Coupling, fit_coupling
from divlearn.log_vectors import log_vectors
from divlearn.means import mean_abld

__all__ = ["TangentClassifier", "TangentVectors"]


class TangentVectors(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Vectors of the tangent space at the mean of the training matrices, or at the identity.

    :math:`\log(G^{-1/2} X G^{-1/2})`, its entries above the diagonal times :math:`\sqrt 2`, all
    divided by one number: lengths keep the proportions they have in the metric, and the variances
    of all entries add up to one, so that the same penalties suit all data.

    Parameters
    ----------
    at : {"mean", "identity"}, default="mean"
        G: the affine-invariant mean, or the identity, where differences of vectors have the lengths
        of the log-Euclidean metric.

    Examples
    --------
    >>> TangentVectors().fit_transform(np.stack([np.eye(2), 4 * np.eye(2)])).shape
    (2, 3)
    """

    def __init__(self, at: str = "mean") -> None:
        self.at = at

    def fit(self, X: RealArray, y: Any = None) -> Self:
        """Find the mean."""
        base: RealArray = np.eye(X.shape[-1])
        if self.at == "mean":
            base = mean_abld(X, 0.0, 0.0, tol=1e-6).mean
        self.whitener_ = invsqrtm(base)
        deviation = float(np.sqrt(log_vectors(X, self.whitener_).var(axis=0).sum()))
        self.deviation_ = deviation if deviation > 0 else 1.0
        return self

    def transform(self, X: RealArray) -> RealArray:
        """Compute vectors, shape (n_matrices, d (d + 1) / 2)."""
        check_is_fitted(self)
        return log_vectors(X, self.whitener_) / self.deviation_


_MODELS: dict[str, tuple[Any, dict[str, list[Any]]]] = {
    "logistic": (LogisticRegression(max_iter=1000), {"C": [1.0, 10.0, 100.0, 1000.0]}),
    "rbf": (
        SVC(decision_function_shape="ovo"),
        {"C": [1.0, 10.0, 100.0], "gamma": [0.1, 0.3, 1.0, 3.0]},
    ),
    "lda": (LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"), {}),
}


class TangentClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of tangent vectors, its parameters chosen by the log-loss of data held out.

    Parameters
    ----------
    model : {"logistic", "rbf", "lda"}
        Logistic regression, a support vector machine with a Gaussian kernel, or linear
        discriminant analysis with the shrinkage of Ledoit and Wolf.
    folds : sequence of (train, held out)
    at : {"mean", "identity"}, default="mean"
        Where the tangent space is; see `TangentVectors`.

    Attributes
    ----------
    oof_proba_ : ndarray, shape (n_matrices, n_classes)
        Probabilities of every matrix by a model that has not seen it.
    best_params_ : dict
    """

    def __init__(self, model: str, folds: Folds, at: str = "mean") -> None:
        self.model = model
        self.folds = folds
        self.at = at

    def fit(self, X: RealArray, y: NDArray[np.intp], sample_weight: RealArray) -> Self:
        """Choose, and fit on everything.

        Parameters
        ----------
        X : ndarray, shape (n_matrices, d, d)
        y : ndarray of int, shape (n_matrices,), 0 to n_classes - 1.
        sample_weight : ndarray, shape (n_matrices,)
        """
        n_classes = int(y.max()) + 1
        parts = [_vectors(X, rows, held, self.at) for rows, held in self.folds]
        best = None
        for chosen, decisions in self._candidates(parts, y, sample_weight):
            held = np.concatenate([held for _, held in self.folds])
            coupling = self._couple(decisions, y[held], n_classes, sample_weight[held])
            logarithms = _log_probabilities(coupling, decisions)
            true = logarithms[np.arange(len(held)), y[held]]
            loss = -float(np.average(np.maximum(true, np.log(1e-4)), weights=sample_weight[held]))
            if best is None or loss < best[0]:
                best = loss, chosen, coupling, logarithms
        assert best is not None
        _, self.best_params_, self.coupling_, logarithms = best
        self.oof_proba_ = np.full((len(X), n_classes), np.nan)
        self.oof_proba_[held] = np.exp(logarithms)
        self.vectors_ = TangentVectors(self.at).fit(X)
        self.model_ = self._fit_one(self.vectors_.transform(X), y, sample_weight, self.best_params_)
        self.classes_ = np.arange(n_classes)
        return self

    def predict_proba(self, X: RealArray) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes)."""
        decisions = _decide(self.model_, self.vectors_.transform(X))
        result: RealArray = np.exp(_log_probabilities(self.coupling_, decisions))
        return result

    def _candidates(
        self, parts: list[tuple[RealArray, RealArray]], y: NDArray[np.intp], weights: RealArray
    ) -> Iterator[tuple[dict[str, Any], RealArray]]:
        for chosen in ParameterGrid(_MODELS[self.model][1]):
            fitted = (
                self._fit_one(seen, y[rows], weights[rows], chosen)
                for (seen, _), (rows, _) in zip(parts, self.folds, strict=True)
            )
            decisions = [
                _decide(model, held) for model, (_, held) in zip(fitted, parts, strict=True)
            ]
            yield chosen, np.concatenate(decisions)

    def _fit_one(
        self, vectors: RealArray, y: NDArray[np.intp], weights: RealArray, chosen: dict[str, Any]
    ) -> Any:
        model = clone(_MODELS[self.model][0]).set_params(**chosen)
        if self.model == "lda":  # which takes no weights of samples
            shares = np.bincount(y, weights)
            return model.set_params(priors=shares / shares.sum()).fit(vectors, y)
        return model.fit(vectors, y, weights)

    def _couple(
        self, decisions: RealArray, codes: NDArray[np.intp], n_classes: int, weights: RealArray
    ) -> Coupling | None:
        return fit_coupling(decisions, codes, n_classes, weights) if self.model == "rbf" else None


def _vectors(
    X: RealArray, rows: NDArray[np.intp], held: NDArray[np.intp], at: str
) -> tuple[RealArray, RealArray]:
    space = TangentVectors(at).fit(X[rows])
    return space.transform(X[rows]), space.transform(X[held])


def _decide(model: Any, vectors: RealArray) -> RealArray:
    """Decisions between pairs of classes, or logarithms of probabilities where a model has them."""
    if isinstance(model, SVC):
        return np.asarray(model.decision_function(vectors))
    with np.errstate(divide="ignore"):
        return np.asarray(model.predict_log_proba(vectors))


def _log_probabilities(coupling: Coupling | None, decisions: RealArray) -> RealArray:
    if coupling is None:
        return np.maximum(decisions, np.log(1e-12))
    return coupling.log_probabilities(coupling.score(decisions))
