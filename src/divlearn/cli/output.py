"""Output of commands: sentences, tables, progress, JSON and reports."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, TextIO

import typer

from divlearn.atomic import check_replaceable
from divlearn.cli.messages import KEPT
from divlearn.text import harmless

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from divlearn.datasets import Dataset
    from divlearn.report import Page

# First characters of formulas; the last four are full-width characters.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_PAGES = (".html", ".htm")
Named = tuple[str, Path | None]  # an option or argument, and its value
Written = tuple[str, Path | None, Sequence[str]]  # also the endings it may have; all if empty


class Output:
    """Prints results, or at the end one JSON object, and progress to standard error."""

    def __init__(
        self,
        as_json: bool,
        report: Path | None = None,
        *,
        reads: Sequence[Named] = (),
        writes: Sequence[Written] = (),
    ) -> None:
        self.as_json = as_json
        self._report = report
        for name in ("jinja2", "plotly"):  # before the work, which would be lost
            if report is not None and find_spec(name) is None:
                raise ImportError(f'--report needs {name}: pip install "divlearn[report]"')
        check_paths(reads, [*writes, ("--report", report, _PAGES)])
        self.dataset: Dataset | None = None  # the data of the command, for its digest
        self.interrupted = False  # whether work was interrupted with a result
        self.seconds = 0.0  # of the last work
        from rich.console import Console  # here, because help and errors do not need it

        self._console = Console(highlight=False, soft_wrap=True)
        self._errors = Console(highlight=False, stderr=True)

    def say(self, text: str) -> None:
        if not self.as_json:
            self._console.print(_as_markup(text))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; the first column is text, the others are numbers."""
        if self.as_json:
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column, heading in enumerate(headings):
            table.add_column(_as_markup(heading, keep=""), justify="right" if column else "left")
        for row in rows:
            table.add_row(*(_as_markup(cell, keep="") for cell in row))
        # Cells are not truncated: the terminal wraps lines that are too long.
        unlimited = self._console.options.update(max_width=sys.maxsize)
        needed = self._console.measure(table, options=unlimited).maximum
        self._console.width = max(self._console.width, needed)
        self._console.print(table)

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show progress on a terminal, and remember interrupts."""
        from divlearn.fitting.progress import is_interrupted, listen, user_call

        started = time.perf_counter()
        with user_call():
            try:
                if self._errors.is_terminal and not self.as_json:
                    bars = Bars(self._errors, text)
                    with bars.progress, listen(bars):
                        yield
                else:
                    yield
            finally:
                self.interrupted |= is_interrupted()
                self.seconds = time.perf_counter() - started

    @contextmanager
    def keeping(self, model: Path | None) -> Iterator[None]:
        """After Ctrl-C say that the model is kept, if it has a file."""
        try:
            yield
        except KeyboardInterrupt:
            if model is None:
                raise
            self.say(f"Interrupted; the model is kept: {model}.")
            raise typer.Exit(KEPT) from None

    @cached_property
    def digest(self) -> str:
        """Digest of the data, empty if none was read."""
        return "" if self.dataset is None else self.dataset.digest()

    def write_page(self, make: Callable[[], Page], seconds: Mapping[str, float]) -> None:
        """Make and write the report, if --report asks for one; an interrupt skips it."""
        if self._report is None:
            return
        from divlearn.report.page import write_report

        try:
            with self.working("Writing the report"):
                page = make()
        except KeyboardInterrupt:
            self.say("Interrupted: no report was written.")
            return
        write_report(self._report, page, self.digest, seconds)
        self.say(f"Report: {self._report}")

    def finish(self, **result: object) -> None:
        """Print the JSON object if --json asks for it; exit if work was interrupted."""
        if self.as_json:
            from divlearn.report.page import plain

            if self.dataset is not None:
                result |= {"data": self.digest}
            result |= {"interrupted": self.interrupted}
            json.dump(plain(result, exact=True), sys.stdout, indent=1)
            print()
        if self.interrupted:
            raise typer.Exit(KEPT)


class Bars:
    """Progress bars on a terminal: the whole work, below it its parts; all vanish at the end."""

    # A listener of `fitting.progress`: a new task is part of the current one. Progress of a task
    # removes the bars of its parts.

    def __init__(self, console: Console, text: str) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # output to a file stays out of the terminal
        )
        self._whole = self.progress.add_task(_as_markup(text), total=None, count="")
        self._rows: dict[str, TaskID] = {}

    def __call__(self, items: str, done: int, total: int, news: str) -> None:
        if items not in self._rows:
            self._rows[items] = self.progress.add_task("", count="") if self._rows else self._whole
        row = self._rows[items]
        for part in list(self._rows)[list(self._rows).index(items) + 1 :]:
            self.progress.remove_task(self._rows.pop(part))
        count = f"{done} of {total} {items}" + f", {news}" * bool(news)
        self.progress.update(row, completed=done, total=total, count=_as_markup(count))


def _as_markup(text: str, *, keep: str = "\n") -> str:
    from rich.markup import escape

    return escape(harmless(text, keep=keep))


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    """Format a table as CSV; no spreadsheet reads a cell as a formula (OWASP, CSV injection)."""
    text = io.StringIO()
    csv.writer(text).writerows([_as_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def _as_cell(text: str) -> str:
    """Put a quote before formulas; a negative number is not a formula."""
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
    return text


def escape_unknown(stream: TextIO) -> None:
    """Let a stream escape characters that its encoding lacks, as standard error does."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def shell_name(path: Path) -> str:
    """Quote the name of a file for a shell, so that no command reads it as an option."""
    name = str(path)
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def check_paths(inputs: Sequence[Named], outputs: Sequence[Written]) -> None:
    """Refuse outputs that overwrite an input or each other, or that cannot be written."""
    read = [(name, path) for name, path in inputs if path]
    written = [(option, path) for option, path, _ in outputs if path]
    for option, path in written:
        with _naming(option, path):
            check_replaceable(path, f"{option} {path}")
    for number, (option, path) in enumerate(written):
        for other, other_path in (*read, *written[:number]):
            this, that = f"{option} {path}", f"{other} {other_path}"
            if _are_same(path, other_path):
                raise ValueError(f"{this} and {that} are the same file; choose another {option}")
            if _lies_in(path, other_path):
                raise ValueError(f"{this} lies in {that}; choose another {option}")
            if _lies_in(other_path, path):
                raise ValueError(f"{that} lies in {this}; choose another {option}")
    for option, named, endings in outputs:
        if named and endings and named.suffix.lower() not in endings:
            raise ValueError(f"{option} {named} must end in {' or '.join(endings)}")
    for option, path in written:
        with _naming(option, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=path.parent):
                pass


def _are_same(first: Path, second: Path) -> bool:
    """Whether two paths name the same file, which need not exist yet."""
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    try:
        return first.samefile(second)  # two hard links
    except OSError:
        return False


def _lies_in(path: Path, folder: Path) -> bool:
    """Whether a file lies in a folder, which need not exist yet."""
    inside = Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents
    return inside and not folder.is_file()


@contextmanager
def _naming(option: str, path: Path) -> Iterator[None]:
    """Name the option in errors of the operating system."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # not of the operating system
            raise
        raise ValueError(
            f"{option} {path} cannot be written: {path.parent}: {error.strerror}; choose another "
            "folder"
        ) from error
