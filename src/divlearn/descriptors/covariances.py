"""Covariances of pixel features over whole images and over boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from divlearn import tolerances
from divlearn.arrays import IntArray, RealArray
from divlearn.descriptors.boxes import Boxes
from divlearn.descriptors.integral import box_grams

__all__ = ["box_covariances", "covariances"]

# Integral images touch every pixel once, at about the price of this many pixels of a box.
_INTEGRAL_COST = 4
_MEAN_STEP = 4  # every so many rows and columns are enough to centre features
_BLOCK_VALUES = 1 << 18  # of boxes of one size, done together


def covariances(samples: RealArray) -> RealArray:
    r"""Covariances :math:`\frac{1}{m-1} \sum_p (f_p - \bar f)(f_p - \bar f)^T`, in two passes.

    Parameters
    ----------
    samples : ndarray, shape (..., n_features, n_pixels)

    Returns
    -------
    ndarray, shape (..., n_features, n_features)
        Exactly symmetric; exactly zero in the rows of constant features.

    Examples
    --------
    >>> covariances(np.array([[1.0, 2.0, 3.0], [0.1, 0.1, 0.1]]))
    array([[1., 0.],
           [0., 0.]])
    """
    # Differences to the first pixel are exact zeros where a feature is constant; those to a
    # rounded mean need not be.
    centred = samples - samples[..., :1]
    centred -= centred.mean(axis=-1, keepdims=True)
    products = centred @ centred.mT
    products += products.mT.copy()
    products /= 2 * (samples.shape[-1] - 1)
    return products


def box_covariances(maps: RealArray, boxes: Boxes, axes: Sequence[int | None] = ()) -> RealArray:
    r"""Covariances over boxes of one image.

    Few pixels in all are done box by box. Otherwise integral images give every box at the same
    cost (`box_grams`); there the sums of a box are differences of sums over much of the image, so
    that a box much smaller or much flatter than the image loses digits. How many is estimated for
    each box, and those beyond `tolerances.integral_image` are done directly.

    Parameters
    ----------
    maps : ndarray of float64, shape (n_features, height, width)
    boxes : ndarray of int, shape (n_boxes, 4)
        Inside the image, two pixels or more each.
    axes : sequence of 0, 1 or None, optional
        For a feature that is the row (0) or the column (1) of a pixel, that axis: the covariances
        of these among themselves are known in closed form.

    Returns
    -------
    ndarray, shape (n_boxes, n_features, n_features)

    Examples
    --------
    >>> maps = np.random.default_rng(0).standard_normal((2, 20, 20))
    >>> box = box_covariances(maps, np.array([[3, 4, 13, 16]]))[0]
    >>> np.allclose(box, np.cov(maps[:, 3:13, 4:16].reshape(2, -1)))
    True
    """
    sizes = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    if sizes.sum() <= _INTEGRAL_COST * maps[0].size:
        return _direct(maps, boxes)
    coordinates = {index: axis for index, axis in enumerate(axes) if axis is not None}
    result, error = _by_integral_images(maps, boxes, sizes, coordinates)
    doubtful = np.flatnonzero(error > tolerances.integral_image())
    result[doubtful] = _direct(maps, boxes[doubtful])
    return result


def _direct(maps: RealArray, boxes: Boxes) -> RealArray:
    n_features = len(maps)
    result = np.empty((len(boxes), n_features, n_features))
    sides, group = np.unique(boxes[:, 2:] - boxes[:, :2], axis=0, return_inverse=True)
    for number, (height, width) in enumerate(sides):
        members = np.flatnonzero(group.ravel() == number)
        windows = np.lib.stride_tricks.sliding_window_view(maps, (height, width), axis=(1, 2))
        step = max(1, _BLOCK_VALUES // (n_features * height * width))
        for start in range(0, len(members), step):
            part = members[start : start + step]
            samples = windows[:, boxes[part, 0], boxes[part, 1]].swapaxes(0, 1)
            result[part] = covariances(samples.reshape(len(part), n_features, -1))
    return result


def _by_integral_images(
    maps: RealArray, boxes: Boxes, sizes: IntArray, coordinates: Mapping[int, int]
) -> tuple[RealArray, RealArray]:
    """Covariances, and an estimate of their error relative to the deviations of the features."""
    _, height, width = maps.shape
    everything = np.array([[0, 0, height, width]])
    grams = box_grams(maps, _about_the_mean(maps), np.concatenate([boxes, everything]))
    sums = grams[:-1, :-1, -1]
    result = grams[:-1, :-1, :-1]
    result -= sums[:, :, None] * sums[:, None, :] / sizes[:, None, None]
    result /= (sizes - 1)[:, None, None]
    _fill_coordinates(result, boxes, sizes, coordinates)
    whole = np.diagonal(grams[-1])[:-1]
    scatter = np.diagonal(result, axis1=1, axis2=2) * (sizes - 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(scatter > 0, whole / scatter, np.where(whole > 0, np.inf, 0))
    # Running sums of n terms err like random walks: by sqrt(n) eps times their last value.
    error = np.sqrt(height + width) * np.finfo(np.float64).eps * _worst_pair(ratio, coordinates)
    return result, error


def _worst_pair(ratio: RealArray, coordinates: Mapping[int, int]) -> RealArray:
    """Largest geometric mean of two ratios, but for those of two coordinates."""
    known = np.isin(np.arange(ratio.shape[1]), list(coordinates))
    if known.all():
        return np.zeros(len(ratio))
    others: RealArray = ratio[:, ~known].max(axis=1)
    if not known.any():
        return others
    with np.errstate(invalid="ignore"):  # nothing times infinity is nothing: exact zeros
        mixed = np.sqrt(np.nan_to_num(others * ratio[:, known].max(axis=1), nan=0.0, posinf=np.inf))
    worst: RealArray = np.maximum(others, mixed)
    return worst


def _fill_coordinates(
    result: RealArray, boxes: Boxes, sizes: IntArray, coordinates: Mapping[int, int]
) -> None:
    """Covariances of rows and columns of boxes: n (s^2 - 1) / 12 / (n - 1), and zero."""
    for i, axis in coordinates.items():
        sides = boxes[:, axis + 2] - boxes[:, axis]
        variances = (sides**2 - 1) / 12 * (sizes / (sizes - 1))
        for j, other in coordinates.items():
            result[:, i, j] = variances if axis == other else 0


def _about_the_mean(maps: RealArray) -> RealArray:
    """Mean of some of the pixels; of a constant feature the constant, to all digits."""
    first = maps[:, 0, 0]
    some = maps[:, ::_MEAN_STEP, ::_MEAN_STEP] - first[:, None, None]
    mean: RealArray = first + some.mean(axis=(1, 2))
    return mean
