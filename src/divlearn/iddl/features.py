"""Divergences of atoms that are learned or fixed, and what a head sees of their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, cast

import numpy as np

from divlearn.arrays import Indices, RealArray, to_device_of, to_host
from divlearn.divergence import get_member
from divlearn.divergence.named import MEMBERS, DivergenceLike
from divlearn.heads.losses import Targets
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards

Point = tuple[float, float]
Divergences = DivergenceLike | Sequence[Point]  # of atoms: a name, one pair, or several
Moments = tuple[float, RealArray, RealArray]  # weight, means, sums of squares around these
_Feature = Annotated[RealArray, "n_features"]
Units = tuple[_Feature, _Feature] | None  # mean and scale of every feature, where these are

_PAIRS: tuple[Point, ...] = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0))  # where "learn" starts
_LINE: tuple[Point, ...] = ((0.5, 0.5), (0.0, 1.0), (1.0, 0.0))  # alpha + beta = 1
_LEARNED = ("S", "V", "N")  # in the paper
_LEAST_OFFSET = 1e-20  # what divergences of equal matrices are, up to rounding
_LARGEST = 1e120  # divergence that may be squared and summed up
_LEAST_DEVIATION = 1e-12  # relative to the mean square: columns below are constant
_FIXED = {"A": "airm", "B": "log-cosh"}  # its "Burg" is (1, 1), which is not Burg's divergence


@dataclass(frozen=True, eq=False)
class Variant:
    """Which parameter each alpha and each beta of every atom is, shape (n_atoms, n_pairs)."""

    alpha_index: Indices
    beta_index: Indices
    start: RealArray
    learned: bool

    def expand(self, parameters: RealArray) -> tuple[RealArray, RealArray]:
        return parameters[self.alpha_index], parameters[self.beta_index]

    def pull(self, alpha: RealArray, beta: RealArray) -> RealArray:
        """Gradient in the parameters from those in alpha and beta."""
        gradient = np.zeros(len(self.start))
        np.add.at(gradient, self.alpha_index, alpha)
        np.add.at(gradient, self.beta_index, beta)
        return gradient


def starts_from_grid(divergence: Divergences) -> bool:
    """Tell whether the pair that atoms start with is to be searched on a grid, as in the paper."""
    return isinstance(divergence, str) and divergence in _LEARNED


def uses_line(divergence: Divergences) -> bool:
    """Tell whether atoms have the three fixed divergences with alpha + beta = 1."""
    return isinstance(divergence, str) and divergence == "line"


def make_variant(
    divergence: Divergences,
    n_atoms: int,
    start: Point | RealArray | None = None,
    rank: int | None = None,
) -> Variant:
    """Make the parameters of atoms; `start` is the first pair of the paper's variants."""
    if start is not None:
        start = _check_pairs([start], "start")[0]
    pairs, learned = _starts(divergence, _PAIRS[0] if start is None else start)
    if rank == 1 and uses_line(divergence):
        pairs = pairs[:0]  # the size of a number says all
    m, name = len(pairs), divergence if isinstance(divergence, str) else ""
    if name == "S" or not learned:  # what all atoms share
        index = np.broadcast_to(np.arange(2 * m).reshape(m, 2), (n_atoms, m, 2))
        return Variant(index[..., 0], index[..., 1], pairs.ravel(), learned)
    if name == "V":
        tied = np.arange(n_atoms * m).reshape(n_atoms, m)
        return Variant(tied, tied, np.tile(pairs.sum(axis=1) / 2, n_atoms), True)
    index = np.arange(2 * n_atoms * m).reshape(n_atoms, m, 2)
    return Variant(index[..., 0], index[..., 1], np.tile(pairs.ravel(), n_atoms), True)


def _starts(divergence: Divergences, start: Point | RealArray) -> tuple[RealArray, bool]:
    """Return the pairs of atoms, shape (n_pairs, 2), and whether they are learned."""
    if starts_from_grid(divergence):
        return np.array([start], dtype=float), True
    if isinstance(divergence, str) and divergence in ("learn", "line"):
        return np.array(_PAIRS if divergence == "learn" else _LINE), divergence == "learn"
    if isinstance(divergence, list | tuple | np.ndarray) and np.ndim(divergence) == 2:
        return _check_pairs(divergence), True
    return _fixed(cast(DivergenceLike, divergence)), False


def _check_pairs(given: object, name: str = "divergence") -> RealArray:
    try:
        pairs = np.asarray(given)
    except ValueError:  # entries of several lengths
        pairs = np.zeros((0, 0))
    shaped = pairs.ndim == 2 and pairs.shape[1] == 2 and len(pairs) > 0
    if not shaped or pairs.dtype.kind not in "iuf" or not _are_parameters(pairs):
        raise ValueError(f"{name}={given!r} must hold pairs (alpha, beta) of finite numbers >= 0")
    return pairs.astype(float)


def _fixed(divergence: DivergenceLike) -> RealArray:
    try:
        name = _FIXED.get(divergence, divergence) if isinstance(divergence, str) else divergence
        known = get_member(name)
    except (TypeError, ValueError) as error:
        names = ", ".join(one.name for one in MEMBERS if not one.symmetrized)
        raise ValueError(
            f'divergence={divergence!r} must be "line", "learn", S, V, N, A, B, pairs '
            f"(alpha, beta), or a named divergence: {names}"
        ) from error
    if known.symmetrized:
        raise ValueError(
            f"divergence={divergence!r} is a mean of two directions, must be a point of the plane; "
            'pass one of them, such as "burg"'
        )
    pair = np.array([[known.alpha, known.beta]], dtype=float)
    if not _are_parameters(pair):
        raise ValueError(f"divergence={divergence!r} must have finite parameters >= 0")
    return pair


def _are_parameters(values: RealArray) -> bool:
    return bool(np.isfinite(values).all() and (values >= 0).all())


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


def _raw(V: RealArray, offset: RealArray) -> RealArray:
    return np.log(V + to_device_of(offset, V))


def _mean(_: Block, targets: Targets, V: RealArray) -> RealArray:
    return targets[1] @ V


def _largest(_: Block, V: RealArray) -> float:
    return float(V.max()) if V.size else 0.0


def _moments(_: Block, targets: Targets, V: RealArray, offset: RealArray) -> Moments:
    return column_moments(_raw(V, offset), targets[1])


def column_moments(values: RealArray, weights: RealArray) -> Moments:
    """Weight, means, and weighted sums of squares around these, of the columns of values."""
    weight = float(weights.sum())
    if weight == 0:
        return 0.0, np.zeros(values.shape[1]), np.zeros(values.shape[1])
    mean = weights @ values / weight
    return weight, mean, weights @ (values - mean) ** 2


def merge_moments(first: Moments, second: Moments) -> Moments:
    """Moments of both together, without the digits that sums of squares would lose."""
    weight = first[0] + second[0]
    if weight == 0:
        return first
    way, share = second[1] - first[1], second[0] / weight
    squares = first[2] + second[2] + first[0] * share * way**2
    return weight, first[1] + share * way, squares
