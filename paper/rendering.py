"""Results as markdown with pictures."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from paper.cache import Done
from paper.comparison import Row, differences, join, names_of
from paper.data import SOURCES, Data, missing
from paper.experiment import Experiment
from paper.protocol import Protocol


def table(rows: Sequence[Row], corner: str) -> list[str]:
    """Write figures as lines of a markdown table.

    Examples
    --------
    >>> rows = [Row("Virus", "LE", 66.0, 1.0, 66.67), Row("Virus", "AIRM", None)]
    >>> print(*table(rows, "accuracy"), sep="\\n")
    | accuracy | LE | AIRM |
    |---|---:|---:|
    | Virus | 66.0 +- 1.0 (66.67) | - |
    """
    columns = dict.fromkeys(row.column for row in rows)
    figures = {(row.row, row.column): str(row) for row in rows}
    lines = [[corner, *columns]]
    for name in names_of(rows):
        lines.append([name, *(figures.get((name, column), "") for column in columns)])
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return [head, "|---|" + "---:|" * len(columns), *body]


def section(
    experiment: Experiment, protocol: Protocol, data: Data, done: Done, n_cells: int,
    failures: Sequence[str] = (), picture: str | None = None,
) -> str:  # fmt: skip
    """Write the result of an experiment; `picture` is the address of its figure."""
    rows = experiment.rows(done)
    lines = [f"## {experiment.title}", ""]
    lines += [
        f"`{experiment.name}`: {experiment.where} of the paper. {experiment.effort(protocol)}.",
        "",
    ]
    if rows:
        lines += [*table(rows, experiment.unit), ""]
    if picture:
        lines += [f"![{experiment.title}]({picture})", ""]
    sentences = experiment.claims(rows, done)
    if protocol.name == "full":  # small parts of the data obviously differ from all of it
        why = {one.title: one.why for one in SOURCES.values()} | dict(experiment.reasons)
        sentences = differences(rows, why) + sentences
    here = [key for key in experiment.sources if key in data]
    if here:
        sentences.append(f"Data: {join(SOURCES[key].title for key in here)}.")
    if absent := missing({key: data[key] for key in here}, experiment.sources):
        sentences.append(
            f"Not available, of the paper's data: {join(absent)}; the experiment runs on the data "
            "sets in the data folder."
        )
    if len(done) < n_cells:
        sentences.append(f"Still to be computed: {n_cells - len(done)} of {n_cells}.")
    sentences += [f"Failed: {failure}." for failure in failures]
    if done:
        sentences.append(f"Computed in {say_time(sum(one['took'] for one in done))}.")
    return "\n".join([*lines, *(f"- {sentence}" for sentence in sentences), ""])


def say_time(seconds: float) -> str:
    """Write a time in a suitable unit.

    Examples
    --------
    >>> say_time(0.21), say_time(75), say_time(7384)
    ('0.2 s', '1.2 min', '2.1 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def draw(experiment: Experiment, done: Done, document: Path) -> str | None:
    """Draw the picture of an experiment, if it has one; returns its address in a document."""
    if experiment.draw is None or not done:
        return None
    figure = Figure(figsize=(11, 4), dpi=100, layout="constrained")
    experiment.draw(figure, done)
    folder = document.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{experiment.name}.png")
    return f"{folder.name}/{experiment.name}.png"


def document(protocol: Protocol, sections: Sequence[str], n_missing: int, n_cells: int) -> str:
    """Put sections together."""
    parts = [
        f"# Results\n\nWritten by `python -m paper --{protocol.name}`: the tables and figures of "
        "the paper, computed again. Figures are ours with their standard errors, and in "
        "parentheses what the paper reports. Errors are those over splits, runs or draws; where "
        "there is one test set, the binomial error of a share of its matrices.\n"
    ]
    if protocol.name == "quick":
        parts.append("These are small parts of the paper's experiments, for a first look.\n")
    if n_missing:
        parts.append(
            f"The run is not complete: {n_missing:,} of {n_cells:,} cells are still to be "
            "computed, as stated below.\n"
        )
    return "\n".join([*parts, *sections])
