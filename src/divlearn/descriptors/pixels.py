"""Features of pixels, chosen by name, and the presets of the paper's data sets."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.descriptors.gabor import GaborBank

Feature = str | GaborBank | Callable[[RealArray], Any]

COORDINATES = {"x": 1, "y": 0}  # and the axes of an image they run along
_LUMA = np.array([0.2125, 0.7154, 0.0721])  # grey of RGB, ITU-R BT.709
_DERIVATIVES = ("|Ix|", "|Iy|", "|Ixx|", "|Iyy|")
_GABOR = re.compile(r"gabor ([1-9]\d?)x([1-9]\d?)")


class _Planes:
    """Planes of images of one size, (n_images, height, width), each computed at most once."""

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
        shape = [1, 1, 1]
        shape[axis] = -1
        steps = np.arange(self.images.shape[axis], dtype=float).reshape(shape)
        return np.broadcast_to(steps, self.images.shape[:3])

    def colour(self, channel: int) -> RealArray:
        if self.images.shape[-1] != 3:
            raise ValueError(
                f'feature "{"RGB"[channel]}" needs images of 3 channels, but these have '
                f'{self.images.shape[-1]}; use "I" or "channels"'
            )
        return self.images[..., channel]


_NAMED: dict[str, Callable[[_Planes], RealArray]] = {
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

    Features named in ``keep_variance`` keep their variances, while each of the others is divided by
    its standard deviation in the region; by default all keep them.
    """

    features: tuple[Feature, ...]
    keep_variance: tuple[str, ...] | None = None

    def check_kept(self, names: Sequence[str]) -> None:
        """Raise where a name in ``keep_variance`` is that of no feature."""
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
    # The matrices of the paper's authors keep the variances of the colours; the others are one.
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
    _check_features(features.features if isinstance(features, Preset) else features)
    return features if isinstance(features, Preset) else Preset(tuple(features))


def _check_features(features: Sequence[Feature]) -> None:
    if isinstance(features, str) or not isinstance(features, Sequence) or not len(features):
        raise ValueError(f"features={features!r} must be the name of a preset or a list")
    for feature in features:
        if isinstance(feature, GaborBank) or callable(feature):
            continue
        if not isinstance(feature, str) or not (
            feature in _NAMED or feature == "channels" or _GABOR.fullmatch(feature)
        ):
            known = ", ".join([*_NAMED, "channels"])
            raise ValueError(
                f'feature {feature!r} must be one of {known}, "gabor 4x6" (scales x '
                "orientations), a GaborBank or callable"
            )


def pixel_features(images: RealArray, features: Sequence[Feature]) -> tuple[RealArray, list[str]]:
    """Compute features, shape (n_images, n_features, height, width), and their names."""
    planes = _Planes(images)
    names, blocks = zip(*(_compute(feature, planes) for feature in features), strict=True)
    return np.concatenate(blocks, axis=1), [name for some in names for name in some]


def _compute(feature: Feature, planes: _Planes) -> tuple[Sequence[str], RealArray]:
    if isinstance(feature, GaborBank):
        return feature.names, feature.magnitudes(planes.grey)
    if callable(feature):
        return _call(feature, planes.images)
    if feature == "channels":
        n_channels = planes.images.shape[-1]
        return [f"channel {k}" for k in range(n_channels)], np.moveaxis(planes.images, -1, 1)
    if gabor := _GABOR.fullmatch(feature):
        return _compute(GaborBank(int(gabor[1]), int(gabor[2])), planes)
    return [feature], _NAMED[feature](planes)[:, None]


def _call(function: Callable[[RealArray], Any], images: RealArray) -> tuple[list[str], RealArray]:
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
    """Along the last axis; a border pixel has that of its neighbour."""
    result = np.empty_like(grey)
    result[..., 1:-1] = grey[..., 2:] - 2 * grey[..., 1:-1] + grey[..., :-2]
    result[..., 0], result[..., -1] = result[..., 1], result[..., -2]
    return result
