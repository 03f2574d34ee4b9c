"""Losses and Newton steps of softmax heads by compiled code, for designs in memory."""

from typing import Any

import numpy as np

from divlearn.arrays import RealArray
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
    native = kernels()
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
    most_products : int

    Returns
    -------
    ndarray, shape (n_outputs, n_columns)
    """
    native = kernels()
    step = np.empty(gradient.T.shape)
    native.softmax_step(
        native.instruction_sets()[0],
        *map(np.ascontiguousarray, (design, shares, weights, scale, bias, gradient.T)),
        step,
        penalty,
        damping,
        enough,
        most_products,
        _count_threads(len(design) * gradient.size),
    )
    return step.T


def _count_threads(work: int) -> int:
    return available_threads(kernels().max_threads) if work >= _MUCH else 1


def kernels() -> Any:
    """Import the compiled module."""
    from divlearn.engines import _native  # type: ignore[attr-defined]

    return _native
