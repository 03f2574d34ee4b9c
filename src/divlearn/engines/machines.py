"""Support vector machines between pairs of classes by compiled code."""

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.engines.softmax import is_compiled, kernels

__all__ = ["is_compiled", "solve_pairs"]


def solve_pairs(
    kernel: RealArray,
    most: RealArray,
    starts: Indices,
    tolerance: float,
) -> tuple[RealArray, RealArray]:
    """Solve what libsvm solves, by the same steps and with the same rounding.

    Parameters
    ----------
    kernel : ndarray, shape (n_samples, n_samples), of samples that come class by class
    most : ndarray, shape (n_samples,), upper bounds of coefficients
    starts : ndarray, shape (n_classes + 1,), where classes begin, and the last ends
    tolerance : float, of the gradient

    Returns
    -------
    coefficients : ndarray, shape (n_classes - 1, n_samples)
        Those of a sample, against the other classes in their order.
    offsets : ndarray, shape (n_pairs,)
    """
    native, n_classes = kernels(), len(starts) - 1
    coefficients = np.zeros((n_classes - 1, len(kernel)))
    offsets = np.empty(n_classes * (n_classes - 1) // 2)
    native.solve_pairs(
        native.instruction_sets()[0],
        np.ascontiguousarray(kernel, dtype=np.float32),
        np.diagonal(kernel).astype(np.float64),
        np.ascontiguousarray(most, dtype=np.float64),
        starts.astype(np.int64),
        tolerance,
        coefficients,
        offsets,
    )
    return coefficients, offsets
