"""Features and targets of heads, their standardisation, and their sums over blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from divlearn.arrays import RealArray, to_device_of, to_host
from divlearn.checks import check_finite
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards
from divlearn.sharded.targets import Targets
from divlearn.weights import column_moments, merge_moments

_RANK = 1e-13  # variance relative to the largest, below which a component is rounding error
_LEAST_OFFSET = 1e-20  # of the order of rounding errors in divergences of equal matrices
_LARGEST = 1e120  # divergence whose squares can be summed without overflow
_LEAST_DEVIATION = 1e-12  # relative to the root mean square: columns below are constant
_HOST_SIZE = 1 << 17  # entries of a design, up to which the host is faster than a device
# Weights and bias.
Head = tuple[Annotated[RealArray, "n_outputs n_features"], Annotated[RealArray, "n_outputs"]]

_Feature = Annotated[RealArray, "n_features"]
Units = tuple[_Feature, _Feature] | None  # mean and scale of every feature


@dataclass(frozen=True, eq=False)
class FeatureMap:
    r"""Features :math:`(\log(v + c) - \mu) / s` of divergences v; v itself without an offset c.

    Standardisation makes penalties comparable between divergences of different scales.
    """

    offset: RealArray | None
    units: Units = None  # mu and s, None before `standardize`

    @classmethod
    def start(
        cls, shards: Shards, targets: Parts, V: Parts, *, plain: bool, n_filters: int = 0
    ) -> FeatureMap:
        """Make a map whose offsets are a tenth of the mean divergences.

        The last value of each of `n_filters` filters, a power of a determinant, has no offset.
        """
        if not plain:
            mean = shards.reduce(lambda _, targets, V: targets[1] @ V, parts=[targets, V])
            offset = np.maximum(0.1 * mean, _LEAST_OFFSET)
            if n_filters:
                offset.reshape(n_filters, -1)[:, -1] = 0
            return cls(offset)
        largest = shards.reduce(
            lambda _, V: float(V.max()) if V.size else 0.0, parts=[V], merge=max
        )
        if largest > _LARGEST:
            raise ValueError(
                f"divergences reach {largest:.3g}, must be <= {_LARGEST:g} to be features; pass a "
                "loss with plain=False, or divide each matrix by its trace"
            )
        return cls(None)

    def standardize(self, shards: Shards, targets: Parts, V: Parts) -> FeatureMap:
        """Return the map that standardises these samples; plain features stay as they are."""
        if self.offset is None:
            return self
        offset = self.offset
        weight, mean, squares = shards.reduce(
            lambda _, targets, V: column_moments(_log(V, offset), targets[1]),
            parts=[targets, V],
            merge=merge_moments,
        )
        variance = squares / weight
        constant = variance <= _LEAST_DEVIATION**2 * (variance + mean**2)
        scale = np.where(constant, 1, np.sqrt(np.where(constant, 1, variance)))
        return replace(self, units=(mean, scale))

    def on_host(self) -> FeatureMap:
        offset = None if self.offset is None else to_host(self.offset)
        units = None if self.units is None else (to_host(self.units[0]), to_host(self.units[1]))
        return FeatureMap(offset, units)

    def compute(self, V: RealArray) -> RealArray:
        if self.offset is None or self.units is None:
            return V
        mean, scale = (to_device_of(unit, V) for unit in self.units)
        return (_log(V, self.offset) - mean) / scale

    def pull(
        self,
        V: RealArray,
        features: RealArray,
        weights: RealArray,
        cotangent: RealArray,
        sums: tuple[RealArray, RealArray] | None = None,
    ) -> RealArray:
        """Compute the gradient in V from the cotangent; with several blocks, `sums` over all."""
        if self.offset is None or self.units is None:
            return cotangent
        sums = sums or (cotangent.sum(axis=0), (cotangent * features).sum(axis=0))
        in_mean, in_scale = (to_device_of(total, V) for total in sums)
        in_logs = cotangent - weights[:, None] * (in_mean + in_scale * features)
        return in_logs / to_device_of(self.units[1], V) / (V + to_device_of(self.offset, V))


class Samples:
    """Features, and (targets, weights) of every block; all weights sum to one.

    Features of a block have the shape (n_samples, n_features). For `solve_heads` they are a stack
    of such arrays, and so are centres and products.
    """

    def __init__(self, shards: Shards, targets: Parts, features: Parts, bias: bool) -> None:
        self.shards, self.targets, self.features, self.bias = shards, targets, features, bias
        self._rotated: tuple[tuple[int, bool], list[Parts]] | None = None  # arguments and result

    @cached_property
    def centre(self) -> tuple[RealArray, RealArray]:
        """Means of features and targets; zeros where there is no bias."""
        if self.bias:

            def average(
                _: Block, targets: Targets, features: RealArray
            ) -> tuple[RealArray, RealArray]:
                Y, weights = targets
                return to_host(weights @ features), to_host(weights @ Y)

            return self.shards.reduce(average, parts=[self.targets, self.features])
        cross = self.products[1]
        return np.zeros(cross.shape[:-1]), np.zeros(cross.shape[-1])

    @cached_property
    def products(self) -> tuple[RealArray, RealArray]:
        """Weighted products of centred features with themselves and with centred targets."""
        centre = self.centre if self.bias else None
        parts = [self.targets, self.features]
        products: RealArray = self.shards.reduce(_products, centre, parts=parts)
        check_finite(float(np.abs(products).max()), "a product of features", "that a head sees")
        n_features = products.shape[-2]
        return products[..., :n_features], products[..., n_features:]

    @cached_property
    def components(self) -> tuple[RealArray, RealArray]:
        """Mean squares along the principal components of features and bias, and these components.

        Components without variance are left out: features are often linearly dependent.
        """
        mean, gram = self.centre[0], self.products[0]
        if self.bias:
            column = np.append(mean, 1.0)
            gram = np.pad(gram, (0, 1)) + np.outer(column, column)
        squares, basis = np.linalg.eigh(gram)
        varying = squares > _RANK * squares[-1] if squares[-1] > 0 else squares == squares[-1]
        return squares[varying], basis[:, varying]

    def rotate(self, n_left_out: int, rough: bool) -> list[Parts]:
        """Return targets and the design in its principal components, which is kept.

        The first components, of the least variance, are left out. A rough design has also a copy
        in single precision.
        """
        if self._rotated is None or self._rotated[0] != (n_left_out, rough):
            basis, targets = self.components[1][:, n_left_out:], self.targets
            designs = self.shards.hold(_rotate, basis, self.bias, rough, parts=[self.features])
            if self.shards.whole is not None:
                targets = self.shards.hold(  # where the design is
                    lambda _, targets, designs: tuple(to_device_of(a, designs[0]) for a in targets),
                    parts=[targets, designs],
                )
            self._rotated = (n_left_out, rough), [targets, designs]
        return self._rotated[1]


# --- functions of blocks: arguments are (targets, weights), then features or the rotated designs --


def _log(V: RealArray, offset: RealArray) -> RealArray:
    return np.log(V + to_device_of(offset, V))


def _products(
    _: Block, targets: Targets, features: RealArray, centre: tuple[RealArray, RealArray] | None
) -> RealArray:
    Y, weights = targets
    if centre is not None:
        mean, Y_mean = (to_device_of(array, features) for array in centre)
        features, Y = features - mean[..., None, :], Y - Y_mean
    # A product of an array with itself takes half of the time of one of two arrays.
    roots = np.sqrt(weights)[:, None]
    features = roots * features
    products = [features.mT @ features, features.mT @ (roots * Y)]
    return to_host(np.concatenate(products, axis=-1))


def _rotate(
    _: Block, features: RealArray, basis: RealArray, bias: bool, rough: bool
) -> tuple[RealArray, RealArray]:
    """Compute the design, and return it in double and, if rough, in single precision."""
    design: RealArray = features @ to_device_of(basis[: features.shape[1]], features)
    if bias:
        design = design + to_device_of(basis[-1], features)
    if design.size <= _HOST_SIZE:
        design = to_host(design)
    return design, design.astype(np.float32) if rough else design
