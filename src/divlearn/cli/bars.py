"""Progress bars."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from divlearn.cli.terminal import as_markup

__all__ = ["Bars"]


class Bars:
    """Bars on a terminal, the whole work first and its parts below; they vanish at the end.

    A listener of `fitting.progress`: new work is part of the current work. Progress of some
    work ends its parts.

    Parameters
    ----------
    console : Console
    text : str
        Description of the whole work.
    """

    def __init__(self, console: Console, text: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(), console=console, transient=True,
            redirect_stdout=sys.stdout.isatty(),  # output to a file stays out of the terminal
        )  # fmt: skip
        self._whole = self._progress.add_task(as_markup(text), total=None, count="")
        self._rows: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._progress.stop()

    def rename(self, text: str) -> None:
        """Change the description of the whole work."""
        self._progress.update(self._whole, description=as_markup(text))

    def __call__(self, what: str, done: int, total: int, news: str) -> None:
        """Show progress."""
        if what not in self._rows:
            self._rows[what] = self._progress.add_task("", count="") if self._rows else self._whole
        row = self._rows[what]
        for part in list(self._rows)[list(self._rows).index(what) + 1 :]:
            self._progress.remove_task(self._rows.pop(part))
        count = f"{done} of {total} {what}" + f", {news}" * bool(news)
        self._progress.update(row, completed=done, total=total, count=as_markup(count))
