"""Pages for the tests of the report, and a reader of HTML that needs no browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
from functools import cache
from html.parser import HTMLParser

import numpy as np

from divlearn.datasets import make_wishart_clusters
from divlearn.judge import Evaluation, PlaneMap, default_classifiers, which_divergence
from divlearn.report import Page, page_of
from divlearn.report.figures import confusion_section, curves_section, matrices_section
from divlearn.report.planes import plane_section
from divlearn.report.sections import (
    disagreement_section,
    repeat_section,
    table_section,
    text_section,
)

GRID = np.arange(5) / 2
HOSTILE = '</script></style><img src=x onerror="hacked=1"><b>&amp;\'%{x}{{7*7}}<!--'
SCORES = [0.5, 12.25, None, -3.0, float("nan"), 1e-7, float("inf"), 2.0]


def spd(n: int, d: int, seed: int = 0) -> np.ndarray:
    factors = np.random.default_rng(seed).standard_normal((n, d, 2 * d))
    scales = 10.0 ** np.random.default_rng(seed + 1).uniform(-2, 2, (n, d, 1))
    scaled = scales * factors
    return scaled @ scaled.mT


def plane_values() -> np.ndarray:
    """A value for every point of `GRID` by `GRID` that tells alpha from beta."""
    return (GRID[:, None] + GRID[None, :] ** 2) / 8


@cache
def every_section(word: str = "word", n_rows: int = 8, n_matrices: int = 30) -> Page:
    """A page of every section; `word` stands wherever a text can."""
    rng = np.random.default_rng(0)
    rows = [[f"{word} {i}", SCORES[i % len(SCORES)], i] for i in range(n_rows)]
    classes = [word, f"{word} b", "c"]
    return Page(
        f"title {word}",
        f"sentence {word}",
        [
            plane_section(
                f"plane {word}",
                GRID,
                GRID,
                plane_values(),
                f"accuracy {word}",
                learned=[(1.0, 1.5, f"atom {word}"), (1.5, 0.5, "atom 2")],
                note=f"note {word}",
            ),
            curves_section(
                f"curves {word}",
                {f"objective {word}": [3.0, np.nan, 1.0]},
                f"iteration {word}",
                f"height {word}",
                f"note {word}",
            ),
            matrices_section(
                f"matrices {word}",
                spd(n_matrices, 4),
                rng.random(n_matrices) ** 4,  # shares of one and of two digits
                [f"name {i} {word}" for i in range(n_matrices)],
                [f"text {i} {word}" for i in range(n_matrices)],
                f"note {word}",
            ),
            confusion_section(
                f"confusion {word}",
                classes,
                {f"IDDL {word}": [[9, 1, 0], [2, 7, 0], [0, 0, 5]]},
                f"note {word}",
            ),
            table_section(
                f"table {word}",
                [f"name {word}", "score", "number"],
                rows,
                f"note {word}",
                bold=[1],
                formats={"score": ".3g"},
            ),
            disagreement_section(
                f"disagreement {word}", classes, {f"IDDL {word}": classes, "1-NN": [word, "c", "c"]}
            ),
            text_section(f"text {word}", f"first {word}\n\nsecond {word}"),
            repeat_section(
                f"divlearn {word}",
                f"digest {word}",
                {f"numpy {word}": f"2 {word}"},
                {f"fit {word}": 3.0, "map": 75.0},
            ),
        ],
        detail=f"detail {word}",
    )


@cache
def evaluation_page() -> Page:
    """What `divlearn evaluate` reports, of all default classifiers and ten classes."""
    rng = np.random.default_rng(0)
    classes = np.array([f"material {k}" for k in range(10)])
    codes = rng.integers(10, size=400)
    known = {
        name: np.where(rng.random(400) < share, codes, rng.integers(10, size=400))
        for name, share in zip(default_classifiers(), np.linspace(0.99, 0.5, 9), strict=True)
    }
    seconds = dict(zip(known, np.geomspace(1234, 0.1, 9).tolist(), strict=True))
    rows = np.arange(400)
    return page_of(Evaluation(classes, codes, known, seconds, 5, rows, "all 5 folds completed"))


def plane_page() -> Page:
    """What `divlearn which` reports: a map, named divergences and what was learned."""
    correct = np.random.default_rng(0).random((17, 17, 200)) < 0.8
    return page_of(PlaneMap(np.arange(17) / 8, np.arange(17) / 8, correct))


@cache
def which_page() -> Page:
    """The answer for classes that are told apart."""
    X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    grid = np.array([0.0, 0.5, 1.0])
    return page_of(which_divergence(X, y, alphas=grid, betas=grid, random_state=0))


@cache
def large_page() -> Page:
    """100 matrices of 30 rows, 100 classes, and tables of 2,000 matrices."""
    rng = np.random.default_rng(0)
    n, grid = 2_000, np.linspace(0, 2, 33)
    classes = [f"class {i}" for i in range(100)]
    codes = rng.integers(100, size=(4, n))
    truth, *predicted = (
        [classes[code] for code in np.where(rng.random(n) < 0.7, codes[0], row)] for row in codes
    )
    numbers = np.column_stack([rng.random(n), 10 ** rng.uniform(1, 5, n), rng.random(n)]).tolist()
    points = 2 * rng.random((1500, 2))
    return Page(
        "large",
        "A page of 2,000 matrices.",
        [
            plane_section(
                "plane",
                grid,
                grid,
                rng.random((33, 33)),
                "accuracy",
                learned=[(a, b, "learned") for a, b in points],
            ),
            curves_section("curves", {f"model {i}": rng.random(200) for i in range(4)}, "x", "y"),
            matrices_section(
                "matrices",
                spd(100, 30),
                rng.random(100),
                [f"atom {i}" for i in range(100)],
                ["(0.51, 1.24)"] * 100,
            ),
            confusion_section("confusion", classes, {"IDDL": rng.integers(5, size=(100, 100))}),
            table_section(
                "table",
                ["matrix", "truth", "predicted", "probability", "condition", "x"],
                [[i, truth[i], predicted[0][i], *numbers[i]] for i in range(n)],
            ),
            disagreement_section(
                "disagreement", truth, dict(zip(("IDDL", "1-NN", "SVM"), predicted, strict=True))
            ),
        ],
    )


@cache
def html_of(page: Page) -> str:
    """The page as HTML, made once for all tests."""
    return page.html()


class Outline(HTMLParser):
    """Tags in order, attributes, and the text directly inside tags of each name."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self.cells: list[list[str]] = []
        self._open = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._open = tag
        self.texts.setdefault(tag, []).append("")
        if tag == "tr":
            self.cells.append([])
        if tag == "td":
            self.cells[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open][-1] += data
        if self._open == "td":
            self.cells[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


def unpack(packed: str) -> str:
    return gzip.decompress(base64.b64decode(packed)).decode()


def read_figures(document: str) -> dict:
    """Figures, their data as CSV, and templates, as the script of a page reads them."""
    packed = re.search('id="figures">([^<]*)<', document)
    return json.loads(unpack(packed[1]))
