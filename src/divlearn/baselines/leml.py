"""Log-Euclidean metric learning."""

from __future__ import annotations

import time
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin

from divlearn.arrays import Indices, RealArray, as_real
from divlearn.baselines import leml_metric as metric
from divlearn.baselines.leml_metric import Solution
from divlearn.baselines.log_svm import FOLDS
from divlearn.checks import RandomState, check_count, check_number
from divlearn.engines.cpu import cpu_engine
from divlearn.fitting import labelled
from divlearn.fitting.checkpoint import draw_seed
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import check_labelled, check_new
from divlearn.fitting.progress import is_interrupted, say, track
from divlearn.geometry import sqrtm

_ETAS = (0.1, 0.3, 1.0)
_N_HELD_OUT = 2  # folds that are held out; few, since fits take long
_HISTORY = ("n_constraints", "eta", "accuracy", "seconds")


class LEML(NamesMixin, TransformerMixin, labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
        for each matrix, for as long as the held-out accuracy rises.
    eta : float, optional
        How strictly u and l are kept, > 0; by default 0.1, 0.3 or 1, by held-out accuracy.
    percentiles : (float, float), default=(5, 95)
        u and l, as percentiles of the squared distances of all pairs of training matrices by Q_0.
    max_iter : int, default=10
        Passes over all constraints.
    tol : float, default=1e-2
        Stop after a pass that changes the multipliers by at most this share of all of them.
    random_state : int, RandomState or None
    verbose : int, default=0
        1 prints progress and every number of constraints and eta, 2 also every pass.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    Q_ : ndarray, shape (d, d)
    n_constraints_ : int
    eta_ : float
    n_iter_ : int, passes in the last run.
    message_ : str, why that stopped, and the chosen parameters.
    history_ : dict of arrays
        "n_constraints", "eta", held-out "accuracy" and "seconds" of all candidates; the last entry
        is the final run, on all data, whose accuracy is NaN.
    classes_ : ndarray, shape (n_classes,)
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    Pairs are a matrix with the nearest one of its class and with the nearest one of the others,
    then with the second nearest ones, and so on; :math:`Q_0` is the inverse of the mean of
    :math:`(\log X_i - \log X_j)^2` over neighbours of one class. With random pairs and
    :math:`Q_0 = I` the learned distance often recognises less than the plain one.

    References
    ----------
    Z. Huang, R. Wang, S. Shan, X. Li and X. Chen, "Log-Euclidean metric learning on symmetric
    positive definite manifold with application to image set classification", ICML 2015.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = LEML(eta=1.0, random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    >>> model.transform(X).shape  # their Euclidean distances are the learned ones
    (90, 16)
    """

    Q_: Annotated[RealArray, "d d"]
    n_constraints_: int
    eta_: float
    n_iter_: int
    message_: str
    history_: dict[str, RealArray]
    _root: Annotated[RealArray, "d d"]
    _vectors: Annotated[RealArray, "n_matrices n_entries"]
    _codes: Annotated[Indices, "n_matrices"]

    def __init__(
        self,
        n_constraints: int | str = "plateau",
        eta: float | None = None,
        *,
        percentiles: tuple[float, float] = (5.0, 95.0),
        max_iter: int = 10,
        tol: float = 1e-2,
        random_state: RandomState = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_constraints, self.eta, self.percentiles = n_constraints, eta, percentiles
        self.max_iter, self.tol, self.random_state = max_iter, tol, random_state
        self.verbose, self.regularize = verbose, regularize

    @labelled.fit_method
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Choose parameters on held-out parts of the data, and learn from all of it.

        X has the shape (n_matrices, d, d), labels y and groups (n_matrices,). Matrices of one group
        are held out together.
        """
        self._check_parameters()
        data = check_labelled(self, X, y, None, None, groups)
        seed = draw_seed(self.random_state)
        splits = data.folds(FOLDS, seed)[:_N_HELD_OUT]
        logarithms = cpu_engine().logarithms(data.matrices)
        runs, chosen = self._search(logarithms, data.codes, splits, seed)
        self.Q_ = chosen.frame @ chosen.frame.T
        self.n_constraints_, self.eta_ = chosen.n_constraints, chosen.eta
        self.n_iter_, self.message_ = chosen.n_iter, _describe(runs, chosen)
        self.history_ = {name: np.array([getattr(run, name) for run in runs]) for name in _HISTORY}
        self._root = sqrtm(self.Q_)
        self._vectors, self._codes = metric.move(logarithms, self._root), data.codes
        return self

    def transform(self, X: ArrayLike) -> RealArray:
        """Entries of log X Q^(1/2), (n_matrices, d * d): their distances are the learned ones."""
        return metric.move(cpu_engine().logarithms(check_new(self, X)), self._root)

    def _predict_codes(self, X: ArrayLike) -> Indices:
        vectors = self.transform(X)  # first, to report a model that is not fitted
        return metric.label_nearest(self._vectors, self._codes, vectors)

    def _check_parameters(self) -> None:
        if not isinstance(self.n_constraints, str):
            check_count(self.n_constraints, "n_constraints")
        elif self.n_constraints != "plateau":
            raise ValueError(
                f'n_constraints={self.n_constraints!r} must be "plateau" or an integer >= 1'
            )
        if self.eta is not None:
            check_number(self.eta, "eta", positive=True)
        ends = as_real(self.percentiles, "percentiles")
        if ends.shape != (2,) or not 0 < ends[0] <= ends[1] <= 100:
            raise ValueError(
                f"percentiles={self.percentiles} must be two numbers, 0 < u <= l <= 100"
            )
        check_count(self.max_iter, "max_iter")
        check_number(self.tol, "tol")

    @property
    def _n_features_out(self) -> int:
        return int(self.n_features_in_) ** 2

    def _search(
        self, logarithms: RealArray, codes: Indices, splits: Folds, seed: int
    ) -> tuple[list[Solution], Solution]:
        """Choose parameters, then learn from all; return all runs, and the final one."""

        def learn(rows: Indices, count: int, eta: float) -> Solution:
            return self._learn(logarithms[rows], codes[rows], count, eta, seed)

        def score(count: int, eta: float) -> Solution:
            """Learn without each held-out part; return the last run, with the accuracy of all."""
            seconds, is_right = 0.0, []
            for train, held in track(splits, "folds"):
                run = learn(train, count, eta)
                seconds += run.seconds
                vectors = metric.move(logarithms, run.frame)
                predicted = metric.label_nearest(vectors[train], codes[train], vectors[held])
                is_right.append(predicted == codes[held])
                if is_interrupted():
                    break
            accuracy = float(np.concatenate(is_right).mean())
            runs.append(run._replace(n_constraints=count, accuracy=accuracy, seconds=seconds))
            say(self, f"{count} constraints, eta={eta:g}: held-out accuracy {accuracy:.3f}")
            return runs[-1]

        runs: list[Solution] = []
        plateau = isinstance(self.n_constraints, str)
        first = min(10 * (int(codes.max()) + 1) ** 2, 2 * len(codes))
        count = first if plateau else int(self.n_constraints)
        etas = _ETAS if self.eta is None else (float(self.eta),)
        eta = etas[0]
        if splits and (plateau or len(etas) > 1):
            for eta in etas:
                score(count, eta)
                if is_interrupted():
                    break
            best = max(runs, key=lambda run: run.accuracy)  # of ties the one with the smallest eta
            while plateau and not is_interrupted():
                doubled = score(2 * best.n_constraints, best.eta)
                if not doubled.accuracy > best.accuracy:
                    break
                best = doubled
            if is_interrupted():
                return runs, best
            count, eta = best.n_constraints, best.eta
        runs.append(learn(np.arange(len(codes)), count, eta))
        say(self, f"{runs[-1].n_constraints} constraints, eta={eta:g}: {runs[-1].message}")
        return runs, runs[-1]

    def _learn(
        self, logarithms: RealArray, codes: Indices, count: int, eta: float, seed: int
    ) -> Solution:
        began, rng = time.perf_counter(), np.random.default_rng(seed)
        start = metric.find_prior(logarithms, codes)
        vectors = metric.move(logarithms, start)
        pairs, similar = metric.near_pairs(vectors, codes, count, rng)
        low, high = metric.distance_percentiles(vectors, self.percentiles, rng)
        gaps = logarithms[pairs[:, 0]] - logarithms[pairs[:, 1]]
        bounds = np.where(similar, low, high)
        solution = metric.solve_logdet(
            gaps, similar, bounds, start, eta, max_iter=self.max_iter, tol=self.tol
        )
        return solution._replace(seconds=time.perf_counter() - began)


def _describe(runs: list[Solution], chosen: Solution) -> str:
    message = runs[-1].message
    scores = [run.accuracy for run in runs if np.isfinite(run.accuracy)]
    if not scores:
        return message
    return (
        f"{message}; {chosen.n_constraints} constraints and eta = {chosen.eta:g}, the best "
        f"of {len(scores)} by held-out accuracy"
    )
