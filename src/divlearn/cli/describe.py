"""``divlearn describe``: images to matrices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli import options
from divlearn.cli.output import Output, check_paths, shell_name
from divlearn.text import counted

if TYPE_CHECKING:
    from divlearn.datasets import Dataset
    from divlearn.files import ImageFiles

_N_SHOWN = 10  # broken images

Images = Annotated[Path, typer.Argument(metavar="IMAGES", help="One sub-folder per class.")]
Matrices = Annotated[Path, typer.Option("--output", "-o", help="File to write, .npz.")]
Preset = Annotated[
    str, typer.Option(help="Features: texture, brodatz, virus, kth-tips2 or cancer.")
]
Patch = Annotated[
    int | None,
    typer.Option(
        help="Side of square patches; whole images without it.",
        callback=options.between("--patch", 2),
    ),
]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Leave out images that cannot be read, and name them.")
]


def describe(
    images: Images,
    output: Matrices,
    preset: Preset = "texture",
    patch: Patch = None,
    skip_broken: SkipBroken = False,
    as_json: options.AsJson = False,
) -> None:
    """Turn a folder of images, one sub-folder for each class, into covariance matrices.

    Example: divlearn describe photographs -o matrices.npz --preset virus --patch 64
    """
    import numpy as np

    from divlearn.atomic import open_atomic
    from divlearn.datasets import load_image_folder
    from divlearn.descriptors import PRESETS, RegionCovariance
    from divlearn.files import ImageFiles
    from divlearn.files.columns import FILES

    if preset not in PRESETS:
        raise ValueError(f"--preset {preset} must be one of {', '.join(PRESETS)}")
    writes = [("--output", output, (".npz",))]
    out = Output(as_json, writes=writes)
    data = load_image_folder(images, RegionCovariance(preset, patch=patch))
    image_files = data.images
    assert isinstance(image_files, ImageFiles)
    check_paths([("the image", path) for path in image_files.paths], writes)
    broken = _find_broken(image_files) if skip_broken else {}
    readable = [path not in broken for path in image_files.paths]
    image_files, data.labels = image_files[readable], data.labels[readable]
    with (
        out.working(f"Describing {counted(len(image_files), 'images')}"),
        _naming(image_files.paths),
    ):
        covariances = data.descriptor.fit_transform(image_files)
    d = covariances.shape[-1]
    n_patches = covariances[0].size // d**2  # of an image
    files = [path.relative_to(images).as_posix() for path in image_files.paths]
    matrices, labels = covariances.reshape(-1, d, d), np.repeat(data.labels, n_patches)
    arrays = {"X": matrices, "y": labels, FILES: np.repeat(files, n_patches)}
    with open_atomic(output) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    _show(out, data, broken, matrices.shape, preset, output)


def _find_broken(images: ImageFiles) -> dict[Path, str]:
    """Return the errors of images that cannot be read; at least one image must be readable."""
    broken: dict[Path, str] = {}
    for index, path in enumerate(images.paths):
        try:
            images[index]
        except (ValueError, OSError) as error:
            broken[path] = str(error)
    if len(broken) == len(images):
        raise ValueError(
            f"no image of {len(broken)} can be read, >= 1 must be; the first one: "
            f"{broken[images.paths[0]]}"
        )
    return broken


def _show(
    out: Output,
    data: Dataset,
    broken: dict[Path, str],
    shape: tuple[int, ...],
    preset: str,
    output: Path,
) -> None:
    import numpy as np

    for text in list(broken.values())[:_N_SHOWN]:
        out.say(f"Skipped: {text}")
    if len(broken) > _N_SHOWN:
        out.say(f"... and {len(broken) - _N_SHOWN} more, which --json lists")

    classes, names = np.unique(data.labels), data.descriptor.feature_names_
    ignored = data.descriptor.n_features_in_ == 3 and "R" not in names
    grey = " Colour was ignored; presets kth-tips2 and cancer use it." if ignored else ""
    out.say(
        f"{counted(shape[0], 'matrices')} of size {shape[1]} from "
        f"{counted(len(data.labels), 'images')} of {counted(len(classes), 'classes')}, in "
        f"{output}.\n"
        f"Preset {preset}: covariances of {', '.join(names)}.{grey}\n"
        f"Next: divlearn fit {shell_name(output)} --report report.html, or divlearn predict MODEL "
        f"{shell_name(output)}"
    )
    out.finish(
        output=str(output),
        n_matrices=shape[0],
        size=shape[1],
        n_images=len(data.labels),
        broken=broken,
        classes=classes,
        preset=preset,
        features=names,
        colour_ignored=ignored,
    )


@contextmanager
def _naming(paths: Sequence[Path]) -> Iterator[None]:
    """Name images, not their indices, in errors."""
    try:
        yield
    except ValueError as error:
        text = re.sub(r"\bX\[(\d+)\]", lambda match: str(paths[int(match[1])]), str(error))
        raise ValueError(text) from error
