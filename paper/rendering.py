"""Results as markdown with pictures, from a file of results alone."""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from paper.cells import Cell, Done, Results, record
from paper.comparison import Claim, Row, join, names_of
from paper.data import SOURCES
from paper.experiment import Experiment
from paper.protocol import Limits, Protocol


class Found(NamedTuple):
    """What is known of an experiment."""

    experiment: Experiment
    rows: list[Row]
    done: Done
    n_missing: int  # cells of data of which there is something


def find(experiment: Experiment, protocol: Protocol, results: Results) -> Found:
    """Gather the results of an experiment."""
    cells = distinct_cells(experiment, protocol)
    records = {cell.key: record(results, cell) for cell in cells}
    done = [one for one in records.values() if one is not None]
    there = {one["data"] for one in done}
    n_missing = sum(records[cell.key] is None for cell in cells if cell.data in there)
    return Found(experiment, list(experiment.rows(done)), done, n_missing)


def distinct_cells(experiment: Experiment, protocol: Protocol) -> list[Cell]:
    return list({cell.key: cell for cell in experiment.cells(protocol)}.values())


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


def claims_table(claims: Sequence[Claim]) -> list[str]:
    """Write claims as lines of a markdown table; a claim is said once for all its data."""
    lines = ["| the paper says | on | here | our figures | the paper's |", "|---|---|---|---|---|"]
    before = ""
    for one in claims:
        said = "" if one.claim == before else one.claim
        lines.append(f"| {said} | {one.on} | {one.verdict} | {one.here} | {one.paper} |")
        before = one.claim
    return lines


def section(found: Found, protocol: Protocol, picture: str | None, failures: Sequence[str]) -> str:
    """Write the result of an experiment; `picture` is the address of its figure."""
    experiment = found.experiment
    about = [
        f"`{experiment.name}`: {experiment.where} of the paper. {experiment.effort(protocol)}."
    ]
    if found.done:
        spent = say_time(sum(one["took"] for one in found.done))
        engines = join(sorted({one["by"] for one in found.done}))
        about.append(f"Computed in {spent} of all processes, engine {engines}.")
    if found.n_missing:
        about.append(f"Cells still to be computed: {found.n_missing}.")
    lines = [f"## {experiment.title}", "", " ".join(about), ""]
    if found.rows:
        lines += [*table(found.rows, experiment.unit), ""]
    if picture:
        lines += [f"![{experiment.title}]({picture})", ""]
    return "\n".join([*lines, *(f"- Failed: {failure}." for failure in failures)])


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


def draw(found: Found, document: Path) -> str | None:
    """Draw the picture of an experiment, if it has one; returns its address in a document.

    Where there is nothing to draw, or nothing to draw with, a picture that is there stays.
    """
    if found.experiment.draw is None or not found.rows:
        return None
    path = document.with_suffix("") / f"{found.experiment.name}.png"
    if found.done and find_spec("matplotlib"):
        from matplotlib.figure import Figure  # which machines that only compute may lack

        figure = Figure(figsize=(11, 4), dpi=100, layout="constrained")
        found.experiment.draw(figure, found.done)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return f"{path.parent.name}/{path.name}" if path.exists() else None


def document(
    every: Sequence[Found], protocol: Protocol, path: Path, failures: Sequence[str] = ()
) -> str:
    """Put everything together: claims first, what all experiments share, then tables."""
    claims = [claim for one in every for claim in one.experiment.claims(one.rows)]
    claims.sort(key=lambda claim: not claim.paper)  # first what the paper has figures for
    names = {row.row for one in every for row in one.rows}
    titles = {re.sub(r", \d+ per class.*", "", name) for name in names}
    used = [source for source in SOURCES.values() if source.title in titles]
    absent = {source.paper for source in SOURCES.values()} - {source.paper for source in used}
    parts = [
        "# Results",
        f"Written by `python -m paper --{protocol.name}` from a file of results. This page has the "
        "tables and figures of the paper, computed again. The first table judges the claims of the "
        "paper by our figures; `within errors` means that figures differ by less than two standard "
        "errors, or that p > 0.05.",
    ]
    if claims:
        parts.append("\n".join(claims_table(claims)))
    parts.append(_how_to_read(protocol))
    if used:
        rows = [f"| {one.title} | {one.paper} | {one.why} |" for one in used]
        parts.append("\n".join(["| data | in the paper | differs by |", "|---|---|---|", *rows]))
    if absent:
        parts.append(f"Neither public nor in the data folder: {join(sorted(absent))}.")
    if "BRODATZ" in {source.paper for source in used}:
        parts.append(_BRODATZ)
    for one in every:
        own = [failure for failure in failures if failure.startswith(f"{one.experiment.name}: ")]
        parts.append(section(one, protocol, draw(one, path), own))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _how_to_read(protocol: Protocol) -> str:
    said = [
        "Tables have our figures with standard errors, and in parentheses those of the paper. A "
        "star marks a difference of more than two standard errors. Standard errors are over "
        "splits, runs or draws, or binomial if there is one test set."
    ]
    said.append(
        f"IDDL has {protocol.atoms_per_class} atoms per class and the set-up of the paper's text "
        "(`IDDLClassifier.paper()`): log-Euclidean k-means, a grid search of (alpha, beta), gamma "
        f"by cross-validation among 0.001, 0.01, 0.1 and 1. It takes {protocol.iterations} "
        "iterations of the joint solver unless stated otherwise; the table `solvers` compares this "
        "solver with the paper's block-coordinate descent (BCD). "
        f"Data sets have at most {protocol.splits} splits, and {protocol.repeats} fits if there is "
        "one split."
    )
    if protocol.limits[""] != Limits():
        said.append(f"Of every data set {protocol.limits['']} are used, for a first look.")
    return " ".join(said)


# Tried by hand, once; log-Euclidean 1-NN, 80 % of the patches to train on.
_BRODATZ = (
    "With 32 x 32 patches we did not reach the paper's 80.1 for log-Euclidean 1-NN on Brodatz. "
    "We tried all 40,000 patches (64.2), the 31,000 most textured (66.5), 310 per image (66.6), "
    "the first 77 images (69.3), signed gradients (51.2), gradients inside the patch (62.8) and "
    "310 overlapping patches per image at random (66.8); patches of 64 x 64 give 86.5."
)
