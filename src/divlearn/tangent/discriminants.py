r"""Gaussian discriminants of vectors with more entries than there are vectors.

Nothing larger than (n_vectors, n_entries) is made. Scores are logarithms of class probabilities up
to a constant of every vector.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.linalg import solve, solve_triangular

from divlearn.arrays import Indices, RealArray

_RIDGE = 1e-10  # of the largest variance, for where Ledoit and Wolf shrink nothing


@dataclass(frozen=True, eq=False)
class Linear:
    """Scores that are linear in vectors."""

    coefficients: Annotated[RealArray, "n_classes n_entries"]
    offsets: Annotated[RealArray, "n_classes"]

    def decide(self, vectors: RealArray) -> RealArray:
        return vectors @ self.coefficients.T + self.offsets


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Scores by a mean and a covariance of every class, in common axes."""

    axes: Annotated[RealArray, "n_entries n_axes"]
    linear: Linear  # what is common to all covariances
    factors: Annotated[RealArray, "n_rows n_axes"]  # of all classes, one after the other
    centres: Annotated[RealArray, "n_rows"]  # means by the factors of their classes
    starts: Annotated[Indices, "n_classes"]  # first rows of the classes

    def decide(self, vectors: RealArray) -> RealArray:
        placed = vectors @ self.axes
        gaps = placed @ self.factors.T
        gaps -= self.centres
        gaps *= gaps
        return self.linear.decide(placed) + 0.5 * np.add.reduceat(gaps, self.starts, axis=1)


def fit_lda(vectors: RealArray, codes: Indices, priors: RealArray) -> Linear:
    """Fit scikit-learn's LDA with ``shrinkage="auto"``: Ledoit and Wolf's for every class."""
    means, rows, diagonal = [], [], np.zeros(vectors.shape[1])
    for code, prior in enumerate(priors):
        mine = vectors[codes == code]
        means.append(mine.mean(axis=0))
        centred = mine - means[-1]
        deviations = centred.std(axis=0)
        share = _ledoit_wolf(centred / np.where(deviations > 0, deviations, 1.0))
        rows.append(centred * np.sqrt(prior * (1 - share) / len(mine)))
        # Standardised entries have a variance of one, or of zero: their mean is the target.
        diagonal += prior * share * (deviations > 0).mean() * deviations**2
    centres, Z = np.stack(means), np.concatenate(rows)
    n, n_entries = Z.shape
    variances = diagonal + (Z**2).sum(axis=0)
    _check_spread(variances)
    diagonal += _RIDGE * variances.max()
    if n < n_entries:  # by Woodbury's identity: the covariance is Z^T Z plus a diagonal
        W = Z / diagonal
        inner = solve(np.eye(n) + W @ Z.T, W @ centres.T, assume_a="pos")
        coefficients = centres / diagonal - inner.T @ W
    else:
        coefficients = solve(np.diag(diagonal) + Z.T @ Z, centres.T, assume_a="pos").T
    offsets = np.log(priors) - 0.5 * (coefficients * centres).sum(axis=1)
    return Linear(coefficients, offsets)


def _ledoit_wolf(standardised: RealArray) -> float:
    """Shrinkage of `sklearn.covariance.ledoit_wolf` for centred vectors, from their Gram matrix."""
    n, n_entries = standardised.shape
    gram = standardised @ standardised.T
    lengths = np.diag(gram)
    squares = float((gram**2).sum()) / n**2  # of the entries of the covariance
    scale = lengths.sum() / n / n_entries
    distance = squares - n_entries * scale**2
    noise = (float((lengths**2).sum()) / n - squares) / n
    return float(min(noise, distance) / distance) if distance > 0 and noise > 0 else 0.0


class RDA:
    r"""Friedman's regularised discriminant analysis, with (1 - g) [(1 - l) S_k + l S] + g mu I.

    S_k is the covariance of a class, S the pooled one and mu the mean of those of its eigenvalues
    that need not be zero. Vectors are reduced to the span of the training data; what lies outside
    sees g mu I in every class.
    """

    def __init__(self, vectors: RealArray, codes: Indices, priors: RealArray) -> None:
        self._logs = np.log(priors)
        reduction = span(vectors)
        inside = vectors if reduction is None else vectors @ reduction
        means = np.stack([inside[codes == k].mean(axis=0) for k in range(len(priors))])
        centred = inside - means[codes]
        freedom = len(codes) - len(priors)
        _check_spread(centred)
        pooled = centred.T @ centred / freedom
        values, axes = np.linalg.eigh(pooled)
        self._values = np.maximum(values, 0.0)
        self._level = self._values.sum() / min(vectors.shape[1], freedom)
        self._axes = axes if reduction is None else reduction @ axes
        self._means = means @ axes
        # R^T R is the covariance of a class, and R has no more rows than needed.
        self._roots = [
            np.linalg.qr(mine @ axes, mode="r") / np.sqrt(max(len(mine) - 1, 1))
            for mine in (centred[codes == k] for k in range(len(priors)))
        ]

    def learn(self, shrink: float, pool: float) -> Quadratic:
        """Fix g and l; what is common to classes is diagonal, and a class adds few dimensions."""
        base = (1 - shrink) * pool * self._values + shrink * self._level
        scale = 1 / np.sqrt(base)
        factors, centres, offsets = [], [], []
        for root, mean, log_prior in zip(self._roots, self._means, self._logs, strict=True):
            U = np.sqrt((1 - shrink) * (1 - pool)) * root * scale
            lower = np.linalg.cholesky(np.eye(len(U)) + U @ U.T)
            factors.append(solve_triangular(lower, U, lower=True, check_finite=False) * scale)
            centres.append(factors[-1] @ mean)
            offsets.append(log_prior - np.log(np.diag(lower)).sum())
        coefficients = self._means / base
        constants = np.array(offsets) - 0.5 * (coefficients * self._means).sum(axis=1)
        starts = np.cumsum([0, *map(len, factors[:-1])])
        return Quadratic(
            self._axes,
            Linear(coefficients, constants),
            np.concatenate(factors),
            np.concatenate(centres),
            starts,
        )


def _check_spread(deviations: RealArray) -> None:
    if not deviations.any():
        raise ValueError("no class has two different matrices in every training part")


def span(vectors: RealArray) -> RealArray | None:
    """Orthonormal basis of the span, shape (n_entries, n_vectors); None if it may be everything."""
    n, n_entries = vectors.shape
    return np.linalg.qr(vectors.T)[0] if n < n_entries else None
