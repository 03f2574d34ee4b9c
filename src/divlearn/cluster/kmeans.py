"""k-means in an alpha-beta log-det divergence, given or learned, and in metrics of vectors."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike

from divlearn.checks import RandomState
from divlearn.cluster.base import KMeansModel
from divlearn.cluster.parameters import Likelihood, Penalized, Rule
from divlearn.divergence import (
    LOG_EUCLIDEAN,
    DivergenceLike,
    EmbeddedMetric,
    get_divergence,
    get_member,
)
from divlearn.engines import Engine
from divlearn.fitting.labelled import takes_metric

_LEARNED = {
    "learn": Penalized(),
    "likelihood": Likelihood(),
    "paper": Penalized(paper=True),
    "paper-tied": Penalized(paper=True, tied=True),
}


@takes_metric
class ABKMeans(KMeansModel):
    r"""k-means of SPD matrices in an alpha-beta log-det divergence, which may be learned too.

    .. math:: \min_{C, \pi, \alpha, \beta} \sum_i w_i D^{(\alpha,\beta)}(X_i \,\|\, C_{\pi(i)})
              + \Omega(\alpha, \beta)

    over centroids C, the assignment :math:`\pi` and, where they are learned, alpha and beta. The
    steps alternate over these blocks, and none raises the objective.

    Parameters
    ----------
    n_clusters : int, default=8
    divergence : str, pair (alpha, beta) or Divergence, default=(0.5, 1.5)
        Given: a name, see `divlearn.get_divergence`, or a pair with alpha, beta >= 0
        or both <= 0; then :math:`\Omega = 0`. "euclidean", "log-euclidean", "harmonic", "cholesky"
        and "log-cholesky" are k-means of vectors, which scikit-learn's `KMeans` does.
        Learned: "learn" is the paper's rule :math:`\Omega = \alpha^2 + \beta^2`; "likelihood"
        maximises the likelihood of the densities
        :math:`e^{-\kappa D(X \| C_z)} / Z(\alpha, \beta, \kappa)`, in kappa as well; "paper" and
        "paper-tied" are set by `paper`. ``metric`` is another name for this parameter, as in
        pyRiemann.
    init : {"tangent", "log-euclidean", "k-means++", "random"} or array-like of centroids
        Where the centroids start: log-Euclidean k-means after whitening by the mean matrix
        (default), or without whitening, as in the paper; k-means++ in the divergence; matrices
        drawn at random; or an array (n_clusters, d, d). All but "log-euclidean" are equivariant
        under congruence.
    n_init : int, default=4
        Starts, the best of which is kept; 1 where ``init`` is an array.
    max_iter : int, default=100
    tol : float, default=1e-3
        Stop when less than this share of the assignments changes; 0 stops when none does. For
        k-means of vectors as in `LogEuclideanKMeans`.
    random_state : int, RandomState or None
    engine : str or Engine, default="auto", see `divlearn.get_engine`
    n_jobs : int, optional
        Threads of an engine given by name; all by default, as with -1.
    verbose : int, default=0
        1 prints progress and every start, 2 every iteration as well.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    cluster_centers_ : ndarray, shape (n_clusters, d, d)
    labels_ : ndarray of int, shape (n_matrices,)
        The nearest of these centroids.
    alpha_, beta_ : float, not for k-means of vectors, as ``objective_`` and ``history_``.
    kappa_ : float, the concentration, only where divergence="likelihood".
    inertia_ : float, weighted sum of divergences to the nearest centroids, for weights of mean one.
    objective_ : float, final value of the objective, with the penalty; for "likelihood", minus the
        log-likelihood with respect to the invariant volume.
    n_iter_ : int
    message_ : str, why it stopped.
    history_ : dict of arrays, one entry per block: "objective", "block" ("start", "centroids",
        "parameters" or "assignment"), "iteration", "alpha", "beta", "kappa" where there is one,
        "changed" (assignments) and "seconds".
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    D tends to zero along every ray (c alpha, c beta) as c grows, so the penalty alone decides where
    the paper's rule stops. The likelihood needs no penalty, but assumes that all clusters have the
    same spread. On real data neither beats a good fixed divergence by more than the variation
    between starts. (0.5, 1.5) was best on average; see the guide to clustering.

    References
    ----------
    A. Cherian, P. Stanitsas, J. Wang, M. Harandi, V. Morellas and N. Papanikolopoulos, "Learning
    log-determinant divergences for positive definite matrices", TPAMI, Algorithm 3.

    Examples
    --------
    >>> from divlearn.cluster import pairwise_f1_score
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = ABKMeans(3, random_state=0).fit(X)
    >>> pairwise_f1_score(y, model.labels_)
    1.0
    >>> learned = ABKMeans(3, "likelihood", n_init=1, random_state=0).fit(X)  # of Wishart matrices
    >>> learned.alpha_ < 0.5 < learned.beta_
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        divergence: DivergenceLike = (0.5, 1.5),
        *,
        init: str | ArrayLike = "tangent",
        n_init: int = 4,
        max_iter: int = 100,
        tol: float = 1e-3,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_clusters, self.divergence = n_clusters, divergence
        self.init, self.n_init, self.max_iter, self.tol = init, n_init, max_iter, tol
        self.random_state, self.engine, self.n_jobs = random_state, engine, n_jobs
        self.verbose, self.regularize = verbose, regularize

    @classmethod
    def paper(cls, n_clusters: int, *, tied: bool = False) -> Self:
        """Make an estimator set up as in the paper.

        One start from log-Euclidean k-means and (1, 1), the penalty mu = 1, ten steps of Riemannian
        conjugate gradients for the centroids and of spectral projected gradients for alpha and beta
        in every iteration, until less than 0.1 % of the assignments change. If ``tied``, alpha =
        beta: the paper's "E", not "NE".

        Examples
        --------
        >>> ABKMeans.paper(10, tied=True).set_params(n_init=10).divergence
        'paper-tied'
        """
        return cls(n_clusters, "paper-tied" if tied else "paper", init="log-euclidean", n_init=1)

    def _rule(self) -> Rule | EmbeddedMetric:
        if isinstance(self.divergence, str) and self.divergence in _LEARNED:
            return _LEARNED[self.divergence]
        chosen = get_divergence(self.divergence)
        return chosen if isinstance(chosen, EmbeddedMetric) else Rule(*get_member(chosen).point)


class KarcherKMeans(KMeansModel):
    r"""k-means in the affine-invariant Riemannian metric, with Karcher means for centroids.

    It minimises :math:`\frac12 \sum_i w_i \| \log(C^{-1/2} X_i C^{-1/2}) \|_F^2`, C the centroid
    nearest to :math:`X_i`: it is `ABKMeans` at (alpha, beta) = (0, 0).

    Parameters
    ----------
    n_clusters, init, n_init, max_iter, tol, random_state, engine, n_jobs, verbose, regularize
        As in `ABKMeans`.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, objective_, n_iter_, message_, history_, n_features_in_
        As in `ABKMeans`. The inertia is half the sum of squared distances.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = KarcherKMeans(3, random_state=0).fit(X)
    >>> model.cluster_centers_.shape
    (3, 4, 4)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | ArrayLike = "tangent",
        n_init: int = 4,
        max_iter: int = 100,
        tol: float = 1e-3,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_clusters, self.init, self.n_init = n_clusters, init, n_init
        self.max_iter, self.tol, self.random_state = max_iter, tol, random_state
        self.engine, self.n_jobs, self.verbose = engine, n_jobs, verbose
        self.regularize = regularize

    def _rule(self) -> Rule:
        return Rule(0.0, 0.0)


class LogEuclideanKMeans(KMeansModel):
    r"""k-means of the logarithms of SPD matrices.

    It minimises :math:`\sum_i w_i \| \log X_i - \log C \|_F^2`, C the centroid nearest to
    :math:`X_i`: it is `ABKMeans` in "log-euclidean". Logarithms are taken once; scikit-learn's
    `KMeans` does the rest.

    Parameters
    ----------
    n_clusters, init, n_init, max_iter, random_state, verbose, regularize : as in `ABKMeans`
        The default of ``init`` is "k-means++".
    tol : float, default=1e-4
        Squared movement of all centroids, relative to the mean variance of the logarithms, below
        which to stop. Clusters that stay as they are stop it too.

    Attributes
    ----------
    cluster_centers_, labels_, n_iter_, message_, n_features_in_ : as in `ABKMeans`
    inertia_ : float
        Weighted sum of squared distances to the nearest centroids, for weights of mean one.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = LogEuclideanKMeans(3, random_state=0).fit(X)
    >>> model.transform(X[:5]).shape  # squared distances
    (5, 3)
    """

    engine: str | Engine = "reference"  # no kernel is needed

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | ArrayLike = "k-means++",
        n_init: int = 4,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: RandomState = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_clusters, self.init, self.n_init = n_clusters, init, n_init
        self.max_iter, self.tol, self.regularize = max_iter, tol, regularize
        self.random_state, self.verbose = random_state, verbose

    def _rule(self) -> EmbeddedMetric:
        return LOG_EUCLIDEAN
