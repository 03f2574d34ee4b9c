"""Softmax heads, support vector machines, divergences of spectra by compiled code, in memory."""

from typing import Any

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.engines.cpu import available_engines
from divlearn.threads import available_threads

_MUCH = 1 << 22  # multiplications of a product from which on threads pay


def is_compiled() -> bool:
    """Whether the compiled engine is there."""
    return available_engines()[0] == "native"


def softmax_sums(
    design: RealArray, targets: RealArray, weights: RealArray, head: RealArray
) -> tuple[float, RealArray, float, RealArray]:
    """Sum losses over samples.

    Parameters
    ----------
    design : ndarray, shape (n_samples, n_columns)
    targets : ndarray, shape (n_samples, n_outputs)
    weights : ndarray, shape (n_samples,)
    head : ndarray, shape (n_outputs, n_columns)

    Returns
    -------
    loss : float
    gradient : ndarray, shape (n_outputs, n_columns)
    size : float
        A typical second derivative in the scores.
    shares : ndarray, shape (n_samples, n_outputs)
        Probabilities.
    """
    native = _kernels()
    shares, gradient, totals = np.empty(targets.shape), np.empty(head.T.shape), np.empty(2)
    native.softmax_sums(
        native.instruction_sets()[0],
        *map(np.ascontiguousarray, (design, targets, weights, head.T)),
        shares,
        gradient,
        totals,
        _count_threads(len(design) * head.size),
    )
    return float(totals[0]), gradient.T, float(totals[1]), shares


def newton_step(
    design: RealArray,
    shares: RealArray,
    weights: RealArray,
    gradient: RealArray,
    scale: RealArray,
    bias: RealArray,
    *,
    penalty: float,
    damping: float,
    enough: float,
    least_gain: float,
    most_products: int,
) -> RealArray:
    """Solve for a Newton step by conjugate gradients.

    Parameters
    ----------
    design : ndarray of float32 or float64, shape (n_samples, n_columns)
        Products are computed in its precision.
    shares : ndarray, shape (n_samples, n_outputs), probabilities.
    weights : ndarray, shape (n_samples,)
    gradient : ndarray, shape (n_outputs, n_columns)
    scale : ndarray, shape (n_columns,)
        About the diagonal of the Hessian.
    bias : ndarray, shape (n_columns,)
        The direction in the columns that is not penalised; zeros where there is no bias.
    penalty, damping : float
        The Hessian includes 2 penalty (I - bias bias^T) + damping I.
    enough : float
        Size of the residual at which to stop.
    least_gain : float
        Gain of a product, relative to the mean of those so far, at which to stop.
    most_products : int

    Returns
    -------
    ndarray, shape (n_outputs, n_columns)
    """
    native = _kernels()
    step = np.empty(gradient.T.shape)
    native.softmax_step(
        native.instruction_sets()[0],
        *map(np.ascontiguousarray, (design, shares, weights, scale, bias, gradient.T)),
        step,
        penalty,
        damping,
        enough,
        least_gain,
        most_products,
        _count_threads(len(design) * gradient.size),
    )
    return step.T


def solve_pairs(
    kernel: RealArray,
    rows: Indices,
    most: RealArray,
    starts: Indices,
    tolerance: float,
) -> tuple[RealArray, RealArray]:
    """Solve what libsvm solves, by the same steps and with the same rounding.

    Parameters
    ----------
    kernel : ndarray, shape (n, n)
    rows : ndarray, shape (n_samples,), of the kernel: samples, which come class by class
    most : ndarray, shape (n_samples,), upper bounds of coefficients
    starts : ndarray, shape (n_classes + 1,), where classes begin, and the last ends
    tolerance : float, of the gradient

    Returns
    -------
    coefficients : ndarray, shape (n_classes - 1, n_samples)
        Those of a sample, against the other classes in their order.
    offsets : ndarray, shape (n_pairs,)
    """
    native, n_classes = _kernels(), len(starts) - 1
    coefficients = np.zeros((n_classes - 1, len(rows)))
    offsets = np.empty(n_classes * (n_classes - 1) // 2)
    native.solve_pairs(
        native.instruction_sets()[0],
        np.ascontiguousarray(kernel, dtype=np.float64),
        rows.astype(np.int64, copy=False),
        np.diagonal(kernel)[rows].astype(np.float64),
        np.ascontiguousarray(most, dtype=np.float64),
        starts.astype(np.int64),
        tolerance,
        coefficients,
        offsets,
    )
    return coefficients, offsets


def plane_values(t: RealArray, points: RealArray) -> RealArray:
    """Divergences (n_pairs, n_points) of log-eigenvalues t, (n_pairs, d), at points >= 0."""
    native, values = _kernels(), np.empty((len(t), len(points)))
    given = map(np.ascontiguousarray, (t, *points.T))
    native.plane(native.instruction_sets()[0], *given, values)
    return values


def _count_threads(work: int) -> int:
    return available_threads(_kernels().max_threads) if work >= _MUCH else 1


def _kernels() -> Any:
    """Import the compiled module."""
    from divlearn.engines import _native  # type: ignore[attr-defined]

    return _native
