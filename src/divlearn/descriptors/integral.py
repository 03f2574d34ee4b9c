"""Gram matrices of pixel features over boxes by integral images: each box at the same cost."""

from __future__ import annotations

import numpy as np

from divlearn.arrays import RealArray
from divlearn.descriptors.boxes import Boxes
from divlearn.engines import available_engines

__all__ = ["box_grams"]


def box_grams(maps: RealArray, offset: RealArray, boxes: Boxes) -> RealArray:
    r"""Sum products of features over boxes.

    With :math:`g_p = (f_p - o, 1)` and the integral image
    :math:`S(y, x) = \sum_{p < (y, x)} g_p g_p^T`, the sum over a box is
    :math:`S(b, r) - S(t, r) - S(b, l) + S(t, l)`, whatever its size. Only one row of S exists at
    a time.

    Parameters
    ----------
    maps : ndarray of float64, shape (n_features, height, width)
    offset : ndarray, shape (n_features,)
        Subtracted first; sums keep more digits if it is about the mean.
    boxes : ndarray of int, shape (n_boxes, 4)
        Inside the image.

    Returns
    -------
    ndarray, shape (n_boxes, n_features + 1, n_features + 1)
        Of the features less their offsets, and of one more that is one everywhere: its row holds
        the sums, and the number of pixels.

    Examples
    --------
    >>> maps, boxes = np.full((1, 10, 10), 3.0), np.array([[0, 0, 10, 10], [2, 3, 4, 7]])
    >>> box_grams(maps, np.array([1.0]), boxes)
    array([[[400., 200.],
            [200., 100.]],
    <BLANKLINE>
           [[ 32.,  16.],
            [ 16.,   8.]]])
    """
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
        *map(np.ascontiguousarray, (maps, offset, left, right, start, order)), grams,
    )  # fmt: skip
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
