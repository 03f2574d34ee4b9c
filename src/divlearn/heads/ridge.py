"""Ridge regression for many penalties."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh, svd

from divlearn.arrays import RealArray
from divlearn.heads.discriminants import Linear

# To choose from, for vectors of total variance one and weights of mean one.
RIDGE_PENALTIES = tuple(10.0 ** (power / 2) for power in range(-8, 9))


def fit_ridge(
    vectors: RealArray, numbers: RealArray, weights: RealArray
) -> Callable[[float], Linear]:
    """Decompose weighted, centred vectors once for all penalties.

    Numbers have the shape (n_vectors,) or (n_vectors, n_outputs).
    """
    roots = np.sqrt(weights)[:, None]
    targets = numbers.reshape(len(numbers), -1)
    centre = np.average(vectors, axis=0, weights=weights)
    offsets = np.average(targets, axis=0, weights=weights)
    weighted = roots * (vectors - centre)
    if len(vectors) < vectors.shape[1]:
        _, values, axes = svd(weighted, full_matrices=False)
        squares = values**2
    else:  # faster; its errors in small squares are small relative to the least penalty
        squares, basis = eigh(weighted.T @ weighted, driver="evd")
        axes = basis.T
    projected = (roots * (targets - offsets)).T @ weighted @ axes.T

    def learn(penalty: float) -> Linear:
        coefficients = (projected / (squares + penalty)) @ axes
        return Linear(coefficients, offsets - coefficients @ centre)

    return learn
