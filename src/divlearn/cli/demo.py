"""``divlearn demo``: the whole way, from images to an answer and a report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli import options
from divlearn.cli.output import Output

if TYPE_CHECKING:
    from divlearn.datasets import Dataset
    from divlearn.engines import Engine
    from divlearn.judge import PlaneMap
    from divlearn.report.sections import Section

_FINE, _COARSE = 0.125, 0.5  # steps of the grid; every named point lies on both
_LARGEST = 2.0
_FOLDS = 3


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Picture of the plane.")] = Path(
        "demo/plane.png"
    ),
    report: Annotated[Path, typer.Option(help="Report to write.")] = Path("demo/report.html"),
    patch: Annotated[int, typer.Option(help="Side of a patch in pixels.")] = 32,
    engine: options.EngineName = "auto",
    threads: Annotated[int | None, typer.Option(help="Number of threads; all by default.")] = None,
) -> None:
    """Answer "which divergence should I use?" for texture images that ship with scikit-image.

    Example: divlearn demo
    """
    import numpy as np

    from divlearn.datasets import load_textures
    from divlearn.engines import get_engine
    from divlearn.judge import plane_map
    from divlearn.report import page_of, plot_plane

    writes = [("--output", output)]
    try:
        out = Output(False, report, writes=writes)
    except ImportError as error:  # the rest is worth it without the report
        out = Output(False, writes=writes)
        out.say(f"No report: {error}")
    if not output.suffix:
        raise ValueError(f"--output {output} must name a picture; add an ending: .png")
    running = get_engine(engine, threads)
    textures = load_textures(patch)
    n, d = textures.matrices.shape[:2]
    out.say(
        f"Data: {n} covariance matrices, {d} x {d}, of {patch} x {patch} pixel patches of "
        f"{len(textures.classes)} images ({', '.join(textures.classes)}).\n"
        "Question: under which divergence is the nearest other patch most often of the same image?"
    )
    step = _COARSE if running.name == "reference" else _FINE  # NumPy alone would take minutes
    grid = np.arange(0, _LARGEST + step, step)
    with _working(out, "Computing the map"):
        plane = plane_map(textures.matrices, textures.labels, grid, grid, engine=running)
    stages = {"map of the plane": out.seconds}
    out.say(
        f"Computed {n * (n - 1) * grid.size**2:,} divergences ({n * (n - 1):,} pairs x "
        f"{grid.size**2} points) in {stages['map of the plane']:.1f} s: {running.name} engine, "
        f"{running.n_threads} thread{'s' * (running.n_threads > 1)}."
    )
    _show_plane(out, plane)
    out.say(plane.summary())
    page = page_of(plane)
    if step == _COARSE:
        out.say("The grid is coarse and nothing is learned: the reference engine is slow.")
    else:
        sections, seconds = _compare(out, textures, running)
        page = replace(page, sections=[*page.sections, *sections])
        stages |= seconds
    names = ", ".join(textures.classes[:-1]) + f" and {textures.classes[-1]}"
    plot_plane(plane, path=output, title=f"Which divergence? Patches of {names}")
    out.say(f"Picture: {output}")
    out.write_page(lambda: page, out.digest(textures), stages)


@contextmanager
def _working(out: Output, text: str) -> Iterator[None]:
    """Work that must not end early: half of a demonstration shows nothing."""
    with out.working(text):
        yield
    if out.interrupted:
        raise KeyboardInterrupt


def _show_plane(out: Output, plane: PlaneMap) -> None:
    """Print the named divergences."""
    from divlearn.judge import NAMED

    errors = plane.standard_error
    out.table(
        ["divergence", "alpha", "beta", "accuracy"],
        [
            [name, f"{known.alpha:g}", f"{known.beta:g}",
             f"{plane.named[name]:.1%} +- {errors[plane.index(known.alpha, known.beta)]:.1%}"]
            for name, known in NAMED.items()
        ],
    )  # fmt: skip


def _compare(
    out: Output, textures: Dataset, engine: Engine
) -> tuple[list[Section], dict[str, float]]:
    """Compare IDDL with baselines, and show what it learns from all patches."""
    from divlearn.baselines import DivergenceKNN, LogEuclideanSVM
    from divlearn.cli.evaluate import show_evaluation
    from divlearn.iddl import IDDLClassifier
    from divlearn.judge import evaluate
    from divlearn.report import page_of
    from divlearn.report.fitted import iddl_sections

    iddl = IDDLClassifier(engine=engine, random_state=0)
    classifiers = {
        "1-NN, log-Euclidean": DivergenceKNN(1, "log-euclidean", engine=engine),
        "1-NN, AIRM": DivergenceKNN(1, "airm", engine=engine),
        "1-NN, Stein": DivergenceKNN(1, "stein", engine=engine),
        "linear SVM, log-Euclidean": LogEuclideanSVM("linear", random_state=0),
        "IDDL, learned divergences": iddl,
    }
    with _working(out, "Cross-validating classifiers"):
        found = evaluate(textures.matrices, textures.labels, classifiers, cv=_FOLDS)
    show_evaluation(out, found)
    with _working(out, "Learning divergences"):
        iddl.fit(textures.matrices, textures.labels)
    out.say(
        f"IDDL learned {iddl.alpha_[0].size} divergences for each of {len(iddl.atoms_)} atoms, "
        f"with alpha up to {iddl.alpha_.max():.2f} and beta up to {iddl.beta_.max():.2f}."
    )
    sections = [*page_of(found).sections, *iddl_sections(iddl, textures.matrices)]
    return sections, found.seconds
