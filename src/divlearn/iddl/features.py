"""What a head sees of divergences: their logarithms, or, as in the paper, themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from divlearn.arrays import RealArray, beside, to_host
from divlearn.sharded.shards import Parts, Shards

_LEAST_OFFSET = 1e-20  # what divergences of equal matrices are, up to rounding
_LARGEST = 1e120  # divergence that may be squared and summed up
_LEAST_DEVIATION = 1e-12  # relative to the mean square: columns below are constant
_Moments = tuple[float, RealArray, RealArray]  # weight, means, sums of squares around these
_Feature = Annotated[RealArray, "n_features"]
Units = tuple[_Feature, _Feature] | None  # mean and scale of every feature, where these are


@dataclass(frozen=True, eq=False)
class FeatureMap:
    r"""Features :math:`(\log(v + c) - \mu) / s` of divergences v; v itself without an offset c.

    Standardised by the data at hand, a penalty means the same whatever the divergences.
    """

    offset: RealArray | None

    @classmethod
    def start(cls, shards: Shards, targets: Parts, V: Parts, *, plain: bool) -> FeatureMap:
        """Make a map with offsets a tenth of the mean divergences of the data."""
        if not plain:
            mean = shards.reduce(_mean, parts=[targets, V])
            return cls(np.maximum(0.1 * mean, _LEAST_OFFSET))
        largest = shards.reduce(_largest, parts=[V], merge=max)
        if largest > _LARGEST:
            raise ValueError(
                f"divergences reach {largest:.3g}, must be <= {_LARGEST:g} to be features; pass a "
                "loss with plain=False, or divide each matrix by its trace"
            )
        return cls(None)

    def units(self, shards: Shards, targets: Parts, V: Parts) -> Units:
        """Mean and scale by which all samples are standardised; None for plain features."""
        if self.offset is None:
            return None
        weight, mean, squares = shards.reduce(
            _moments, self.offset, parts=[targets, V], merge=merge_moments
        )
        variance = squares / weight
        flat = variance <= _LEAST_DEVIATION**2 * (variance + mean**2)
        return mean, np.where(flat, 1, np.sqrt(np.where(flat, 1, variance)))

    def compute(self, V: RealArray, units: Units) -> RealArray:
        if self.offset is None or units is None:
            return V
        mean, scale = (beside(one, V) for one in units)
        return (_raw(V, self.offset) - mean) / scale

    def pull(
        self,
        V: RealArray,
        features: RealArray,
        units: Units,
        weights: RealArray,
        cotangent: RealArray,
        sums: tuple[RealArray, RealArray] | None = None,
    ) -> RealArray:
        """Gradient in V from that in the features; `sums` of the cotangent if V is a part."""
        if self.offset is None or units is None:
            return cotangent
        sums = sums or (cotangent.sum(axis=0), (cotangent * features).sum(axis=0))
        constant, along = (beside(one, V) for one in sums)
        back = cotangent - weights[:, None] * (constant + along * features)
        return back / beside(units[1], V) / (V + beside(self.offset, V))


def units_on_host(units: Units) -> Units:
    return None if units is None else (to_host(units[0]), to_host(units[1]))


def _raw(V: RealArray, offset: RealArray) -> RealArray:
    return np.log(V + beside(offset, V))


def _mean(_: Any, targets: Any, V: RealArray) -> RealArray:
    return targets[1] @ V


def _largest(_: Any, V: RealArray) -> float:
    return float(V.max()) if V.size else 0.0


def _moments(_: Any, targets: Any, V: RealArray, offset: RealArray) -> _Moments:
    return column_moments(_raw(V, offset), targets[1])


def column_moments(values: RealArray, weights: RealArray) -> _Moments:
    """Weight, means, and weighted sums of squares around these, of the columns of values."""
    weight = float(weights.sum())
    if weight == 0:
        return 0.0, np.zeros(values.shape[1]), np.zeros(values.shape[1])
    mean = weights @ values / weight
    return weight, mean, weights @ (values - mean) ** 2


def merge_moments(first: _Moments, second: _Moments) -> _Moments:
    """Moments of both together, without the digits that sums of squares would lose."""
    weight = first[0] + second[0]
    if weight == 0:
        return first
    way, share = second[1] - first[1], second[0] / weight
    squares = first[2] + second[2] + first[0] * share * way**2
    return weight, first[1] + share * way, squares
