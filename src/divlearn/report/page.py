"""A report: one HTML page that contains everything it needs."""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
import math
import os
import platform
import shlex
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from divlearn.atomic import open_atomic
from divlearn.checks import import_extra
from divlearn.models.storage import libraries
from divlearn.report.figures import CLEAR, plotly
from divlearn.report.sections import Section, repeat_section
from divlearn.text import harmless

if TYPE_CHECKING:
    from jinja2 import Environment
    from plotly.graph_objects.layout import Template

# Colours of the page and of figures, for light and for dark.
_PALETTE = {
    "paper": ("#fbfaf7", "#15181c"),
    "card": ("#ffffff", "#1d2126"),
    "ink": ("#1d2329", "#e6e8ea"),
    "muted": ("#5c6670", "#9ba5af"),
    "line": ("#e4e1da", "#2e343b"),
    "accent": ("#0b6883", "#6fc3da"),
    "bad": ("#b8481a", "#f08c57"),
    "shade": ("rgb(0 0 0 / 14%)", "rgb(0 0 0 / 55%)"),
}
_ZERO = "#f5f3ee", "#22272d"
_CORRELATIONS = ("#2166ac", "#b2182b"), ("#5fa8ea", "#f2745c")  # negative and positive
_ANSWERS = ("#c4501b", "#0b6883"), ("#cf6a33", "#1f7f99")  # wrong and right
# Series that colour-blind readers can tell apart.
_SERIES = (
    ["#0072b2", "#c75400", "#00825f", "#a8518a", "#7a6a00", "#4d5963"],
    ["#56b4e9", "#ff9a4d", "#3fcf9f", "#e39ac8", "#e0cf4a", "#b8c2cc"],
)
_TEMPLATES = Path(__file__).parent / "templates"
_DIGITS = 6  # significant digits of numbers in figures
# A frame takes the height of its content when this is loaded; figures have a fixed height.
_GROW = "this.style.height=this.contentDocument.documentElement.offsetHeight+'px'"


@dataclass(frozen=True, eq=False)
class Page:
    """An HTML page in a single file that needs no network.

    Attributes
    ----------
    title : str
    sentence : str, the answer in one or two sentences, shown large at the top.
    sections : sequence of Section
    detail : str, text below the sentence, such as the evidence.

    Examples
    --------
    >>> from divlearn.report.sections import text_section
    >>> page = Page("Textures", "Use AIRM.", [text_section("Why", "Its accuracy is 90.1%.")])
    >>> "<h2>Why</h2>" in page.html()
    True
    """

    title: str
    sentence: str
    sections: Sequence[Section] = ()
    detail: str = ""

    def html(self) -> str:
        """Return the page as an HTML document; this needs jinja2 and plotly.

        It contains styles, scripts, data and the compressed plotting library. A content security
        policy forbids network access and any other script.
        """
        with_charts = [section for section in self.sections if section.charts]
        script = _join("script", "js")
        library = _library() if with_charts else None
        document = (
            _environment()
            .get_template("page.html")
            .render(
                page=self,
                palette=_PALETTE,
                style=_join("style", "css"),
                script=script,
                library=library and library[0],
                figures=library and _pack(_figures(with_charts)),
                allowed=[_digest(script), *(library or ())[1:]],
            )
        )
        return harmless(document, keep="\n\t")

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page and return its path; an error leaves the old file untouched."""
        target = Path(path)
        document = self.html().encode("utf-8")
        with open_atomic(target) as file:
            file.write(document)
        return target

    def _repr_html_(self) -> str | None:
        try:
            document = self.html()
        except ImportError:
            return None  # a notebook then shows the plain text
        # A frame isolates the styles of the page from those of the notebook.
        return (
            f'<iframe srcdoc="{html.escape(document)}" title="{html.escape(self.title)}" '
            f'onload="{_GROW}" style="width: 100%; height: 40rem; border: 0"></iframe>'
        )


def write_report(path: Path, page: Page, data_digest: str, seconds: Mapping[str, float]) -> None:
    """Write a page with the command, the digest of the data, versions and times at its end."""
    versions = libraries() | {"scipy": scipy.__version__, "Python": platform.python_version()}
    command = shlex.join(["divlearn", *sys.argv[1:]])
    repeat = repeat_section(command, data_digest, versions, seconds)
    replace(page, sections=[*page.sections, repeat]).write(path)


def plain(value: Any, *, exact: bool = False) -> Any:
    """Convert a value for JSON, by default for people: rounded, and with text that can be seen.

    NaN and infinity become None.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if exact else float(f"{value:.{_DIGITS}g}")
    if isinstance(value, str):
        return value if exact else harmless(value, keep="\r\n")
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, exact=exact) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item, exact=exact) for key, item in value.items()}
    raise TypeError(f"{value!r} of type {type(value).__name__} has no place in a report")


def _figures(sections: Sequence[Section]) -> str:
    """Return the input of the script as JSON: figures, their data as CSV, and templates."""
    charts = [chart for section in sections for chart in section.charts]
    templates = {name: _template(theme) for theme, name in enumerate(("light", "dark"))}
    content = {
        "figures": [chart.figure.to_plotly_json() for chart in charts],
        "tables": [_csv(section.data) for section in sections],
        "templates": {name: template.to_plotly_json() for name, template in templates.items()},
    }
    return json.dumps(plain(content), allow_nan=False, separators=(",", ":"))


def _csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(plain(rows))
    return text.getvalue()


def _template(theme: int) -> Template:
    """Return the template of plotly that gives all figures the colours of the page."""
    go = plotly()
    card, ink, line = (_PALETTE[name][theme] for name in ("card", "ink", "line"))
    axis = {
        "ticks": "outside",
        "tickcolor": line,
        "gridcolor": line,
        "linecolor": line,
        "zeroline": False,
        "automargin": True,
        "title": {"standoff": 12},
    }

    def scale(ends: tuple[str, str]) -> list[str]:
        return [ends[0], _ZERO[theme], ends[1]]

    layout = go.Layout(
        font={"family": "inherit", "size": 13, "color": ink},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        margin={"l": 50, "r": 10, "t": 30, "b": 50},
        hoverlabel={
            "bgcolor": card,
            "bordercolor": line,
            "font": {"color": ink, "size": 13},
            "align": "left",
        },
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
        annotationdefaults={"bgcolor": card, "opacity": 0.88, "borderpad": 2, "font": {"size": 12}},
        colorway=_SERIES[theme],
        coloraxis={"colorscale": scale(_CORRELATIONS[theme])},
        coloraxis2={"colorscale": scale(_ANSWERS[theme])},
        xaxis=axis,
        yaxis=axis,
    )
    return go.layout.Template(layout=layout)


@cache
def _environment() -> Environment:
    jinja2 = import_extra("jinja2", "the report needs jinja2", "report")
    environment: Environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["packed"] = lambda rows: _pack(harmless(rows))
    return environment


@cache
def _join(folder: str, ending: str) -> str:
    files = sorted((_TEMPLATES / folder).glob(f"*.{ending}"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@cache
def _library() -> tuple[str, str]:
    """Return the plotting library, packed, and the digest of its source."""
    source = import_extra("plotly.offline", "the report needs plotly", "report").get_plotlyjs()
    return _pack(source), _digest(source)


def _pack(text: str) -> str:
    # There is no time stamp, so that the same report has the same bytes. Level 9 takes three times
    # as long as level 6, and saves 2%.
    packed = gzip.compress(text.encode("utf-8"), 6, mtime=0)
    return b64encode(packed).decode("ascii")


def _digest(source: str) -> str:
    return "sha256-" + b64encode(sha256(source.encode("utf-8")).digest()).decode("ascii")
