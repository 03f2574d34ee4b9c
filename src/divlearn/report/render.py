"""From a page of plain data to HTML that needs nothing else."""

from __future__ import annotations

import gzip
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divlearn.report.plain import to_json

if TYPE_CHECKING:
    from jinja2 import Environment

    from divlearn.report.page import Page

__all__ = ["render"]

_TEMPLATES = Path(__file__).parent / "templates"
_PLOTTED = {"plane", "curves", "confusion"}  # what the plotting library draws
# Names from files may hold characters that HTML forbids.
_CONTROLS = {
    code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160))
    if chr(code) not in "\t\n\r"
}  # fmt: skip


def render(page: Page) -> str:
    """HTML document of a page.

    Everything is inside: styles, scripts, data, and the plotting library, compressed. A policy
    forbids the page to reach the network, and to run any script but those that were put there.

    Parameters
    ----------
    page : Page

    Returns
    -------
    str
    """
    environment = _environment()
    sections = [
        {
            "title": section.title, "note": section.note, "kind": section.kind,
            "template": section.template, "content": section.content(),
        }
        for section in page.sections
    ]  # fmt: skip
    script = _join("script", "js")
    library = _library() if any(one["kind"] in _PLOTTED for one in sections) else None
    document = environment.get_template("page.html").render(
        page=page,
        sections=sections,
        style=_join("style", "css"),
        script=script,
        library=library and library[0],
        allowed=[_digest(script), *(library or ())[1:]],
    )
    return document.translate(_CONTROLS)


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FileSystemLoader
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError('the report needs jinja2: pip install "divlearn[report]"') from error
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )

    def as_json(value: Any) -> Markup:
        return Markup(to_json(value))  # escaped by itself, and not as HTML

    environment.filters["json"] = as_json
    environment.filters["packed"] = _pack
    return environment


@cache
def _join(folder: str, ending: str) -> str:
    """Join the files of a folder; their names give the order."""
    files = sorted((_TEMPLATES / folder).glob(f"*.{ending}"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@cache
def _library() -> tuple[str, str]:
    """Pack the plotting library as text; the second is the digest of its source."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError('the report needs plotly: pip install "divlearn[report]"') from error
    source = get_plotlyjs()
    return _pack(source), _digest(source)


def _pack(text: str) -> str:
    """Compress a text to letters that mean nothing to HTML."""
    # No time in it: the same report has the same bytes.
    packed = gzip.compress(text.encode("utf-8", errors="replace"), 9, mtime=0)
    return b64encode(packed).decode("ascii")


def _digest(source: str) -> str:
    return "sha256-" + b64encode(sha256(source.encode("utf-8")).digest()).decode("ascii")
