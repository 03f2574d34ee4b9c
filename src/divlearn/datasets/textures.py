"""Covariance descriptors of the texture images that ship inside scikit-image."""

from __future__ import annotations

import warnings

import numpy as np

from divlearn.checks import check_count
from divlearn.datasets.dataset import Dataset
from divlearn.descriptors.region import RegionCovariance
from divlearn.spd import SPDRepairWarning

__all__ = ["load_textures"]

_NAMES = ("brick", "grass", "gravel")


def load_textures(patch: int = 32) -> Dataset:
    r"""Region covariances of the patches of three photographs: brick, grass and gravel.

    Each image, 512 by 512 pixels, is cut into a grid of square patches. A pixel has the features
    :math:`\phi = (x, y, I, |I_x|, |I_y|)`: its place in the patch, from 0 to 1, its grey value and
    the sizes of the central differences of the grey values along x and y. A patch of m pixels
    becomes

    .. math:: C = \frac{1}{m - 1} \sum_{p} (\phi_p - \bar\phi) (\phi_p - \bar\phi)^T .

    Parameters
    ----------
    patch : int, default=32
        Side of a patch in pixels. Pixels that fill no whole patch are left out.

    Returns
    -------
    Dataset
        Labels are the names of the images.

    Raises
    ------
    ImportError
        If scikit-image is not installed.
    ValueError
        If a covariance is not strictly positive definite, as happens for patches of a few pixels.

    Notes
    -----
    A class is one photograph, and patches of one photograph share light and scale. The data tells
    divergences apart; it does not say how well unseen photographs would be recognised.

    Examples
    --------
    >>> textures = load_textures()
    >>> textures.matrices.shape, textures.classes.tolist()
    ((768, 5, 5), ['brick', 'grass', 'gravel'])
    """
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            'the textures are images of scikit-image: pip install "divlearn[images]"'
        ) from error
    images = [getattr(data, name)() for name in _NAMES]
    side = min(images[0].shape)
    patch = check_count(patch, "patch", least=2, most=side, fix=", the side of the images")
    dataset = Dataset(
        name="textures",
        labels=np.repeat(_NAMES, [(side // patch) ** 2] * len(_NAMES)),
        citation="the images brick, grass and gravel of scikit-image",
        terms="CC0, as scikit-image's documentation says of these images",
        images=images,
        descriptor=RegionCovariance("brodatz", patch=patch),
        notes=("A class is one photograph: train and test are patches of the same photographs.",),
    )
    _check_definite(dataset, patch)
    return dataset


def _check_definite(dataset: Dataset, patch: int) -> None:
    """Compute the matrices, none of which may need repair."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SPDRepairWarning)
        try:
            dataset.matrices  # noqa: B018 - computed here, and kept
        except (SPDRepairWarning, ValueError) as error:
            raise ValueError(
                f"patch={patch} must be larger: some patches of {patch} x {patch} pixels have no "
                "strictly positive definite covariance of 5 features"
            ) from error
