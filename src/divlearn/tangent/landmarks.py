"""Least squares with Gaussian kernels of landmarks, in time linear in the number of vectors."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.linalg import solve
from sklearn.metrics.pairwise import euclidean_distances

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.training import Memo
from divlearn.kernels.tables import decay

_MOST = 1000  # landmarks
_BLOCK = 4096  # vectors whose kernels are held at a time
_RIDGE = 1e-12  # relative to sums of kernels, for copies among landmarks
FLOORS = (0.003, 0.03, 0.3)  # of estimated shares, whose logarithms are scores


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Linear estimates of the shares of classes, from kernels with landmarks."""

    gamma: float
    landmarks: Annotated[RealArray, "n_landmarks n_entries"]
    coefficients: Annotated[RealArray, "n_landmarks n_classes"]
    offsets: Annotated[RealArray, "n_classes"]

    def decide(self, vectors: RealArray) -> RealArray:
        """Scores, shape (n_vectors, n_classes, 3): logarithms of shares with each floor."""
        shares = _kernel(vectors, self.landmarks, self.gamma) @ self.coefficients + self.offsets
        return np.log(np.maximum(shares, 0)[..., None] + np.array(FLOORS))


class Landmarks:
    r"""Fit f = a K(x, L) + b to indicators of classes, with a penalty of a K(L, L) a^T / C.

    This is the least-squares support vector machine on a subset of regressors. Landmarks are some
    of the vectors, as many of every class as its share.
    """

    def __init__(self, vectors: RealArray, codes: Indices, weights: RealArray) -> None:
        rows = np.linspace(0, len(codes) - 1, min(_MOST, len(codes))).astype(int)
        self._landmarks = vectors[np.argsort(codes, kind="stable")[rows]]
        self._vectors, self._roots = vectors, np.sqrt(weights / weights.mean())
        self._targets = np.eye(codes.max() + 1)[codes] * self._roots[:, None]
        self._moments = Memo()

    def learn(self, C: float, gamma: float) -> LeastSquares:
        """Fix C and gamma; what depends on gamma alone is computed once."""
        inner, sides, centre, shares = self._moments.once(gamma, lambda: self._average(gamma))
        penalty = _kernel(self._landmarks, self._landmarks, gamma) / C
        penalty[np.diag_indices(len(penalty))] += _RIDGE * len(self._vectors)
        found = solve(inner + penalty, sides, assume_a="pos", check_finite=False)
        return LeastSquares(gamma, self._landmarks, found, shares - centre @ found)

    def _average(self, gamma: float) -> tuple[RealArray, RealArray, RealArray, RealArray]:
        """Sum up products of centred kernels and indicators; return also the means of both."""
        n_landmarks, n_classes = len(self._landmarks), self._targets.shape[1]
        products = np.zeros((n_landmarks, n_landmarks + n_classes))
        means = np.zeros(n_landmarks + n_classes)
        for start in range(0, len(self._vectors), _BLOCK):
            some = slice(start, start + _BLOCK)
            roots, targets = self._roots[some], self._targets[some]
            kernel = _kernel(self._vectors[some], self._landmarks, gamma) * roots[:, None]
            products[:, :n_landmarks] += kernel.T @ kernel
            products[:, n_landmarks:] += kernel.T @ targets
            means += roots @ np.hstack([kernel, targets])
        n = len(self._vectors)
        products -= np.outer(means[:n_landmarks], means / n)
        (inner, sides), (centre, shares) = (
            np.split(one, [n_landmarks], axis=-1) for one in (products, means / n)
        )
        return inner, sides, centre, shares


def _kernel(vectors: RealArray, landmarks: RealArray, gamma: float) -> RealArray:
    return decay(euclidean_distances(vectors, landmarks, squared=True), gamma)
