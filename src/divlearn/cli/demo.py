"""``divlearn demo``: which divergence, and what learning gains, on simulated recordings."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from divlearn.cli import options
from divlearn.cli.output import Output

_PICTURES = (".png", ".pdf", ".svg", ".jpg")


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Picture of the plane.")] = Path(
        "demo/plane.png"
    ),
    report: Annotated[Path, typer.Option(help="Report to write.")] = Path("demo/report.html"),
    engine: options.EngineName = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            help="Number of threads; all by default.",
            callback=options.between("--threads", 1, 1024),
        ),
    ] = None,
) -> None:
    """Show what the choice of a divergence changes, on simulated recordings with artifacts.

    Example: divlearn demo
    """
    from divlearn.cli.evaluate import show_evaluation
    from divlearn.datasets import make_recordings
    from divlearn.engines import get_engine
    from divlearn.judge import evaluate, which_divergence
    from divlearn.kernels import DivergenceKernelClassifier
    from divlearn.nearest import DivergenceMDM
    from divlearn.report import page_of, plot_plane

    files: Any = {"writes": [("--output", output)], "endings": {"--output": _PICTURES}}
    try:
        out = Output(False, report, **files)
    except ImportError as error:  # the rest is worth it without the report
        out = Output(False, **files)
        out.say(f"No report: {error}")
    running = get_engine(engine, threads)
    recordings, y, subjects = make_recordings(random_state=0)
    X = recordings @ recordings.mT / recordings.shape[2]
    out.say(
        f"Data: {len(X)} simulated recordings of {subjects.max() + 1} subjects in {y.max() + 1} "
        f"states, as {X.shape[1]} x {X.shape[1]} covariance matrices. A quarter have an artifact.\n"
        "\n1. Is the nearest recording of another subject in the same state? Nearest by:"
    )
    with _working(out, "Computing the map"):
        answer = which_divergence(X, y, groups=subjects, engine=running, random_state=0)
    stages = {"map of the plane": out.seconds}
    rows = sorted(answer.named.items(), key=lambda item: -item[1].score)
    out.table(
        ["divergence", "alpha", "beta", "accuracy"],
        [[name, f"{row.alpha:g}", f"{row.beta:g}", f"{row.score:.1%}"] for name, row in rows],
    )
    out.say(answer.summary())
    plot_plane(answer, path=output, title="Which divergence?")
    out.say("\n2. Classify recordings of new subjects, with fixed divergences and a learned one:")
    classifiers = {
        "nearest mean, Burg": DivergenceMDM("burg", engine=running),
        "nearest mean, AIRM": DivergenceMDM("airm", engine=running),
        "nearest mean, log-cosh": DivergenceMDM("log-cosh", engine=running),
        "SVM, AIRM": DivergenceKernelClassifier([0], [0], engine=running, random_state=0),
        "SVM, learned divergence": DivergenceKernelClassifier(engine=running, random_state=0),
    }
    with _working(out, "Cross-validating classifiers"):
        found = evaluate(X, y, classifiers, cv=3, groups=subjects)
    show_evaluation(out, found)
    out.say(
        "Why: an artifact inflates one eigenvalue. It enters Burg as it is, AIRM by the square of "
        "its logarithm, log-cosh by the logarithm.\n\n"
        f"Picture: {output}"
    )
    page = page_of(answer)
    page = replace(page, sections=[*page.sections, *page_of(found).sections])
    out.write_page(lambda: page, "", stages | found.seconds)


@contextmanager
def _working(out: Output, text: str) -> Iterator[None]:
    """Work that must not end early: half of a demonstration shows nothing."""
    with out.working(text):
        yield
    if out.interrupted:
        raise KeyboardInterrupt
