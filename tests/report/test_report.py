"""The report as a file: what is in it, what cannot break it, and how large it is."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import HOSTILE, Outline, every_section, html_of, large_page, read_figures, unpack

from divlearn import plane_map, which_divergence
from divlearn.datasets import make_wishart_clusters
from divlearn.report import Page, page, page_of
from divlearn.report.page import plain
from divlearn.report.planes import plane_section
from divlearn.report.sections import text_section

pytest.importorskip("jinja2", reason="jinja2 is not installed")
plotly_offline = pytest.importorskip("plotly.offline", reason="plotly is not installed")


def document(word: str = "word") -> str:
    return html_of(every_section(word))


# --- what is there


def test_every_part_is_there_in_order():
    outline = Outline(document())
    assert document().startswith("<!doctype html>")
    assert outline.texts["title"] == ["title word"]
    assert outline.texts["h1"] == ["sentence word"]
    assert [title.split()[0] for title in outline.texts["h2"]] == [
        "plane",
        "curves",
        "matrices",
        "confusion",
        "table",
        "disagreement",
        "text",
        "Reproduce",
    ]
    for text in ("detail word", "first word", "second word", "note word"):
        assert text in outline.texts["p"]
    links = [value for tag, name, value in outline.attributes if (tag, name) == ("a", "href")]
    ids = {value for _, name, value in outline.attributes if name == "id"}
    assert len(links) == 8  # those to data have no address yet
    assert {link.removeprefix("#") for link in links} <= ids


def test_nothing_comes_from_elsewhere():
    outline = Outline(document())
    for tag, name, value in outline.attributes:
        if name in ("src", "href", "srcset", "action", "data", "poster"):
            assert value.startswith(("#", "data:")), (tag, name, value)
    style = outline.texts["style"][0]
    assert "@import" not in style
    assert "url(" not in style
    assert "://" not in style + outline.texts["script"][-1]


def test_policy_allows_the_scripts_that_are_there_and_no_other():
    outline = Outline(document())
    policy = next(v for t, n, v in outline.attributes if n == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    sources = outline.texts["script"][-1], plotly_offline.get_plotlyjs()
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in sources]
    assert re.findall(r"'sha256-(\S+)'", policy) == digests
    assert "unsafe" not in policy.split("style-src")[0]


def test_the_library_is_whole_and_only_where_it_is_needed():
    packed = next(text for text in Outline(document()).texts["script"] if text.startswith("H4sI"))
    assert unpack(packed) == plotly_offline.get_plotlyjs()
    small = Page("title", "sentence", [text_section("text", "word")]).html()
    assert "H4sI" not in small
    assert len(small) < 60_000


def test_the_same_report_has_the_same_bytes(tmp_path):
    path = every_section().write(tmp_path / "report.html")
    assert path.read_bytes() == every_section.__wrapped__().html().encode()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_report_that_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    broken = replace(plane_section("p"), data=[[object()]])
    with pytest.raises(TypeError, match="has no place in a report"):
        Page("t", "s", [broken]).write(path)
    assert path.read_text() == "old"


def test_every_figure_has_its_data_its_method_and_a_text():
    outline = Outline(document())
    content = read_figures(document())
    charted = [section for section in every_section().sections if section.charts]
    files = [value for _, name, value in outline.attributes if name == "download"]
    assert files == [f"{section.title}.csv" for section in charted]
    for section, text in zip(charted, content["tables"], strict=True):
        rows = [*csv.reader(io.StringIO(text))]
        assert rows[0] == [str(name) for name in section.data[0]]
        assert len(rows) == len(section.data) > 1
    texts = [value for _, name, value in outline.attributes if name == "aria-label"]
    for section in charted:
        assert {chart.text for chart in section.charts} <= set(texts)
        assert ("h2", "title", section.note) in outline.attributes
    assert len(content["figures"]) == sum(len(section.charts) for section in charted)


def test_a_page_of_100_atoms_and_2000_matrices_is_small():
    large = large_page()
    assert len(html_of(large).encode()) < 2.75e6
    assert large.sections[-1].content["n_rows"] > 1200


# --- what cannot break it


@pytest.mark.parametrize("word", [HOSTILE, "\x00\u2028\U0001f600 \\u003c", "]]>--><script>"])
def test_no_word_changes_the_structure(word):
    harmless, hostile = Outline(document()), Outline(document(word))
    assert hostile.tags == harmless.tags
    assert [a[:2] for a in hostile.attributes] == [a[:2] for a in harmless.attributes]
    visible = word.replace("\x00", r"\x00").replace("\u2028", r"\u2028")
    assert hostile.texts["h1"] == [f"sentence {visible}"]
    learned = read_figures(document(word))["figures"][0]["data"][2]
    assert learned["hovertext"][0].startswith(f"<b>atom {html.escape(visible, quote=False)}</b>")
    names = [row[0] for row in hostile.cells if len(row) == 3]
    assert names == [f"{visible} {i}" for i in range(8)]


def test_rows_out_of_sight_are_escaped_too():
    page = every_section(HOSTILE, n_rows=120)
    packed = next(t for t in Outline(page.html()).texts["script"] if t.startswith("H4sI"))
    rest = Outline(unpack(packed))
    assert set(rest.tags) == {"tr", "td"}
    assert [row[0] for row in rest.cells] == [f"{HOSTILE} {i}" for i in range(50, 120)]


def test_half_letters_do_not_stop_a_report(tmp_path):
    path = every_section("\ud800", n_rows=60).write(tmp_path / "report.html")
    assert r"sentence \ud800" in path.read_text(encoding="utf-8")


def test_no_name_changes_the_direction_of_text():
    signs = "\u202e\u2066\u200f\x1b\x9b"
    page = html_of(every_section(f"a{signs}b", n_rows=120))
    rest = next(t for t in Outline(page).texts["script"] if t.startswith("H4sI"))
    for text in (page, unpack(rest), *map(str, read_figures(page).values())):
        assert not set(signs) & set(text)
    assert f"sentence a{ascii(signs)[1:-1]}b" in page


words = st.text('a<&"\\\n\x00\u2028\ud800\U0001f600')  # a table of all letters takes seconds
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | words,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(words, children, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(values)
def test_plain_values_are_what_json_knows(value):
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == plain(value)


def test_numbers_of_all_kinds_become_plain():
    given_values = {
        "array": np.array([[1.5, np.nan], [-np.inf, 2.0]]),
        "single": np.float32(0.1),
        "whole": np.int8(3),
        "flag": np.bool_(True),
        "pair": (1 / 3, float("inf")),
    }
    assert plain(given_values) == {
        "array": [[1.5, None], [None, 2.0]],
        "single": 0.1,
        "whole": 3,
        "flag": True,
        "pair": [0.333333, None],
    }
    with pytest.raises(TypeError, match="has no place in a report"):
        plain({"x": object()})


# --- where something is not installed


def test_the_extra_is_named(uninstall):
    made = every_section()
    page._environment.cache_clear()
    uninstall("jinja2")
    with pytest.raises(ImportError, match=r'jinja2: pip install "divlearn\[report\]"'):
        made.html()
    assert made._repr_html_() is None
    uninstall("plotly.graph_objects")
    with pytest.raises(ImportError, match=r'plotly: pip install "divlearn\[report\]"'):
        every_section.__wrapped__()


# --- notebooks


def test_a_notebook_gets_a_frame():
    frame = every_section()._repr_html_()
    outline = Outline(frame)
    assert outline.tags == ["iframe"]
    source = next(value for _, name, value in outline.attributes if name == "srcdoc")
    assert source == document()
    assert html.unescape(frame).count("<!doctype html>") == 1


def test_pages_say_what_answers_say():
    X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    grid = np.array([0.0, 0.5, 1.0])
    labelled = which_divergence(X, y, cv=3, alphas=grid, betas=grid, random_state=0)
    unlabelled = which_divergence(X[:30], alphas=grid, betas=grid)
    for answer in (labelled, unlabelled, plane_map(X, y, grid, grid)):
        made = page_of(answer)
        said = f"{made.sentence} {made.detail}".lower()
        assert set(re.findall(r"\d+\.\d+", answer.summary())) <= set(re.findall(r"\d+\.\d+", said))
        plane, table = made.sections
        cells, _, learned = plane.charts[0].figure.data
        assert cells.z.shape == (3, 3)
        assert len(learned.x) == 1
        assert {"AIRM", "Burg"} <= {row[0]["text"] for row in table.content["shown"]}
    plane, table = page_of(labelled).sections
    assert np.array_equal(plane.charts[0].figure.data[0].z.T, labelled.map)
    shown = {row[0]["text"]: row[1]["text"] for row in table.content["shown"]}
    assert shown["learned"] == f"{labelled.score:.1%}"
    assert shown["Stein"] == f"{labelled.named['stein'].score:.1%}"
    best = max(0, unlabelled.map.max() - unlabelled.score)
    cells = page_of(unlabelled).sections[0].charts[0].figure.data[0]
    assert cells.zmax <= best + 1e-12
    assert cells.zmin >= cells.zmax - 0.5 - 1e-12
