"""Gram matrices of pixel features over boxes by integral images: each box at the same cost."""

from __future__ import annotations

import numpy as np

from divlearn.arrays import RealArray
from divlearn.descriptors.boxes import Boxes
from divlearn.engines import available_engines

__all__ = ["box_grams"]


def box_grams(maps: RealArray, boxes: Boxes) -> RealArray:
    r"""Sum products of features over boxes.

    With the integral image :math:`S(y, x) = \sum_{p < (y, x)} f_p f_p^T`, the sum over a box is
    :math:`S(b, r) - S(t, r) - S(b, l) + S(t, l)`, whatever its size. Only one row of S exists at
    a time.

    Parameters
    ----------
    maps : ndarray of float64, shape (n_features, height, width)
    boxes : ndarray of int, shape (n_boxes, 4)
        Inside the image.

    Returns
    -------
    ndarray, shape (n_boxes, n_features, n_features)

    Examples
    --------
    >>> box_grams(np.ones((1, 10, 10)), np.array([[0, 0, 10, 10], [2, 3, 4, 7]]))[:, 0, 0]
    array([100.,   8.])
    """
    if available_engines()[0] != "native":
        return _grams_by_numpy(maps, boxes)
    from divlearn.engines import _native  # type: ignore[attr-defined]

    n_features, height, _ = maps.shape
    top, left, bottom, right = boxes.T
    rows = np.concatenate([top, bottom])
    order = np.argsort(rows, kind="stable")
    start = np.searchsorted(rows[order], np.arange(height + 2))
    grams = np.zeros((len(boxes), n_features, n_features))
    _native.box_grams(
        _native.instruction_sets()[0],
        *map(np.ascontiguousarray, (maps, left, right, start, order)), grams,
    )  # fmt: skip
    below = np.tril_indices(n_features, -1)
    grams[:, *below] = grams.mT[:, *below]
    return grams


def _grams_by_numpy(maps: RealArray, boxes: Boxes) -> RealArray:
    n_features, height, width = maps.shape
    top, left, bottom, right = boxes.T
    integral = np.zeros((height + 1, width + 1))
    inner = integral[1:, 1:]
    grams = np.empty((len(boxes), n_features, n_features))
    for i in range(n_features):
        for j in range(i, n_features):
            np.cumsum(maps[i] * maps[j], axis=1, out=inner)
            np.cumsum(inner, axis=0, out=inner)
            lower = integral[bottom, right] - integral[bottom, left]
            upper = integral[top, right] - integral[top, left]
            grams[:, i, j] = grams[:, j, i] = lower - upper
    return grams
