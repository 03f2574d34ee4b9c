"""Sections of a page that are words: text, and how to repeat the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

__all__ = ["RepeatSection", "TextSection", "as_sentence"]


def as_sentence(message: str) -> str:
    """Make a sentence of what results say of themselves.

    Examples
    --------
    >>> as_sentence("all 3 folds are through")
    'All 3 folds are through.'
    """
    return f"{message[0].upper()}{message[1:]}."


@dataclass(frozen=True)
class TextSection:
    r"""Paragraphs of text.

    Attributes
    ----------
    title : str
    text : str
        Empty lines part paragraphs; nothing in it is markup.

    Examples
    --------
    >>> TextSection("Why it stopped", "The gradient vanished.\n\nAfter 12 steps.").content()
    {'paragraphs': ['The gradient vanished.', 'After 12 steps.']}
    """

    template: ClassVar[str] = "text.html"
    kind: ClassVar[str] = "text"
    note: ClassVar[str] = ""

    title: str
    text: str

    def content(self) -> dict[str, Any]:
        """Return what the template and the script need, as plain values."""
        parts = self.text.replace("\r\n", "\n").split("\n\n")
        return {"paragraphs": [part.strip() for part in parts if part.strip()]}


@dataclass(frozen=True)
class RepeatSection:
    """What is needed to do it again, and how long it took.

    Attributes
    ----------
    command : str
        The exact command.
    data_digest : str
        SHA-256 of the data, in hexadecimal digits.
    versions : mapping of str to str
        Versions of libraries, by name.
    seconds : mapping of str to float
        Time that every stage took.
    title, note : str

    Examples
    --------
    >>> section = RepeatSection("divlearn demo", "9f86d0", {"numpy": "2.4"}, {"fit": 3, "map": 1})
    >>> section.content()["total"]
    '4.0 s'
    """

    template: ClassVar[str] = "repeat.html"
    kind: ClassVar[str] = "repeat"

    command: str
    data_digest: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    title: str = "To repeat this"
    note: str = "The same command on the same data with the same versions gives the same answer."

    def content(self) -> dict[str, Any]:
        """Return what the template and the script need, as plain values."""
        longest = max(self.seconds.values(), default=0) or 1
        return {
            "command": self.command,
            "digest": self.data_digest,
            "versions": list(self.versions.items()),
            "stages": [
                (name, _time(seconds), f"{100 * seconds / longest:.1f}%")
                for name, seconds in self.seconds.items()
            ],
            "total": _time(sum(self.seconds.values())),
        }


def _time(seconds: float) -> str:
    """Write a time as people do.

    Examples
    --------
    >>> _time(0.0042), _time(75), _time(7384)
    ('4.2 ms', '1 min 15 s', '2 h 3 min')
    """
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
