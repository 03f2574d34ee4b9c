"""Kernel locality-constrained coding (Harandi and Salzmann): kLLC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.baselines.coded import CodedClassifier
from divlearn.baselines.kernel_coders import Divergences, LocalCoder, bandwidths
from divlearn.baselines.spd_kernels import get_kernel
from divlearn.checks import check_count
from divlearn.engines import Engine

__all__ = ["KernelLLC"]

_NEIGHBORS = (5, 10, 20, 40)


class KernelLLC(CodedClassifier):
    r"""Classify locality-constrained codes of SPD matrices in the feature space of a kernel.

    A matrix is coded by the atoms N(X) nearest to it [1]_,

    .. math:: \min_a \Bigl\|\phi(X) - \sum_{j \in N(X)} a_j \phi(D_j)\Bigr\|^2 + \epsilon \|a\|^2
              \quad\text{subject to}\quad \sum_j a_j = 1 ,

    which has a closed form in kernels: see `divlearn.baselines.kernel_coders.LocalCoder`. Atoms are
    centroids of log-Euclidean k-means. A linear support vector machine classifies the codes.

    Parameters
    ----------
    n_atoms : int or "auto", default="auto"
        "auto" is 5 per class, at most one per matrix.
    kernel, bandwidth : as in `KernelSparseCoding`
    n_neighbors : int or "auto", default="auto"
        Atoms in a code; "auto" chooses among 5, 10, 20 and 40 by accuracy on data held out.
    random_state : int, RandomState or None
    engine : str or Engine, default="auto"
        Who computes Stein divergences.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : ndarray
    dictionary_ : ndarray, shape (n_atoms, d, d)
    parameters_ : dict, "bandwidth", "n_neighbors", and "C" of the machine.
    machine_ : VectorMachine
    history_ : dict of arrays, the mean of what the codes minimise.
    n_iter_ : int, always 0.
    message_ : str
    n_features_in_ : int, size of the matrices.

    References
    ----------
    .. [1] M. Harandi and M. Salzmann, "Riemannian coding and dictionary learning: kernels to the
       rescue", CVPR 2015.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, separation=4, random_state=0)
    >>> model = KernelLLC(random_state=0).fit(X[::2], y[::2])
    >>> codes = model.transform(X[1::2])
    >>> bool(np.allclose(codes.sum(axis=1), 1)), bool(model.score(X[1::2], y[1::2]) > 0.8)
    (True, True)
    """

    max_iter = 0  # k-means makes the dictionary
    tol = 0.0

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        kernel: str = "log-euclidean",
        bandwidth: float | str = "auto",
        n_neighbors: int | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_atoms = n_atoms
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.n_neighbors = n_neighbors
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose

    def _view(self, matrices: RealArray, atoms: RealArray) -> Divergences:
        kernel = get_kernel(self.kernel, self.engine)
        return Divergences.measure(kernel, kernel.prepare(matrices), atoms)

    def _coders(self, view: Any, d: int) -> Sequence[LocalCoder]:
        kernel = get_kernel(self.kernel, self.engine)
        n_atoms = len(view.between)
        return [
            LocalCoder(kernel, bandwidth, n_neighbors)
            for n_neighbors in self._neighbors(n_atoms)
            for bandwidth in bandwidths(kernel, view, d, self.bandwidth)
        ]

    def _neighbors(self, n_atoms: int) -> Sequence[int]:
        if isinstance(self.n_neighbors, str) and self.n_neighbors == "auto":
            return list(dict.fromkeys(min(k, n_atoms) for k in _NEIGHBORS))
        check_count(self.n_neighbors, "n_neighbors")
        if int(self.n_neighbors) > n_atoms:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} must be <= n_atoms={n_atoms}; lower n_neighbors "
                "or raise n_atoms"
            )
        return [int(self.n_neighbors)]
