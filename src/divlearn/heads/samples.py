"""Features and targets that heads are solved for, their units, and their sums over blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from divlearn.arrays import RealArray, to_device_of, to_host
from divlearn.checks import check_finite
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards
from divlearn.sharded.targets import Targets
from divlearn.weights import Moments, column_moments, merge_moments

_RANK = 1e-13  # share of the largest variance below which a direction holds nothing but rounding
_LEAST_OFFSET = 1e-20  # what divergences of equal matrices are, up to rounding
_LARGEST = 1e120  # divergence that may be squared and summed up
_LEAST_DEVIATION = 1e-12  # relative to the mean square: columns below are constant
_FEW = 1 << 17  # entries of a design for which launching on a device takes longer than the host
# Weights and bias.
Head = tuple[Annotated[RealArray, "n_outputs n_features"], Annotated[RealArray, "n_outputs"]]

_Feature = Annotated[RealArray, "n_features"]
Units = tuple[_Feature, _Feature] | None  # mean and scale of every feature, where these are


@dataclass(frozen=True, eq=False)
class FeatureMap:
    r"""Features :math:`(\log(v + c) - \mu) / s` of divergences v; v itself without an offset c.

    Standardised by the data at hand, a penalty means the same whatever the divergences.
    """

    offset: RealArray | None
    units: Units = None  # mu and s, None until data are standardised

    @classmethod
    def start(
        cls, shards: Shards, targets: Parts, V: Parts, *, plain: bool, sized: int = 0
    ) -> FeatureMap:
        """Make a map with offsets a tenth of the mean divergences of the data.

        Of `sized` atoms the last value of each is a size, which has a logarithm as it is.
        """
        if not plain:
            mean = shards.reduce(_mean, parts=[targets, V])
            offset = np.maximum(0.1 * mean, _LEAST_OFFSET)
            if sized:
                offset.reshape(sized, -1)[:, -1] = 0
            return cls(offset)
        largest = shards.reduce(_largest, parts=[V], merge=max)
        if largest > _LARGEST:
            raise ValueError(
                f"divergences reach {largest:.3g}, must be <= {_LARGEST:g} to be features; pass a "
                "loss with plain=False, or divide each matrix by its trace"
            )
        return cls(None)

    def standardize(self, shards: Shards, targets: Parts, V: Parts) -> FeatureMap:
        """Return the map that standardises all samples; plain features stay as they are."""
        if self.offset is None:
            return self
        weight, mean, squares = shards.reduce(
            _moments, self.offset, parts=[targets, V], merge=merge_moments
        )
        variance = squares / weight
        flat = variance <= _LEAST_DEVIATION**2 * (variance + mean**2)
        scale = np.where(flat, 1, np.sqrt(np.where(flat, 1, variance)))
        return replace(self, units=(mean, scale))

    def on_host(self) -> FeatureMap:
        offset = None if self.offset is None else to_host(self.offset)
        units = None if self.units is None else (to_host(self.units[0]), to_host(self.units[1]))
        return FeatureMap(offset, units)

    def compute(self, V: RealArray) -> RealArray:
        if self.offset is None or self.units is None:
            return V
        mean, scale = (to_device_of(one, V) for one in self.units)
        return (_raw(V, self.offset) - mean) / scale

    def pull(
        self,
        V: RealArray,
        features: RealArray,
        weights: RealArray,
        cotangent: RealArray,
        sums: tuple[RealArray, RealArray] | None = None,
    ) -> RealArray:
        """Gradient in V from that in the features; `sums` of the cotangent if V is a part."""
        if self.offset is None or self.units is None:
            return cotangent
        sums = sums or (cotangent.sum(axis=0), (cotangent * features).sum(axis=0))
        constant, along = (to_device_of(one, V) for one in sums)
        back = cotangent - weights[:, None] * (constant + along * features)
        return back / to_device_of(self.units[1], V) / (V + to_device_of(self.offset, V))


class Samples:
    """Features, and (targets, weights) of every block; all weights sum to one.

    Features of a block have the shape (n_samples, n_features). For `solve_heads` they are a stack
    of such arrays, and so are centres and products.
    """

    def __init__(self, shards: Shards, targets: Parts, features: Parts, bias: bool) -> None:
        self.shards, self.targets, self.features, self.bias = shards, targets, features, bias
        self._turned: tuple[tuple[int, bool], list[Parts]] | None = None

    @cached_property
    def centre(self) -> tuple[RealArray, RealArray]:
        """Means of features and targets; zeros where there is no bias."""
        if self.bias:
            return self.shards.reduce(_means, parts=[self.targets, self.features])
        cross = self.products[1]
        return np.zeros(cross.shape[:-1]), np.zeros(cross.shape[-1])

    @cached_property
    def products(self) -> tuple[RealArray, RealArray]:
        """Products of features with features and with targets, around the centre."""
        centre = self.centre if self.bias else None
        parts = [self.targets, self.features]
        both: RealArray = self.shards.reduce(_products, centre, parts=parts)
        check_finite(float(np.abs(both).max()), "a product of features", "that a head sees")
        n_features = both.shape[-2]
        return both[..., :n_features], both[..., n_features:]

    @cached_property
    def components(self) -> tuple[RealArray, RealArray]:
        """Mean squares along principal components of features and bias, and these.

        Columns often depend on each other; directions without variance are left out.
        """
        middle, gram = self.centre[0], self.products[0]
        if self.bias:
            column = np.append(middle, 1.0)
            gram = np.pad(gram, (0, 1)) + np.outer(column, column)
        spread, basis = np.linalg.eigh(gram)
        kept = spread > _RANK * spread[-1] if spread[-1] > 0 else spread == spread[-1]
        return spread[kept], basis[:, kept]

    def turn(self, n_left_out: int, rough: bool) -> list[Parts]:
        """Hold targets, and the design in its principal components, where iterations are faster.

        The first components, of the least variance, may be left out. Where few digits do, the
        design is held in few digits, too.
        """
        if self._turned is None or self._turned[0] != (n_left_out, rough):
            basis, targets = self.components[1][:, n_left_out:], self.targets
            turned = self.shards.hold(_turn, basis, self.bias, rough, parts=[self.features])
            if self.shards.whole is not None:
                targets = self.shards.hold(_follow, parts=[targets, turned])
            self._turned = (n_left_out, rough), [targets, turned]
        return self._turned[1]


# --- what blocks compute: they get (targets, weights), then features or the turned design ---------


def _raw(V: RealArray, offset: RealArray) -> RealArray:
    return np.log(V + to_device_of(offset, V))


def _mean(_: Block, targets: Targets, V: RealArray) -> RealArray:
    return targets[1] @ V


def _largest(_: Block, V: RealArray) -> float:
    return float(V.max()) if V.size else 0.0


def _moments(_: Block, targets: Targets, V: RealArray, offset: RealArray) -> Moments:
    return column_moments(_raw(V, offset), targets[1])


def _means(_: Block, targets: Targets, features: RealArray) -> tuple[RealArray, RealArray]:
    wanted, weights = targets
    return to_host(weights @ features), to_host(weights @ wanted)


def _products(
    _: Block, targets: Targets, features: RealArray, centre: tuple[RealArray, RealArray] | None
) -> RealArray:
    wanted, weights = targets
    if centre is not None:
        middle, level = (to_device_of(one, features) for one in centre)
        features, wanted = features - middle[..., None, :], wanted - level
    weighted = weights[:, None] * features
    both = [features.mT @ weighted, weighted.mT @ wanted]
    return to_host(np.concatenate(both, axis=-1))


def _turn(
    _: Block, features: RealArray, basis: RealArray, bias: bool, rough: bool
) -> tuple[RealArray, RealArray]:
    turned: RealArray = features @ to_device_of(basis[: features.shape[1]], features)
    if bias:
        turned = turned + to_device_of(basis[-1], features)
    if turned.size <= _FEW:
        turned = to_host(turned)
    return turned, turned.astype(np.float32) if rough else turned


def _follow(_: Block, targets: Targets, turned: Any) -> Any:
    return tuple(to_device_of(one, turned[0]) for one in targets)
