"""Every tolerance of the library, in one place.

All of them are relative: they multiply a magnitude taken from the data, so that rescaling the
data never changes a verdict, and they follow the machine epsilon of the floating-point type.
"""

import math

import numpy as np
from numpy.typing import DTypeLike


def _epsilon(dtype: DTypeLike) -> float:
    return float(np.finfo(dtype).eps)


def asymmetry(dtype: DTypeLike = np.float64) -> float:
    """Largest ``|x_ij - x_ji|`` taken for rounding, relative to the largest ``|entry|``."""
    return math.sqrt(_epsilon(dtype))


def positive_definite(d: int, dtype: DTypeLike = np.float64) -> float:
    """Bound that all eigenvalues must exceed, diagonal about one: the rounding of entries."""
    return d * _epsilon(dtype)


def repair_floor(dtype: DTypeLike = np.float64) -> float:
    """Smallest eigenvalue after a repair, over the largest: inverses keep half the digits."""
    return math.sqrt(_epsilon(dtype))


def condition_limit() -> float:
    """Spectral ratio of ``L_Y^-1 X L_Y^-T`` above which engines take the accurate route."""
    # A symmetric eigensolver errs by epsilon times this ratio in the smallest eigenvalue; below the
    # limit, eps ** (-1/3) to the power of ten below, it keeps two thirds of the digits.
    return float(10.0 ** math.floor(-math.log10(_epsilon(np.float64)) / 3))


def integral_image() -> float:
    """Largest estimated error of covariances from integral images, relative to deviations."""
    return float(_epsilon(np.float64) ** 0.6)


# Where routes without eigenvalues are accurate enough, the same on every device: native/encode.hpp
# and engines/cuda/logdet.cuh repeat the values, which a test compares. Differences of traces and
# log-determinants have absolute errors, about eps times the condition number; they serve where that
# is small against the result.
LARGEST_SPREAD = 1e6  # of a matrix times that of an atom
SMALLEST_TRACE = 0.005  # divergence by traces, for each dimension
TRACE_EXPONENT = 16  # powers of two by which sizes may differ where traces are used
LEAST_ALPHA = 0.05  # the gradient without eigenvectors divides by alpha
LOGDET_EXPONENT = 400  # powers of two by which sizes may differ where it is used

LARGEST_LISTED_SHARE = 0.02  # of pairs that are computed again one by one after such a route

ALIKE = math.log(1e3)  # log-variances that differ by less need no order
USABLE_MARGIN = 100.0  # times `positive_definite` that atoms of a search must exceed
TENSOR_MARGIN = 8.0  # the same for atoms that torch's optimizers move, which round
# Of tensors, relative to the largest entry. Half precision and difference quotients stay below;
# whatever is above was never meant to be symmetric.
TENSOR_ASYMMETRY = 1e-2
LARGEST_PARAMETER = 1e150  # of f: products of two arguments would overflow beyond it
# Relative accuracy of the smallest eigenvalues of pencils that learning and comparing need.
LEARNING_ACCURACY = 1e-6


def largest_spread(condition_limit: float) -> float:
    """Return the largest spread for routes without eigenvalues: its root multiplies eps."""
    return max(LARGEST_SPREAD, (1e-3 * condition_limit) ** 2)
