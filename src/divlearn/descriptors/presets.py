"""The descriptors of the paper's data sets, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divlearn.descriptors.pixels import Feature, check_features

__all__ = ["PRESETS", "Preset", "get_preset"]

_DERIVATIVES = ("|Ix|", "|Iy|", "|Ixx|", "|Iyy|")


@dataclass(frozen=True)
class Preset:
    """Features of a descriptor.

    Attributes
    ----------
    features : what the covariance is of.
    keep_variance : names of the features that keep their variances, while each of the others is
        divided by its standard deviation in the region; all keep them by default.
    """

    features: tuple[Feature, ...]
    keep_variance: tuple[str, ...] | None = None

    def check_kept(self, names: Sequence[str]) -> None:
        """Raise where a name in ``keep_variance`` is that of no feature.

        Examples
        --------
        >>> Preset(("I", "|Ix|"), keep_variance=("Ix",)).check_kept(["I", "|Ix|"])
        Traceback (most recent call last):
        ValueError: keep_variance has 'Ix', must be among the features I, |Ix|
        """
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
    """Preset by name, itself, or one of given features.

    Examples
    --------
    >>> get_preset("brodatz").features
    ('x', 'y', 'I', '|Ix|', '|Iy|')
    >>> get_preset("virsu")
    Traceback (most recent call last):
    ValueError: features='virsu' must be one of brodatz, texture, kth-tips2, virus, cancer, or ...
    """
    if isinstance(features, str):
        if features not in PRESETS:
            raise ValueError(
                f"features={features!r} must be one of {', '.join(PRESETS)}, or a list of features"
            )
        return PRESETS[features]
    if isinstance(features, Preset):
        check_features(features.features)
        return features
    check_features(features)
    return Preset(tuple(features))
