"""k-means in an alpha-beta log-det divergence, given or learned with the clusters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from divlearn.checks import check_number
from divlearn.cluster.fitting import LloydModel
from divlearn.cluster.parameters import Likelihood, Penalized, Point, Rule
from divlearn.divergence import Divergence, get_divergence
from divlearn.engines import Engine

__all__ = ["DEFAULT_DIVERGENCE", "ABKMeans", "given_point"]

DEFAULT_DIVERGENCE = (0.5, 1.5)
_LEARNED = ("learn", "likelihood")


class ABKMeans(LloydModel):
    r"""k-means of SPD matrices in an alpha-beta log-det divergence, which may be learned too.

    .. math:: \min_{C, \pi, \alpha, \beta} \sum_i w_i D^{(\alpha,\beta)}(X_i \,\|\, C_{\pi(i)})
              + \Omega(\alpha, \beta)

    over centroids C, the assignment :math:`\pi` and, where they are learned, alpha and beta. These
    blocks take turns, and none ever raises the objective.

    Parameters
    ----------
    n_clusters : int, default=8
    divergence : str, pair (alpha, beta) or Divergence, default=(0.5, 1.5)
        Given: a name, see `divlearn.get_divergence`, or a pair of one sign; then
        :math:`\Omega = 0`. Learned: "learn" is the paper's rule
        :math:`\Omega = \mu (\alpha^2 + \beta^2)`; "likelihood" maximises the likelihood of the
        densities :math:`e^{-\kappa D(X \| C_z)} / Z(\alpha, \beta, \kappa)`, in kappa as well. See
        the notes.
    tied : bool, default=False
        Whether alpha = beta where they are learned: the paper's "E", not "NE".
    mu : float, default=1.0
        The penalty where divergence="learn", > 0.
    init : {"tangent", "log-euclidean", "k-means++", "random"} or array-like of centroids
        Where the centroids start: log-Euclidean k-means in the frame of the mean matrix (default),
        or as it stands, as in the paper; k-means++ in the divergence; matrices drawn at random; or
        those given, shape (n_clusters, d, d). All but the second follow a congruence X -> A X A^T,
        and so does all that comes after: the clusters stay.
    n_init : int, default=4
        Starts, the best of which is kept; 1 where ``init`` is an array.
    max_iter : int, default=100
    tol : float, default=1e-3
        Stop when less than this share of the assignments changes; 0 waits until none does.
    solver : {"fixed-point", "conjugate-gradient"}, default="fixed-point"
        How centroids move: by safeguarded fixed points, quasi-Newton where alpha + beta > 2, or, as
        in the paper, by Riemannian conjugate gradients, which take longer.
    steps : int, default=3
        Of the solver at every turn, at most. The next turn goes on from there.
    random_state : int, RandomState or None
    engine : str or Engine, default="auto"
        See `divlearn.get_engine`.
    verbose : int, default=0
        1 tells of every start, 2 of every iteration.
    checkpoint : str, path-like or None, default=None
        File that `fit` keeps its progress in, at most every five seconds: after a kill the same
        call goes on from there. It is removed at the end, but stays after Ctrl-C. See
        `divlearn.IDDLClassifier`.

    Attributes
    ----------
    cluster_centers_ : ndarray, shape (n_clusters, d, d)
    labels_ : ndarray of int, shape (n_matrices,)
        The nearest of these centroids.
    alpha_, beta_ : float
    kappa_ : float, the concentration, only where divergence="likelihood".
    inertia_ : float, weighted sum of divergences to the nearest centroids.
    objective_ : float, what was minimised: with the penalty, or minus the log-likelihood with
        respect to the invariant volume.
    n_iter_ : int
    message_ : str, why it stopped.
    history_ : dict of arrays, one entry per block: "objective", "block" ("start", "centroids",
        "parameters" or "assignment"), "iteration", "alpha", "beta", "kappa" where there is one,
        "changed" (assignments) and "seconds".
    n_features_in_ : int, size of the matrices.

    See Also
    --------
    MiniBatchABKMeans : for very many matrices.
    KarcherKMeans, LogEuclideanKMeans : what the paper compares with.

    Notes
    -----
    *Which divergence.* D falls to zero along every ray c (alpha, beta), so mu alone decides where
    the paper's rule stops: it has no unit to be right in, and drives alpha and beta to 3 and more,
    the further the more matrices there are. The likelihood has no such constant; it finds (0, 1)
    for Wishart matrices, and clusters them better, but trusts that matrices spread alike in all
    clusters. On real data neither beats a good given divergence by more than another start does:
    the default is given, and the effort goes into starts. (0.5, 1.5) came out best on average over
    textures, actions, speech and synthetic clusters; it is less upset by near-singular matrices
    than (0, 1), the divergence of Wishart matrices, which it leans to.

    *Large data.* Divergences are computed block by block, and memory is a few times that of X.

    References
    ----------
    A. Cherian, P. Stanitsas, J. Wang, M. Harandi, V. Morellas and N. Papanikolopoulos, "Learning
    log-determinant divergences for positive definite matrices", TPAMI, Algorithm 3.

    Examples
    --------
    >>> from divlearn.cluster import pairwise_f1_score
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> found = ABKMeans(3, random_state=0).fit(X)
    >>> pairwise_f1_score(y, found.labels_)
    1.0
    >>> learned = ABKMeans(3, "likelihood", random_state=0).fit(X)  # these are Wishart matrices
    >>> learned.alpha_ < 0.5 < learned.beta_
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        divergence: str | Sequence[float] | Divergence = DEFAULT_DIVERGENCE,
        *,
        tied: bool = False,
        mu: float = 1.0,
        init: str | ArrayLike = "tangent",
        n_init: int = 4,
        max_iter: int = 100,
        tol: float = 1e-3,
        solver: str = "fixed-point",
        steps: int = 3,
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.divergence = divergence
        self.tied = tied
        self.mu = mu
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.steps = steps
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose
        self.checkpoint = checkpoint

    @classmethod
    def paper(cls, n_clusters: int, *, tied: bool = False) -> Self:
        """Make an estimator set up as in the paper.

        One start from log-Euclidean k-means and (1, 1), the penalty mu = 1, conjugate gradients for
        the centroids and spectral projected gradients for alpha and beta, until less than 0.1 % of
        the assignments change.

        Parameters
        ----------
        n_clusters : int
        tied : bool, default=False
            Whether alpha = beta: the paper's "E", not "NE".

        Examples
        --------
        >>> ABKMeans.paper(10, tied=True).set_params(n_init=10).solver
        'conjugate-gradient'
        """
        return cls(
            n_clusters, "learn", tied=tied, mu=1.0, init="log-euclidean", n_init=1, tol=1e-3,
            solver="conjugate-gradient", steps=10,
        )  # fmt: skip

    def _rule(self) -> Rule:
        if self._is("learn"):
            check_number(self.mu, "mu")
            if self.mu == 0:
                raise ValueError(
                    "mu=0 must be > 0: divergences fall to zero along every ray of (alpha, beta), "
                    "so that nothing would hold these; raise mu, or fix the divergence"
                )
            return Penalized(float(self.mu), self.tied)
        if self._is("likelihood"):
            return Likelihood(self.tied)
        return Rule(Point(*given_point(self.divergence)))

    def _is(self, name: str) -> bool:
        return isinstance(self.divergence, str) and self.divergence == name


def given_point(divergence: str | Sequence[float] | Divergence) -> tuple[float, float]:
    """Return the (alpha, beta) of a divergence for which centroids are unique, both >= 0.

    Examples
    --------
    >>> given_point("burg"), given_point((-1, 0))  # D^(-a,-b) = D^(b,a)
    ((0.0, 1.0), (0.0, 1.0))
    >>> given_point("jeffreys")
    Traceback (most recent call last):
    ValueError: divergence='jeffreys' is the mean of both directions, must be a single one; pass
    'stein', which is symmetric, or 'burg'
    """
    if isinstance(divergence, str) and divergence in _LEARNED:
        raise ValueError(
            f"divergence={divergence!r} must be given here, not learned; fit ABKMeans on a subset "
            "and pass its (alpha_, beta_)"
        )
    known = get_divergence(divergence)
    if known.symmetrized:
        raise ValueError(
            f"divergence={known.name!r} is the mean of both directions, must be a single one; "
            "pass 'stein', which is symmetric, or 'burg'"
        )
    if known.alpha >= 0 and known.beta >= 0:
        return known.alpha + 0.0, known.beta + 0.0
    if known.alpha <= 0 and known.beta <= 0:
        return -known.beta + 0.0, -known.alpha + 0.0
    raise ValueError(
        f"divergence={known.name} must have alpha and beta of one sign, without which centroids "
        "are not unique; change the sign of one"
    )
