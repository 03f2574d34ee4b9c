"""Images in files, which are read when they are indexed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from operator import index as as_index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from divlearn.checks import import_extra
from divlearn.files.variables import Refusal, explaining, open_regular
from divlearn.text import counted

if TYPE_CHECKING:
    from PIL.Image import Image

PathLike = str | os.PathLike[str]

# Pixels according to the header, checked before decoding. Pillow itself warns at 89 million.
LARGEST_IMAGE = 2**26

_FORMATS = {".png": "PNG", ".gif": "GIF", ".tif": "TIFF", ".tiff": "TIFF", ".bmp": "BMP"}
_FORMATS |= dict.fromkeys((".jpg", ".jpeg"), "JPEG")
_FORMATS |= dict.fromkeys((".ppm", ".pgm", ".pbm", ".pnm"), "PPM")
_GREY, _COLOURS = ("1", "L", "LA"), ("P", "PA", "RGB", "RGBA")  # modes of Pillow


class ImageFiles(Sequence[np.ndarray]):
    """Images that stay in their files until they are indexed.

    Every access reads the file again. Slices, and lists or arrays of integers or booleans, select
    files without reading any.

    Parameters
    ----------
    paths : iterable of str or path-like, kept as a tuple of Path
        PNG, GIF, TIFF, BMP, JPEG or PPM files, distinguished by their suffixes.

    Notes
    -----
    Grey images of 1 or 8 bits become uint8 and those of 16 bits uint16, of shape (height, width).
    Colours become uint8 of shape (height, width, 3); of 16 bits Pillow keeps the upper 8. Images
    with a palette become grey if all colours they use are grey, else RGB. Images with pixels that
    are not opaque are refused. Only the first frame is read, and rotations in the metadata of
    cameras are not applied.

    Files may be hostile: only the decoder of the suffix is tried, and images of more than 2**26
    pixels are refused by their headers.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "1.png"
    ...     Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).save(path)
    ...     images = ImageFiles([path])
    ...     print(images, images[0].shape, images[0].sum())
    ImageFiles(1 file) (3, 4) 66
    """

    def __init__(self, paths: Iterable[PathLike]) -> None:
        self.paths = tuple(Path(path) for path in paths)
        for path in self.paths:
            if path.suffix.lower() not in _FORMATS:
                raise ValueError(
                    f"{path}: its suffix {path.suffix!r} must be one of {', '.join(_FORMATS)}; "
                    "convert it or leave it out"
                )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ImageFiles(self.paths[index])
        if np.ndim(index):
            indices = np.arange(len(self))[index]
            if indices.ndim != 1:
                raise IndexError(
                    f"the index has shape {np.shape(index)}, must be one integer, a slice, or have "
                    "shape (n,); flatten it"
                )
            return ImageFiles(self.paths[i] for i in indices)
        return _read(self.paths[as_index(index)])

    def __repr__(self) -> str:
        return f"ImageFiles({counted(len(self), 'files')})"


def natural_key(path: Path) -> tuple[list[str | int], str]:
    """Key that sorts numbers in names by value, 2.png before 10.png."""
    # Every second part is a number, so that text is never compared with a number.
    parts = re.split("([0-9]+)", path.name)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], path.name


def list_images(folder: Path) -> list[Path]:
    """Files with the suffix of an image, in natural order, without hidden files."""
    files = [entry for entry in _visible(folder) if not entry.is_dir()]
    return [file for file in files if file.suffix.lower() in _FORMATS]


def subfolders(folder: Path) -> list[Path]:
    return [entry for entry in _visible(folder) if entry.is_dir()]


def _visible(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if path.name[0] != "."), key=natural_key)


def _read(path: Path) -> np.ndarray:
    import_extra("PIL", "image files need Pillow", "images")
    from PIL import Image, UnidentifiedImageError

    expected = _FORMATS[path.suffix.lower()]
    with open_regular(path, str(path)) as file, explaining(str(path)):
        try:
            with Image.open(file, formats=[expected]) as image:
                if not 0 < image.height * image.width <= LARGEST_IMAGE:
                    raise Refusal(
                        f"it claims {image.height} x {image.width} pixels, must be > 0 and <= "
                        f"{LARGEST_IMAGE} in all; cut it into smaller images"
                    )
                return _to_array(image)
        except UnidentifiedImageError as error:
            raise Refusal(
                f"its content is not the {expected} image that its suffix {path.suffix} promises; "
                "rename it if it is of another kind, else copy or save it again"
            ) from error
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise Refusal(f"{error}; cut it into smaller images") from error


def _to_array(image: Image) -> np.ndarray:
    image.load()
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        array = np.array(image).astype(np.uint16)
        if "transparency" in image.info:
            _check_opaque(array != image.info["transparency"])
        return array
    if image.mode not in _GREY + _COLOURS:
        raise Refusal(
            f"its pixels have the Pillow mode {image.mode!r}, must be 8- or 16-bit grey, RGB or "
            "palette; convert it"
        )
    if image.mode.endswith("A") or "transparency" in image.info:
        _check_opaque(np.asarray(image.convert("RGBA"))[..., 3] == 255)
    array = np.array(image.convert("L" if image.mode in _GREY else "RGB"))
    if image.mode.startswith("P") and (array == array[..., :1]).all():  # a palette of greys
        return array[..., 0].copy()
    return array


def _check_opaque(opaque: np.ndarray) -> None:
    if not opaque.all():
        raise Refusal(
            f"{opaque.size - np.count_nonzero(opaque)} of its {opaque.size} pixels are not opaque, "
            "so their colours are not defined; save it without transparency"
        )
