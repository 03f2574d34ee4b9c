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

if TYPE_CHECKING:
    from divlearn.datasets import Dataset

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


def describe(
    images: Images,
    output: Matrices,
    preset: Preset = "texture",
    patch: Patch = None,
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
    writes = [("--output", output)]
    out = Output(as_json, writes=writes, endings={"--output": (".npz",)})
    data = load_image_folder(images, RegionCovariance(preset, patch=patch))
    assert isinstance(data.images, ImageFiles)
    check_paths([("the image", path) for path in data.images.paths], writes)
    with out.working(f"Describing {len(data.images)} images"), _naming(data.images.paths):
        made = data.descriptor.fit_transform(data.images)
    each, d = made[0].size // made.shape[-1] ** 2, made.shape[-1]
    files = [path.relative_to(images).as_posix() for path in data.images.paths]
    matrices = made.reshape(-1, d, d)
    arrays = {"X": matrices, "y": np.repeat(data.labels, each), FILES: np.repeat(files, each)}
    with open_atomic(output) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    _show(out, data, matrices.shape, preset, output)


def _show(out: Output, data: Dataset, shape: tuple[int, ...], preset: str, output: Path) -> None:
    import numpy as np

    classes, names = np.unique(data.labels), data.descriptor.feature_names_
    ignored = data.descriptor.n_features_in_ == 3 and "R" not in names
    grey = " Colour was ignored; presets kth-tips2 and cancer use it." if ignored else ""
    out.say(
        f"{shape[0]} matrices of size {shape[1]} from {len(data.labels)} images of {len(classes)} "
        f"classes, in {output}.\n"
        f"Preset {preset}: covariances of {', '.join(names)}.{grey}\n"
        f"Next: divlearn fit {shell_name(output)} --report report.html, or divlearn predict MODEL "
        f"{shell_name(output)}"
    )
    out.finish(
        output=str(output),
        n_matrices=shape[0],
        size=shape[1],
        n_images=len(data.labels),
        classes=classes,
        preset=preset,
        features=names,
        colour_ignored=ignored,
    )


@contextmanager
def _naming(paths: Sequence[Path]) -> Iterator[None]:
    """Let errors name images in place of their numbers."""
    try:
        yield
    except ValueError as error:
        text = re.sub(r"\bX\[(\d+)\]", lambda found: str(paths[int(found[1])]), str(error))
        raise ValueError(text) from error
