"""Detection of artifacts: SPD matrices that are far from all others."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import polygamma
from sklearn.base import BaseEstimator, OutlierMixin

from divlearn.arrays import Indices, RealArray
from divlearn.checks import check_number, is_number
from divlearn.divergence import Divergence, DivergenceLike, get_divergence
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.labelled import (
    MatricesMixin,
    check_new,
    check_training,
    fit_method,
    takes_metric,
)
from divlearn.nearest.class_means import check_forgetting

__all__ = ["DivergenceOutliers"]

_TOLERANCE = 1e-5  # of the gradient at a mean, which has no unit
_STEPS = 50  # at most, of the searches for the median and for the inliers
_STILL = 1e-6  # relative change of the mean distance at which the search for the median stops
_ROUNDING = 1e-12  # of divergences, in units of that between a mean and its double
_LEAST_SHARE = 0.75  # of the spread of Gaussian scatter, see `DivergenceOutliers._least_spread`
_MAD = 0.6744897501960817  # median absolute deviation of a standard normal variable
_CUT = 3.0  # location and spread ignore matrices with larger z-scores


@takes_metric
class DivergenceOutliers(OutlierMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    r"""Detect outliers, such as artifacts, by their divergence from a robust mean.

    The robust mean M is a geometric median, and the score of a matrix is the robust z-score of its
    log-divergence from M, with the sign of scikit-learn's scores:

    .. math:: M = \arg\min_C \sum_i \sqrt{D(X_i \,\|\, C)} , \qquad
              z(X) = \frac{\log D(X \,\|\, M) - m}{s} , \qquad \text{score}(X) = -z(X) .

    m and s are mean and standard deviation of the log-divergences, without those of outliers and of
    matrices that almost equal M; s is at least 3/4 of that of Gaussian scatter. None of the three
    is affected much as long as fewer than half of the matrices are outliers.

    Parameters
    ----------
    divergence : str, pair (alpha, beta), dict or Divergence, default="airm"
        D, any value that `Recenter` takes; ``metric`` is an alias.
    threshold : float, default=3
        Matrices with z > threshold are outliers.
    contamination : "auto" or float, default="auto"
        A float, > 0 and <= 0.5, is the share of outliers in the training data, and replaces the
        threshold. Of new matrices of the same kind it marks more if few were given to `fit`: with
        0.05 about 11 % after 20, 7 % after 60 and 5 % after 300 matrices.
    engine : str or Engine, default="auto"
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    mean_ : ndarray, shape (d, d), the robust mean.
    location_, spread_ : float, m and s.
    offset_ : float
        Matrices with scores below it are outliers: minus the threshold, or a quantile of the scores
        in `fit`.
    total_ : float, number of matrices, less those that were forgotten.
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    The median is found by weighted means (Weiszfeld's method): M is the mean of all matrices with
    weights :math:`D(X_i \,\|\, M)^{-1/2}`, until it does not change. Which matrices count in m and
    s is found from the nearer half of them: those within three standard deviations of the median
    join, as medians tell both, until none does. A start from all matrices, as in pyRiemann's
    ``Potato``, would not see outliers that are many enough to widen the standard deviation.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 50, 4, random_state=0)
    >>> X[:3] *= 20  # three trials with movements
    >>> model = DivergenceOutliers().fit(X)
    >>> np.flatnonzero(model.predict(X) == -1)
    array([0, 1, 2])
    """

    mean_: Annotated[RealArray, "d d"]
    location_: float
    spread_: float
    offset_: float
    total_: float
    n_features_in_: int

    def __init__(
        self,
        divergence: DivergenceLike = "airm",
        *,
        threshold: float = 3.0,
        contamination: float | str = "auto",
        engine: str | Engine = "auto",
        regularize: str | float = "raise",
    ) -> None:
        self.divergence, self.threshold, self.contamination = divergence, threshold, contamination
        self.engine, self.regularize = engine, regularize

    @fit_method
    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Find the robust mean of X, shape (n_matrices, d, d); y is ignored."""
        share = self._check_parameters()
        matrices = check_training(self, X)
        if len(matrices) < 2:
            raise ValueError("X has 1 matrix (n_samples=1), must have >= 2 to tell how they differ")
        self.n_features_in_, self.total_ = matrices.shape[-1], float(len(matrices))
        self.mean_ = self._find_median(matrices)
        logarithms = self._measure(matrices, self.mean_)
        least = self._least_spread
        counted = logarithms[_find_inliers(logarithms, least)]
        self.location_ = float(counted.mean())
        self.spread_ = max(float(counted.std()), least)
        scores = (self.location_ - logarithms) / self.spread_
        self.offset_ = (
            -float(self.threshold) if share is None else float(np.quantile(scores, share))
        )
        return self

    def _check_parameters(self) -> float | None:
        check_number(self.threshold, "threshold")
        share = self.contamination
        if isinstance(share, str) and share == "auto":
            return None
        if not is_number(share) or not 0 < share <= 0.5:
            raise ValueError(f'contamination={share!r} must be "auto" or a number > 0 and <= 0.5')
        return float(share)

    def _find_median(self, matrices: RealArray) -> RealArray:
        center = self._average(matrices, np.ones(len(matrices)))
        previous = np.inf
        for _ in range(_STEPS):
            distances = np.exp(0.5 * self._measure(matrices, center))
            if distances.mean() >= (1 - _STILL) * previous:
                break
            previous = distances.mean()
            center = self._average(matrices, distances.min() / distances, center)
        return center

    def _average(
        self, matrices: RealArray, weights: RealArray, start: RealArray | None = None
    ) -> RealArray:
        return self._known_divergence.mean(
            Prepared.checked(matrices),
            weights,
            engine=get_engine(self.engine),
            init=start,
            tol=_TOLERANCE,
        )

    def _measure(self, matrices: RealArray, center: RealArray) -> RealArray:
        """Log-divergences from a matrix, shape (n_matrices,)."""
        # Outside the alpha-beta family divergences have the unit of the matrices, or its square.
        with_double = Prepared.checked(np.concatenate([matrices, 2 * center[None]]))
        atom, engine = Prepared.checked(center[None]), get_engine(self.engine)
        *values, unit = self._known_divergence.pairwise(with_double, atom, engine=engine)[:, 0]
        least = max(_ROUNDING * unit, np.finfo(np.float64).tiny)
        logarithms: RealArray = np.log(np.maximum(values, least))
        return logarithms

    @fit_method
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, forgetting: float = 0.0
    ) -> Self:
        """Continue the robust mean, m and s with new matrices, in their order.

        Outliers need not be removed: each matrix moves the mean by a step that does not grow with
        its distance, and m and s ignore matrices with z > 3. Every new matrix has the weight one,
        and removes the share ``forgetting`` of the weight of all before it: 0.01 remembers about
        100 matrices. The first call is `fit`. The parameter y is ignored.
        """
        decay = 1 - check_forgetting(forgetting)
        if not hasattr(self, "mean_"):
            return self.fit(X)
        for matrix in check_new(self, X):
            deviation = float(self._measure(matrix[None], self.mean_)[0]) - self.location_
            old_total, self.total_ = decay * self.total_, decay * self.total_ + 1
            weights = np.array([old_total, np.exp(-0.5 * deviation)])  # as in a step to the median
            self.mean_ = self._average(np.stack([self.mean_, matrix]), weights, self.mean_)
            if deviation <= _CUT * self.spread_:
                share = 1 / self.total_
                self.location_ += share * deviation
                variance = (1 - share) * (self.spread_**2 + share * deviation**2)
                self.spread_ = max(float(np.sqrt(variance)), self._least_spread)
        return self

    @property
    def _least_spread(self) -> float:
        """Smallest plausible spread of log-divergences; that of few matrices may be smaller."""
        # Squared distances of Gaussian scatter in all directions have a chi-squared distribution.
        # In fewer directions the spread of their logarithms is larger.
        d = self.n_features_in_
        n_directions = (d / 2) ** 2 if self.hermitian_ else d * (d + 1) / 2
        return _LEAST_SHARE * float(np.sqrt(polygamma(1, n_directions / 2)))

    @property
    def _known_divergence(self) -> Divergence:
        return self._for_checked(get_divergence(self.divergence))

    def score_samples(self, X: ArrayLike) -> RealArray:
        """Scores of matrices, shape (n_matrices,); the lower, the more abnormal."""
        matrices = check_new(self, X)
        return (self.location_ - self._measure(matrices, self.mean_)) / self.spread_

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores minus ``offset_``, shape (n_matrices,); negative for outliers."""
        scores = self.score_samples(X)  # first: it raises if the model is not fitted
        return scores - self.offset_

    def predict(self, X: ArrayLike) -> Indices:
        """Return 1 for inliers and -1 for outliers, shape (n_matrices,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)


def _find_inliers(logarithms: RealArray, least: float) -> NDArray[np.bool_]:
    """Whether log-divergences belong to the bulk, which is grown from their lower half."""
    inliers = logarithms <= np.median(logarithms)
    for _ in range(_STEPS):
        median = np.median(logarithms[inliers])
        spread = np.median(np.abs(logarithms[inliers] - median)) / _MAD
        width = _CUT * max(spread, least)
        nearest = logarithms <= median + width
        if np.array_equal(nearest, inliers):
            break
        inliers = nearest
    # A matrix that almost equals the median, as one of three may do, has a meaningless logarithm.
    return inliers & (logarithms >= median - width)
