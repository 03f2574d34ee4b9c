"""Features beside the divergences: where a matrix lies in the tangent space at the mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divlearn.arrays import RealArray
from divlearn.geometry import expm, invsqrtm, logm
from divlearn.log_vectors import log_vectors

__all__ = ["TangentBlock"]


@dataclass(frozen=True, eq=False)
class TangentBlock:
    r"""Principal components of :math:`\log(G^{-1/2} X G^{-1/2})`, G the log-Euclidean mean.

    Attributes
    ----------
    whitener : ndarray, shape (d, d), :math:`G^{-1/2}`.
    mean : ndarray, shape (d (d + 1) / 2,), of the vectors.
    components : ndarray, shape (n_components, d (d + 1) / 2)
        Scaled such that all components together vary as much as so many standardised features.
    """

    whitener: RealArray
    mean: RealArray
    components: RealArray

    @classmethod
    def fit(cls, X: RealArray, weights: RealArray, n_components: int) -> TangentBlock:
        """Learn the mean and the components.

        Parameters
        ----------
        X : ndarray, shape (n_matrices, d, d)
        weights : ndarray, shape (n_matrices,), with sum one.
        n_components : int
            At most; there are no more than matrices or entries.
        """
        mean_log = np.tensordot(weights, logm(X), axes=1)
        whitener = invsqrtm(expm(0.5 * (mean_log + mean_log.T)))
        vectors = log_vectors(X, whitener)
        mean = weights @ vectors
        _, sizes, directions = np.linalg.svd(
            np.sqrt(weights)[:, None] * (vectors - mean), full_matrices=False
        )
        kept = min(n_components, int((sizes > 1e-10 * sizes[0]).sum())) if sizes[0] > 0 else 0
        whole = float(np.linalg.norm(sizes[:kept]))
        scale = np.sqrt(kept) / whole if whole > 0 else 1.0
        return cls(whitener, mean, scale * directions[:kept])

    def compute(self, X: RealArray) -> RealArray:
        """Components of matrices, shape (n_matrices, n_components)."""
        result: RealArray = (log_vectors(X, self.whitener) - self.mean) @ self.components.T
        return result
