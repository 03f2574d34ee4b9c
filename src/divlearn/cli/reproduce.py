"""``divlearn reproduce``: the tables and figures of the paper."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divlearn.cli.options import AsJson, EngineName
from divlearn.cli.terminal import harmless

if TYPE_CHECKING:
    from divlearn.cli.output import Output
    from divlearn.experiments import Result
    from divlearn.experiments.cells import Cell
    from divlearn.experiments.running import Step

__all__ = ["reproduce"]


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="all, or one of the names below.")
    ] = "all",
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="DIVLEARN_DATA",
            metavar="DIR",
            help="Folder with one sub-folder per data set; without one, synthetic data only.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full/--quick", help="The paper's protocol, or a part that takes minutes."),
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for text and pictures.")
    ] = Path("reproduced"),
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder that keeps what is done; by default the user's for caches."
        ),
    ] = None,
    cached: Annotated[
        bool, typer.Option("--cached", help="Compute nothing; show what is there.")
    ] = False,
    docs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the text there, not into --output.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes at work at once, for all that is not about time.")
    ] = 1,
    engine: EngineName = "auto",
    as_json: AsJson = False,
) -> None:
    """Compute the tables and figures of the paper again, beside what it reports.

    What is done is kept: a second run is instant, and one that was stopped goes on.

    \b
    heat-map             accuracy over the (alpha, beta) plane
    atoms                variants of IDDL against the number of atoms
    convergence          convergence of IDDL-V by block
    gradient-time        time of a step against dimension and number of atoms
    joint-learning       learning atoms, divergences, or both
    trajectories         where alpha and beta go from several starts
    standard-measures    table against 1-NN and a linear SVM
    state-of-the-art     table against LEML, sparse coding, dictionary learning
    losses               ridge regression against the structured SVM
    cluster-dimension    clustering against the dimension
    cluster-number       clustering against the number of clusters
    cluster-convergence  convergence of alpha-beta k-means by block
    cluster-table        table of clustering against variants of k-means

    Example: divlearn reproduce all --data data --quick -o reproduced
    """  # noqa: D301
    from divlearn.cli.output import Output
    from divlearn.cli.paths import check_paths
    from divlearn.engines import get_engine, prefer_engine
    from divlearn.experiments import EXPERIMENTS, FULL, QUICK, Cache, Shelf, run
    from divlearn.experiments.cache import default_folder
    from divlearn.experiments.costs import say_cost
    from divlearn.experiments.parallel import Plan, compute_ahead
    from divlearn.experiments.running import Interrupted, cells_left, stoppable
    from divlearn.progress import tell

    out = Output(as_json)
    if name != "all" and name not in EXPERIMENTS:
        raise ValueError(f"NAME {name} must be all or one of {', '.join(EXPERIMENTS)}")
    get_engine(engine)  # what cannot run is told before anything is computed
    check_paths(_inputs(data), _outputs(output, docs))
    chosen = list(EXPERIMENTS.values()) if name == "all" else [EXPERIMENTS[name]]
    protocol = FULL if full else QUICK
    kept = Cache(cache or default_folder())
    results: list[Result] = []
    shelf, stopped = Shelf(), False
    with out.working("Looking at the data") as rename, stoppable(), prefer_engine(engine):
        try:
            shelf = Shelf.in_folder(data, kept)
            if not cached:
                out.say(say_cost(chosen, shelf, protocol, kept))
            rename("Computing")
            if jobs > 1 and not cached:
                names = [experiment.name for experiment in chosen]
                compute_ahead(Plan(names, data, protocol, kept.folder, engine), jobs, _log_done)
            for number, experiment in enumerate(chosen):
                tell("experiments", number, len(chosen), experiment.name)
                results.append(
                    run(experiment, shelf, protocol, kept, compute=not cached, watch=_log)
                )
                _show(out, results[-1])
        except Interrupted:
            stopped = True
    if results:
        _write(out, results, protocol, output, docs)
    if stopped:
        _say_how_to_go_on(out, cells_left(chosen, shelf, protocol, kept), kept.folder)
    out.finish(protocol=protocol.name, results=[one.plain() for one in results])
    if any(result.failures for result in results):
        raise typer.Exit(1)


def _inputs(data: Path | None) -> list[tuple[str, Path | None]]:
    from divlearn.experiments.shelf import SOURCES

    folders = [] if data is None else [data / source.folder for source in SOURCES.values()]
    return [("--data", folder) for folder in folders if folder.exists()]


def _outputs(output: Path, docs: Path | None) -> list[tuple[str, Path | None]]:
    if docs is None:
        return [("--output", output / "results.md"), ("--output", output / "results.html")]
    if not docs.suffix:  # its pictures lie in a folder of its name without the ending
        raise ValueError(f"--docs {docs} must name a text; add an ending: .md")
    return [("--docs", docs)]


def _log(step: Step) -> None:
    """Tell of a cell in a line, where there are no bars that show it."""
    _tell(f"{step.experiment.name}: {step.index + 1} of {step.n_cells}, {step.cell}")


def _log_done(cell: Cell) -> None:
    _tell(f"done: {cell}")


def _tell(text: str) -> None:
    if not sys.stderr.isatty():
        print(harmless(text), file=sys.stderr, flush=True)


def _say_how_to_go_on(out: Output, left: Mapping[str, tuple[int, int]], folder: Path) -> None:
    to_do, n_cells = (sum(column) for column in zip(*left.values(), strict=True))
    if to_do == n_cells:
        raise KeyboardInterrupt
    out.interrupted = True
    print(
        f"divlearn: interrupted; {n_cells - to_do} of {n_cells} parts are done and kept in "
        f"{harmless(str(folder))}; the same command goes on from there",
        file=sys.stderr,
    )


def _show(out: Output, result: Result) -> None:
    from divlearn.experiments.rendering import say_data, say_time
    from divlearn.experiments.result import pivot

    out.say(f"\n{result.title} ({result.unit}). {result.effort}.")
    if result.rows:
        out.table(*pivot(result.rows))
    for sentence in (*result.text, *say_data(result)):
        out.say(sentence)
    if result.n_done:
        out.say(f"Computed in {say_time(result.seconds)}.")


def _write(
    out: Output, results: list[Result], protocol: Any, output: Path, docs: Path | None
) -> None:
    from divlearn.experiments.rendering import to_page, write_results

    path = output / "results.md" if docs is None else docs
    try:
        write_results(path, results, protocol)
        out.say(f"\nText and pictures: {path}")
        if docs is None:
            to_page(results, protocol).write(output / "results.html")
            out.say(f"Page: {output / 'results.html'}")
    except ImportError as error:  # the rest was worth it without
        out.say(f"\nNot all was written: {error}")
