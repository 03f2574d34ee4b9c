"""Adam on products of manifolds: moments that stay as they are while the frames move."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from divlearn.arrays import IntArray, RealArray

_DECAY = 0.9  # of both moments: with one decay for both no step is longer than it says
_FLAT = 1e-8  # of the largest second moment's root: groups below have no gradient but rounding


@dataclass(frozen=True, eq=False)
class Moments:
    """Running moments of noisy gradients, and the direction Adam takes from them.

    Both moments have one decay, and the second is one number for each group of coordinates, a
    factor of a product of manifolds (Becigneul and Ganea, 2019): rotating its frame changes
    nothing, and no group of a direction is longer than one.
    """

    groups: IntArray  # of every coordinate, from 0
    first: RealArray  # (n_coordinates,)
    second: RealArray  # (n_groups,)
    count: int = 0  # of gradients seen

    @classmethod
    def start(cls, groups: IntArray) -> Self:
        return cls(groups, np.zeros(len(groups)), np.zeros(int(groups.max()) + 1))

    def learn(self, gradient: RealArray) -> Self:
        squares = np.bincount(self.groups, weights=gradient**2, minlength=len(self.second))
        first = _DECAY * self.first + (1 - _DECAY) * gradient
        second = _DECAY * self.second + (1 - _DECAY) * squares
        return type(self)(self.groups, first, second, self.count + 1)

    @property
    def mean(self) -> RealArray:
        """Running mean of the gradients; needs one."""
        return self.first / (1 - _DECAY**self.count)

    def direction(self) -> RealArray:
        """Where to go, in units of the step size; needs a gradient."""
        root = np.sqrt(self.second / (1 - _DECAY**self.count))
        divisor = np.where(root > _FLAT * root.max(), root, np.inf)
        return -self.mean / divisor[self.groups]
