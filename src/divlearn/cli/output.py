"""Output of commands: tables and sentences, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from divlearn.cli.bars import Bars
from divlearn.cli.terminal import as_markup
from divlearn.fitting.interrupts import Interrupts
from divlearn.fitting.progress import listen

if TYPE_CHECKING:
    from divlearn.datasets import Dataset
    from divlearn.report import Page

__all__ = ["KEPT", "Output"]

KEPT = 3  # exit code: interrupted, and the best so far was kept


class Output:
    """Prints results to standard output, and progress to standard error.

    Parameters
    ----------
    as_json : bool
        Whether to print one JSON object at the end, and nothing else.
    report : Path, optional
        Page to write; refused before any work if it cannot be written.

    Attributes
    ----------
    interrupted : bool
        Whether the user interrupted work that kept its best result so far.
    """

    def __init__(self, as_json: bool, report: Path | None = None) -> None:
        self.as_json = as_json
        self._report = report
        if report is not None:
            _check_report(report)
        self.interrupted = False
        self._console = Console(highlight=False, soft_wrap=True)
        self._errors = Console(highlight=False, stderr=True)

    def say(self, text: str) -> None:
        """Print a sentence."""
        if not self.as_json:
            self._console.print(as_markup(text))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; the first column is text, the others are numbers."""
        if self.as_json:
            return
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column, heading in enumerate(headings):
            table.add_column(as_markup(heading, keep=""), justify="right" if column else "left")
        for row in rows:
            table.add_row(*(as_markup(cell, keep="") for cell in row))
        # Nothing is cut: where lines are too long, the terminal wraps them.
        unlimited = self._console.options.update(max_width=sys.maxsize)
        needed = self._console.measure(table, options=unlimited).maximum
        self._console.width = max(self._console.width, needed)
        self._console.print(table)

    @contextmanager
    def working(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show progress on a terminal, and remember interrupts.

        Yields a function that changes the text.
        """
        with Interrupts() as interrupts:
            try:
                if self._errors.is_terminal and not self.as_json:
                    with Bars(self._errors, text) as bars, listen(bars):
                        yield bars.rename
                else:
                    yield lambda text: None
            finally:
                self.interrupted |= interrupts.seen

    def digest(self, dataset: Dataset) -> str:
        """Compute the digest of the data, if a report or JSON output shows it."""
        return dataset.digest() if self.as_json or self._report is not None else ""

    def write_page(
        self, make: Callable[[], Page], data_digest: str, seconds: Mapping[str, float]
    ) -> None:
        """Make and write the report, if one is wanted; an interrupt skips it."""
        if self._report is None:
            return
        from divlearn.report.page import write_report

        try:
            with self.working("Writing the report"):
                page = make()
        except KeyboardInterrupt:
            self.say("Interrupted: no report was written.")
            return
        write_report(self._report, page, data_digest, seconds)
        self.say(f"Report: {self._report}")

    def finish(self, **result: Any) -> None:
        """Print the JSON object, if wanted; exit if work was interrupted."""
        if self.as_json:
            from divlearn.report.plain import plain

            result.setdefault("interrupted", self.interrupted)
            json.dump(plain(result, digits=None), sys.stdout, indent=1)
            print()
        if self.interrupted:
            raise typer.Exit(KEPT)


def _check_report(path: Path) -> None:
    """Refuse a page that could not be written once the work is done."""
    if not path.suffix:
        raise ValueError(f"--report {path} must name a page; add an ending: .html")
    for name in ("jinja2", "plotly"):
        if find_spec(name) is None:
            raise ImportError(f'--report needs {name}: pip install "divlearn[report]"')
