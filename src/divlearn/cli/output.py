"""What commands print: tables and sentences for people, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["Output"]


class Output:
    """Where a command tells what it found; progress goes to standard error.

    Parameters
    ----------
    as_json : bool
        Whether all that is printed is one JSON object, at the end.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.result: dict[str, Any] = {}
        self._console = Console(highlight=False, soft_wrap=True)
        self._errors = Console(highlight=False, stderr=True)

    def say(self, text: str) -> None:
        """Print a sentence."""
        if not self.as_json:
            self._console.print(escape(text))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; the first column is text, the others are numbers."""
        if self.as_json:
            return
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column, heading in enumerate(headings):
            table.add_column(heading, justify="right" if column else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        self._console.print(table)

    @contextmanager
    def working(self, text: str) -> Iterator[Any]:
        """Show that something takes time; what is yielded can be told how it goes."""
        if self._errors.is_terminal:
            with self._errors.status(escape(text)) as status:
                yield lambda news: status.update(escape(news))
        else:
            yield lambda news: None

    def finish(self, **result: Any) -> None:
        """Print the JSON object, if that is what was asked for."""
        if self.as_json:
            from divlearn.report.plain import plain

            json.dump(plain(result, digits=None), sys.stdout, indent=1)
            print()
