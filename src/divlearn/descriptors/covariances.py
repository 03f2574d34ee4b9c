"""Covariances of pixel features over whole images and over boxes of them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import gen_batches

from divlearn import tolerances
from divlearn.arrays import IntArray, RealArray
from divlearn.checks import check_count
from divlearn.engines import available_engines

Boxes = NDArray[np.int64]  # (top, left, bottom, right), half open like slices

_INTEGRAL_COST = 4  # of integral images per pixel, relative to covariances of a box
_MEAN_STEP = 4  # rows and columns are subsampled for the mean that centres features
_BLOCK_VALUES = 1 << 18  # of boxes of one size that are computed together


def grid_boxes(shape: tuple[int, int], patch: tuple[int, int], stride: tuple[int, int]) -> Boxes:
    """Boxes of one size inside an image of a height and width, row by row."""
    tops, lefts = (
        np.arange(0, size - side + 1, step)
        for size, side, step in zip(shape, patch, stride, strict=True)
    )
    corners = np.stack(np.meshgrid(tops, lefts, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.concatenate([corners, corners + np.array(patch)], axis=1)


def check_boxes(boxes: ArrayLike, shape: tuple[int, int]) -> Boxes:
    """Return boxes as an array of integers; they must lie inside an image of this shape."""
    array = np.asarray(boxes)
    if array.ndim != 2 or array.shape[1] != 4 or not len(array):
        raise ValueError(
            f"boxes have shape {array.shape}, but must be (n_boxes, 4): top, left, bottom, right"
        )
    if array.dtype.kind not in "iu":
        raise TypeError(f"boxes have dtype {array.dtype}, but must be integers, in pixels")
    checked = array.astype(np.int64)
    top, left, bottom, right = checked.T
    bad = (top < 0) | (left < 0) | (bottom <= top) | (right <= left)
    bad |= ((bottom - top) * (right - left) < 2) | (bottom > shape[0]) | (right > shape[1])
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"box {first} is {tuple(checked[first].tolist())}, but must lie in an image of "
            f"{shape[0]} x {shape[1]} pixels and be top < bottom, left < right, all >= 0, with at "
            "least two pixels inside"
        )
    return checked


def check_sides(value: int | tuple[int, int], name: str, smallest: int) -> tuple[int, int]:
    pair = value if isinstance(value, tuple | list) and len(value) == 2 else (value, value)
    try:
        height, width = (
            check_count(side, name, least=smallest, fix=", in pixels") for side in pair
        )
    except TypeError:
        raise TypeError(
            f"{name}={value!r} must be an integer or a pair (height, width) of them"
        ) from None
    return height, width


def covariances(samples: RealArray) -> RealArray:
    """Covariances of features, (..., n_features, n_pixels), exactly zero for constant features."""
    # Differences from the first pixel are exactly zero if a feature is constant; differences from
    # a rounded mean need not be.
    centred = samples - samples[..., :1]
    centred -= centred.mean(axis=-1, keepdims=True)
    products = centred @ centred.mT
    products += products.mT.copy()
    products /= 2 * (samples.shape[-1] - 1)
    return products


def box_covariances(maps: RealArray, boxes: Boxes, coordinates: Mapping[int, int]) -> RealArray:
    """Covariances of features, shape (n_features, height, width), over boxes of one image."""
    # ``coordinates`` has the indices of features that are the row (0) or the column (1) of a pixel;
    # their covariances have a closed form.
    sizes = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    if sizes.sum() <= _INTEGRAL_COST * maps[0].size:
        return _direct(maps, boxes)
    result, error = _by_integral_images(maps, boxes, sizes, coordinates)
    # Boxes with much less variance than the image lose digits.
    inaccurate = np.flatnonzero(error > tolerances.integral_image())
    result[inaccurate] = _direct(maps, boxes[inaccurate])
    return result


def _direct(maps: RealArray, boxes: Boxes) -> RealArray:
    n_features = len(maps)
    result = np.empty((len(boxes), n_features, n_features))
    sides, group = np.unique(boxes[:, 2:] - boxes[:, :2], axis=0, return_inverse=True)
    for number, (height, width) in enumerate(sides):
        members = np.flatnonzero(group.ravel() == number)
        windows = np.lib.stride_tricks.sliding_window_view(maps, (height, width), axis=(1, 2))
        step = max(1, _BLOCK_VALUES // (n_features * height * width))
        for rows in gen_batches(len(members), step):
            part = members[rows]
            samples = windows[:, boxes[part, 0], boxes[part, 1]].swapaxes(0, 1)
            result[part] = covariances(samples.reshape(len(part), n_features, -1))
    return result


def _by_integral_images(
    maps: RealArray, boxes: Boxes, sizes: IntArray, coordinates: Mapping[int, int]
) -> tuple[RealArray, RealArray]:
    """Covariances, and an estimate of their error relative to the deviations of the features."""
    _, height, width = maps.shape
    whole_image = np.array([[0, 0, height, width]])
    first = maps[:, 0, 0]  # differences from it have an exact mean if a feature is constant
    differences = maps[:, ::_MEAN_STEP, ::_MEAN_STEP] - first[:, None, None]
    offset = first + differences.mean(axis=(1, 2))
    grams = box_grams(maps, offset, np.concatenate([boxes, whole_image]))
    sums = grams[:-1, :-1, -1]
    result = grams[:-1, :-1, :-1]
    result -= sums[:, :, None] * sums[:, None, :] / sizes[:, None, None]
    result /= (sizes - 1)[:, None, None]
    _fill_coordinates(result, boxes, sizes, coordinates)
    total = np.diagonal(grams[-1])[:-1]
    scatter = np.diagonal(result, axis1=1, axis2=2) * (sizes - 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(scatter > 0, total / scatter, np.where(total > 0, np.inf, 0))
    # Rounding errors of running sums of n terms grow like sqrt(n) eps times their last value.
    error = np.sqrt(height + width) * np.finfo(np.float64).eps * _worst_pair(ratio, coordinates)
    return result, error


def _worst_pair(ratio: RealArray, coordinates: Mapping[int, int]) -> RealArray:
    """Largest geometric mean of two ratios, except of two coordinates, which are exact."""
    exact = np.isin(np.arange(ratio.shape[1]), list(coordinates))
    largest, others = (ratio[:, columns].max(axis=1, initial=0) for columns in (exact, ~exact))
    with np.errstate(invalid="ignore"):  # zero times infinity is zero: features are constant
        mixed = np.sqrt(np.nan_to_num(others * largest, nan=0.0, posinf=np.inf))
    return np.maximum(others, mixed)


def _fill_coordinates(
    result: RealArray, boxes: Boxes, sizes: IntArray, coordinates: Mapping[int, int]
) -> None:
    """Set covariances of coordinates: n (s^2 - 1) / 12 / (n - 1) for one axis, zero for two."""
    for i, axis in coordinates.items():
        sides = boxes[:, axis + 2] - boxes[:, axis]
        variances = (sides**2 - 1) / 12 * (sizes / (sizes - 1))
        for j, other in coordinates.items():
            result[:, i, j] = variances if axis == other else 0


def box_grams(maps: RealArray, offset: RealArray, boxes: Boxes) -> RealArray:
    """Sum products of features, minus their offsets, over boxes by integral images."""
    # With g_p = (f_p - o, 1) and S(y, x) the sum of g_p g_p^T over p < (y, x), the sum over a box
    # is S(b, r) - S(t, r) - S(b, l) + S(t, l). Only one row of S exists at a time.
    if available_engines()[0] != "native":
        return _grams_by_numpy(maps, offset, boxes)
    from divlearn.engines import _native  # type: ignore[attr-defined]

    n = len(maps) + 1
    top, left, bottom, right = boxes.T
    rows = np.concatenate([top, bottom])
    order = np.argsort(rows, kind="stable")
    start = np.searchsorted(rows[order], np.arange(maps.shape[1] + 2))
    grams = np.zeros((len(boxes), n, n))
    _native.box_grams(
        _native.instruction_sets()[0],
        *map(np.ascontiguousarray, (maps, offset, left, right, start, order)),
        grams,
    )
    below = np.tril_indices(n, -1)
    grams[:, *below] = grams.mT[:, *below]
    return grams


def _grams_by_numpy(maps: RealArray, offset: RealArray, boxes: Boxes) -> RealArray:
    n_features, height, width = maps.shape
    top, left, bottom, right = boxes.T
    centred = np.ones((n_features + 1, height, width))
    np.subtract(maps, offset[:, None, None], out=centred[:-1])
    integral = np.zeros((height + 1, width + 1))
    inner = integral[1:, 1:]
    grams = np.empty((len(boxes), n_features + 1, n_features + 1))
    for i in range(n_features + 1):
        for j in range(i, n_features + 1):
            np.cumsum(centred[i] * centred[j], axis=1, out=inner)
            np.cumsum(inner, axis=0, out=inner)
            lower = integral[bottom, right] - integral[bottom, left]
            upper = integral[top, right] - integral[top, left]
            grams[:, i, j] = grams[:, j, i] = lower - upper
    return grams
