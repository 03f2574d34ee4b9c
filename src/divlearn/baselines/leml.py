"""Log-Euclidean metric learning."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.baselines.leml_pairs import (
    Codes,
    distance_percentiles,
    find_prior,
    label_nearest,
    move,
    near_pairs,
)
from divlearn.baselines.leml_projections import Constraints, Solution, solve_logdet
from divlearn.baselines.tuning import FOLDS
from divlearn.checks import check_count, check_number
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import MatricesMixin, all_or_nothing, check_labelled
from divlearn.geometry import logm, sqrtm
from divlearn.kernels.checks import check_axis, check_size
from divlearn.spd import check_spd

__all__ = ["LEML"]


_ETAS = (0.1, 0.3, 1.0)
_HELD_OUT = 2  # folds that are held out in turn: each choice is a long fit


class LEML(NamesMixin, ClassifierMixin, TransformerMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    r"""Log-Euclidean metric learning, then the label of the nearest training matrix.

    Squared distances are :math:`\operatorname{tr}(Q (\log X - \log Y)^2)`, with the matrix Q that
    brings pairs of one class below a distance u, and pairs of different classes beyond l, while it
    stays near a :math:`Q_0`:

    .. math:: \min_{Q, \xi} \; D_{\ell d}(Q, Q_0) + \eta \sum_c D_{\ell d}(\xi_c, \xi_{0c})
              \quad\text{subject to}\quad \operatorname{tr}(Q A_c) \lessgtr \xi_c ,

    :math:`\xi_{0c}` being u or l, :math:`A_c = (\log X_i - \log X_j)^2`, and :math:`D_{\ell d}` the
    LogDet (Burg) divergence. It is solved by cyclic Bregman projections.

    Parameters
    ----------
    n_constraints : int or "plateau", default="plateau"
        Number of pairs; "plateau" doubles it, from 10 for each pair of classes but no more than two
        for each matrix, for as long as the accuracy on data held out rises.
    eta : float, optional
        How strictly u and l are kept, > 0; by default 0.1, 0.3 or 1, whichever does best on data
        held out.
    percentiles : (float, float), default=(5, 95)
        u and l, as percentiles of the squared distances of all pairs of training matrices by Q_0.
    max_iter : int, default=10
        Passes over all constraints.
    tol : float, default=1e-2
        Stop after a pass that changes the multipliers by at most this share of all of them.
    random_state : int, RandomState or None
        Draws pairs, and the parts held out.
    verbose : int, default=0
        1 tells of every number of constraints and eta, 2 of every pass.

    Attributes
    ----------
    Q_ : ndarray, shape (d, d)
    n_constraints_ : int
    eta_ : float
    n_iter_ : int
        Passes, in the last run.
    message_ : str
        Why that stopped, and what was chosen before.
    history_ : dict of arrays
        "n_constraints", "eta", "accuracy" on data held out and "seconds" of all that was tried; the
        last entry is the final run, on everything, whose accuracy is NaN.
    classes_ : ndarray, shape (n_classes,)
    n_features_in_ : int
        d, the size of the matrices.

    Notes
    -----
    Pairs are a matrix with the nearest one of its class and with the nearest one of the others,
    then with the second nearest ones, and so on; :math:`Q_0` is the inverse of the mean of
    :math:`(\log X_i - \log X_j)^2` over neighbours of one class. What a nearest neighbour is
    decided by is then what is learned: with random pairs and :math:`Q_0 = I` the learned distance
    often recognises less than the plain one.

    References
    ----------
    Z. Huang, R. Wang, S. Shan, X. Li and X. Chen, "Log-Euclidean metric learning on symmetric
    positive definite manifold with application to image set classification", ICML 2015.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = LEML(random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    >>> model.transform(X).shape  # their Euclidean distances are the learned ones
    (90, 16)
    """

    Q_: RealArray
    n_constraints_: int
    eta_: float
    n_iter_: int
    message_: str
    history_: dict[str, RealArray]
    classes_: NDArray[Any]
    n_features_in_: int

    def __init__(
        self,
        n_constraints: int | str = "plateau",
        eta: float | None = None,
        *,
        percentiles: tuple[float, float] = (5.0, 95.0),
        max_iter: int = 10,
        tol: float = 1e-2,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_constraints = n_constraints
        self.eta = eta
        self.percentiles = percentiles
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Learn the metric.

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
        self._check_parameters()
        data = check_labelled(X, y, None, None, groups)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        splits = data.folds(FOLDS, seed)[:_HELD_OUT]
        search = _Search(self, logm(data.matrices), data.codes, splits, seed)
        chosen = search.run()
        self.classes_, self.n_features_in_ = data.classes, data.matrices.shape[-1]
        self.Q_ = chosen.solution.frame @ chosen.solution.frame.T
        self.n_constraints_, self.eta_ = chosen.n_constraints, chosen.eta
        self.n_iter_, self.message_ = chosen.solution.n_iter, search.message(chosen)
        self.history_ = search.history()
        self._root = sqrtm(self.Q_)
        self._vectors, self._codes = move(logm(data.matrices), self._root), data.codes
        return self

    def transform(self, X: ArrayLike) -> RealArray:
        r"""Vectors whose Euclidean distances are the learned ones.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices, d * d)
            Entries of :math:`\log X \, Q^{1/2}`, row by row.
        """
        check_is_fitted(self)
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        check_size(self, matrices)
        return move(logm(matrices), self._root)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the labels of the nearest training matrices.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices,)
        """
        vectors = self.transform(X)
        labels: NDArray[Any] = self.classes_[label_nearest(self._vectors, self._codes, vectors)]
        return labels

    def _check_parameters(self) -> None:
        if isinstance(self.n_constraints, str):
            if self.n_constraints != "plateau":
                raise ValueError(
                    f'n_constraints={self.n_constraints!r} must be "plateau" or an integer >= 1'
                )
        else:
            check_count(self.n_constraints, "n_constraints")
        if self.eta is not None:
            check_axis([self.eta], "eta", positive=True)
        ends = check_axis(self.percentiles, "percentiles")
        if len(ends) != 2 or not 0 < ends[0] <= ends[1] <= 100:
            raise ValueError(
                f"percentiles={self.percentiles} must be two numbers, 0 < u <= l <= 100"
            )
        check_count(self.max_iter, "max_iter")
        check_number(self.tol, "tol")

    @property
    def _n_features_out(self) -> int:
        return int(self.n_features_in_) ** 2


@dataclass(frozen=True, eq=False)
class _Tried:
    """A number of constraints and an eta, and what came of them."""

    n_constraints: int
    eta: float
    solution: Solution
    accuracy: float = np.nan
    seconds: float = 0.0


class _Search:
    """Choose eta and the number of constraints on parts held out, then learn from everything."""

    def __init__(
        self, model: LEML, logarithms: RealArray, codes: Codes, splits: Folds, seed: int
    ) -> None:
        self.model = model
        self.logarithms = logarithms
        self.codes = codes
        self.seed = seed
        self.splits = splits
        self.tried: list[_Tried] = []

    def run(self) -> _Tried:
        """Return the final run; one the user has interrupted ends the search."""
        model, n_classes = self.model, int(self.codes.max()) + 1
        plateau = isinstance(model.n_constraints, str)
        fewest = min(10 * n_classes**2, 2 * len(self.codes))
        count = fewest if plateau else int(model.n_constraints)
        etas = _ETAS if model.eta is None else (float(model.eta),)
        if not self.splits or (len(etas) == 1 and not plateau):
            return self._finish(count, etas[0])
        found = [self._try(count, eta) for eta in etas]
        best = max(found, key=lambda one: one.accuracy)  # the smallest eta of those that tie
        while plateau and not self._interrupted:
            more = self._try(2 * best.n_constraints, best.eta)
            if not more.accuracy > best.accuracy:
                break
            best = more
        return best if self._interrupted else self._finish(best.n_constraints, best.eta)

    @property
    def _interrupted(self) -> bool:
        return any(one.solution.interrupted for one in self.tried)

    def _try(self, count: int, eta: float) -> _Tried:
        """Learn without each part held out, and recognise it."""
        if self._interrupted:
            return replace(self.tried[-1], accuracy=-np.inf)
        started, right = time.perf_counter(), []
        for train, held in self.splits:
            solution = self._learn(train, count, eta)
            vectors = move(self.logarithms, solution.frame)
            found = label_nearest(vectors[train], self.codes[train], vectors[held])
            right.append(found == self.codes[held])
            if solution.interrupted:
                break
        accuracy = float(np.concatenate(right).mean())
        one = _Tried(count, eta, solution, accuracy, time.perf_counter() - started)
        self.tried.append(one)
        self._say(1, f"{count} constraints, eta={eta:g}: accuracy {accuracy:.3f} on data held out")
        return one

    def _finish(self, count: int, eta: float) -> _Tried:
        started = time.perf_counter()
        solution = self._learn(np.arange(len(self.codes)), count, eta)
        made = len(solution.multipliers)
        one = _Tried(made, eta, solution, seconds=time.perf_counter() - started)
        self.tried.append(one)
        self._say(1, f"{made} constraints, eta={eta:g}: {solution.message}")
        return one

    def _learn(self, rows: NDArray[np.intp], count: int, eta: float) -> Solution:
        model, rng = self.model, np.random.default_rng(self.seed)
        logarithms, codes = self.logarithms[rows], self.codes[rows]
        start = find_prior(logarithms, codes)
        vectors = move(logarithms, start)
        (pairs, similar), (low, high) = (
            near_pairs(vectors, codes, count, rng),
            distance_percentiles(vectors, model.percentiles, rng),
        )
        constraints = Constraints(
            logarithms[pairs[:, 0]] - logarithms[pairs[:, 1]], similar, np.where(similar, low, high)
        )
        return solve_logdet(
            constraints, start, eta, max_iter=model.max_iter, tol=model.tol,
            watch=lambda number, share: self._say(
                2, f"pass {number} changed the multipliers by {share:.2g} of them"
            ),
        )  # fmt: skip

    def message(self, chosen: _Tried) -> str:
        """Say why the last run stopped, and what was chosen before."""
        stopped = next((one for one in self.tried if one.solution.interrupted), chosen)
        scored = [one for one in self.tried if np.isfinite(one.accuracy)]
        if not scored:
            return stopped.solution.message
        best = max(one.accuracy for one in scored)
        return (
            f"{stopped.solution.message}; {chosen.n_constraints} constraints and eta = "
            f"{chosen.eta:g}, accuracy {best:.3f} on data held out, the highest of {len(scored)}"
        )

    def history(self) -> dict[str, RealArray]:
        """Columns by name."""
        names = ("n_constraints", "eta", "accuracy", "seconds")
        return {name: np.array([getattr(one, name) for one in self.tried]) for name in names}

    def _say(self, level: int, text: str) -> None:
        if self.model.verbose >= level:
            print(f"[LEML] {text}")
