"""Coding in the feature space of a kernel: kSP_LE and kSP_JBLD (Harandi et al.), and kLLC."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from divlearn.arrays import RealArray
from divlearn.baselines import kernel_codes
from divlearn.baselines.coded import CodedClassifier, Parameters, check_penalties
from divlearn.baselines.kernel_codes import KernelView
from divlearn.checks import RandomState, check_count
from divlearn.engines import Engine

_PENALTIES = (0.1, 0.03, 0.01)
_NEIGHBORS = (5, 10, 20, 40)


class _KernelCoded(CodedClassifier[KernelView]):
    kernel: str
    bandwidth: float | str
    engine: str | Engine

    def _view(self, matrices: RealArray, atoms: RealArray) -> KernelView:
        return kernel_codes.view_by(self.kernel, matrices, atoms, self.engine)


class KernelSparseCoding(_KernelCoded):
    r"""Classify sparse codes of SPD matrices in the feature space of a kernel.

    With :math:`\phi` the feature map of a kernel :math:`k(X, Y) = e^{-\gamma D(X, Y)}`, codes and
    dictionary minimise

    .. math:: \frac1N \sum_i \Bigl\|\phi(X_i) - \sum_j a_{ij} \phi(D_j)\Bigr\|^2
              + \lambda \|a_i\|_1 ,

    which needs kernels only [1]_. The dictionary starts at centroids of log-Euclidean k-means;
    codes and atoms are updated in turn, and the objective never rises. A linear support vector
    machine classifies the codes.

    Parameters
    ----------
    n_atoms : int or "auto", default="auto"
        "auto" is 5 per class, at most one per matrix.
    kernel : str, default="log-euclidean"
        :math:`D = \|\log X - \log Y\|_F^2` (kSP_LE), or "stein", the Stein divergence
        :math:`D = \log\det\frac{X + Y}{2} - \frac12 \log\det XY` (kSP_JBLD). Other metrics of
        vectors, such as "log-cholesky", are allowed: see `divlearn.divergence.EmbeddedMetric`.
    bandwidth : float or "auto", default="auto"
        :math:`\gamma > 0`. The Stein kernel of matrices of size d is positive definite only for
        1/2, 1, ..., (d - 2)/2 and from (d - 1)/2 on; others raise an error. "auto" chooses among
        1/4, 1 and 4 over the median of D between matrices and atoms, or the nearest that are
        allowed, by held-out accuracy.
    penalty : float or "auto", default="auto"
        :math:`\lambda > 0`; "auto" chooses among 0.1, 0.03 and 0.01.
    max_iter : int, default=10
        Updates of the dictionary; 0 leaves it at the centroids.
    tol : float, default=1e-3
        Stop where an iteration lowers the objective by at most this share of it.
    random_state : int, RandomState or None
    engine : str or Engine, default="auto"
        Computes Stein divergences.
    n_jobs : int or None, default=None
        Threads that fit candidates and folds, as in scikit-learn; None for those of the engine. The
        result is the same for any number.
    verbose : int, default=0, 1 prints progress, 2 every iteration as well.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray
    dictionary_ : ndarray, shape (n_atoms, d, d)
    best_params_ : dict, "bandwidth", "penalty", and "C" of the machine.
    machine_ : SVC, of codes divided by ``unit_``.
    unit_ : float, root of the total variance of the training codes.
    oof_proba_ : ndarray, shape (n_matrices, n_classes)
        Held-out probabilities by codes of the initial dictionary, with parameters and calibration
        chosen without each fold.
    held_out_accuracy_ : float, of these probabilities, or NaN where nothing can be held out.
    cv_results_ : dict of arrays, all candidates, as in `sklearn.model_selection.GridSearchCV`.
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
    >>> model = KernelSparseCoding(penalty=0.1, max_iter=1, random_state=0).fit(X[::2], y[::2])
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
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_atoms, self.kernel, self.bandwidth = n_atoms, kernel, bandwidth
        self.penalty, self.max_iter, self.tol, self.regularize = penalty, max_iter, tol, regularize
        self.random_state, self.engine = random_state, engine
        self.n_jobs, self.verbose = n_jobs, verbose

    def _codings(self, view: KernelView) -> Sequence[Parameters]:
        penalties = check_penalties(self.penalty, _PENALTIES)
        pairs = product(penalties, kernel_codes.bandwidths(view, self.bandwidth))
        return [{"bandwidth": bandwidth, "penalty": penalty} for penalty, bandwidth in pairs]

    def _codes(
        self, view: KernelView, parameters: Parameters, start: RealArray | None = None
    ) -> RealArray:
        kernels = view.kernels(parameters["bandwidth"])
        return kernel_codes.sparse_codes(*kernels, parameters["penalty"], start=start)


class KernelLLC(_KernelCoded):
    r"""Classify locality-constrained codes of SPD matrices in the feature space of a kernel.

    A matrix is coded by the atoms N(X) nearest to it [1]_,

    .. math:: \min_a \Bigl\|\phi(X) - \sum_{j \in N(X)} a_j \phi(D_j)\Bigr\|^2 + \epsilon \|a\|^2
              \quad\text{subject to}\quad \sum_j a_j = 1 ,

    which has a closed form in kernels. Atoms are centroids of log-Euclidean k-means. A linear
    support vector machine classifies the codes.

    Parameters
    ----------
    n_neighbors : int or "auto", default="auto"
        Atoms in a code; "auto" chooses among 5, 10, 20 and 40 by held-out accuracy.
    n_atoms, kernel, bandwidth, random_state, engine, n_jobs, verbose, regularize
        As in `KernelSparseCoding`.

    Attributes
    ----------
    best_params_ : dict, "bandwidth", "n_neighbors", and "C" of the machine.
    others : as in `KernelSparseCoding`; atoms are not updated, and ``n_iter_`` is 0.

    References
    ----------
    .. [1] M. Harandi and M. Salzmann, "Riemannian coding and dictionary learning: kernels to the
       rescue", CVPR 2015.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, separation=4, random_state=0)
    >>> model = KernelLLC(n_neighbors=5, random_state=0).fit(X[::2], y[::2])
    >>> codes = model.transform(X[1::2])
    >>> bool((abs(codes.sum(axis=1) - 1) < 1e-9).all()), bool(model.score(X[1::2], y[1::2]) > 0.8)
    (True, True)
    """

    max_iter = 0  # the dictionary is that of k-means
    tol = 0.0

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        kernel: str = "log-euclidean",
        bandwidth: float | str = "auto",
        n_neighbors: int | str = "auto",
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_atoms, self.kernel, self.bandwidth = n_atoms, kernel, bandwidth
        self.n_neighbors, self.random_state, self.engine = n_neighbors, random_state, engine
        self.n_jobs, self.verbose, self.regularize = n_jobs, verbose, regularize

    def _codings(self, view: KernelView) -> Sequence[Parameters]:
        n_atoms = len(view.atoms)
        if isinstance(self.n_neighbors, str) and self.n_neighbors == "auto":
            counts = list(dict.fromkeys(min(k, n_atoms) for k in _NEIGHBORS))
        else:
            fix = ", the number of atoms; lower n_neighbors or raise n_atoms"
            counts = [check_count(self.n_neighbors, "n_neighbors", most=n_atoms, fix=fix)]
        pairs = product(counts, kernel_codes.bandwidths(view, self.bandwidth))
        return [{"bandwidth": bandwidth, "n_neighbors": count} for count, bandwidth in pairs]

    def _codes(
        self, view: KernelView, parameters: Parameters, start: RealArray | None = None
    ) -> RealArray:
        count = int(parameters["n_neighbors"])
        return kernel_codes.local_codes(view, parameters["bandwidth"], count)
