r"""Gaussian discriminants of vectors with more entries than there are vectors.

Nothing much larger than (n_vectors, n_entries) is made. Vectors may be on a device; of models, what
is large stays there. Scores are logarithms of class probabilities up to a constant of every vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from scipy.linalg import solve_triangular

from divlearn.arrays import Indices, RealArray, on_device, to_device_of, to_host
from divlearn.geometry import solve_definite

_RIDGE = 1e-10  # of the largest variance, for where Ledoit and Wolf shrink nothing


class NoSpreadError(ValueError):
    """There is no covariance: vectors of a class are all the same."""


@dataclass(frozen=True, eq=False)
class Linear:
    """Scores that are linear in vectors."""

    coefficients: Annotated[RealArray, "n_classes n_entries"]
    offsets: Annotated[RealArray, "n_classes"]

    def decide(self, vectors: RealArray) -> RealArray:
        return vectors @ to_device_of(self.coefficients.T, vectors) + to_device_of(
            self.offsets, vectors
        )


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Scores by a mean and a covariance of every class, in common axes."""

    axes: Annotated[RealArray, "n_entries n_axes"]
    linear: Linear  # what is common to all covariances
    factors: Annotated[RealArray, "n_rows n_axes"]  # of all classes, one after the other
    centres: Annotated[RealArray, "n_rows"]  # means by the factors of their classes
    starts: Annotated[Indices, "n_classes"]  # first rows of the classes

    def to_host(self) -> Self:
        """Return the same model with all arrays on the host."""
        axes, factors, centres = map(to_host, (self.axes, self.factors, self.centres))
        return replace(self, axes=axes, factors=factors, centres=centres)

    def decide(self, vectors: RealArray) -> RealArray:
        placed = vectors @ to_device_of(self.axes, vectors)
        gaps = placed @ to_device_of(self.factors.T, vectors)
        gaps -= to_device_of(self.centres, vectors)
        gaps *= gaps
        return self.linear.decide(placed) + 0.5 * self._add_up(gaps)

    def _add_up(self, gaps: RealArray) -> RealArray:
        """Sum over the rows of every class, to the shape (n_vectors, n_classes)."""
        if not on_device(gaps):
            return np.add.reduceat(gaps, self.starts, axis=1)
        lengths = np.diff(self.starts, append=len(self.centres))
        return gaps @ to_device_of(np.repeat(np.eye(len(lengths)), lengths, axis=0), gaps)


def fit_lda(vectors: RealArray, codes: Indices, priors: RealArray) -> Linear:
    """Fit scikit-learn's LDA with ``shrinkage="auto"``: Ledoit and Wolf's for every class."""
    means, rows, diagonal = [], [], 0.0
    for code, prior in enumerate(priors):
        mine = vectors[np.flatnonzero(codes == code)]
        means.append(mine.mean(axis=0))
        centred = mine - means[-1]
        deviations = centred.std(axis=0)
        share = _ledoit_wolf(centred / np.where(deviations > 0, deviations, 1.0))
        rows.append(centred * np.sqrt(prior * (1 - share) / len(mine)))
        # Standardised entries have a variance of one, or of zero: their mean is the target.
        diagonal = diagonal + prior * share * (deviations > 0).mean() * deviations**2
    centres, Z = np.stack(means), np.concatenate(rows)
    n, n_entries = Z.shape
    variances = diagonal + (Z**2).sum(axis=0)
    _check_spread(variances)
    diagonal = diagonal + _RIDGE * variances.max()
    if n < n_entries:  # by Woodbury's identity: the covariance is Z^T Z plus a diagonal
        W = Z / diagonal
        inner = solve_definite(to_device_of(np.eye(n), Z) + W @ Z.T, W @ centres.T)
        coefficients = centres / diagonal - inner.T @ W
    else:
        coefficients = solve_definite(np.diag(diagonal) + Z.T @ Z, centres.T).T
    offsets = np.log(priors) - 0.5 * to_host((coefficients * centres).sum(axis=1))
    return Linear(to_host(coefficients), offsets)


def _ledoit_wolf(standardised: RealArray) -> float:
    """Shrinkage of `sklearn.covariance.ledoit_wolf` for centred vectors, from their Gram matrix."""
    n, n_entries = standardised.shape
    gram = standardised @ standardised.T
    lengths = np.diag(gram)
    squares = float((gram**2).sum()) / n**2  # of the entries of the covariance
    scale = float(lengths.sum()) / n / n_entries
    distance = squares - n_entries * scale**2
    noise = (float((lengths**2).sum()) / n - squares) / n
    return float(min(noise, distance) / distance) if distance > 0 and noise > 0 else 0.0


class RDA:
    r"""Friedman's regularised discriminant analysis, with (1 - g) [(1 - l) S_k + l S] + g mu I.

    S_k is the covariance of a class, S the pooled one and mu the mean of those of its eigenvalues
    that need not be zero. Vectors are reduced to the span of the training data; what lies outside
    sees g mu I in every class.
    """

    def __init__(self, vectors: RealArray, codes: Indices, weights: RealArray) -> None:
        shares = weights / weights.sum()
        priors = np.bincount(codes, shares)
        self._logs = np.log(priors)
        reduction = span(vectors)
        inside = vectors if reduction is None else vectors @ reduction
        groups = [np.flatnonzero(codes == k) for k in range(len(priors))]
        inner = to_device_of(shares, inside)
        means = np.stack([inner[rows] / inner[rows].sum() @ inside[rows] for rows in groups])
        centred = inside - means[codes]
        _check_spread(centred)
        centred *= np.sqrt(inner)[:, None]
        freedom = len(codes) - len(priors)
        pooled = centred.T @ centred * (len(codes) / freedom)
        values, axes = np.linalg.eigh(pooled)
        self._values = np.maximum(values, 0.0)
        self._level = float(self._values.sum()) / min(vectors.shape[1], freedom)
        self._axes = axes if reduction is None else reduction @ axes
        self._means = means @ axes
        # R^T R is the covariance of a class, and R has no more rows than needed.
        placed = centred @ axes
        scales = [
            np.sqrt(len(rows) / max(len(rows) - 1, 1) / priors[k]) for k, rows in enumerate(groups)
        ]
        roots = [placed[rows] * scale for rows, scale in zip(groups, scales, strict=True)]
        wide = placed.shape[1]
        roots = [np.linalg.qr(R, mode="r") if len(R) > wide else R for R in roots]
        self._starts = np.cumsum([0, *map(len, roots[:-1])])
        self._stacks, self._order = _stack(roots)

    def learn(self, pool: float, shrink: float) -> Quadratic:
        """Fix l and g; what is common to classes is diagonal, and a class adds few dimensions."""
        base = (1 - shrink) * pool * self._values + shrink * self._level
        scale = 1 / np.sqrt(base)
        logs, factors, centres = self._logs.copy(), [], []
        for classes, roots in self._stacks:
            U = np.sqrt((1 - shrink) * (1 - pool)) * roots * scale
            lower = np.linalg.cholesky(to_device_of(np.eye(U.shape[1]), U) + U @ U.mT)
            found = _solve_lower(lower, U) * scale
            factors.append(found.reshape(-1, found.shape[2]))
            centres.append((found @ self._means[classes][:, :, None]).ravel())
            diagonals = np.diagonal(lower, axis1=1, axis2=2)
            logs[classes] -= to_host(np.log(diagonals).sum(axis=1))
        coefficients = self._means / base
        constants = logs - 0.5 * to_host((coefficients * self._means).sum(axis=1))
        return Quadratic(
            self._axes,
            Linear(to_host(coefficients), constants),
            np.concatenate(factors)[self._order],
            np.concatenate(centres)[self._order],
            self._starts,
        )


def _stack(roots: Sequence[RealArray]) -> tuple[list[tuple[Indices, RealArray]], Indices | slice]:
    """Stacks of roots, with the numbers of their classes, and where rows of all roots are in them.

    A device takes roots of about the same size together, with rows of zeros below, which change
    nothing. The host takes them one by one, as they are.
    """
    if not on_device(roots[0]):
        return [(np.array([k]), root[None]) for k, root in enumerate(roots)], slice(None)
    sizes = np.array([len(root) for root in roots])
    heights = 2 ** np.ceil(np.log2(sizes)).astype(int)
    stacks, starts, n_rows = [], np.zeros_like(sizes), 0
    for height in np.unique(heights).tolist():
        classes = np.flatnonzero(heights == height)
        stack = np.zeros((len(classes), height, roots[0].shape[1]), like=roots[0])
        for place, k in enumerate(classes.tolist()):
            stack[place, : sizes[k]] = roots[k]
        stacks.append((classes, stack))
        starts[classes] = n_rows + height * np.arange(len(classes))
        n_rows += height * len(classes)
    rows = [start + np.arange(size) for start, size in zip(starts, sizes, strict=True)]
    return stacks, np.concatenate(rows)


def _solve_lower(lower: RealArray, B: RealArray) -> RealArray:
    if on_device(lower):  # where SciPy does not work
        return np.linalg.solve(lower, B)
    # Stacks of the host hold one.
    return solve_triangular(lower[0], B[0], lower=True, check_finite=False)[None]


def _check_spread(deviations: RealArray) -> None:
    if not deviations.any():
        raise NoSpreadError("no class has two different matrices in every training part")


def span(vectors: RealArray) -> RealArray | None:
    """Orthonormal basis of the span, shape (n_entries, n_vectors); None if it may be everything."""
    n, n_entries = vectors.shape
    return np.linalg.qr(vectors.T)[0] if n < n_entries else None
