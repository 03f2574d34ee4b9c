"""Covariance descriptors of the texture images that ship inside scikit-image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.spd import check_spd

__all__ = ["FEATURES", "Textures", "load_textures"]

FEATURES = ("x", "y", "I", "|Ix|", "|Iy|")
_NAMES = ("brick", "grass", "gravel")


@dataclass(frozen=True, eq=False)
class Textures:
    """One covariance matrix and one label per image patch.

    Attributes
    ----------
    matrices : ndarray, shape (n_matrices, 5, 5), covariances of `FEATURES` over a patch.
    labels : ndarray of str, shape (n_matrices,), the image each patch was cut from.
    names : tuple of str, the images, in the order of the labels.
    """

    matrices: RealArray
    labels: NDArray[np.str_]
    names: tuple[str, ...]


def load_textures(patch: int = 32) -> Textures:
    r"""Region covariances of the patches of three photographs: brick, grass and gravel.

    Each image, 512 by 512 pixels, is cut into a grid of square patches. A pixel has the features
    :math:`\phi = (x, y, I, |I_x|, |I_y|)`: its place, its grey value and the sizes of the central
    differences of the grey values along x and y. A patch of m pixels becomes

    .. math:: C = \frac{1}{m - 1} \sum_{p} (\phi_p - \bar\phi) (\phi_p - \bar\phi)^T .

    Parameters
    ----------
    patch : int, default=32
        Side of a patch in pixels. Pixels that fill no whole patch are left out.

    Returns
    -------
    Textures

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
    >>> textures.matrices.shape, textures.names
    ((768, 5, 5), ('brick', 'grass', 'gravel'))
    """
    if isinstance(patch, bool) or not isinstance(patch, int | np.integer):
        raise TypeError(f"patch={patch!r} must be an integer, the side of a patch in pixels")
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            'the textures are images of scikit-image: pip install "divlearn[images]"'
        ) from error
    images = [getattr(data, name)() for name in _NAMES]
    side = min(images[0].shape)
    if not 2 <= patch <= side:
        raise ValueError(f"patch={patch} must be >= 2 and <= {side}, the side of the images")
    covariances = [_covariances(image.astype(np.float64), int(patch)) for image in images]
    try:
        matrices = check_spd(np.concatenate(covariances), name="covariances")
    except ValueError as error:
        raise ValueError(
            f"patch={patch} must be larger: some patches of {patch} x {patch} pixels have no "
            f"strictly positive definite covariance of {len(FEATURES)} features"
        ) from error
    labels = np.repeat(_NAMES, [len(part) for part in covariances])
    return Textures(matrices, labels, _NAMES)


def _covariances(image: RealArray, patch: int) -> RealArray:
    """Covariances of all whole patches of one image, row by row."""
    # Differences of the whole image, so that a patch has no border of its own.
    along_y, along_x = np.gradient(image)
    y, x = np.indices(image.shape)
    features = np.stack([x, y, image, np.abs(along_x), np.abs(along_y)])
    n_rows, n_columns = (size // patch for size in image.shape)
    whole = features[:, : n_rows * patch, : n_columns * patch]
    pixels = whole.reshape(len(FEATURES), n_rows, patch, n_columns, patch).transpose(1, 3, 0, 2, 4)
    samples = pixels.reshape(n_rows * n_columns, len(FEATURES), patch * patch)
    centred = samples - samples.mean(axis=-1, keepdims=True)
    covariances: RealArray = centred @ centred.mT / (patch * patch - 1)
    return covariances
