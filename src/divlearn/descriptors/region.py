"""Regions of images to SPD matrices: covariances of pixel features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import IntArray, RealArray
from divlearn.descriptors import covariances as over
from divlearn.descriptors import pixels
from divlearn.descriptors.covariances import Boxes, check_boxes, check_sides
from divlearn.descriptors.matrices import MatrixTransformer, check_floor, ensure_definite
from divlearn.descriptors.pixels import COORDINATES, Feature, GaborBank, Images, Preset
from divlearn.fitting.labelled import fit_method
from divlearn.fitting.progress import notify, print_progress
from divlearn.fitting.targets import locate_errors
from divlearn.text import counted
from divlearn.threads import limit_blas

_STACK_PIXELS = 1 << 16  # of images computed together, whose feature maps fit into the cache


@dataclass(frozen=True, eq=False)
class Regions:
    """Matrices of regions; images may differ in their number of regions.

    Attributes
    ----------
    matrices : ndarray, shape (n_regions, d, d)
    image : ndarray of int, shape (n_regions,), the index of the image of each region.
    boxes : ndarray of int, shape (n_regions, 4), top, left, bottom and right.
    """

    matrices: RealArray
    image: IntArray
    boxes: Boxes


# Covariances over the regions of a stack of images, and whether the images were float32.
Part = tuple[Regions, bool]


class RegionCovariance(MatrixTransformer):
    r"""Covariances of pixel features over images, patches of a grid, or boxes.

    A region of m pixels with features :math:`f_p` becomes

    .. math:: C = \frac{1}{m - 1} \sum_p (f_p - \bar f) (f_p - \bar f)^T .

    Parameters
    ----------
    features : str, Preset or sequence of features, default="texture"
        The name of one of `PRESETS`: "brodatz", "texture" (5 x 5 matrices), "cancer" (8 x 8),
        "kth-tips2" (23 x 23, all but the colours of unit variance) or "virus" (29 x 29). Or a list
        of

        - "x", "y": column and row, from 0 to 1 over the region;
        - "I": grey value (of RGB: 0.2125 R + 0.7154 G + 0.0721 B); "R", "G", "B"; "channels": all
          channels. Values are not rescaled, integer or float;
        - "Ix", "Iy", "\|Ix\|", "\|Iy\|": central differences of the grey values, and their sizes;
        - "\|Ixx\|", "\|Iyy\|": sizes of the second differences;
        - "magnitude", "orientation": of the gradient; the orientation is its angle to the x axis,
          between 0 and pi / 2;
        - "gabor 4x6" or a `GaborBank`: magnitudes at 4 scales and 6 orientations;
        - a callable: from an image, float64 of shape (height, width, n_channels), to a plane
          (height, width) or several (n_planes, height, width).
    patch : int or (int, int), optional
        Height and width of the patches of a grid; the whole image by default.
    stride : int or (int, int), optional
        Steps between patches; equal to ``patch`` by default, so that patches do not overlap.
    boxes : array-like of int, shape (n_boxes, 4), optional
        Top, left, bottom and right, half open, of boxes that are the same for all images.
    floor : "auto" or float, default="auto"
        If the smallest eigenvalue of the correlation matrix is below the floor, the covariance is
        shrunk towards its diagonal, with an `SPDRepairWarning`. "auto" is the square root of
        epsilon.
    n_jobs : int, optional, threads; 1 by default, -1 for all cores.
    verbose : int, default=0, 1 prints progress.

    Attributes
    ----------
    feature_names_ : list of str, the rows of the matrices.
    n_features_in_ : int, channels of the images.

    Notes
    -----
    Features are computed on the whole image, so patches have no border effects. With integral
    images the time for a box does not depend on its size.

    References
    ----------
    O. Tuzel, F. Porikli and P. Meer, "Region covariance: a fast descriptor for detection and
    classification", ECCV 2006.

    Examples
    --------
    >>> images = np.random.default_rng(0).integers(256, size=(10, 40, 50))
    >>> RegionCovariance("brodatz").fit_transform(images).shape
    (10, 5, 5)
    >>> RegionCovariance(["I", "|Ix|", "|Iy|"], patch=20).fit_transform(images).shape
    (10, 4, 3, 3)
    """

    def __init__(
        self,
        features: str | Preset | Sequence[Feature] = "texture",
        *,
        patch: int | tuple[int, int] | None = None,
        stride: int | tuple[int, int] | None = None,
        boxes: ArrayLike | None = None,
        floor: float | str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features, self.patch, self.stride, self.boxes = features, patch, stride, boxes
        self.floor, self.n_jobs, self.verbose = floor, n_jobs, verbose

    @fit_method
    def fit(self, X: Images, y: object = None) -> Self:
        """Check the parameters with the first image, and fit the descriptor.

        X has the shape (n_images, height, width[, n_channels]), or is a sequence of images of any
        sizes; y is ignored.
        """
        self._fit(X)
        return self

    @fit_method
    def fit_transform(self, X: Images, y: object = None) -> RealArray:
        """Fit, and describe the same images; see `fit` and `transform`."""
        parts = self._fit(X) or self._compute_parts(X)
        return self._arrange(self._collect(parts), len(X))

    def _fit(self, X: Images) -> list[Part]:
        """Fit; return the covariances if they were computed for it, else an empty list."""
        _, image = next(pixels.stacks(pixels.check_images(X)[:1], 1))
        self._set_or_check_count(image.shape[-1], "channels", reset=True)
        preset = pixels.get_preset(self.features)
        # A corner of the image is enough for the names, unless a function of the user needs all.
        built_in = all(isinstance(feature, str | GaborBank) for feature in preset.features)
        side = pixels.SMALLEST_SIDE if built_in else None
        self.feature_names_ = pixels.pixel_features(image[:, :side, :side], preset.features)[1]
        preset.check_kept(self.feature_names_)
        check_floor(self.floor, d=len(self.feature_names_))
        self._get_boxes(image.shape[1:3], None, 0)
        return []

    def transform(self, X: Images) -> RealArray:
        """Describe images, given as in `fit`.

        The result has the shape (n_images, d, d), or with ``patch`` or ``boxes``
        (n_images, n_regions, d, d).
        """
        return self._arrange(self.transform_regions(X), len(X))

    def transform_regions(self, X: Images, boxes: Sequence[ArrayLike] | None = None) -> Regions:
        """Describe the regions of images, given as in `fit`; their number may differ by image.

        ``boxes`` is a sequence of arrays, shape (n_boxes, 4), one for every image, and replaces
        ``patch`` or ``boxes`` of the estimator.
        """
        check_is_fitted(self)
        return self._collect(self._compute_parts(X, boxes))

    def _collect(self, parts: list[Part]) -> Regions:
        dtype = np.float32 if all(is_float32 for _, is_float32 in parts) else np.float64
        regions = Regions(
            np.concatenate([part.matrices for part, _ in parts]),
            np.concatenate([part.image for part, _ in parts]),
            np.concatenate([part.boxes for part, _ in parts]),
        )
        floor = check_floor(self.floor, dtype, regions.matrices.shape[-1])
        return replace(regions, matrices=_cast(self._describe(regions, floor), dtype))

    def _arrange(self, regions: Regions, n_images: int) -> RealArray:
        if self.patch is None and self.boxes is None:
            return regions.matrices
        counts = np.bincount(regions.image, minlength=n_images)
        if (counts != counts[0]).any():
            other = int(np.argmax(counts != counts[0]))
            raise ValueError(
                f"X[0] has {counted(counts[0], 'regions')} but X[{other}] has {counts[other]}; use "
                "transform_regions, or images of one size"
            )
        return regions.matrices.reshape(n_images, counts[0], *regions.matrices.shape[1:])

    def _describe(self, regions: Regions, floor: float) -> RealArray:
        _check_varying(regions)
        matrices = ensure_definite(regions.matrices, floor, name="region covariances")
        keep = pixels.get_preset(self.features).keep_variance
        if keep is not None:
            scaled = np.flatnonzero([name not in keep for name in self.feature_names_])
            deviations = np.ones(matrices.shape[:2])
            deviations[:, scaled] = np.sqrt(matrices[:, scaled, scaled])
            matrices /= deviations[:, :, None] * deviations[:, None, :]
            matrices[:, scaled, scaled] = 1
        return matrices

    def _compute_parts(self, X: Images, boxes: Sequence[ArrayLike] | None = None) -> list[Part]:
        images = pixels.check_images(X)
        if boxes is not None and len(boxes) != len(images):
            raise ValueError(
                f"boxes are given for {counted(len(boxes), 'images')}, but X has {len(images)}; "
                "pass one array of boxes per image"
            )
        # BLAS gets one thread, because products are small and stacks may run in parallel.
        with limit_blas(1), print_progress(type(self).__name__, self.verbose):
            work = Parallel(n_jobs=self.n_jobs, require="sharedmem", return_as="generator")(
                delayed(self._compute_part)(*stack, boxes)
                for stack in pixels.stacks(images, _STACK_PIXELS)
            )
            parts = []
            for part in work:
                parts.append(part)
                notify("images", int(part[0].image[-1]) + 1, len(images))
            return parts

    def _compute_part(
        self, first: int, images: RealArray, boxes: Sequence[ArrayLike] | None
    ) -> Part:
        n_images, height, width, n_channels = images.shape
        indices = range(first, first + n_images)
        self._set_or_check_count(n_channels, "channels", reset=False, where=f"X[{first}]")
        image_boxes = [self._get_boxes((height, width), boxes, index) for index in indices]
        maps, names = pixels.pixel_features(images, pixels.get_preset(self.features).features)
        if names != self.feature_names_:
            raise ValueError(
                f"X[{first}] has the features {names}, but {type(self).__name__} was fitted "
                f"on {self.feature_names_}; a callable must always return the same number of planes"
            )
        coordinates = {i: COORDINATES[name] for i, name in enumerate(names) if name in COORDINATES}
        if self.patch is None and self.boxes is None and boxes is None:
            result = over.covariances(maps.reshape(n_images, len(names), -1))
        else:
            pairs = zip(maps, image_boxes, strict=True)
            result = np.concatenate([over.box_covariances(*pair, coordinates) for pair in pairs])
        all_boxes = np.concatenate(image_boxes)
        _make_coordinates_relative(result, all_boxes, coordinates)
        return Regions(
            result, np.repeat(indices, list(map(len, image_boxes))), all_boxes
        ), images.dtype == np.float32

    def _get_boxes(
        self, shape: tuple[int, int], boxes: Sequence[ArrayLike] | None, index: int
    ) -> Boxes:
        if self.patch is not None and self.boxes is not None:
            raise ValueError(f"patch={self.patch!r} and boxes are both given; pass one of them")
        if self.stride is not None and self.patch is None:
            raise ValueError(f"stride={self.stride!r} needs a patch; pass patch too")
        image_boxes = self.boxes if boxes is None else boxes[index]
        if image_boxes is not None:
            with locate_errors(f"X[{index}]"):
                return check_boxes(image_boxes, shape)
        if self.patch is None:
            return np.array([[0, 0, *shape]])
        patch = check_sides(self.patch, "patch", 2)
        stride = patch if self.stride is None else check_sides(self.stride, "stride", 1)
        if patch[0] > shape[0] or patch[1] > shape[1]:
            raise ValueError(
                f"patch={self.patch!r} must be <= the size of X[{index}], {shape[0]} x {shape[1]} "
                "pixels; lower patch"
            )
        return over.grid_boxes(shape, patch, stride)


def _check_varying(regions: Regions) -> None:
    """Raise an error if no feature varies in a region, so that its covariance has no scale."""
    flat = np.flatnonzero((np.diagonal(regions.matrices, axis1=1, axis2=2) <= 0).all(axis=1))
    if flat.size:
        image, box = regions.image[flat[0]], tuple(regions.boxes[flat[0]].tolist())
        raise ValueError(
            f"X[{image}] has no feature that varies in the box {box} ({flat.size} of "
            f'{counted(len(regions.image), "regions")}); leave it out, or add the features "x" and '
            '"y", which always vary'
        )


def _cast(matrices: RealArray, dtype: type[np.floating]) -> RealArray:
    """Change the type; raise an error if variances are outside its range."""
    limits = np.finfo(dtype)
    variances = np.diagonal(matrices, axis1=1, axis2=2)
    bad = np.flatnonzero(((variances < limits.tiny) | (variances > limits.max)).any(axis=1))
    if bad.size:
        raise ValueError(
            f"matrix {bad[0]} has variances from {variances[bad[0]].min():.3g} to "
            f"{variances[bad[0]].max():.3g}, which do not fit the range of {limits.dtype}; rescale "
            "the images or pass them as float64"
        )
    return matrices.astype(dtype, copy=False)


def _make_coordinates_relative(
    matrices: RealArray, boxes: Boxes, coordinates: Mapping[int, int]
) -> None:
    """Rescale x and y to run from 0 to 1 over each region, in place."""
    for index, axis in coordinates.items():
        scale = 1 / np.maximum(boxes[:, axis + 2] - boxes[:, axis] - 1, 1)[:, None]
        matrices[:, index, :] *= scale
        matrices[:, :, index] *= scale
