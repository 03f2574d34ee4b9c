"""Least squares with kernels of landmarks, in time linear in the number of matrices."""

from collections.abc import Callable
from functools import reduce
from operator import iadd

import numpy as np

from divlearn.arrays import Indices, RealArray, to_device_of, to_host
from divlearn.fitting.held_out import Memo
from divlearn.geometry import compose, solve_definite
from divlearn.heads.discriminants import Linear
from divlearn.kernels.tables import decay

LARGE = 4000  # matrices, above which tables of all pairs take too long
_LANDMARKS, _PER_CLASS = 500, 10  # the larger number of both; more gain little accuracy
_BLOCK = 4096  # matrices whose kernels are held at a time
_RIDGE = 1e-12  # relative to sums of kernels, for copies among landmarks
FLOORS = (0.003, 0.03, 0.3)  # of estimated shares, whose logarithms are scores


def by_class(codes: Indices) -> Indices:
    """Order in which classes follow each other, as libsvm reads kernels."""
    return np.argsort(codes, kind="stable")


def pick_landmarks(codes: Indices, most: int | None = None) -> Indices:
    """Rows of landmarks, as many of every class, or stratum, as its share."""
    wanted = max(_LANDMARKS, _PER_CLASS * (int(codes.max()) + 1))
    places = np.linspace(0, len(codes) - 1, min(wanted, most or wanted, len(codes))).astype(int)
    return by_class(codes)[places]


def make_definite(kernel: RealArray) -> RealArray:
    """Return the kernel with the absolute values of its eigenvalues."""
    values, basis = np.linalg.eigh(kernel)
    return kernel if values[0] >= 0 else compose(basis, np.abs(values))


def indicate(codes: Indices) -> RealArray:
    """Return indicators of classes, shape (n_matrices, n_classes)."""
    return np.eye(codes.max() + 1)[codes]


class LeastSquares(Linear):
    """Linear estimates of the shares of classes, from kernels with landmarks."""

    def decide(self, kernel: RealArray) -> RealArray:
        """Scores, shape (n_matrices, n_classes, 3): logarithms of shares with each floor."""
        shares = to_host(super().decide(kernel))
        return np.log(np.maximum(shares, 0)[..., None] + np.array(FLOORS))


class Landmarks:
    r"""Fit f = a K(x, L) + b to targets, with a penalty of a K(L, L) a^T / C.

    This is the least-squares support vector machine on a subset of regressors.

    Parameters
    ----------
    measure : callable, slice of matrices to their divergences to the landmarks
    inner : callable, scale to kernels between the landmarks, which must be positive semidefinite
    targets : ndarray, shape (n_matrices, n_targets), such as indicators of classes
    weights : ndarray, shape (n_matrices,)
    """

    def __init__(
        self,
        measure: Callable[[slice], RealArray],
        inner: Callable[[float], RealArray],
        targets: RealArray,
        weights: RealArray,
    ) -> None:
        self._measure, self._inner = measure, inner
        self._roots = np.sqrt(weights / weights.mean())
        self._targets = targets * self._roots[:, None]
        self._moments = Memo()

    def learn(self, C: float, scale: float) -> tuple[RealArray, RealArray]:
        """Return a, shape (n_targets, n_landmarks), and b for a penalty and a scale."""
        products, sides, centre, means = self._moments.once(scale, lambda: self._average(scale))
        system = products + self._inner(scale) / C
        system[np.diag_indices(len(system))] += _RIDGE * len(self._roots)
        found = solve_definite(system, sides)
        return found.T, means - centre @ found

    def _average(self, scale: float) -> tuple[RealArray, RealArray, RealArray, RealArray]:
        """Sum up products of centred kernels and targets; return also the means of both."""
        starts, n_targets = range(0, len(self._roots), _BLOCK), self._targets.shape[1]
        total = reduce(iadd, (self._products(slice(one, one + _BLOCK), scale) for one in starts))
        products, sides, sums = np.split(total, [-1 - n_targets, -1], axis=1)
        centre, means, _ = np.split(sums[:, 0] / sums[-1], [-1 - n_targets, -1])
        m = len(centre)
        return (
            products[:m] - np.outer(sums[:m], centre),
            sides[:m] - np.outer(sums[:m], means),
            centre,
            means,
        )

    def _products(self, some: slice, scale: float) -> RealArray:
        """Sum up products of kernels, targets and one, all weighted."""
        kernel = decay(self._measure(some), scale)
        roots, targets = (
            to_device_of(one, kernel) for one in (self._roots[some, None], self._targets[some])
        )
        columns = np.hstack([kernel * roots, targets, roots])
        return to_host(columns.T @ columns)
