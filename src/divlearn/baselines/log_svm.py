"""Support vector machines on logarithms of SPD matrices."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.baselines.tuning import FOLDS, PENALTIES, VectorMachine, fit_svm
from divlearn.fitting.labelled import MatricesMixin, all_or_nothing, check_labelled
from divlearn.kernels.checks import check_axis, check_size
from divlearn.log_vectors import log_vectors
from divlearn.spd import check_spd

__all__ = ["LogEuclideanSVM"]


class LogEuclideanSVM(ClassifierMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    r"""Support vector machine on the vectors of :math:`\log X`.

    The vectors, whose Euclidean distances are the log-Euclidean ones, are divided by one number,
    the root s of their total variance. So kernels are

    .. math:: K(X, Y) = \frac{\langle \log X, \log Y \rangle}{s^2} \quad\text{or}\quad
              K(X, Y) = \exp\Bigl(-\frac{\gamma}{s^2} \|\log X - \log Y\|_F^2\Bigr) ,

    and the same values of C and gamma suit all data. Classes are told apart two by two.

    Parameters
    ----------
    kernel : {"linear", "rbf"}, default="linear"
    C : float, optional
        Penalty of errors, > 0. By default chosen by cross-validation; the smallest of
        those that tie.
    gamma : float, optional
        Of the Gaussian kernel, > 0; chosen along with C by default.
    random_state : int, RandomState or None
        Draws the parts.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    C_ : float
    gamma_ : float
        Only for the Gaussian kernel.
    history_ : dict of arrays
        "C", "gamma" where there is one, and the "accuracy" of all that was tried on the parts held
        out; NaN where nothing had to be chosen.
    message_ : str
        What was chosen, in a sentence.
    n_features_in_ : int
        d, the size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = LogEuclideanSVM(random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    """

    classes_: NDArray[Any]
    C_: float
    gamma_: float
    history_: dict[str, RealArray]
    message_: str
    n_features_in_: int

    def __init__(
        self,
        kernel: str = "linear",
        C: float | None = None,
        gamma: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Choose C and gamma, and fit the machine.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
            SPD matrices.
        y : array-like, shape (n_matrices,)
            Labels of two classes at least.
        groups : array-like, shape (n_matrices,), optional
            Matrices of one group are held out together.

        Returns
        -------
        self
        """
        if self.kernel not in PENALTIES:
            raise ValueError(f"kernel={self.kernel!r} must be one of {', '.join(PENALTIES)}")
        if self.gamma is not None and self.kernel == "linear":
            raise ValueError(
                f"gamma={self.gamma} has no meaning for kernel='linear'; pass kernel='rbf' or None"
            )
        penalties, gammas = (
            None if value is None else check_axis([value], name, positive=True)
            for value, name in ((self.C, "C"), (self.gamma, "gamma"))
        )
        data = check_labelled(X, y, None, None, groups)
        self._machine: VectorMachine = fit_svm(
            log_vectors(data.matrices), data.codes, data.folds(FOLDS, self.random_state),
            kernel=self.kernel, penalties=penalties, gammas=gammas,
        )  # fmt: skip
        self.classes_, self.n_features_in_ = data.classes, data.matrices.shape[-1]
        self._tell()
        return self

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Score classes.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices, n_classes), or (n_matrices,) with two classes
            As that of `sklearn.svm.SVC`.
        """
        vectors = self._vectors(X)
        return self._machine.decide(vectors)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict labels.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices,)
        """
        vectors = self._vectors(X)
        labels: NDArray[Any] = self.classes_[self._machine.predict(vectors)]
        return labels

    def _vectors(self, X: ArrayLike) -> RealArray:
        check_is_fitted(self)
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        check_size(self, matrices)
        return log_vectors(matrices)

    def _tell(self) -> None:
        choice = self._machine.choice
        for name, value in choice.parameters.items():
            setattr(self, f"{name}_", value)
        self.history_ = {
            name: np.array([one[name] for one in choice.tried]) for name in choice.parameters
        }
        self.history_["accuracy"] = np.array(choice.scores)
        chosen = ", ".join(f"{name} = {value:g}" for name, value in choice.parameters.items())
        how = f"held-out accuracy {choice.score:.3f}, the highest of {len(choice.tried)}"
        if np.isnan(choice.score):
            given = len(choice.tried) == 1
            how = "as given" if given else "no class has two matrices or groups, one to hold out"
        end = "" if self._machine.exact else "; the solver was stopped, for classes overlap"
        self.message_ = f"{chosen}: {how}{end}"
