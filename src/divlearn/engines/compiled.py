"""Compiled code for heads, support vector machines, spectra, and exponentials of arrays."""

from typing import Any

import numpy as np

from divlearn.arrays import Indices, RealArray, on_device
from divlearn.engines.cpu import available_engines
from divlearn.threads import available_threads

_THREADED_WORK = 1 << 22  # multiplications from which on threads pay


def is_compiled() -> bool:
    """Whether the compiled engine is available."""
    return available_engines()[0] == "native"


def compiles(*arrays: RealArray) -> bool:
    """Whether the functions of this module take these arrays: those of float64 on the host."""
    return is_compiled() and not any(on_device(x) or x.dtype != np.float64 for x in arrays)


def softmax_sums(
    design: RealArray, targets: RealArray, weights: RealArray, head: RealArray
) -> tuple[float, RealArray, float, RealArray]:
    """Sum the softmax losses of samples; return loss, gradient, typical curvature, and shares.

    The design is (n_samples, n_columns), targets and shares, which are probabilities, are
    (n_samples, n_outputs), the head and the gradient (n_outputs, n_columns). The curvature is that
    of a loss in the scores.
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
    """Solve for a Newton step by conjugate gradients, in the precision of the design.

    Arrays are those of `softmax_sums`; the gradient includes that of the penalty. ``scale`` is
    about the diagonal of the Hessian, which includes 2 penalty (I - bias bias^T) + damping I, with
    ``bias`` the direction in the columns that is not penalised, zeros where there is no bias. The
    search ends at a residual of the size ``enough``, or where the gain of a product is
    ``least_gain`` of the mean of those so far.
    """
    native = _kernels()
    step = np.empty(gradient.T.shape)
    native.softmax_step(
        native.instruction_sets()[0],
        *map(np.ascontiguousarray, (design, shares, weights, scale.T, bias, gradient.T)),
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
    upper_bounds: RealArray,
    starts: Indices,
    tolerance: float,
) -> tuple[RealArray, RealArray]:
    """Fit a support vector machine for every pair of classes, bit by bit as libsvm does.

    ``rows`` of the kernel are sorted by class, ``starts`` are the first of every class and their
    number, ``upper_bounds`` are those of the coefficients. Returns the coefficients of a sample
    against the other classes, in the order of these, shape (n_classes - 1, n_samples), and the
    offsets of pairs.
    """
    native, n_classes = _kernels(), len(starts) - 1
    coefficients = np.zeros((n_classes - 1, len(rows)))
    offsets = np.empty(n_classes * (n_classes - 1) // 2)
    native.solve_pairs(
        native.instruction_sets()[0],
        np.ascontiguousarray(kernel, dtype=np.float64),
        rows.astype(np.int64, copy=False),
        np.diagonal(kernel)[rows].astype(np.float64),
        np.ascontiguousarray(upper_bounds, dtype=np.float64),
        starts.astype(np.int64),
        tolerance,
        coefficients,
        offsets,
    )
    return coefficients, offsets


def plane_values(t: RealArray, points: RealArray) -> RealArray:
    """Divergences (n_pairs, n_points) of log-eigenvalues t, (n_pairs, d), at points >= 0."""
    native, values = _kernels(), np.empty((len(t), len(points)))
    arrays = map(np.ascontiguousarray, (t, *points.T))
    native.plane(native.instruction_sets()[0], *arrays, values)
    return values


def decay(x: RealArray, scale: float) -> RealArray:
    """Return exp(-scale x); zero below the range of normal numbers."""
    native, powers = _kernels(), np.empty(x.shape)
    native.decay(native.instruction_sets()[0], np.ascontiguousarray(x), scale, powers)
    return powers


def power_sums(x: RealArray, scale: float) -> RealArray:
    """Sum e^(scale x), x e^(scale x) and x^2 e^(scale x) over rows, shape (3, n_columns)."""
    native, sums = _kernels(), np.empty((3, x.shape[1]))
    native.power_sums(native.instruction_sets()[0], np.ascontiguousarray(x), scale, sums)
    return sums


def pair_losses(decisions: RealArray, sharpness: float, n_classes: int) -> RealArray:
    """Sum the logistic losses of pairs of classes, shape (n_classes, n_samples).

    `decisions` are (n_pairs, n_samples), for the pairs of `numpy.triu_indices` and positive for the
    first class of a pair.
    """
    native, losses = _kernels(), np.zeros((n_classes, decisions.shape[1]))
    arrays = np.ascontiguousarray(decisions), sharpness, losses
    native.pair_losses(native.instruction_sets()[0], *arrays)
    return losses


def _count_threads(work: int) -> int:
    return available_threads(_kernels().max_threads) if work >= _THREADED_WORK else 1


def _kernels() -> Any:
    """Import the compiled module."""
    from divlearn.engines import _native  # type: ignore[attr-defined]

    return _native
