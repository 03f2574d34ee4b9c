"""Machines on tables of kernels: support vectors, and least squares on landmarks."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate, pairwise
from operator import iadd
from typing import Annotated

import numpy as np
from sklearn import config_context
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray, to_device_of, to_host
from divlearn.engines import compiled
from divlearn.engines.compiled import compiles, is_compiled, solve_pairs
from divlearn.fitting.held_out import FoldedData, Memo
from divlearn.geometry import compose, solve_definite
from divlearn.heads.discriminants import Linear
from divlearn.kernels.tables import cut, decay

_TOLERANCE = 1e-3  # that of SVC
_BLOCK = 4096  # matrices whose kernels are held at a time
_RIDGE = 1e-12  # relative to sums of kernels, since landmarks may be equal
SHARPNESSES = (3.0, 10.0, 30.0)  # below 3 a lost decision costs too little, and accuracy is lost
_MARGIN = 0.2  # the loss, in units of decisions, at which scores begin to fall slowly
FLOORS = (0.003, 0.03, 0.3)  # of estimated shares; their logarithms are scores


@dataclass(frozen=True, eq=False)
class PairMachine:
    """Attributes of `sklearn.svm.SVC` that its decisions need."""

    support_: Annotated[Indices, "n_support"]
    n_support_: Annotated[Indices, "n_classes"]
    dual_coef_: Annotated[RealArray, "n_others n_support"]
    intercept_: Annotated[RealArray, "n_pairs"]


def fit_svc(kernel: RealArray, C: float, codes: Indices, weights: RealArray) -> SVC:
    """Fit a support vector machine to a kernel matrix."""
    machine = SVC(C=C, kernel="precomputed", decision_function_shape="ovo", tol=_TOLERANCE)
    with config_context(assume_finite=True, skip_parameter_validation=True):
        return machine.fit(kernel, codes, sample_weight=weights)


def fit_pairs(
    kernel: RealArray, C: float, codes: Indices, weights: RealArray, rows: Indices | None = None
) -> SVC | PairMachine:
    """Fit the same machine to samples that are sorted by class, in a third of the time.

    `rows` are their indices in the kernel, all by default.
    """
    if rows is None:
        rows = np.arange(len(kernel))
    if not is_compiled():
        return fit_svc(cut(kernel, rows, rows), C, codes, weights)
    starts = np.flatnonzero(np.diff(codes, prepend=-1, append=codes[-1] + 1))
    coefficients, offsets = solve_pairs(kernel, rows, C * weights, starts, _TOLERANCE)
    if len(offsets) == 1:  # positive for the second class, as in SVC
        coefficients, offsets = -coefficients, -offsets
    supports = coefficients.any(axis=0)
    counts = np.add.reduceat(supports, starts[:-1], dtype=np.intp)
    return PairMachine(np.flatnonzero(supports), counts, coefficients[:, supports], offsets)


def decide_pairs(machine: SVC | PairMachine, kernel: RealArray) -> RealArray:
    """Return `SVC.decision_function` from the kernels with the support vectors only.

    Matrix products, one per class, take a fraction of the time of libsvm's loops.
    """
    coefficients, n_classes = machine.dual_coef_, len(machine.n_support_)
    if n_classes == 2:
        return np.asarray(kernel @ coefficients[0] + machine.intercept_)
    decisions = np.repeat(machine.intercept_[:, None], len(kernel), axis=1)
    ends = accumulate(machine.n_support_.tolist(), initial=0)
    for pairs, (start, end) in zip(_pairs_of(n_classes), pairwise(ends), strict=True):
        decisions[pairs] += coefficients[:, start:end] @ kernel[:, start:end].T
    return decisions.T


def couple(decisions: RealArray) -> RealArray:
    """Score classes by decisions of `SVC`, shape (n_samples, n_classes, n_sharpnesses).

    The notes of `DivergenceKernelClassifier` have the formula. The larger the sharpness, the closer
    is the loss of a class to a count of its lost decisions.
    """
    # Decisions are (n_samples, n_pairs), for the pairs of `numpy.triu_indices` and positive for the
    # first class of a pair. Those of two classes are (n_samples,), and positive for the second.
    if decisions.ndim == 1:
        return np.stack([np.stack([-decisions, decisions]) / 2] * len(SHARPNESSES)).T
    n_classes = round((1 + np.sqrt(1 + 8 * decisions.shape[1])) / 2)
    # Rows are contiguous in the transposed decisions of a machine.
    losses = np.stack([pair_losses(decisions.T, s, n_classes) / s for s in SHARPNESSES])
    # The logarithm gives most weight to the first lost decisions; 40 and 60 differ little.
    return -np.log1p(losses / _MARGIN).T


def pair_losses(decisions: RealArray, sharpness: float, n_classes: int) -> RealArray:
    """Logistic losses of every class against the others, shape (n_classes, n_samples).

    Decisions are (n_pairs, n_samples), positive for the first class of a pair.
    """
    if compiles(decisions):
        return compiled.pair_losses(decisions, sharpness, n_classes)
    losses, start = np.zeros((n_classes, decisions.shape[1])), 0
    for k in range(n_classes - 1):  # against all later classes
        margins = sharpness * decisions[start : start + n_classes - 1 - k]
        tails = np.log1p(np.exp(-np.abs(margins)))
        losses[k] += (tails - np.minimum(margins, 0)).sum(axis=0)
        losses[k + 1 :] += tails + np.maximum(margins, 0)
        start += n_classes - 1 - k
    return losses


@lru_cache(maxsize=1)
def _pairs_of(n_classes: int) -> Indices:
    """Numbers of the pairs of each class with the others, in the order of `numpy.triu_indices`."""
    first, second = np.triu_indices(n_classes, 1)
    pairs = np.empty((n_classes, n_classes - 1), dtype=np.intp)
    pairs[first, second - 1] = pairs[second, first] = np.arange(len(first))
    return pairs


# --- least squares on landmarks -------------------------------------------------------------------


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
        """Scores, shape (n_matrices, n_classes, 3): logarithms of shares, for each floor."""
        shares = to_host(super().decide(kernel))
        return np.log(np.maximum(shares, 0)[..., None] + np.array(FLOORS))


class Landmarks:
    r"""Fit f = a K(x, L) + b to targets, with a penalty of a K(L, L) a^T / C.

    This is the least-squares support vector machine on a subset of regressors.

    Parameters
    ----------
    measure : callable, slice of matrices to their divergences to the landmarks
    inner : callable, scale to the kernel of the landmarks, which must be positive semidefinite
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
        products, sides, centre, means = self._moments.cached(scale, lambda: self._average(scale))
        system = products + self._inner(scale) / C
        system[np.diag_indices(len(system))] += _RIDGE * len(self._roots)
        coefficients = solve_definite(system, sides)
        return coefficients.T, means - centre @ coefficients

    def _average(self, scale: float) -> tuple[RealArray, RealArray, RealArray, RealArray]:
        """Sum up products of centred kernels with themselves and targets; return means of both."""
        starts, n_targets = range(0, len(self._roots), _BLOCK), self._targets.shape[1]
        blocks = (slice(start, start + _BLOCK) for start in starts)
        total = reduce(iadd, (self._products(rows, scale) for rows in blocks))
        products, sides, sums = np.split(total, [-1 - n_targets, -1], axis=1)
        centre, means, _ = np.split(sums[:, 0] / sums[-1], [-1 - n_targets, -1])
        m = len(centre)
        return (
            products[:m] - np.outer(sums[:m], centre),
            sides[:m] - np.outer(sums[:m], means),
            centre,
            means,
        )

    def _products(self, rows: slice, scale: float) -> RealArray:
        """Sum up weighted products of kernels, targets and ones."""
        kernel = decay(self._measure(rows), scale)
        roots = to_device_of(self._roots[rows, None], kernel)
        targets = to_device_of(self._targets[rows], kernel)
        columns = np.hstack([kernel * roots, targets, roots])
        return to_host(columns.T @ columns)


def on_landmarks(
    training: FoldedData,
    number: int,
    columns: Indices,
    table: RealArray,
    targets: RealArray,
    name: Hashable,
) -> Landmarks:
    """Prepare least squares on a part of the data, from a table of divergences to landmarks."""
    rows = training.parts[number][0]

    def inner(scale: float) -> RealArray:
        compute = lambda: make_definite(decay(to_host(table[columns]), scale))  # noqa: E731
        return training.cached(("landmarks", name, scale), compute)

    weights = training.data.weights[rows]
    return Landmarks(lambda block: table[rows[block]], inner, targets[rows], weights)
