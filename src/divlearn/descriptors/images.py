"""Images as descriptors take them: grey or colour, one size or many, a few at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, check_real

Images = Sequence[NDArray[Any]] | NDArray[Any]
# Consecutive images of one size: the index of the first, shape (n_images, height, width,
# n_channels) in float64, and whether they came as float32.
Stack = tuple[int, RealArray, bool]

_LARGEST = 2.0**480  # sums of squares of such values, and of their inverses, do not overflow
SMALLEST_SIDE = 3  # pixels: a second difference needs as many


def check_images(X: Images) -> Images:
    """Return X if it is a sequence of images, which may be lazy; say what else it is otherwise."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "O":
        X = list(X)
    if isinstance(X, np.ndarray):
        if X.ndim == 3 and X.shape[-1] in (3, 4):
            raise ValueError(
                f"X has shape {X.shape}, which looks like one colour image: pass [X]; "
                f"for {len(X)} narrow grey images pass list(X)"
            )
        if X.ndim not in (3, 4):
            raise ValueError(
                f"X has shape {X.shape}, but must be (n_images, height, width) or (n_images, "
                "height, width, n_channels), or a list of images; one image is the list [image]"
            )
    elif not isinstance(X, Sequence) or isinstance(X[:1], str | bytes):
        raise TypeError(f"X is a {type(X).__name__}, but must be an array or list of images")
    if not len(X):
        raise ValueError("X holds no image; pass at least one")
    return X


def stacks(X: Images, largest: int) -> Iterator[Stack]:
    """Go through images in stacks of one size and of at most about `largest` pixels."""
    held: list[NDArray[Any]] = []
    first = 0
    for index in range(len(X)):
        image = _check_image(X[index], f"X[{index}]")
        same = held and image.shape == held[0].shape and image.dtype == held[0].dtype
        if held and (not same or (len(held) + 1) * image[..., 0].size > largest):
            yield _stack(held, first)
            held, first = [], index
        held.append(image)
    yield _stack(held, first)


def _check_image(image: Any, name: str) -> NDArray[Any]:
    if np.ma.is_masked(image):
        raise ValueError(f"{name} has masked pixels; fill them, or pass boxes without any")
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or not array.shape[-1]:
        raise ValueError(
            f"{name} has shape {np.shape(image)}, but must be (height, width) or (height, "
            "width, n_channels)"
        )
    check_real(array, name)
    if min(array.shape[:2]) < SMALLEST_SIDE:
        raise ValueError(
            f"{name} has {array.shape[0]} x {array.shape[1]} pixels, but must have at least "
            f"{SMALLEST_SIDE} x {SMALLEST_SIDE}"
        )
    return array


def _stack(held: list[NDArray[Any]], first: int) -> Stack:
    images = np.stack(held).astype(np.float64)
    largest = np.abs(images).max(axis=(1, 2, 3))
    bad = np.flatnonzero(~((largest == 0) | ((largest >= 1 / _LARGEST) & (largest <= _LARGEST))))
    if bad.size:
        where, size = f"X[{first + bad[0]}]", largest[bad[0]]
        if not np.isfinite(size):
            raise ValueError(f"{where} holds NaN or infinity; fill or crop them")
        raise ValueError(
            f"{where} has values up to {size:.3g}, which must be between {1 / _LARGEST:.3g} and "
            f"{_LARGEST:.3g} for their squares to be finite; rescale the images"
        )
    return first, images, held[0].dtype == np.float32
