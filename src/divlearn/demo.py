"""Which divergence should I use? Answered for real images in one command.

``python -m divlearn.demo`` maps the (alpha, beta) plane for the texture images that ship inside
scikit-image and saves a picture of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from divlearn.datasets import load_textures
from divlearn.engines import get_engine
from divlearn.maps import NAMED, PlaneMap, plane_map

__all__ = ["main"]

_FINE, _COARSE = 0.125, 0.5  # steps of the grid; every named point lies on both
_LARGEST = 2.0
_PLAIN: dict[str, Any] = {"title_justify": "left", "box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration.

    Parameters
    ----------
    argv : sequence of str, optional
        Command line options; those of the process by default.

    Returns
    -------
    int
        Exit code: 0, or 1 if an option does not fit or the picture could not be written.
    """
    options = _parser().parse_args(argv)
    try:
        _run(options, Console(highlight=False))
    except (ImportError, ValueError) as error:
        print(f"divlearn.demo: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m divlearn.demo",
        description="Map of the (alpha, beta) plane for scikit-image's texture images.",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo/plane.png"), help="picture (default: %(default)s)"
    )
    parser.add_argument(
        "--patch", type=int, default=32, help="side of a patch in pixels (default: %(default)s)"
    )
    parser.add_argument(
        "--engine", default="auto", help="auto, native or reference (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, help="threads (default: all)")
    return parser


def _run(options: argparse.Namespace, console: Console) -> None:
    engine = get_engine(options.engine, options.threads)
    if not options.output.suffix:
        raise ValueError(f"--output {options.output} must name a picture; add an ending: .png")
    textures = load_textures(options.patch)
    # Before the work, so that most paths that cannot be written cost no waiting.
    with _writing(options.output):
        options.output.parent.mkdir(parents=True, exist_ok=True)
    n, d = textures.matrices.shape[:2]
    console.print(
        f"Data: {n} covariance matrices, {d} x {d}, of {options.patch} x {options.patch} pixel "
        f"patches of {len(textures.classes)} images ({', '.join(textures.classes)}).\n"
        "Question: by which divergence is the nearest other patch most often of the same image?"
    )
    # NumPy alone would take minutes for the fine grid.
    step = _COARSE if engine.name == "reference" else _FINE
    grid = np.arange(0, _LARGEST + step, step)
    started = time.perf_counter()
    with console.status("Computing the map ..."):
        plane = plane_map(textures.matrices, textures.labels, grid, grid, engine=engine)
    seconds = time.perf_counter() - started
    console.print(
        f"Computed {n * (n - 1) * grid.size**2:,} divergences ({n * (n - 1):,} pairs x "
        f"{grid.size**2} points) in {seconds:.1f} s: {engine.name} engine, "
        f"{engine.n_threads} thread{'s' * (engine.n_threads > 1)}.\n"
    )
    if step == _COARSE:
        console.print("The grid is coarse, for the reference engine is slow.\n")
    console.print(_named_table(plane))
    console.print(_plane_table(plane))
    console.print(plane.summary() + "\n")
    names = ", ".join(textures.classes[:-1]) + f" and {textures.classes[-1]}"
    with _writing(options.output):
        plane.plot(options.output, title=f"Which divergence? Patches of {names}")
    console.print(f"Picture: {escape(str(options.output))}", soft_wrap=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write {path} ({error.strerror}); choose another --output"
        ) from error


def _named_table(plane: PlaneMap) -> Table:
    table = Table(title="Named divergences", **_PLAIN)
    table.add_column("name")
    table.add_column("alpha", justify="right")
    table.add_column("beta", justify="right")
    table.add_column("formula")
    table.add_column("accuracy", justify="right", no_wrap=True)
    highest = max(plane.named.values())
    for name, accuracy in plane.named.items():
        known = NAMED[name]
        error = plane.standard_error[plane.index(known.alpha, known.beta)]
        table.add_row(
            name, f"{known.alpha:g}", f"{known.beta:g}", escape(known.formula),
            f"{accuracy:.1%} +- {error:.1%}", style="bold" if accuracy == highest else None,
        )  # fmt: skip
    return table


def _plane_table(plane: PlaneMap) -> Table:
    """Every point of the grid that is a multiple of a quarter, beta upwards as in the picture."""
    alphas, betas = (
        [float(value) for value in grid if 4 * value == int(4 * value)]
        for grid in (plane.alphas, plane.betas)
    )
    table = Table(title="Accuracy in %: alpha right, beta up", **_PLAIN)
    table.add_column("", justify="right")
    for alpha in alphas:
        table.add_column(f"{alpha:g}", justify="right", no_wrap=True)
    highest = plane.accuracy.max()
    for beta in reversed(betas):
        cells = [plane.at(alpha, beta) for alpha in alphas]
        table.add_row(
            f"{beta:g}",
            *(f"[bold]{100 * x:.1f}[/]" if x == highest else f"{100 * x:.1f}" for x in cells),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
