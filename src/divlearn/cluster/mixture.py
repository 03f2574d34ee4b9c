r"""Mixtures of the densities exp(-kappa D(X || C)) / Z, fitted by expectation maximisation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, RealArray
from divlearn.checks import RandomState, check_count, check_name
from divlearn.cluster.em import (
    EM,
    MemberFit,
    Mixture,
    compare_members,
    count_parameters,
    describe,
    log_joint,
)
from divlearn.cluster.moves import fit_mixture
from divlearn.cluster.runs import Run, check_init
from divlearn.divergence import DivergenceLike
from divlearn.engines import Engine
from divlearn.fitting.checkpoint import checkpointed, stage
from divlearn.fitting.labelled import MatricesMixin, fit_method, takes_metric
from divlearn.fitting.progress import is_interrupted, notify, print_progress, stoppable, user_call
from divlearn.likelihood.fit import sample_family
from divlearn.likelihood.members import Members, get_members
from divlearn.likelihood.normalizer import log_normalizer
from divlearn.sharded.blocks import fingerprint_block
from divlearn.sharded.opening import open_new, open_training

TOLERANCE = 1e-4  # rise of the mean log-likelihood at which a run stops
_SHARES = ("all", "divergence", "none")


@takes_metric
class ABMixture(DensityMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    r"""Mixture of densities around centres, in a divergence that is learned or given.

    .. math:: p(X) = \sum_k \pi_k \,
              \frac{\exp\bigl(-\kappa_k D^{(\alpha_k,\beta_k)}(X \,\|\, C_k)\bigr)}
                   {Z(\alpha_k, \beta_k, \kappa_k)}

    with respect to the affine-invariant volume :math:`\det(X)^{-(d+1)/2} dX`. Among its members are
    mixtures of Wishart matrices at (alpha, beta) = (0, 1), of inverse Wishart matrices at (1, 0),
    of matrix-F on alpha + beta = 1 and of the Riemannian Gaussian at (0, 0). Since Z is known for
    all members, likelihoods show which one fits the data.

    Parameters
    ----------
    n_components : int or sequence of int, default=1
        Of a sequence, the number with the lowest BIC is chosen.
    divergence : str, pair (alpha, beta) or Divergence, default="learn"
        "learn" for the most likely alpha, beta >= 0; "wishart", "inverse-wishart",
        "riemannian-gaussian"; "matrix-f" for the most likely on alpha + beta = 1; or any divergence
        of `divlearn.get_divergence`. ``metric`` is an alias. kappa is always learned.
    share : {"all", "divergence", "none"}, default="all"
        Whether components have alpha, beta and kappa in common, alpha and beta only, or nothing.
        Components of fewer than 5 matrices keep their initial parameters, since estimates would
        diverge on a single matrix.
    init : as in `ABKMeans`
        After a named initialisation, the fit also tries moves: it removes one component and splits
        another while this raises the likelihood, which usually replaces many restarts. With an
        array, there are no moves, and components keep its order. Last, "learn" and "matrix-f" fit
        their named special cases from the same components, and continue from one that is likelier.
    n_init : int, default=1
        Number of starts; the result with the highest likelihood is kept.
    max_iter : int, default=200
        Iterations of each start and after each move. They stop when one raises the mean
        log-likelihood by 1e-4 or less.
    random_state, engine, n_jobs, verbose, regularize : as in `ABKMeans`

    Attributes
    ----------
    weights_ : ndarray, shape (n_components,)
    means_ : ndarray, shape (n_components, d, d)
        The centres :math:`C_k`: the minimisers of :math:`E[D(X \,\|\, C)]`. They are the expected
        matrix of Wishart densities, :math:`E[X^{-1}]^{-1}` of inverse Wishart densities and the
        Riemannian mean of Riemannian Gaussians.
    alpha_, beta_, kappa_ : ndarray, shape (n_components,)
        All entries are equal if they are shared. Around its centre a component spreads by about
        :math:`\kappa^{-1/2}` in every direction of the affine-invariant metric; Wishart matrices
        have :math:`2\kappa` degrees of freedom.
    n_components_ : int
    bics_ : dict, the BIC of each number of components that was tried.
    lower_bound_ : float, mean log-likelihood of the training matrices.
    converged_, n_iter_ : bool and int, of the start that was kept, and after its moves.
    message_ : str, why it stopped, and what to know about the components.
    history_ : dict of arrays, "lower_bound", "seconds", "alpha", "beta" and "kappa" after every
        iteration. The bound may fall at a move, after which it ends higher than before.
    n_features_in_ : int, d.

    Notes
    -----
    The algorithm is generalised expectation maximisation, so the likelihood never falls between
    moves. kappa is at most 1e8, where the matrices of a component are equal up to a relative 1e-4;
    without this bound the likelihood could diverge.

    Near the origin the error of alpha + beta is of order :math:`n^{-1/4}`; compare likelihoods, as
    `summary` does, rather than positions.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(2, 30, 2, random_state=0)
    >>> mixture = ABMixture([1, 2], random_state=0).fit(X)
    >>> mixture.n_components_, mixture.predict_proba(X[:1]).shape
    (2, (1, 2))
    >>> print(mixture.summary(X))
    The likelihood of 2 components is largest at alpha = ..., beta = ..., kappa = ... That is
    wishart with ... degrees of freedom up to noise: ...
    """

    n_features_in_: Annotated[int, "d"]
    weights_: Annotated[RealArray, "n_components"]
    means_: Annotated[RealArray, "n_components d d"]
    _takes_complex = False
    alpha_: Annotated[RealArray, "n_components"]
    beta_: Annotated[RealArray, "n_components"]
    kappa_: Annotated[RealArray, "n_components"]
    n_components_: Annotated[int, "n_components"]
    bics_: dict[int, float]
    lower_bound_: float
    converged_: bool
    n_iter_: int
    message_: str
    history_: dict[str, NDArray[np.generic]]

    def __init__(
        self,
        n_components: int | Sequence[int] = 1,
        divergence: DivergenceLike = "learn",
        *,
        share: str = "all",
        init: str | ArrayLike = "tangent",
        n_init: int = 1,
        max_iter: int = 200,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_components, self.divergence, self.share = n_components, divergence, share
        self.init, self.n_init, self.max_iter, self.regularize = init, n_init, max_iter, regularize
        self.random_state, self.engine, self.n_jobs = random_state, engine, n_jobs
        self.verbose = verbose

    @fit_method
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X, y, sample_weight : as in `ABKMeans.fit`
            With shards, moves use a sample. Only the ratios of weights matter.
        """
        shards = open_training(self, X, None, sample_weight)
        n_matrices, d = shards.n_seen, shards.d
        counts, members = self._counts(n_matrices), self._check()
        check_count(self.n_init, "n_init")
        random_state = check_random_state(self.random_state)
        em = EM(shards, members, self.share, self.max_iter, TOLERANCE)
        runs: dict[int, Run[Mixture]] = {}
        news = ""
        self.bics_: dict[int, float] = {}
        self.n_features_in_ = d
        fingerprints = partial(shards.map, fingerprint_block)
        with checkpointed(self, X=fingerprints), stoppable(lambda: self.bics_):
            for done, count in enumerate(counts):
                notify("numbers of components", done, len(counts), news)
                init = check_init(self.init, count, d)
                fit = partial(fit_mixture, em, count, init, self.n_init, random_state)
                run = runs[count] = stage("components", fit, random_state)
                n_parameters = count_parameters(count, d, members, self.share)
                bic = n_parameters * np.log(n_matrices) + 2 * n_matrices * run.objective
                self.bics_[count], news = float(bic), f"BIC {bic:.6g} with {count}"
                if is_interrupted():
                    break
        n_done = len(self.bics_)
        notify("numbers of components", n_done, len(counts), news)
        self._keep(runs[min(self.bics_, key=lambda count: self.bics_[count])])
        if n_done < len(counts):
            self.message_ += f"; interrupted after {n_done} of {len(counts)} n_components"
        return self

    def fit_predict(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Indices:
        """Fit the mixture; return the most likely components, shape (n_matrices,)."""
        return self.fit(X, y, sample_weight).predict(X)

    def _keep(self, run: Run[Mixture]) -> None:
        self.weights_, self.means_ = run.result.weights, run.result.means
        self.alpha_, self.beta_, self.kappa_, _ = run.result.densities
        self.n_components_ = len(self.weights_)
        self.lower_bound_, self.converged_ = -run.objective, run.converged
        self.n_iter_, self.message_, self.history_ = run.n_iter, run.message, run.history
        if not (run.converged or is_interrupted()):
            message = f"the best start did not converge: {self.message_}; raise max_iter"
            warnings.warn(message, ConvergenceWarning, stacklevel=4)

    def _counts(self, n_matrices: int) -> list[int]:
        if n_matrices < 2:
            raise ValueError(
                f"n_matrices={n_matrices} with a weight > 0 (n_samples={n_matrices}) must be >= 2 "
                "to estimate a centre and a spread; pass more matrices"
            )
        counts = np.atleast_1d(np.asarray(self.n_components, dtype=object))
        if not len(counts):
            raise ValueError("n_components is empty, must hold at least one integer >= 1")
        fix = ", the number of matrices, or a list of such integers"
        checked = [check_count(n, "n_components", most=n_matrices, fix=fix) for n in counts]
        return list(dict.fromkeys(checked))

    def _check(self) -> Members:
        """Check parameters, and return the members to choose from."""
        check_name(self.share, "share", _SHARES)
        check_count(self.max_iter, "max_iter")
        return get_members(self.divergence)

    def score_samples(self, X: ArrayLike) -> RealArray:
        r"""Compute the log-density of each matrix, shape (n_matrices,).

        The density is with respect to the affine-invariant volume, and does not change if data and
        mixture undergo a congruence. Subtract :math:`\frac{d+1}{2} \log\det X` for the density with
        respect to dX, as `scipy.stats.wishart` has it.
        """
        return self._map(X, partial(logsumexp, axis=1))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Compute the mean log-density of matrices, shape (n_matrices, d, d)."""
        return float(self.score_samples(X).mean())

    def predict(self, X: ArrayLike) -> Indices:
        """Find the most likely component of each matrix, shape (n_matrices,)."""
        return self._map(X, lambda logarithms: logarithms.argmax(axis=1))

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Compute the probabilities of components, shape (n_matrices, n_components)."""
        return self._map(X, partial(softmax, axis=1))

    def bic(self, X: ArrayLike) -> float:
        """Bayesian information criterion on matrices; the lower the better."""
        scores = self.score_samples(X)
        return float(self._n_parameters() * np.log(len(scores)) - 2 * scores.sum())

    def aic(self, X: ArrayLike) -> float:
        """Akaike information criterion on matrices; the lower the better."""
        return float(2 * self._n_parameters() - 2 * self.score_samples(X).sum())

    def compare(self, X: ArrayLike) -> dict[str, MemberFit]:
        """Fit mixtures of the named members, and the learned one, from these components.

        ``X`` are the training matrices; shards have the weights that they were opened with. The
        result, by name, has log-likelihoods, BIC, and likelihood-ratio tests against "learned". The
        p-values are those of many matrices. With 7 matrices of size 3 in each of 3 components of
        Wishart matrices, 5 of 24 were below 0.05, with 20 in each, 3 of 30.
        """
        shards = open_new(self, X)
        self._check()
        with user_call(), print_progress(type(self).__name__, self.verbose):
            return compare_members(shards, self._mixture, self.share, self.max_iter, TOLERANCE)

    def summary(self, X: ArrayLike) -> str:
        """Describe the fitted distribution, and compare it with the named ones; see `compare`."""
        return describe(self.compare(X))

    def sample(self, n_samples: int = 1) -> tuple[RealArray, Indices]:
        """Draw matrices (n_samples, d, d), and the components they come from, ascending.

        See `divlearn.likelihood.sample_family`.
        """
        check_is_fitted(self)
        check_count(n_samples, "n_samples")
        random_state = check_random_state(self.random_state)
        counts = random_state.multinomial(n_samples, self.weights_)
        points = zip(
            self.alpha_, self.beta_, self.kappa_, counts.tolist(), self.means_, strict=True
        )
        parts = [sample_family(*point, random_state) for point in points if point[3]]
        return np.concatenate(parts), np.repeat(np.arange(len(counts)), counts)

    @property
    def _mixture(self) -> Mixture:
        points = list(zip(self.alpha_, self.beta_, self.kappa_, strict=True))
        # Components mostly share their point.
        constants = {point: log_normalizer(*point, self.n_features_in_) for point in set(points)}
        densities = np.array([(*point, constants[point]) for point in points]).T
        return Mixture(self.weights_, self.means_, densities)

    def _map(self, X: ArrayLike, function: Callable[[RealArray], np.ndarray]) -> np.ndarray:
        """Apply a function to the logarithms of weights times densities, block by block."""
        shards = open_new(self, X)
        parts = shards.map(lambda block, m: function(log_joint(block, m)), self._mixture)
        return np.concatenate(parts)

    def _n_parameters(self) -> int:
        members = get_members(self.divergence)
        return count_parameters(self.n_components_, self.n_features_in_, members, self.share)
