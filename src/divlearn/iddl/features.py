"""What a head sees of a matrix: its divergences, and where it lies in a tangent space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from divlearn.arrays import RealArray, beside, to_host
from divlearn.geometry import expm, invsqrtm, logm
from divlearn.log_vectors import log_vectors
from divlearn.sharded.shards import Parts, Shards

_LEAST_OFFSET = 1e-20  # what divergences of equal matrices are, up to rounding
_LARGEST = 1e120  # divergence that may be squared and summed up
_LEAST_DEVIATION = 1e-12  # relative to the mean square: columns below are constant
_Moments = tuple[float, RealArray, RealArray]  # weight, means, sums of squares around these
Units = tuple[RealArray, RealArray]  # mean and scale of every feature
Tangent = tuple[RealArray, RealArray, RealArray]  # whitener, mean, components


@dataclass(frozen=True, eq=False)
class FeatureMap:
    r"""Features :math:`(\log(v + c) - \mu) / s` of divergences v, or parts of that.

    Standardised by the data at hand, a penalty means the same whatever the divergences.
    """

    offset: RealArray | None = None
    standardize: bool = True

    @classmethod
    def start(
        cls, shards: Shards, targets: Parts, V: Parts, *, logarithm: bool, standardize: bool
    ) -> FeatureMap:
        """Make a map with offsets a tenth of the mean divergences of the data."""
        mean, largest = shards.reduce(_outline, beside=[targets, V], merge=_merge_outlines)
        if logarithm:
            return cls(np.maximum(0.1 * mean, _LEAST_OFFSET), standardize)
        if largest > _LARGEST:
            raise ValueError(
                f"divergences reach {largest:.3g}, must be <= {_LARGEST:g} to be features; set "
                'features="log", or divide each matrix by its trace'
            )
        return cls(None, standardize)

    def units(self, shards: Shards, targets: Parts, V: Parts) -> Units:
        """Mean and scale by which all samples are standardised."""
        if not self.standardize:
            n_features = shards.reduce(_count_columns, beside=[V], merge=max)
            return np.zeros(n_features), np.ones(n_features)
        weight, mean, squares = shards.reduce(
            _moments, self.offset, beside=[targets, V], merge=merge_moments
        )
        variance = squares / weight
        flat = variance <= _LEAST_DEVIATION**2 * (variance + mean**2)
        return mean, np.where(flat, 1, np.sqrt(np.where(flat, 1, variance)))

    def compute(self, V: RealArray, units: Units) -> RealArray:
        """Features of divergences, both of shape (n_samples, n_features)."""
        raw = _raw(V, self.offset)
        if not self.standardize:
            return raw
        mean, scale = (beside(one, V) for one in units)
        return (raw - mean) / scale

    def pull(
        self, V: RealArray, features: RealArray, units: Units, weights: RealArray,
        cotangent: RealArray, sums: tuple[RealArray, RealArray] | None = None,
    ) -> RealArray:  # fmt: skip
        """Gradient in V from that in the features; `sums` of the cotangent if V is a part."""
        back = cotangent
        if self.standardize:
            sums = sums or (cotangent.sum(axis=0), (cotangent * features).sum(axis=0))
            constant, along = (beside(one, V)[: V.shape[1]] for one in sums)
            back = cotangent - weights[:, None] * (constant + along * features)
            back = back / beside(units[1], V)
        if self.offset is not None:
            back = back / (V + beside(self.offset, V))
        return back


def fit_tangent(X: RealArray, weights: RealArray, n_components: int) -> Tangent:
    r"""Find principal components of :math:`\log(G^{-1/2} X G^{-1/2})`, G the log-Euclidean mean."""
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
    return whitener, mean, scale * directions[:kept]


def tangent_values(X: RealArray, tangent: Tangent) -> RealArray:
    """Components of matrices, shape (n_matrices, n_components)."""
    whitener, mean, components = tangent
    return (log_vectors(X, whitener) - mean) @ components.T


def _raw(V: RealArray, offset: RealArray | None) -> RealArray:
    return V if offset is None else np.log(V + beside(offset, V))


def _outline(_: Any, targets: Any, V: RealArray) -> tuple[RealArray, float]:
    return to_host(targets[1] @ V), float(V.max()) if V.size else 0.0


def _merge_outlines(
    first: tuple[RealArray, float], second: tuple[RealArray, float]
) -> tuple[RealArray, float]:
    return first[0] + second[0], max(first[1], second[1])


def _count_columns(_: Any, V: RealArray) -> int:
    return V.shape[1]


def _moments(_: Any, targets: Any, V: RealArray, offset: RealArray | None) -> _Moments:
    return column_moments(_raw(V, offset), targets[1])


def column_moments(values: RealArray, weights: RealArray) -> _Moments:
    """Weight, means, and weighted sums of squares around these, of the columns of values."""
    weight = float(weights.sum())
    if weight == 0:
        return 0.0, np.zeros(values.shape[1]), np.zeros(values.shape[1])
    mean = weights @ values / weight
    return weight, to_host(mean), to_host(weights @ (values - mean) ** 2)


def merge_moments(first: _Moments, second: _Moments) -> _Moments:
    """Moments of both together, without the digits that sums of squares would lose."""
    weight = first[0] + second[0]
    if weight == 0:
        return first
    way, share = second[1] - first[1], second[0] / weight
    squares = first[2] + second[2] + first[0] * share * way**2
    return weight, first[1] + share * way, squares
