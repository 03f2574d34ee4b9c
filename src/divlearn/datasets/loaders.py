"""Data sets from files, from folders of images, and from scikit-image and aeon."""

import warnings
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator

from divlearn.checks import check_count, import_extra
from divlearn.datasets.dataset import Dataset
from divlearn.descriptors.region import RegionCovariance
from divlearn.descriptors.series import GaussianEmbedding
from divlearn.files import ImageFiles, SPDFile, list_images, read_spd
from divlearn.files.images import PathLike, subfolders
from divlearn.spd import SPDRepairWarning

_TEXTURES = ("brick", "grass", "gravel")


def load_spd(
    path: PathLike,
    *,
    matrices: str | None = None,
    labels: str | None = None,
    groups: str | None = None,
    limit: int = 2**32,
    regularize: str | float = "raise",
) -> Dataset:
    """Load SPD matrices and their labels from a .npy, .npz, HDF5, MATLAB or .csv file.

    The format is detected from the content, or for .csv files from the ending. ``labels`` are None
    if the file has none. A training and a test part are the official split of the data set.

    A row of a .csv file is a matrix, or its upper triangle row by row. The first row may be a
    heading. Columns of text, and those whose heading is a usual name of labels or groups, are
    separate arrays.

    Parameters
    ----------
    path : str or path-like
    matrices : str, optional
        Name of the array of matrices. By default the one with a usual name (matrices, X, x, data,
        covariances, covs, cov, spd, SPD, spds or features), else the only stack of square
        matrices. X_train and X_test (or train_X and test_X, and so on) are joined.
    labels : str, optional
        Name of the array of labels. By default the one with a usual name (labels, y, Y, label,
        target, targets, classes or gnd), or for joined matrices y_train and y_test, and so on.
    groups : str, optional
        Name of the array of groups; "subject" also means subject_train and subject_test. None are
        loaded by default; ``notes`` then list arrays that are named like groups.
    limit : int, default=2**32
        Largest number of bytes that the loaded arrays may take in memory.
    regularize : {"raise", "shrink"} or float, default="raise"
        As in `divlearn.check_spd`; learned from the training part, if the file has one.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "two_classes.npz"
    ...     np.savez(path, X=np.stack([np.eye(3), 2 * np.eye(3)]), y=[[1.0], [2.0]])
    ...     print(load_spd(path))
    <Dataset two_classes: 2 matrices, 2 classes, 5 random splits>
    """
    path = Path(path)
    contents = read_spd(
        path, matrices=matrices, labels=labels, groups=groups, limit=limit, regularize=regularize
    )
    notes = [
        f'{path.name} has an array `{name}`; pass groups="{name}" to keep its groups together'
        for name in contents.group_names
    ]
    return from_file(contents, path.stem, tuple(notes))


def from_file(contents: SPDFile, name: str, notes: tuple[str, ...] = ()) -> Dataset:
    """Make a data set of the contents of a file, whose matrices were checked."""
    dataset = Dataset(
        name,
        contents.labels,
        official_splits=() if contents.splits is None else (contents.splits,),
        groups=contents.groups,
        notes=notes,
        stored=contents.matrices,
        files=contents.files,
    )
    vars(dataset)["matrices"] = contents.matrices  # fill the cached property: no second check
    return dataset


def load_image_folder(path: PathLike, descriptor: BaseEstimator | None = None) -> Dataset:
    """Load images from sub-folders, whose names are the labels, as covariance matrices.

    Parameters
    ----------
    path : str or path-like
        Folder with ``<class>/<any name>``. Other files and images in deeper folders are ignored.
    descriptor : transformer, optional, ``RegionCovariance("texture")`` by default.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("bark", "sand"):
    ...         (Path(folder) / name).mkdir()
    ...         pixels = np.random.default_rng(0).integers(0, 255, (32, 32), dtype=np.uint8)
    ...         Image.fromarray(pixels).save(Path(folder) / name / "1.png")
    ...     images = load_image_folder(folder)
    ...     print(images.labels, images.matrices.shape)
    ['bark' 'sand'] (2, 5, 5)
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{folder} is not a folder; pass one that holds <class>/<name>.png or similar"
        )
    paths = [image for subfolder in subfolders(folder) for image in list_images(subfolder)]
    if not paths:
        raise FileNotFoundError(
            f"{folder} holds no images in sub-folders, must hold <class>/<name>.png or similar; "
            "make one sub-folder for each class"
        )
    return Dataset(
        folder.resolve().name,
        np.array([image.parent.name for image in paths]),
        images=ImageFiles(paths),
        descriptor=RegionCovariance("texture") if descriptor is None else descriptor,
    )


def load_textures(patch: int = 32) -> Dataset:
    r"""Load region covariances of patches of three photographs: brick, grass and gravel.

    Each image, 512 by 512 pixels, is cut into a grid of square patches, which
    ``RegionCovariance("brodatz")`` describes: x, y, I, \|Ix\| and \|Iy\|.

    Parameters
    ----------
    patch : int, default=32
        Side of a patch in pixels. Pixels at the border that fill no patch are ignored. Patches of a
        few pixels have singular covariances and raise an error.

    Notes
    -----
    Labels are the names of the images, which ship with scikit-image. A class is one photograph: use
    the data to compare divergences, not to measure accuracy on unseen photographs.

    Examples
    --------
    >>> textures = load_textures()
    >>> textures.matrices.shape, textures.classes.tolist()
    ((768, 5, 5), ['brick', 'grass', 'gravel'])
    """
    data = import_extra("skimage", "the textures are images of scikit-image", "images").data
    images = [getattr(data, name)() for name in _TEXTURES]
    side = min(images[0].shape)
    patch = check_count(patch, "patch", least=2, most=side, fix=", the side of the images")
    dataset = Dataset(
        "textures",
        np.repeat(_TEXTURES, (side // patch) ** 2),
        citation="the images brick, grass and gravel of scikit-image",
        terms="CC0, as scikit-image's documentation says of these images",
        images=images,
        descriptor=RegionCovariance("brodatz", patch=patch),
        notes=("A class is one photograph: train and test are patches of the same photographs.",),
    )
    with warnings.catch_warnings(action="error", category=SPDRepairWarning):
        try:
            dataset.matrices  # noqa: B018 - compute them now: none may need repair
        except (SPDRepairWarning, ValueError) as error:
            raise ValueError(
                f"patch={patch} must be larger: some patches of {patch} x {patch} pixels have no "
                "strictly positive definite covariance of 5 features"
            ) from error
    return dataset


def load_japanese_vowels() -> Dataset:
    """Load Japanese vowels: 640 utterances of nine speakers, as 13 x 13 Gaussian embeddings.

    Labels are the numbers of the speakers. Series have 12 channels, cepstrum coefficients, and
    7 to 29 times. The official split has 270 utterances to train on and 370 to test on. The
    series ship with aeon, which must be installed.

    Notes
    -----
    Means separate the speakers as much as covariances do, hence the Gaussian embedding. Some series
    have fewer times than channels; the floor of 0.01 was chosen by cross-validation on the training
    part alone. A warning reports repaired matrices.

    Examples
    --------
    >>> load_japanese_vowels().matrices.shape  # doctest: +SKIP
    (640, 13, 13)
    """
    aeon = import_extra("aeon.datasets", "JapaneseVowels ships with aeon", "series")
    folder, parts = Path(aeon.__file__).parent / "data" / "JapaneseVowels", []
    for part in ("TRAIN", "TEST"):
        path = folder / f"JapaneseVowels_{part}.ts"  # aeon's own loaders download missing files
        if not path.is_file():
            raise FileNotFoundError(
                f"JapaneseVowels: {path} does not exist; this version of aeon does not include it; "
                "install another, such as aeon 1.6"
            )
        parts.append(aeon.load_from_ts_file(str(path)))
    series, labels = ([*first, *second] for first, second in zip(*parts, strict=True))
    n_train = len(parts[0][1])
    return Dataset(
        "Japanese vowels",
        np.array(labels).astype(np.int64),
        series=series,
        descriptor=GaussianEmbedding(floor=0.01),
        citation='M. Kudo, J. Toyama and M. Shimbo, "Multidimensional curve classification using '
        'passing-through regions", Pattern Recognition Letters 20, 1999',
        official_splits=((np.arange(n_train), np.arange(n_train, len(labels))),),
    )
