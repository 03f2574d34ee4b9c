"""Checks of images, and features of pixels: colours, derivatives, Gabor filters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft

from divlearn.arrays import RealArray, check_real
from divlearn.checks import check_count

Images = Sequence[np.ndarray] | np.ndarray

SMALLEST_SIDE = 3  # pixels, the support of a second difference
COORDINATES = {"x": 1, "y": 0}  # and their axes in an image
_MAX_VALUE = 2.0**480  # for which sums of squares, and of squared inverses, do not overflow
_LUMA = np.array([0.2125, 0.7154, 0.0721])  # grey of RGB, ITU-R BT.709
_DERIVATIVES = ("|Ix|", "|Iy|", "|Ixx|", "|Iyy|")
_GABOR = re.compile(r"gabor ([1-9]\d?)x([1-9]\d?)")
_MAX_SCALES, _MAX_ORIENTATIONS = 12, 64  # the envelope of scale 11 has 58 pixels
_MARGIN_DEVIATIONS = 3.0  # of the largest envelope, beyond which a filter is negligible


# --- images


def check_images(X: Images) -> Images:
    """Return X if it is a sequence of images, which may be lazy; else raise an error."""
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


def stacks(X: Images, max_pixels: int) -> Iterator[tuple[int, RealArray]]:
    """Yield stacks of consecutive images of one size, each with the index of its first image.

    Stacks have the shape (n_images, height, width, n_channels), and at most `max_pixels` pixels or
    one image. They are float64, or float32 where the images are.
    """
    pending: list[np.ndarray] = []
    first = 0
    for index in range(len(X)):
        image = _check_image(X[index], f"X[{index}]")
        same = pending and image.shape == pending[0].shape and image.dtype == pending[0].dtype
        if pending and (not same or (len(pending) + 1) * image[..., 0].size > max_pixels):
            yield first, _stack(pending, first)
            pending, first = [], index
        pending.append(image)
    yield first, _stack(pending, first)


def _check_image(image: ArrayLike, name: str) -> np.ndarray:
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


def _stack(arrays: list[np.ndarray], first: int) -> RealArray:
    dtype: type[np.floating] = np.float32 if arrays[0].dtype == np.float32 else np.float64
    images: RealArray = np.stack(arrays).astype(dtype, copy=False)
    largest = np.abs(images).max(axis=(1, 2, 3)).astype(np.float64)
    bad = np.flatnonzero(
        ~((largest == 0) | ((largest >= 1 / _MAX_VALUE) & (largest <= _MAX_VALUE)))
    )
    if bad.size:
        where, size = f"X[{first + bad[0]}]", largest[bad[0]]
        if not np.isfinite(size):
            raise ValueError(f"{where} holds NaN or infinity; fill or crop them")
        raise ValueError(
            f"{where} has values up to {size:.3g}, which must be between {1 / _MAX_VALUE:.3g} and "
            f"{_MAX_VALUE:.3g} for their squares to be finite; rescale the images"
        )
    return images


# --- Gabor filters


@dataclass(frozen=True)
class GaborBank:
    r"""Bank of Gabor filters, whose responses to constants are zero.

    Scale s and orientation o have the wave vector :math:`k`, of length
    :math:`k_s = \pi / (2 \cdot 2^{s/2})` and angle :math:`\pi o / n_o`, and the filter

    .. math:: g(p) = \frac{|k|^2}{2 \pi \sigma^2} e^{-|k|^2 |p|^2 / (2 \sigma^2)}
              \left( e^{i k \cdot p} - c \right) ,

    a wave under a Gaussian envelope of :math:`\sigma / |k|` pixels, where c, about
    :math:`e^{-\sigma^2 / 2}`, makes its sum vanish. Images are continued by reflection.

    Parameters
    ----------
    scales : int, default=4
    orientations : int, default=6
        If it is even, a rotation by 90 degrees permutes the responses.
    sigma : float, default=2
        Width of the envelope in units of :math:`1 / |k|`. Use small values for small images.

    Examples
    --------
    >>> bank = GaborBank(scales=2, orientations=3)
    >>> bank.names
    ('gabor 0 0', 'gabor 0 60', 'gabor 0 120', 'gabor 1 0', 'gabor 1 60', 'gabor 1 120')
    >>> bank.magnitudes(np.ones((1, 32, 32))).max() < 1e-12
    np.True_
    """

    scales: int = 4
    orientations: int = 6
    sigma: float = 2.0

    def __post_init__(self) -> None:
        check_count(self.scales, "scales", most=_MAX_SCALES)
        check_count(self.orientations, "orientations", most=_MAX_ORIENTATIONS)
        if not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma={self.sigma!r} must be > 0 and finite")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Scale and angle in degrees of every filter."""
        return tuple(
            f"gabor {scale} {180 * orientation / self.orientations:g}"
            for scale in range(self.scales)
            for orientation in range(self.orientations)
        )

    def magnitudes(self, images: RealArray) -> RealArray:
        """Moduli of responses, (n, n_filters, height, width), to images (n, height, width)."""
        n_images, height, width = images.shape
        top, left = self._margin(height), self._margin(width)
        padded = np.pad(images, ((0, 0), (top, top), (left, left)), mode="symmetric")
        spectrum = fft.fft2(padded)
        result = np.empty((n_images, len(self.names), height, width))
        for index, transfer in enumerate(self._transfers(*padded.shape[1:])):
            response = fft.ifft2(spectrum * transfer, overwrite_x=True)
            np.abs(response[:, top : top + height, left : left + width], out=result[:, index])
        return result

    def _margin(self, size: int) -> int:
        """Return the number of pixels to add on each side of an axis, for a fast transform."""
        margin = math.ceil(_MARGIN_DEVIATIONS * self.sigma / _frequency(self.scales - 1))
        while fft.next_fast_len(size + 2 * margin) != size + 2 * margin:
            margin += 1
        return margin

    def _transfers(self, rows: int, columns: int) -> list[RealArray]:
        transfers = []
        for scale in range(self.scales):
            length = _frequency(scale)
            spread = length / self.sigma
            envelope = np.outer(_gaussian(rows, 0, spread), _gaussian(columns, 0, spread))
            for orientation in range(self.orientations):
                angle = np.pi * orientation / self.orientations
                y, x = length * np.sin(angle), length * np.cos(angle)
                wave = np.outer(_gaussian(rows, y, spread), _gaussian(columns, x, spread))
                transfers.append(wave - wave[0, 0] / envelope[0, 0] * envelope)
        return transfers


def _gaussian(size: int, centre: float, spread: float) -> RealArray:
    """Gaussian on the frequencies of an axis, including its aliases from beyond pi."""
    frequencies = 2 * np.pi * (fft.fftfreq(size)[:, None] + np.arange(-2, 3))
    return np.exp(-((frequencies - centre) ** 2) / (2 * spread**2)).sum(axis=1)


def _frequency(scale: int) -> float:
    return math.pi / 2 / 2 ** (scale / 2)


# --- features

Feature = str | GaborBank | Callable[[RealArray], ArrayLike]


class _Planes:
    """Planes of images of one size, (n_images, height, width), computed when they are used."""

    def __init__(self, images: RealArray) -> None:
        self.images = images

    @cached_property
    def grey(self) -> RealArray:
        n_channels = self.images.shape[-1]
        if n_channels == 1:
            return self.images[..., 0]
        if n_channels == 3:
            return self.images @ _LUMA
        raise ValueError(
            f"images have {n_channels} channels, but grey values are defined for 1 and 3 (RGB); "
            'use the feature "channels", or pass grey or RGB images'
        )

    @cached_property
    def along_x(self) -> RealArray:
        return np.asarray(np.gradient(self.grey, axis=2))

    @cached_property
    def along_y(self) -> RealArray:
        return np.asarray(np.gradient(self.grey, axis=1))

    def coordinate(self, axis: int) -> RealArray:
        shape = self.images.shape[:3]
        return np.broadcast_to(np.indices(shape, dtype=float, sparse=True)[axis], shape)

    def colour(self, channel: int) -> RealArray:
        if self.images.shape[-1] != 3:
            raise ValueError(
                f'feature "{"RGB"[channel]}" needs images of 3 channels, but these have '
                f'{self.images.shape[-1]}; use "I" or "channels"'
            )
        return self.images[..., channel]


_PLANE_FEATURES: dict[str, Callable[[_Planes], RealArray]] = {
    "x": lambda planes: planes.coordinate(2),
    "y": lambda planes: planes.coordinate(1),
    "I": lambda planes: planes.grey,
    "R": lambda planes: planes.colour(0),
    "G": lambda planes: planes.colour(1),
    "B": lambda planes: planes.colour(2),
    "Ix": lambda planes: planes.along_x,
    "Iy": lambda planes: planes.along_y,
    "|Ix|": lambda planes: np.abs(planes.along_x),
    "|Iy|": lambda planes: np.abs(planes.along_y),
    "|Ixx|": lambda planes: np.abs(_second_difference(planes.grey)),
    "|Iyy|": lambda planes: np.abs(_second_difference(planes.grey.mT).mT),
    "magnitude": lambda planes: np.hypot(planes.along_x, planes.along_y),
    "orientation": lambda planes: np.arctan2(np.abs(planes.along_y), np.abs(planes.along_x)),
}


@dataclass(frozen=True)
class Preset:
    """Features of a descriptor.

    Features named in ``keep_variance`` keep their variances, by default all; the others are divided
    by their standard deviations in the region.
    """

    features: tuple[Feature, ...]
    keep_variance: tuple[str, ...] | None = None

    def check_kept(self, names: Sequence[str]) -> None:
        """Raise an error if ``keep_variance`` has a name that is not among the features."""
        if isinstance(self.keep_variance, str):
            raise ValueError(f"keep_variance={self.keep_variance!r} must be a tuple of names")
        for name in self.keep_variance or ():
            if name not in names:
                raise ValueError(
                    f"keep_variance has {name!r}, must be among the features {', '.join(names)}"
                )


PRESETS = {
    "brodatz": Preset(("x", "y", "I", "|Ix|", "|Iy|")),
    "texture": Preset(("I", *_DERIVATIVES)),
    # As in the matrices of the authors of the paper, only colours keep their variances.
    "kth-tips2": Preset(("R", "G", "B", *_DERIVATIVES, "gabor 4x4"), keep_variance=("R", "G", "B")),
    "virus": Preset(("I", *_DERIVATIVES, "gabor 4x6")),
    "cancer": Preset(("R", "G", "B", *_DERIVATIVES, "magnitude")),
}


def get_preset(features: str | Preset | Sequence[Feature]) -> Preset:
    if isinstance(features, str):
        if features not in PRESETS:
            raise ValueError(
                f"features={features!r} must be one of {', '.join(PRESETS)}, or a list of features"
            )
        return PRESETS[features]
    given = features.features if isinstance(features, Preset) else features
    if isinstance(given, str) or not isinstance(given, Sequence) or not len(given):
        raise ValueError(f"features={given!r} must be the name of a preset or a list")
    for feature in given:
        if isinstance(feature, GaborBank) or callable(feature):
            continue
        if not isinstance(feature, str) or not (
            feature in _PLANE_FEATURES or feature == "channels" or _GABOR.fullmatch(feature)
        ):
            names = ", ".join([*_PLANE_FEATURES, "channels"])
            raise ValueError(
                f'feature {feature!r} must be one of {names}, "gabor 4x6" (scales x '
                "orientations), a GaborBank or callable"
            )
    return features if isinstance(features, Preset) else Preset(tuple(given))


def pixel_features(images: RealArray, features: Sequence[Feature]) -> tuple[RealArray, list[str]]:
    """Compute features, shape (n_images, n_features, height, width), and their names."""
    planes = _Planes(images.astype(np.float64, copy=False))
    names, blocks = zip(*(_compute(feature, planes) for feature in features), strict=True)
    return np.concatenate(blocks, axis=1), [name for group in names for name in group]


def _compute(feature: Feature, planes: _Planes) -> tuple[Sequence[str], RealArray]:
    if isinstance(feature, GaborBank):
        return feature.names, feature.magnitudes(planes.grey)
    if callable(feature):
        return _compute_custom(feature, planes.images)
    if feature == "channels":
        n_channels = planes.images.shape[-1]
        return [f"channel {k}" for k in range(n_channels)], np.moveaxis(planes.images, -1, 1)
    if gabor := _GABOR.fullmatch(feature):
        return _compute(GaborBank(int(gabor[1]), int(gabor[2])), planes)
    return [feature], _PLANE_FEATURES[feature](planes)[:, None]


def _compute_custom(
    function: Callable[[RealArray], ArrayLike], images: RealArray
) -> tuple[list[str], RealArray]:
    name = getattr(function, "__name__", type(function).__name__)
    size = images.shape[1:3]
    results = [np.asarray(function(image), dtype=np.float64) for image in images]
    for result in results:
        if result.ndim not in (2, 3) or result.shape[-2:] != size or result.size == 0:
            raise ValueError(
                f"feature {name} returned shape {result.shape} for an image of {size[0]} x "
                f"{size[1]} pixels, but must return (height, width) or (n_planes, height, width)"
            )
        if not np.isfinite(result).all():
            raise ValueError(f"feature {name} returned NaN or infinity; it must be finite")
    block = np.stack([result.reshape(-1, *size) for result in results])
    names = [name] if block.shape[1] == 1 else [f"{name} {k}" for k in range(block.shape[1])]
    return names, block


def _second_difference(grey: RealArray) -> RealArray:
    """Second difference along the last axis; border pixels have the value of their neighbour."""
    result = np.empty_like(grey)
    result[..., 1:-1] = grey[..., 2:] - 2 * grey[..., 1:-1] + grey[..., :-2]
    result[..., 0], result[..., -1] = result[..., 1], result[..., -2]
    return result
