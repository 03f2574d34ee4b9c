"""``divlearn describe``: images to matrices."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from divlearn.cli import options
from divlearn.cli.output import Output, check_paths, shell_name


def describe(
    images: Annotated[Path, typer.Argument(metavar="IMAGES", help="One sub-folder per class.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, .npz.")],
    preset: Annotated[
        str, typer.Option(help="Features: texture, brodatz, virus, kth-tips2 or cancer.")
    ] = "texture",
    patch: Annotated[
        int | None,
        typer.Option(
            help="Side of square patches; whole images without it.",
            callback=options.between("--patch", 2),
        ),
    ] = None,
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
    n_images, d = len(made), made.shape[-1]
    matrices = made.reshape(-1, d, d)
    each = len(matrices) // n_images
    files = [path.relative_to(images).as_posix() for path in data.images.paths]
    arrays = {"X": matrices, "y": np.repeat(data.labels, each), FILES: np.repeat(files, each)}
    with open_atomic(output) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    names = data.descriptor.feature_names_
    ignored = data.descriptor.n_features_in_ == 3 and "R" not in names
    grey = " Colour was ignored; presets kth-tips2 and cancer use it." if ignored else ""
    out.say(
        f"{len(matrices)} matrices of size {d} from {n_images} images of "
        f"{len(np.unique(data.labels))} classes, in {output}.\n"
        f"Preset {preset}: covariances of {', '.join(names)}.{grey}\n"
        f"Next: divlearn fit {shell_name(output)} --report report.html, or divlearn predict MODEL "
        f"{shell_name(output)}"
    )
    out.finish(
        output=str(output),
        n_matrices=len(matrices),
        size=d,
        n_images=n_images,
        classes=np.unique(data.labels),
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
