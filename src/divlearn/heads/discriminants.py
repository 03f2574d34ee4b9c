r"""Gaussian discriminants of vectors with more entries than there are vectors.

No array is much larger than (n_vectors, n_entries). Vectors may be on a device; the large arrays of
models stay there. Scores are logarithms of class probabilities up to a constant of every vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from scipy.linalg import solve_triangular

from divlearn.arrays import Indices, RealArray, on_device, to_device_of, to_host
from divlearn.geometry import solve_definite

_RIDGE = 1e-10  # relative to the largest variance, for when Ledoit and Wolf do not shrink
_NEGLIGIBLE = 1e-10  # square along an axis, relative to the largest, that is taken for rounding


class NoSpreadError(ValueError):
    """All covariances are zero: vectors of a class are all equal."""


@dataclass(frozen=True, eq=False)
class Linear:
    """Scores that are linear functions of vectors."""

    coefficients: Annotated[RealArray, "n_classes n_entries"]
    offsets: Annotated[RealArray, "n_classes"]

    @property
    def linear(self) -> Linear:
        """The scores themselves, as of `Quadratic`."""
        return self

    def compact(self) -> Linear:
        return self

    def decide(self, vectors: RealArray) -> RealArray:
        return vectors @ to_device_of(self.coefficients.T, vectors) + to_device_of(
            self.offsets, vectors
        )


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Scores by a mean and a covariance of every class, in common axes."""

    axes: Annotated[RealArray | None, "n_entries n_axes"]  # None for the entries themselves
    linear: Linear  # scores by the pooled part of the covariances
    factors: Annotated[RealArray, "n_rows n_axes"]  # of all classes, one after the other
    centres: Annotated[RealArray, "n_rows"]  # means times the factors of their classes
    starts: Annotated[Indices, "n_classes"]  # first rows of the classes

    def compact(self) -> Self:
        """Return the same model on the host, without axes: predictions then read less."""
        factors, centres = to_host(self.factors), to_host(self.centres)
        if self.axes is None:
            return replace(self, factors=factors, centres=centres)
        turned = to_host(self.axes).T
        linear = replace(self.linear, coefficients=self.linear.coefficients @ turned)
        return replace(self, axes=None, linear=linear, factors=factors @ turned, centres=centres)

    def decide(self, vectors: RealArray) -> RealArray:
        coordinates = vectors
        if self.axes is not None:
            coordinates = vectors @ to_device_of(self.axes, vectors)
        return self.linear.decide(coordinates) + self.quadratic_part(coordinates)

    def quadratic_part(self, coordinates: RealArray) -> RealArray:
        """Return the part of the scores that is not linear."""
        squares = coordinates @ to_device_of(self.factors.T, coordinates)
        squares -= to_device_of(self.centres, coordinates)
        squares *= squares
        if not on_device(squares):
            return 0.5 * np.add.reduceat(squares, self.starts, axis=1)
        lengths = np.diff(self.starts, append=len(self.centres))
        of_class = np.repeat(np.eye(len(lengths)), lengths, axis=0)
        return 0.5 * (squares @ to_device_of(of_class, squares))


def fit_lda(vectors: RealArray, codes: Indices, priors: RealArray) -> Linear:
    """Fit scikit-learn's LDA with ``shrinkage="auto"``, Ledoit and Wolf's for every class."""
    class_means, blocks_of_Z, diagonal = [], [], 0.0
    for code, prior in enumerate(priors):
        class_vectors = vectors[np.flatnonzero(codes == code)]
        class_means.append(class_vectors.mean(axis=0))
        centred = class_vectors - class_means[-1]
        deviations = centred.std(axis=0)
        shrinkage = _ledoit_wolf(centred / np.where(deviations > 0, deviations, 1.0))
        blocks_of_Z.append(centred * np.sqrt(prior * (1 - shrinkage) / len(class_vectors)))
        # The target is the mean variance of standardised entries, each of which is one or zero.
        diagonal = diagonal + prior * shrinkage * (deviations > 0).mean() * deviations**2
    means, Z = np.stack(class_means), np.concatenate(blocks_of_Z)
    n, n_entries = Z.shape
    variances = diagonal + (Z**2).sum(axis=0)
    _check_spread(variances)
    diagonal = diagonal + _RIDGE * variances.max()
    if n < n_entries:  # by Woodbury's identity: the covariance is Z^T Z plus a diagonal
        W = Z / diagonal
        inner = solve_definite(to_device_of(np.eye(n), Z) + W @ Z.T, W @ means.T)
        coefficients = means / diagonal - inner.T @ W
    else:
        coefficients = solve_definite(np.diag(diagonal) + Z.T @ Z, means.T).T
    offsets = np.log(priors) - 0.5 * to_host((coefficients * means).sum(axis=1))
    return Linear(to_host(coefficients), offsets)


def _ledoit_wolf(standardised: RealArray) -> float:
    """Shrinkage of `sklearn.covariance.ledoit_wolf` for centred vectors, from their Gram matrix."""
    n, n_entries = standardised.shape
    gram = standardised @ standardised.T
    squared_norms = np.diag(gram)
    covariance_norm = float((gram**2).sum()) / n**2  # squared Frobenius norm
    variance = float(squared_norms.sum()) / n / n_entries
    distance = covariance_norm - n_entries * variance**2
    noise = (float((squared_norms**2).sum()) / n - covariance_norm) / n
    return float(min(noise, distance) / distance) if distance > 0 and noise > 0 else 0.0


class RDA:
    r"""Friedman's regularised discriminant analysis, with (1 - g) [(1 - l) S_k + l S] + g mu I.

    S_k is the covariance of a class, S the pooled one and mu the mean of those of its eigenvalues
    that need not be zero. Vectors are projected to the span of the training data; outside it, the
    covariance of every class is g mu I.
    """

    def __init__(self, vectors: RealArray, codes: Indices, weights: RealArray) -> None:
        weights = weights / weights.sum()
        priors = np.bincount(codes, weights)
        self._log_priors = np.log(priors)
        projected, basis = project_to_span(vectors)
        class_rows = [np.flatnonzero(codes == k) for k in range(len(priors))]
        w = to_device_of(weights, projected)
        means = np.stack([w[rows] / w[rows].sum() @ projected[rows] for rows in class_rows])
        centred = projected - means[codes]
        _check_spread(centred)
        centred *= np.sqrt(w)[:, None]
        freedom = len(codes) - len(priors)
        pooled = centred.T @ centred * (len(codes) / freedom)
        values, axes = np.linalg.eigh(pooled)
        self._values = np.maximum(values, 0.0)
        self._mean_value = float(self._values.sum()) / min(vectors.shape[1], freedom)
        self._axes = axes if basis is None else basis @ axes
        self._means = means @ axes
        # R^T R is the covariance of a class; R has at most as many rows as columns.
        coordinates = centred @ axes
        scales = [
            np.sqrt(len(rows) / max(len(rows) - 1, 1) / prior)
            for rows, prior in zip(class_rows, priors, strict=True)
        ]
        roots = [coordinates[rows] * scale for rows, scale in zip(class_rows, scales, strict=True)]
        roots = [np.linalg.qr(R, mode="r") if len(R) > R.shape[1] else R for R in roots]
        self._starts = np.cumsum([0, *map(len, roots[:-1])])
        self._stacks, self._order = _stack(roots)

    def learn(self, pool: float, shrink: float) -> Quadratic:
        """Make the model for l and g; covariances are a common diagonal plus one of low rank."""
        diagonal = (1 - shrink) * pool * self._values + shrink * self._mean_value
        scale = 1 / np.sqrt(diagonal)
        logs, factors, centres = self._log_priors.copy(), [], []
        for classes, roots in self._stacks:
            U = np.sqrt((1 - shrink) * (1 - pool)) * roots * scale
            lower = np.linalg.cholesky(to_device_of(np.eye(U.shape[1]), U) + U @ U.mT)
            stack = _solve_lower(lower, U) * scale
            factors.append(stack.reshape(-1, stack.shape[2]))
            centres.append((stack @ self._means[classes][:, :, None]).ravel())
            diagonals = np.diagonal(lower, axis1=1, axis2=2)
            logs[classes] -= to_host(np.log(diagonals).sum(axis=1))
        coefficients = self._means / diagonal
        offsets = logs - 0.5 * to_host((coefficients * self._means).sum(axis=1))
        return Quadratic(
            self._axes,
            Linear(to_host(coefficients), offsets),
            np.concatenate(factors)[self._order],
            np.concatenate(centres)[self._order],
            self._starts,
        )


def _stack(roots: Sequence[RealArray]) -> tuple[list[tuple[Indices, RealArray]], Indices | slice]:
    """Stack roots of several classes, for batched linear algebra.

    Returns each stack with the indices of its classes, and the positions of all roots' rows in the
    concatenated stacks. On a device, roots of similar height share a stack and are padded with
    rows of zeros. On the host, each root is a stack.
    """
    if not on_device(roots[0]):
        return [(np.array([k]), root[None]) for k, root in enumerate(roots)], slice(None)
    sizes = np.array([len(root) for root in roots])
    heights = 2 ** np.ceil(np.log2(sizes)).astype(int)
    stacks, starts, n_rows = [], np.zeros_like(sizes), 0
    for height in np.unique(heights).tolist():
        classes = np.flatnonzero(heights == height)
        stack = np.zeros((len(classes), height, roots[0].shape[1]), like=roots[0])
        for i, k in enumerate(classes.tolist()):
            stack[i, : sizes[k]] = roots[k]
        stacks.append((classes, stack))
        starts[classes] = n_rows + height * np.arange(len(classes))
        n_rows += height * len(classes)
    rows = [start + np.arange(size) for start, size in zip(starts, sizes, strict=True)]
    return stacks, np.concatenate(rows)


def _solve_lower(lower: RealArray, B: RealArray) -> RealArray:
    if on_device(lower):  # where SciPy does not work
        return np.linalg.solve(lower, B)
    # On the host, a stack has one matrix.
    return solve_triangular(lower[0], B[0], lower=True, check_finite=False)[None]


def _check_spread(deviations: RealArray) -> None:
    if not deviations.any():
        raise NoSpreadError(
            "no class has two different matrices in every training part, but one must have, so "
            "that discriminants know how matrices scatter; pass more matrices or groups"
        )


def project_to_span(vectors: RealArray) -> tuple[RealArray, RealArray | None]:
    """Coordinates of vectors in an orthonormal basis of their span, and the basis.

    Without a basis, whose shape is (n_entries, n_axes), if the span may be everything.
    """
    n, n_entries = vectors.shape
    if n >= n_entries or not vectors.any():
        return vectors, None
    # Products of the vectors take a third of the time of a QR decomposition.
    squares, turn = np.linalg.eigh(vectors @ vectors.T)
    first = int((squares <= _NEGLIGIBLE * squares[-1]).sum())
    lengths, turn = np.sqrt(squares[first:]), turn[:, first:]
    return turn * lengths, vectors.T @ (turn / lengths)
