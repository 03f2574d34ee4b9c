"""Boxes in an image: (top, left, bottom, right), half open as slices are."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Boxes", "check_boxes", "check_sides", "grid_boxes"]

Boxes = NDArray[np.int64]


def grid_boxes(shape: tuple[int, int], patch: tuple[int, int], stride: tuple[int, int]) -> Boxes:
    """Boxes of one size that lie in an image, row by row.

    Parameters
    ----------
    shape, patch, stride : (int, int)
        Height and width of the image and of a box, and steps between boxes.

    Returns
    -------
    ndarray of int, shape (n_boxes, 4)

    Examples
    --------
    >>> grid_boxes((4, 6), (3, 3), (1, 3))
    array([[0, 0, 3, 3],
           [0, 3, 3, 6],
           [1, 0, 4, 3],
           [1, 3, 4, 6]])
    """
    tops, lefts = (
        np.arange(0, size - side + 1, step)
        for size, side, step in zip(shape, patch, stride, strict=True)
    )
    corners = np.stack(np.meshgrid(tops, lefts, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.concatenate([corners, corners + np.array(patch)], axis=1)


def check_boxes(boxes: ArrayLike, shape: tuple[int, int] | None = None) -> Boxes:
    """Return boxes as an array of integers.

    Parameters
    ----------
    boxes : array-like, shape (n_boxes, 4)
    shape : (int, int), optional
        Height and width of the image that must hold them.

    Returns
    -------
    ndarray of int, shape (n_boxes, 4)

    Examples
    --------
    >>> check_boxes([[0, 0, 8, 9]], shape=(8, 8))
    Traceback (most recent call last):
    ValueError: box 0 is (0, 0, 8, 9), but must lie in an image of 8 x 8 pixels and ...
    """
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
    bad |= (bottom - top) * (right - left) < 2
    where = "be top < bottom, left < right, all >= 0, with at least two pixels inside"
    if shape is not None:
        bad |= (bottom > shape[0]) | (right > shape[1])
        where = f"lie in an image of {shape[0]} x {shape[1]} pixels and {where}"
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        box = tuple(map(int, checked[first]))
        raise ValueError(f"box {first} is {box}, but must {where}")
    return checked


def check_sides(value: int | tuple[int, int], name: str, smallest: int) -> tuple[int, int]:
    """Return height and width from one integer for both or a pair.

    Examples
    --------
    >>> check_sides(32, "patch", 2)
    (32, 32)
    """
    pair = (value, value) if isinstance(value, int | np.integer) else value
    if (
        not isinstance(pair, tuple | list)
        or len(pair) != 2
        or any(isinstance(side, bool) or not isinstance(side, int | np.integer) for side in pair)
    ):
        raise TypeError(f"{name}={value!r} must be an integer or a pair (height, width) of them")
    if min(pair) < smallest:
        raise ValueError(f"{name}={value!r} must be >= {smallest}, in pixels")
    return int(pair[0]), int(pair[1])
