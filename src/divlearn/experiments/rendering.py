"""Results as text, as files of markdown with pictures, and as a page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from divlearn.atomic import open_atomic
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Result, pivot
from divlearn.experiments.sentences import join

if TYPE_CHECKING:
    from divlearn.report import Page

__all__ = ["markdown", "say_data", "say_time", "to_page", "write_figure", "write_results"]

_LEGEND = (
    "Figures are ours with their standard errors, and in parentheses what the paper reports. "
    "Errors are those over splits, runs or draws; where there is one test set, those of a share "
    "of its matrices."
)


def say_data(result: Result) -> list[str]:
    """Say which data was used, and which of the paper's was not there."""
    told = [f"Data: {join(result.used)}."] if result.used else []
    if result.missing:
        told.append(
            f"Not there, of the paper's data: {join(result.missing)}; the experiment runs on what "
            "is put into the data folder."
        )
    if result.n_done < result.n_cells:
        told.append(f"Still to be computed: {result.n_cells - result.n_done} of {result.n_cells}.")
    return [*told, *(f"Failed: {failure}." for failure in result.failures)]


def say_time(seconds: float) -> str:
    """Write a time as people do.

    Examples
    --------
    >>> say_time(0.21), say_time(75), say_time(7384)
    ('0.2 s', '1.2 min', '2.1 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def markdown(result: Result, picture: str | None = None) -> str:
    """Write a result as a section of markdown.

    Parameters
    ----------
    result : Result
    picture : str, optional
        Where its picture is, relative to the file.
    """
    lines = [f"## {result.title}", "", f"`{result.name}`: {result.where} of the paper. "
             f"{result.effort}.", ""]  # fmt: skip
    if result.rows:
        headings, rows = pivot(result.rows, result.unit)
        lines += [_line(headings), "|---|" + "---:|" * (len(headings) - 1), *map(_line, rows), ""]
    if picture is not None:
        lines += [f"![{result.title}]({picture})", ""]
    lines += [f"- {sentence}" for sentence in (*result.text, *say_data(result))]
    if result.n_done:
        lines.append(f"- Computed in {say_time(result.seconds)}.")
    return "\n".join([*lines, ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def write_figure(result: Result, path: Path) -> bool:
    """Draw the picture of a result; whether there is one.

    Raises
    ------
    ImportError
        If there is one, but matplotlib is not installed.
    """
    if result.draw is None:
        return False
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "divlearn[plot]"') from error
    figure = Figure(figsize=(11, 4), dpi=100, layout="constrained")
    result.draw(figure)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(path) as file:
        file.write(picture.getvalue())
    return True


def write_results(
    path: Path, results: Sequence[Result], protocol: Protocol, title: str = "Results"
) -> None:
    """Write results into a file of markdown, and their pictures into a folder of its name.

    Parameters
    ----------
    path : Path
    results : sequence of Result
    protocol : Protocol
    title : str
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        f"# {title}", "",
        f"Written by `divlearn reproduce --{protocol.name}`: the tables and figures of the paper, "
        f"computed again. {_LEGEND}", "",
    ]  # fmt: skip
    if protocol.name == "quick":
        parts += ["These are small parts of the paper's experiments, for a first look.", ""]
    missing = sum(result.n_cells - result.n_done for result in results)
    if missing:
        parts += [
            f"The run is not complete: {missing:,} of {sum(one.n_cells for one in results):,} "
            "parts are still to be computed, as told below; figures are of those there are.", "",
        ]  # fmt: skip
    for result in results:
        picture = path.with_suffix("") / f"{result.name}.png"
        drawn = write_figure(result, picture)
        parts.append(markdown(result, f"{path.stem}/{picture.name}" if drawn else None))
    with open_atomic(path) as file:
        file.write("\n".join(parts).encode())


def to_page(results: Sequence[Result], protocol: Protocol) -> Page:
    """Make a page of results, for a browser."""
    from divlearn.report import Page, Section, table_section, text_section

    sections: list[Section] = []
    for result in results:
        headings, rows = pivot(result.rows, result.unit)
        note = " ".join([f"{result.where} of the paper. {result.effort}.", *say_data(result)])
        sections.append(table_section(result.title, headings, rows, note=note))
        if result.text:
            told = "\n\n".join(result.text)
            sections.append(text_section(f"{result.title}: beside the paper", told))
    what = "all tables and figures" if len(results) > 1 else results[0].title.lower()
    return Page(
        "The paper's experiments", f"The paper's experiments, computed again: {what}.", sections,
        detail=_LEGEND,
    )  # fmt: skip
