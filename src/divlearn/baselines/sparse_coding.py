"""Kernel sparse coding (Harandi et al.): kSP_LE and kSP_JBLD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.baselines.coded import CodedClassifier, check_penalties
from divlearn.baselines.kernel_coders import Divergences, SparseCoder, bandwidths
from divlearn.baselines.spd_kernels import get_kernel
from divlearn.engines import Engine

__all__ = ["KernelSparseCoding"]

_PENALTIES = (0.1, 0.03, 0.01)


class KernelSparseCoding(CodedClassifier):
    r"""Classify sparse codes of SPD matrices in the feature space of a kernel.

    With :math:`\phi` the feature map of a kernel :math:`k(X, Y) = e^{-\gamma D(X, Y)}`, codes and
    dictionary minimise

    .. math:: \frac1N \sum_i \Bigl\|\phi(X_i) - \sum_j a_{ij} \phi(D_j)\Bigr\|^2
              + \lambda \|a_i\|_1 ,

    which only takes kernels [1]_. The dictionary starts at centroids of log-Euclidean k-means;
    codes, to a duality gap of 1e-5, and atoms, by conjugate gradients, take turns, and the
    objective never rises. A linear support vector machine classifies the codes.

    Parameters
    ----------
    n_atoms : int or "auto", default="auto"
        "auto" is 5 per class, at most one per matrix.
    kernel : {"log-euclidean", "stein"}, default="log-euclidean"
        :math:`D = \|\log X - \log Y\|_F^2` (kSP_LE), or the Stein divergence
        :math:`D = \log\det\frac{X + Y}{2} - \frac12 \log\det XY` (kSP_JBLD).
    bandwidth : float or "auto", default="auto"
        :math:`\gamma > 0`. The Stein kernel of matrices of size d is positive definite only for
        1/2, 1, ..., (d - 2)/2 and all from (d - 1)/2 on; others are refused. "auto" chooses among
        1/4, 1 and 4 over the median of D between matrices and atoms, or the nearest that are
        allowed, by accuracy on data held out.
    penalty : float or "auto", default="auto"
        :math:`\lambda > 0`; "auto" chooses among 0.1, 0.03 and 0.01.
    max_iter : int, default=10
        Updates of the dictionary; 0 leaves it at the centroids.
    tol : float, default=1e-3
        Stop where an iteration lowers the objective by at most this share of it.
    random_state : int, RandomState or None
    engine : str or Engine, default="auto"
        Who computes Stein divergences.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : ndarray
    dictionary_ : ndarray, shape (n_atoms, d, d)
    parameters_ : dict, "bandwidth", "penalty", and "C" of the machine.
    machine_ : VectorMachine
    history_ : dict of arrays
        "objective" after every update of a "block", its "iteration" and the "seconds" until then.
    n_iter_ : int
    message_ : str, why learning stopped.
    n_features_in_ : int, size of the matrices.

    References
    ----------
    .. [1] M. Harandi, R. Hartley, B. Lovell and C. Sanderson, "Sparse coding on symmetric positive
       definite manifolds using Bregman divergences", IEEE Trans. Neural Networks and Learning
       Systems 27 (2016).

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, separation=4, random_state=0)
    >>> model = KernelSparseCoding(random_state=0).fit(X[::2], y[::2])
    >>> model.transform(X[1::2]).shape
    (45, 15)
    >>> bool(model.score(X[1::2], y[1::2]) > 0.8)
    True
    """

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        kernel: str = "log-euclidean",
        bandwidth: float | str = "auto",
        penalty: float | str = "auto",
        max_iter: int = 10,
        tol: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_atoms = n_atoms
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.penalty = penalty
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose

    def _view(self, matrices: RealArray, atoms: RealArray) -> Divergences:
        kernel = get_kernel(self.kernel, self.engine)
        return Divergences.measure(kernel, kernel.prepare(matrices), atoms)

    def _coders(self, view: Any, d: int) -> Sequence[SparseCoder]:
        kernel = get_kernel(self.kernel, self.engine)
        return [
            SparseCoder(kernel, bandwidth, penalty)
            for penalty in check_penalties(self.penalty, _PENALTIES)
            for bandwidth in bandwidths(kernel, view, d, self.bandwidth)
        ]
