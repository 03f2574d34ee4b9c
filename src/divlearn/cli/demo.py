"""``divlearn demo``: which divergence, and what learning gains, on simulated recordings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.atomic import open_atomic
from divlearn.cli import options
from divlearn.cli.output import Output

if TYPE_CHECKING:
    from divlearn.arrays import Indices, RealArray
    from divlearn.engines import Engine
    from divlearn.judge import Evaluation, WhichDivergence
    from divlearn.report import Page, PlaneDisplay

_PICTURES = (".png", ".pdf", ".svg", ".jpg")
_EXPLANATION = (
    "Why: an artifact inflates one eigenvalue. It enters Burg as it is, AIRM by the square of its "
    "logarithm, log-cosh by the logarithm."
)

Picture = Annotated[Path, typer.Option("--output", "-o", help="Picture of the plane.")]
Report = Annotated[Path, typer.Option(help="Report to write.")]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Number of threads; all by default.", callback=options.between("--threads", 1, 1024)
    ),
]


def demo(
    output: Picture = Path("demo/plane.png"),
    report: Report = Path("demo/report.html"),
    engine: options.EngineName = "auto",
    threads: Threads = None,
) -> None:
    """Show what the choice of a divergence changes, on simulated recordings with artifacts.

    Example: divlearn demo
    """
    from divlearn.datasets import make_recordings
    from divlearn.engines import get_engine
    from divlearn.judge import which_divergence
    from divlearn.report import PlaneDisplay

    writes = [("--output", output, _PICTURES)]
    try:
        out = Output(False, report, writes=writes)
    except ImportError as error:  # show the rest without the report
        out = Output(False, writes=writes)
        out.say(f"No report: {error}")
    shared_engine = get_engine(engine, threads)
    recordings, y, subjects = make_recordings(random_state=0)
    X = recordings @ recordings.mT / recordings.shape[2]
    out.say(
        f"Data: {len(X)} simulated recordings of {subjects.max() + 1} subjects in {y.max() + 1} "
        f"states, as {X.shape[1]} x {X.shape[1]} covariance matrices. A quarter have an artifact.\n"
        "\n1. Is the nearest recording of another subject in the same state? Nearest by:"
    )
    with _working(out, "Computing the map"):
        answer = which_divergence(X, y, groups=subjects, engine=shared_engine, random_state=0)
    stages = {"map of the plane": out.seconds}
    rows = sorted(answer.named.items(), key=lambda item: -item[1].score)
    out.table(
        ["divergence", "alpha", "beta", "accuracy"],
        [[name, f"{row.alpha:g}", f"{row.beta:g}", f"{row.score:.1%}"] for name, row in rows],
    )
    out.say(answer.summary())
    _save(PlaneDisplay(answer), output)
    evaluation = _compare(out, X, y, subjects, shared_engine)
    out.say(f"{_EXPLANATION}\n\nPicture: {output}")
    out.write_page(lambda: _join(answer, evaluation), stages | evaluation.seconds)


def _compare(
    out: Output, X: RealArray, y: Indices, subjects: Indices, engine: Engine
) -> Evaluation:
    """Cross-validate classifiers on recordings of new subjects, and show their accuracies."""
    from divlearn.cli.evaluate import show_evaluation
    from divlearn.judge import evaluate
    from divlearn.kernels import DivergenceKernelClassifier
    from divlearn.nearest import DivergenceMDM

    out.say("\n2. Classify recordings of new subjects, with fixed divergences and a learned one:")
    classifiers = {
        "nearest mean, Burg": DivergenceMDM("burg", engine=engine),
        "nearest mean, AIRM": DivergenceMDM("airm", engine=engine),
        "nearest mean, log-cosh": DivergenceMDM("log-cosh", engine=engine),
        "SVM, AIRM": DivergenceKernelClassifier([0], [0], engine=engine, random_state=0),
        "SVM, learned divergence": DivergenceKernelClassifier(engine=engine, random_state=0),
    }
    with _working(out, "Cross-validating classifiers"):
        evaluation = evaluate(X, y, classifiers, cv=3, groups=subjects)
    show_evaluation(out, evaluation)
    return evaluation


def _join(answer: WhichDivergence, evaluation: Evaluation) -> Page:
    """Make a page with the sections of both results."""
    from divlearn.report import page_of

    page = page_of(answer)
    return replace(page, sections=[*page.sections, *page_of(evaluation).sections])


def _save(display: PlaneDisplay, path: Path) -> None:
    """Save the picture without pyplot, which may need a screen."""
    from divlearn.checks import import_extra

    import_extra("matplotlib", "the picture needs matplotlib", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 7.0), dpi=150, layout="constrained")
    display.plot(figure.add_subplot(), title="Which divergence?")
    with open_atomic(path) as file:
        figure.savefig(file, format=path.suffix[1:])


@contextmanager
def _working(out: Output, text: str) -> Iterator[None]:
    """Show progress; an interrupt ends the program, even if it leaves a result."""
    with out.working(text):
        yield
    if out.interrupted:
        raise KeyboardInterrupt
