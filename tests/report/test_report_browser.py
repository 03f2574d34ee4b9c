"""The report in a real browser: it draws, answers the pointer, and reaches for nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from report_pages import (
    GRID,
    HOSTILE,
    SCORES,
    evaluation_page,
    every_section,
    html_of,
    large_page,
    plane_page,
    plane_values,
    spd,
    which_page,
)

from divlearn.report import Page
from divlearn.report.sections import table_section

pytest.importorskip("jinja2", reason="jinja2 is not installed")
pytest.importorskip("plotly", reason="plotly is not installed")
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.common.exceptions import TimeoutException  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DRIVER = shutil.which("chromedriver")
PATIENCE = 600  # seconds: a page that hangs, not one on a busy machine

pytestmark = pytest.mark.skipif(
    not BROWSER or not DRIVER, reason="no browser: apt-get install chromium chromium-driver"
)


class Reader:
    """Somebody who reads a report in Chromium."""

    def __init__(self, folder: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = BROWSER
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.folder = folder
        self.every_section_shown = False  # and nothing on it was changed, so tests may share it
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
        self.script = self.driver.execute_script
        self.tell = self.driver.execute_cdp_cmd

    def open(self, page, *, width: int = 1280, scheme: str = "light") -> int:
        """Open a page and wait until all in sight is drawn; returns the milliseconds it took."""
        self.every_section_shown = False
        path = self.folder / "report.html"
        path.write_text(html_of(page), encoding="utf-8")
        self.resize(width)
        self.prefer(scheme)
        self.log("performance")
        self.driver.get(path.as_uri())
        drawn = WebDriverWait(self.driver, PATIENCE, 0.05).until(
            lambda _: self.script("return document.documentElement.dataset.drawn")
        )
        return int(drawn)

    def show_every_section(self) -> None:
        """Open a page of every section, unless it is in sight and nothing on it was changed."""
        if not self.every_section_shown:
            self.open(every_section())
            self.every_section_shown = True

    def look_at_all(self) -> None:
        """Scroll to every figure that is not folded, and wait until it is drawn."""
        shown = ".plot:not(details:not([open]) .plot)"
        for number in range(self.script(f"return document.querySelectorAll('{shown}').length")):
            self.look_at(f"document.querySelectorAll('{shown}')[{number}]")

    def look_at(self, element: str) -> None:
        self.script(f"{element}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        self.until(lambda: self.script(f"return !!{element}.querySelector('.main-svg')"))

    def resize(self, width: int) -> None:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.tell("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.tell("Emulation.setEmulatedMedia", {"features": [feature]})

    def log(self, kind: str) -> list[dict]:
        return self.driver.get_log(kind)

    def find(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return self.script(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)",
            selector,
        )

    def until(self, condition):
        return WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: condition())

    def point(self, selector: str, x: float, y: float) -> None:
        """Move the pointer to a place in an element, in pixels from its left upper corner."""
        element = self.find(selector)
        self.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        box = element.rect
        chain = ActionChains(self.driver, duration=0)
        for nudge in (2, 0):  # the library looks at movements
            chain.move_to_element_with_offset(
                element, round(x - box["width"] / 2) + nudge, round(y - box["height"] / 2)
            )
        chain.perform()

    def point_at(self, kind: str, x: float, y: float, expected: str) -> str:
        """Text that appears at a place of a figure; it is waited for, since one may be there."""
        self.look_at(f"document.querySelector('.plot.{kind}')")
        left, top = self.script(
            "const e = document.querySelector(arguments[0]), f = e._fullLayout;"
            "return [f.xaxis.d2p(arguments[1]) + f.xaxis._offset,"
            " f.yaxis.d2p(arguments[2]) + f.yaxis._offset]",
            f".plot.{kind}",
            x,
            y,
        )
        self.point(f".plot.{kind}", left, top)
        lines = f".plot.{kind} .hoverlayer .hovertext text"
        with suppress(TimeoutException):
            self.until(lambda: expected in " ".join(self.texts(lines)))
        return " ".join(self.texts(lines))

    def background(self) -> list[int]:
        colour = self.script("return getComputedStyle(document.body).backgroundColor")
        return [int(number) for number in colour[4:-1].split(",")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    reader = Reader(tmp_path_factory.mktemp("report"))
    yield reader
    reader.driver.quit()


@pytest.fixture(autouse=True)
def no_complaints(reader):
    """No test may leave an error in the console or have asked the network for anything."""
    reader.log("browser")
    yield
    assert [entry for entry in reader.log("browser") if entry["level"] == "SEVERE"] == []
    events = [json.loads(entry["message"])["message"] for entry in reader.log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_all_is_drawn_and_fits(reader, width, scheme):
    reader.open(every_section("a_rather_long_word_without_a_break" * 3), width=width, scheme=scheme)
    reader.look_at_all()
    assert len(reader.driver.find_elements(By.CSS_SELECTOR, ".plot .main-svg")) >= 3
    # Not innerWidth, which on a phone grows with what does not fit.
    assert reader.script("return document.documentElement.scrollWidth") <= width
    box = reader.find("section.table .box")
    assert reader.script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)
    dark = sum(reader.background()) < 3 * 128
    assert dark == (scheme == "dark")


# Lines of text and marks of figures as polygons, cut to the box that they scroll in, and pairs of
# which one is text that overlap by more than a pixel. Ascenders of a line may meet descenders of
# the one above, so lines are a little lower than their font.
CLASHES = """
const found = [];
const add = (text, isText, corners) => found.push({text, isText, corners});
const corners = (r) => [[r.left, r.top], [r.right, r.top], [r.right, r.bottom], [r.left, r.bottom]];
for (const mark of document.querySelectorAll(".scatterlayer .point")) {
  add("a mark", false, corners(mark.getBoundingClientRect()));
}
for (const text of document.querySelectorAll("svg text")) {
  if (!text.textContent.trim()) continue;
  const b = text.getBBox(), m = text.getScreenCTM(), rest = b.height / 6;
  const flat = {left: b.x, right: b.x + b.width, top: b.y + rest, bottom: b.y + b.height - rest};
  const turn = ([x, y]) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f];
  add(text.textContent, true, corners(flat).map(turn));
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, parent = node.parentElement;
  if (!node.data.trim() || parent.closest("svg, script, noscript, [hidden]")) continue;
  if (parent.closest("details:not([open])") && !parent.closest("summary")) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  const frame = parent.closest(".box")?.getBoundingClientRect();
  for (const r of range.getClientRects()) {
    const one = {
      left: Math.max(r.left, frame?.left ?? -1e9), right: Math.min(r.right, frame?.right ?? 1e9),
      top: Math.max(r.top + r.height / 6, frame?.top ?? -1e9),
      bottom: Math.min(r.bottom - r.height / 6, frame?.bottom ?? 1e9),
    };
    if (one.right > one.left && one.bottom > one.top) add(node.data.trim(), true, corners(one));
  }
}
const sides = ({corners: [a, b, , d]}) => [[a, b], [a, d]].map(([p, q]) => {
  const length = Math.hypot(q[0] - p[0], q[1] - p[1]) || 1;
  return [(q[0] - p[0]) / length, (q[1] - p[1]) / length];
});
const span = (one, [x, y]) => {
  const along = one.corners.map((c) => c[0] * x + c[1] * y);
  return [Math.min(...along), Math.max(...along)];
};
const overlap = (a, b) => Math.min(...[...sides(a), ...sides(b)].map((axis) => {
  const [s, t] = [span(a, axis), span(b, axis)];
  return Math.min(s[1], t[1]) - Math.max(s[0], t[0]);
}));
const clashes = [];
found.forEach((a, i) => found.slice(i + 1).forEach((b) => {
  if ((a.isText || b.isText) && overlap(a, b) > 1) clashes.push([a.text, b.text]);
}));
const outside = found.filter((one) => {
  const [left, right] = span(one, [1, 0]);
  return left < -1 || right > document.documentElement.clientWidth + 1;
});
return [found.length, clashes, outside.map((one) => one.text)];
"""


@pytest.mark.parametrize("width", [390, 1100])
@pytest.mark.parametrize("make", [evaluation_page, plane_page, every_section])
def test_nothing_overprints(reader, make, width):
    reader.open(make(), width=width)
    reader.look_at_all()
    n_lines, clashes, outside = reader.script(CLASHES)
    assert n_lines > 40
    assert clashes == []
    assert outside == []
    if make is evaluation_page:
        check_the_table_of_classifiers(reader, width)


def check_the_table_of_classifiers(reader, width):
    """It fits without scrolling."""
    assert reader.script("return document.documentElement.scrollWidth") <= width
    box = reader.find("#section-1 .box")
    assert reader.script("return arguments[0].scrollWidth <= arguments[0].clientWidth", box)
    assert len(reader.texts("#section-1 th")) == 5
    assert len(reader.texts("#section-1 tbody tr")) == 9


def test_an_answer_is_three_lines_and_a_phone_shows_p_and_means(reader):
    reader.open(which_page(), width=390)
    assert [line.split(" ", 1)[0] for line in reader.texts(".detail")] == ["Held-out", "By", "The"]
    headings = reader.texts("section.table th")
    assert headings[:5] == ["name", "neighbour", "mean", "p", "learned ahead by"]
    inside = (
        "const box = document.querySelector('section.table .box').getBoundingClientRect();"
        "return [...document.querySelectorAll('section.table th')]"
        ".map((e) => e.getBoundingClientRect().right <= box.right)"
    )
    assert reader.script(inside)[:5] == [True] * 5


def test_figures_follow_the_colours_of_the_system_and_of_the_reader(reader):
    ink = "return getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    highest = (
        "return document.querySelector('.plot.matrices')._fullLayout.coloraxis.colorscale.at(-1)[1]"
    )
    reader.open(every_section(), scheme="light")
    reader.look_at("document.querySelector('.plot.matrices')")
    light = reader.script(ink), reader.script(highest)
    assert light[1] == "#b2182b"
    reader.prefer("dark")
    reader.until(lambda: reader.script(ink) != light[0])
    assert reader.script(highest) == "#f2745c"
    reader.find("#theme").click()  # the reader wants light, whatever the system says
    reader.until(lambda: (reader.script(ink), reader.script(highest)) == light)
    assert sum(reader.background()) > 3 * 128
    reader.find("#theme").click()
    reader.until(lambda: reader.script(ink) != light[0])
    assert sum(reader.background()) < 3 * 128


def test_pointing_at_the_plane_shows_values_and_names(reader):
    reader.show_every_section()
    alpha, beta = "\N{GREEK SMALL LETTER ALPHA}", "\N{GREEK SMALL LETTER BETA}"
    value = plane_values()[list(GRID).index(2.0), list(GRID).index(1.0)]
    place = f"{alpha} = 2, {beta} = 1"
    assert reader.point_at("plane", 2.0, 1.0, place) == f"{place}accuracy word {value:.1%}"
    place = f"{alpha} = 0, {beta} = 0"
    assert reader.point_at("plane", 0.0, 0.0, place) == f"AIRM{place}accuracy word 0.0%"
    place = f"{alpha} = 1, {beta} = 1.5"
    value = (1 + 1.5**2) / 8
    text = reader.point_at("plane", 1.0, 1.5, place)
    assert text == f"atom word{place}accuracy word {value:.1%}"


def test_pointing_at_the_confusion_matrix_shows_counts(reader):
    reader.show_every_section()
    text = reader.point_at("confusion", 0, 1, "true")
    assert text == "true: word bpredicted: word2 of 9 (22.2%)"


def test_pointing_at_a_matrix_shows_its_entry(reader):
    reader.show_every_section()
    uses = np.random.default_rng(0).random(30)
    matrix = spd(30, 4)[int(uses.argmax())]
    deviations = np.sqrt(np.diag(matrix))
    correlation = f"{matrix[2, 1] / deviations[2] / deviations[1]:.2f}"
    assert reader.point_at("matrices", 1, 2, "correlation") == (
        f"row 2 (standard deviation {deviations[2]:.3g})"
        f"column 1 (standard deviation {deviations[1]:.3g})"
        f"correlation {correlation}"
    )


def test_six_matrices_are_shown_and_the_others_unfold(reader):
    reader.show_every_section()
    reader.look_at("document.querySelector('.plot.matrices')")
    tiles = "return document.querySelectorAll('.plot.matrices .heatmaplayer image').length"
    assert reader.script(tiles) == 6
    reader.every_section_shown = False
    assert reader.texts("details summary") == ["24 more"]
    reader.find("details summary").click()
    reader.look_at_all()
    assert reader.script(tiles) == 30


def test_a_classifier_is_one_click_from_its_confusion_matrix(reader):
    reader.open(evaluation_page())
    figure = "document.getElementById('confusion-8')"
    assert not reader.script(f"return {figure}.checkVisibility()")
    rows = reader.driver.find_elements(By.CSS_SELECTOR, "#section-1 tbody tr")
    name, share = (cell.text for cell in rows[8].find_elements(By.CSS_SELECTOR, "td")[:2])
    rows[8].find_element(By.CSS_SELECTOR, "a").click()
    reader.until(lambda: reader.script(f"return !!{figure}.querySelector('.main-svg')"))
    verdict = reader.script(f"return {figure}.nextElementSibling.textContent")
    assert verdict.startswith(f"{name}: ")
    assert f"({share.split()[0]})" in verdict
    both, first, second, neither = map(int, re.findall(r"on (\d+)", verdict))
    assert both + first + second + neither == 400
    assert verdict.startswith(f"{name}: {both + second} of 400 are right")
    top, height = reader.script(
        f"const box = {figure}.getBoundingClientRect(); return [box.top, innerHeight]"
    )
    assert -1 < top < height  # browsers scroll to whole pixels


def test_data_are_one_click_away(reader):
    reader.show_every_section()
    links = reader.driver.find_elements(By.CSS_SELECTOR, "a.csv")
    assert len(links) == 4
    assert all(link.get_attribute("href").startswith("blob:") for link in links)


def column(reader, number: int) -> list[str]:
    return reader.texts(f"#section-5 td:nth-child({number})")


def click_heading(reader, number: int) -> None:
    reader.script(f"document.querySelectorAll('#section-5 th button')[{number}].click()")


def test_tables_hold_and_sort_what_was_given(reader):
    reader.open(every_section(n_rows=8))
    missing = "\N{EN DASH}"
    shown = ["0.5", "12.2", missing, "-3", missing, "1e-07", "∞", "2"]
    assert column(reader, 2) == shown
    assert column(reader, 1) == [f"word {i}" for i in range(8)]
    click_heading(reader, 1)
    known = sorted((s for s in SCORES if s is not None and s == s), reverse=True)
    place = [SCORES.index(score) for score in known]
    reader.until(lambda: column(reader, 3)[0] == "6")
    assert column(reader, 3) == [str(i) for i in [*place, 2, 4]]
    click_heading(reader, 1)
    reader.until(lambda: column(reader, 3)[0] == "3")
    assert column(reader, 3) == [str(i) for i in [*place[::-1], 2, 4]]
    assert reader.texts("#section-5 th[aria-sort]") == ["score"]
    click_heading(reader, 0)
    reader.until(lambda: column(reader, 1)[0] == "word 0")
    assert column(reader, 1) == [f"word {i}" for i in range(8)]


def test_long_tables_show_all_rows_when_asked_for(reader):
    reader.open(every_section(n_rows=123))
    assert column(reader, 3) == [str(i) for i in range(50)]
    click_heading(reader, 2)
    reader.until(lambda: column(reader, 3)[0] == "122")
    assert column(reader, 3) == [str(i) for i in range(122, 72, -1)]
    more = reader.find("#section-5 .more")
    assert more.text == "Show all 123 rows"
    more.click()
    reader.until(lambda: len(column(reader, 3)) == 123)
    assert column(reader, 3) == [str(i) for i in range(122, -1, -1)]
    assert column(reader, 1) == [f"word {i}" for i in range(122, -1, -1)]


def test_the_command_is_copied(reader):
    permissions = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    reader.tell("Browser.grantPermissions", permissions)
    reader.open(every_section("--report 'my report.html'"))
    reader.find(".copy").click()
    reader.until(lambda: reader.find(".copy").text == "Copied")
    copied = reader.driver.execute_async_script(
        "navigator.clipboard.readText().then(arguments[0], arguments[0])"
    )
    assert copied == "divlearn --report 'my report.html'"


def test_no_word_runs_or_becomes_markup(reader):
    reader.open(every_section(HOSTILE, n_rows=60))
    assert HOSTILE in reader.point_at("plane", 0.0, 0.0, HOSTILE)
    reader.find("#section-5 .more").click()
    reader.until(lambda: len(column(reader, 1)) == 60)
    assert column(reader, 1)[-1] == f"{HOSTILE} 59"
    assert reader.texts("h1") == [f"sentence {HOSTILE}"]
    assert reader.script("return typeof hacked") == "undefined"
    assert reader.texts("img") == []


def test_a_browser_that_cannot_unpack_says_so_and_shows_the_rest(reader):
    source = {"source": "delete window.DecompressionStream"}
    added = reader.tell("Page.addScriptToEvaluateOnNewDocument", source)
    try:
        reader.open(every_section(n_rows=60))
        messages = reader.texts(".failed")
        assert len(messages) == len(reader.texts("[role=img]")) > 4
        assert all("cannot unpack" in message for message in messages)
        click_heading(reader, 2)
        reader.until(lambda: column(reader, 3)[0] == "49")
        assert "cannot unpack" in reader.find("#section-5").text
    finally:
        with suppress(Exception):
            reader.tell("Page.removeScriptToEvaluateOnNewDocument", added)


def test_a_large_page_opens(reader):
    reader.open(large_page())
    click_heading(reader, 4)
    assert reader.until(lambda: reader.texts("#section-5 th[aria-sort]"))


def test_figures_are_drawn_without_scrolling_but_for_folded_ones(reader):
    """A picture of the whole page shows them; the many atoms nobody unfolds cost nothing."""
    reader.open(every_section())
    drawn = "return [...document.querySelectorAll('.plot{}')].map((e) => !!e.querySelector('svg'))"
    folded = "details:not([open]) .plot"
    assert reader.until(lambda: all(reader.script(drawn.format(f":not({folded})"))))
    assert not any(reader.script(drawn.format(f":is({folded})")))


# --- paper


def count_pictures(pdf: bytes) -> int:
    """Heat maps are images, of which a PDF keeps the pixels."""
    return len(re.findall(rb"/Subtype\s*/Image", pdf))


def test_a_program_that_prints_at_once_prints_all_figures(tmp_path):
    page = every_section().write(tmp_path / "report.html")
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    target = f"--print-to-pdf={tmp_path / 'report.pdf'}"
    subprocess.run(
        [BROWSER, *arguments, f"--user-data-dir={tmp_path / 'profile'}", target, page.as_uri()],
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (
        count_pictures((tmp_path / "report.pdf").read_bytes()) >= 1 + 6 + 1
    )  # plane, tiles, confusion


def test_paper_has_headings_of_tables_and_figures_that_fit(reader):
    """Also where the reader prefers dark, and no figure has been in sight."""
    reader.open(every_section(n_rows=60), scheme="dark")
    reader.tell("Emulation.setEmulatedMedia", {"media": "print"})
    reader.script("dispatchEvent(new Event('beforeprint'))")
    assert reader.script(VISIBLE, "#section-5 th") == ["name word", "score", "number"]
    assert reader.script(VISIBLE, "nav, .more, .copy, .data") == []
    assert "The first 50 of 60 rows." in reader.script(VISIBLE, ".printed")
    ink = "return getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    assert reader.script(ink) == "rgb(29, 35, 41)"
    widths = "return [...document.querySelectorAll('.plot > *')].map((e) => e.offsetWidth)"
    assert 0 < max(reader.script(widths)) <= PAPER
    [fold] = reader.driver.find_elements(By.CSS_SELECTOR, "summary")
    after = "return getComputedStyle(arguments[0], '::after').content"
    assert reader.script(after, fold) == '" in the HTML file."'
    bar = reader.find(".stages i")
    adjust = "return getComputedStyle(arguments[0]).printColorAdjust"
    assert reader.script(adjust, bar) == "exact"  # or it is left out, as backgrounds are
    reader.script("dispatchEvent(new Event('afterprint'))")
    assert max(reader.script(widths)) > PAPER
    reader.tell("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("names", [[f"material {k}" for k in range(30)], ["rest", 120 * "W"]])
def test_a_wide_table_fits_on_paper(reader, names):
    rows = [[names[-1], *range(k, k + len(names))] for k in range(5)]
    reader.open(Page("wide", "Wide.", [table_section("Classes", ["cluster", *names], rows)]))
    reader.resize(PAPER)
    reader.tell("Emulation.setEmulatedMedia", {"media": "print"})
    box = reader.find(".box")
    assert reader.script("return arguments[0].scrollWidth <= arguments[0].clientWidth", box)
    reader.tell("Emulation.setEmulatedMedia", {"media": ""})


# The texts of elements that can be seen.
VISIBLE = """
return [...document.querySelectorAll(arguments[0])].filter((element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return range.getBoundingClientRect().width > 0;
}).map((element) => element.textContent.trim());
"""
PAPER = 700  # pixels: A4 with margins
