"""What a fitted mixture says of matrices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.checks import check_count
from divlearn.cluster.base import ClusterBase
from divlearn.cluster.clusters import Labels
from divlearn.cluster.mixture.em import EMSettings
from divlearn.cluster.mixture.expectation import Mixture
from divlearn.cluster.mixture.summary import MemberFit, compare_members, count_parameters, describe
from divlearn.divergence import Divergence
from divlearn.likelihood.members import get_members
from divlearn.likelihood.normalizer import log_normalizer
from divlearn.likelihood.parameters import FamilyParameters
from divlearn.likelihood.sampling import sample_family
from divlearn.sharded.blocks import Block

__all__ = ["MixtureModel"]


class MixtureModel(DensityMixin, ClusterBase):  # type: ignore[misc]
    """All of a mixture but how it is fitted; see `divlearn.cluster.ABMixture`."""

    divergence: str | Sequence[float] | Divergence
    share: str
    random_state: int | np.random.RandomState | None

    weights_: RealArray
    means_: RealArray
    alpha_: RealArray
    beta_: RealArray
    kappa_: RealArray
    n_components_: int

    @abstractmethod
    def _settings(self) -> EMSettings:
        """How a run goes."""

    def score_samples(self, X: ArrayLike) -> RealArray:
        r"""Compute the log-density of each matrix.

        It is that with respect to the affine-invariant volume, and does not change if data and
        mixture undergo a congruence. Subtract :math:`\frac{d+1}{2} \log\det X` for the density with
        respect to dX, as `scipy.stats.wishart` has it.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices,)
        """
        return np.concatenate(self._say(X, _densities))

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Compute the mean log-density of matrices.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
        y : ignored

        Returns
        -------
        float
        """
        total, count = self._total(X)
        return total / count

    def predict(self, X: ArrayLike) -> Labels:
        """Find the most likely component of each matrix.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray of int, shape (n_matrices,)
        """
        return np.concatenate(self._say(X, _labels))

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Compute the probability of each component, given each matrix.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices, n_components)
        """
        return np.concatenate(self._say(X, _probabilities))

    def bic(self, X: ArrayLike) -> float:
        """Bayesian information criterion; the lower the better.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        float
        """
        total, count = self._total(X)
        return float(self._n_parameters() * np.log(count) - 2 * total)

    def aic(self, X: ArrayLike) -> float:
        """Akaike information criterion; the lower the better.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        float
        """
        return float(2 * self._n_parameters() - 2 * self._total(X)[0])

    def compare(self, X: ArrayLike) -> dict[str, MemberFit]:
        """Fit mixtures of the named members, and the learned one, from these components.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards
            The training matrices. Shards have the weights that they were opened with.

        Returns
        -------
        dict of MemberFit
            With their log-likelihoods, BIC, and likelihood-ratio tests against "learned".
        """
        return compare_members(self._open(X), self._mixture, self._settings())

    def summary(self, X: ArrayLike) -> str:
        """Say which member the data chose, against the named ones; see `compare`.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
            The training matrices.

        Returns
        -------
        str
        """
        return describe(self.compare(X))

    def sample(self, n_samples: int = 1) -> tuple[RealArray, Labels]:
        """Draw matrices from the mixture; see `divlearn.likelihood.sample_family`.

        Parameters
        ----------
        n_samples : int, default=1

        Returns
        -------
        X : ndarray, shape (n_samples, d, d)
        y : ndarray of int, shape (n_samples,), the components they come from, ascending.
        """
        check_is_fitted(self)
        check_count(n_samples, "n_samples")
        random_state = check_random_state(self.random_state)
        counts = random_state.multinomial(n_samples, self.weights_)
        parts = [
            sample_family(
                self.alpha_[k], self.beta_[k], self.kappa_[k], int(counts[k]), self.means_[k],
                random_state,
            )
            for k in np.flatnonzero(counts)
        ]  # fmt: skip
        return np.concatenate(parts), np.repeat(np.arange(len(counts)), counts)

    @property
    def _mixture(self) -> Mixture:
        points = list(zip(self.alpha_, self.beta_, self.kappa_, strict=True))
        # Components mostly share theirs.
        known = {point: log_normalizer(*point, self.n_features_in_) for point in set(points)}
        log_z = np.array([known[point] for point in points])
        family = FamilyParameters(self.alpha_, self.beta_, self.kappa_, log_z)
        return Mixture(self.weights_, self.means_, family)

    def _say(self, X: ArrayLike, say: Callable[[RealArray], Any]) -> list[Any]:
        """Say something of the logarithms of weights times densities, block by block."""
        return self._open(X).map(_say_block, self._mixture, say)

    def _total(self, X: ArrayLike) -> tuple[float, int]:
        """Sum of the log-densities, and their number."""
        shards = self._open(X)
        return float(shards.reduce(_sum_block, self._mixture)), shards.n_matrices

    def _n_parameters(self) -> int:
        members = get_members(self.divergence)
        return count_parameters(self.n_components_, self.n_features_in_, members, self.share)


def _say_block(block: Block, mixture: Mixture, say: Callable[[RealArray], Any]) -> Any:
    return say(mixture.log_joint(block))


def _sum_block(block: Block, mixture: Mixture) -> float:
    return float(_densities(mixture.log_joint(block)).sum())


def _densities(log_joint: RealArray) -> RealArray:
    found: RealArray = logsumexp(log_joint, axis=1)
    return found


def _labels(log_joint: RealArray) -> Labels:
    found: Labels = log_joint.argmax(axis=1)
    return found


def _probabilities(log_joint: RealArray) -> RealArray:
    found: RealArray = softmax(log_joint, axis=1)
    return found
