"""Adam on products of manifolds: moments that stay as they are while the frames move."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from divlearn.arrays import IntArray, RealArray

_DECAY = 0.9  # of both moments: with one decay for both no step is longer than it says
_FLAT = 1e-8  # of the largest second moment's root: groups below have no gradient but rounding


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Running moments of noisy gradients, and the direction Adam takes from them.

    After gradients :math:`g_1, \dots, g_t`, each cut into groups :math:`g_{t,k}`,

    .. math:: m_t = \rho m_{t-1} + (1 - \rho) g_t, \quad
              v_{t,k} = \rho v_{t-1,k} + (1 - \rho) \|g_{t,k}\|^2, \quad
              p_{t,k} = -\hat m_{t,k} / \sqrt{\hat v_{t,k}}

    with :math:`\hat m_t = m_t / (1 - \rho^t)`, and :math:`\hat v_t` alike. A group is a factor of a
    product of manifolds (Bécigneul and Ganea, 2019): one scalar for all its coordinates, so that
    rotating its frame changes nothing. As :math:`\hat m` and :math:`\hat v` are means with the same
    weights, no group of a direction is longer than one.

    Examples
    --------
    >>> moments = Moments.start(np.array([0, 0, 1])).learn(np.array([3.0, -4.0, 0.01]))
    >>> moments.direction()
    array([-0.6,  0.8, -1. ])
    """

    groups: IntArray  # of every coordinate, from 0
    first: RealArray  # (n_coordinates,)
    second: RealArray  # (n_groups,)
    count: int = 0  # of gradients seen

    @classmethod
    def start(cls, groups: IntArray) -> Self:
        """Moments before the first gradient."""
        return cls(groups, np.zeros(len(groups)), np.zeros(int(groups.max()) + 1))

    def learn(self, gradient: RealArray) -> Self:
        """Moments after one more gradient."""
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
