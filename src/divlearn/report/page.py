"""A report: one page that holds everything it needs."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from divlearn.atomic import open_atomic
from divlearn.report.section import Section

__all__ = ["Page"]

# The frame grows to what is in it once that is there; figures have their height from the start.
_GROW = "this.style.height=this.contentDocument.documentElement.offsetHeight+'px'"


@dataclass(frozen=True, eq=False)
class Page:
    """A report of one page, in one file that needs no network.

    Attributes
    ----------
    title : str
    sentence : str
        The plain answer in one or two sentences, shown large at the top.
    sections : sequence of Section
    footer : str
    detail : str
        What stands below the sentence: how sure it is, for example.

    Examples
    --------
    >>> from divlearn.report import TextSection
    >>> page = Page("Textures", "Use AIRM.", [TextSection("Why", "It is right on 90.1%.")])
    >>> "<h2>Why</h2>" in page.html()
    True
    """

    title: str
    sentence: str
    sections: Sequence[Section] = ()
    footer: str = ""
    detail: str = ""

    def html(self) -> str:
        """Return the page as a document of HTML.

        Raises
        ------
        ImportError
            If jinja2 or plotly is not installed.
        """
        from divlearn.report.render import render

        return render(self)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; the file is either the old one or the whole new one.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        Path
        """
        target = Path(path)
        # A name read from a file may hold what UTF-8 cannot; a report is no place to fail for it.
        document = self.html().encode("utf-8", errors="replace")
        with open_atomic(target) as file:
            file.write(document)
        return target

    def _repr_html_(self) -> str | None:
        try:
            document = self.html()
        except ImportError:
            return None  # a notebook then shows the plain text
        # A frame, so that the styles of the page and of the notebook leave each other alone.
        return (
            f'<iframe srcdoc="{html.escape(document)}" title="{html.escape(self.title)}" '
            f'onload="{_GROW}" style="width: 100%; height: 40rem; border: 0"></iframe>'
        )
