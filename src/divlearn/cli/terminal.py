"""Text on a terminal, where it may come from a file or be the name of one."""

from __future__ import annotations

import io
from typing import TextIO
from unicodedata import category

from rich.markup import escape

__all__ = ["as_markup", "escape_unknown", "harmless"]


def harmless(text: str, *, keep: str = "\n") -> str:
    r"""Escape control characters, which could command a terminal or forge lines of output.

    Parameters
    ----------
    text : str
    keep : str
        Characters that stay in any case.

    Examples
    --------
    >>> print(harmless("moss\x1b[31m"), harmless("M\u00fcsli"))
    moss\x1b[31m Müsli
    """
    return "".join(one if one in keep or _is_visible(one) else _escape(one) for one in text)


def as_markup(text: str, *, keep: str = "\n") -> str:
    """Make rich print a text as it is, but for control characters."""
    return escape(harmless(text, keep=keep))


def escape_unknown(stream: TextIO) -> None:
    """Let a stream escape characters that its encoding lacks, as standard error does."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _is_visible(character: str) -> bool:
    return character.isprintable() or category(character) == "Zs"


def _escape(character: str) -> str:
    return repr(character)[1:-1]
