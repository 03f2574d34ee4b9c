"""``divlearn demo``: the whole way on images that are there already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from divlearn.cli.options import EngineName

__all__ = ["demo"]


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Picture of the plane.")] = Path(
        "demo/plane.png"
    ),
    report: Annotated[Path, typer.Option(help="Page to look at.")] = Path("demo/report.html"),
    patch: Annotated[int, typer.Option(help="Side of a patch in pixels.")] = 32,
    engine: EngineName = "auto",
    threads: Annotated[int | None, typer.Option(help="Threads; all without it.")] = None,
) -> None:
    """Answer "which divergence should I use?" for texture images that ship with scikit-image.

    Example: divlearn demo
    """
    from divlearn.cli.output import Output
    from divlearn.cli.paths import check_paths
    from divlearn.demo import run_demo

    out = Output(as_json=False)
    check_paths([], [("--output", output), ("--report", report)])

    @contextmanager
    def working(text: str) -> Iterator[None]:
        with out.working(text):
            yield
        if out.interrupted:  # half of a demonstration shows nothing
            raise KeyboardInterrupt

    run_demo(output, report, patch=patch, engine=engine, threads=threads, working=working)
