"""Sections of the report: what they make of what they are given."""

from __future__ import annotations

import numpy as np
import pytest
from report_pages import GRID, plane_values, spd

from divlearn.report.figures import confusion_section, curves_section, matrices_section
from divlearn.report.planes import label_side, plane_section
from divlearn.report.sections import (
    disagreement_section,
    repeat_section,
    table_section,
    text_section,
)

pytest.importorskip("plotly", reason="plotly is not installed")


def traces(section):
    [chart] = section.charts
    return chart.figure.data


# --- the plane


def plane(**options):
    return plane_section("plane", GRID, GRID, plane_values(), "accuracy", **options)


def test_plane_has_alpha_along_rows_of_values():
    cells = traces(plane())[0]
    for row, beta in enumerate(GRID):
        for column, alpha in enumerate(GRID):
            assert cells.z[row][column] == (alpha + beta**2) / 8
    table = {row[:2]: row[2] for row in plane().data[1:] if row[3] == ""}
    assert table == {(a, b): (a + b**2) / 8 for a in GRID for b in GRID}


def test_points_of_the_plane_get_the_value_of_their_cell():
    learned = [(1.1, 0.4, "inside"), (9.0, 0.0, "outside"), (np.nan, 1.0, "lost")]
    section = plane(learned=learned)
    _, named, marked = traces(section)
    assert (
        "<b>Burg</b><br>\N{GREEK SMALL LETTER ALPHA} = 0, β = 1<br>accuracy 12.5%"
        in named.hovertext
    )
    assert [text.split("<br>")[2:] for text in marked.hovertext] == [["accuracy 15.6%"], [], []]
    assert (0.0, 1.0, "12.5%", "Burg") in section.data
    assert "Burg 12.5%" in section.charts[0].text


def test_learned_points_of_one_place_are_shown_as_one():
    learned = [(1.0, 0.5, f"atom {i}") for i in range(5)] + [(1.0002, 0.5, "atom 5"), (1, 1, "b")]
    marked = traces(plane(learned=learned))[2]
    names = [text.split("<br>")[0] for text in marked.hovertext]
    assert [*zip(marked.x, marked.y, names, strict=True)] == [
        (1.0, 0.5, "<b>atom 0, atom 1, atom 2 and 3 more</b>"),
        (1.0, 1.0, "<b>b</b>"),
    ]


def extent(section):
    layout = section.charts[0].figure.layout
    return layout.xaxis.range, layout.yaxis.range


def test_all_of_the_plane_is_in_sight():
    inside = extent(plane(learned=[(2.0, 0.0, "corner")]))
    assert inside == ((-0.25, 2.25), (-0.25, 2.25))
    (low, high), vertical = extent(plane(learned=[(9.0, 1.0, ""), (np.inf, 1.0, "")]))
    assert low == -0.25
    assert 9 < high < 10
    assert vertical == inside[1]


def test_plane_without_a_map_shows_points_alone():
    section = plane_section("plane", learned=[(3.0, 1.0, "atom")])
    named, marked = traces(section)
    assert len(named.x) == 5
    assert marked.hovertext == ("<b>atom</b><br>\N{GREEK SMALL LETTER ALPHA} = 3, β = 1",)
    (low, high), _ = extent(section)
    assert low < 0
    assert high > 3


def test_floor_of_the_plane_keeps_colours_for_what_lies_above():
    def colours(**options):
        cells = traces(plane(**options))[0]
        return cells.zmin, cells.zmax

    assert colours() == (None, None)
    assert colours(floor=0.25) == (0.25, 0.75)
    assert colours(floor=-1.0) == (0.0, 0.75)
    assert colours(floor=2.0) == (None, None)  # nothing would be left


def test_names_of_points_stand_where_there_is_room():
    assert label_side([0.1, 0.5]) == (False, False)
    assert label_side([0.9, 0.9]) == (True, True)
    assert label_side([0.5, 0.5], np.array([0.6, 0.55])) == (False, True)  # the star is above
    assert label_side([0.5, 0.5], np.array([0.4, 0.55])) == (False, False)


# --- curves


def test_curves_keep_places_and_heights():
    section = curves_section("c", {"a": [3, 2], "b": [[5, 7], [0.1, np.nan]]}, "step", "loss")
    first, second = traces(section)
    assert (first.name, first.x.tolist(), first.y.tolist()) == ("a", [0, 1], [3.0, 2.0])
    assert second.x.tolist() == [5.0, 7.0]
    np.testing.assert_array_equal(second.y, [0.1, np.nan])
    assert section.data[:3] == [("curve", "step", "loss"), ("a", 0, 3), ("a", 1, 2)]
    assert section.charts[0].text.startswith("loss over step: a from 3 at 0 to 2 at 1; b from 0.1")


# --- matrices


def correlations(matrix):
    deviations = np.sqrt(np.diag(matrix))
    return np.diag(1 / deviations) @ matrix @ np.diag(1 / deviations)


def test_matrices_come_by_use_six_to_a_figure():
    matrices, uses = spd(8, 5), np.array([1.0, 5, 0, 5, 9, 2, 3, 4])
    order = [4, 1, 3, 7, 6, 5, 0, 2]
    section = matrices_section("m", matrices, uses, list("abcdefgh"), ["two words"] * 8)
    assert [len(chart.figure.data) for chart in section.charts] == [6, 2]
    assert section.content["more"] == "2 more"
    tiles = [tile for chart in section.charts for tile in chart.figure.data]
    titles = [one.text for chart in section.charts for one in chart.figure.layout.annotations]
    for tile, title, number, row in zip(tiles, titles, order, section.data[1:], strict=True):
        name, share = "abcdefgh"[number], uses[number] / uses.sum()
        assert title == f"<b>{name}: {share:.1%}</b><br>two words"
        np.testing.assert_allclose(tile.z, correlations(matrices[number]), atol=0.005 + 1e-12)
        deviations = np.sqrt(np.diag(matrices[number]))
        assert tile.x[3] == tile.y[3] == f"3 (standard deviation {deviations[3]:.3g})"
        assert row[:2] == (name, share)
        np.testing.assert_allclose(row[2:7], deviations)
        expected = correlations(matrices[number])[np.triu_indices(5, 1)]
        np.testing.assert_allclose(row[7:], expected, atol=0.0005 + 1e-12)
    assert section.charts[0].text.startswith("Correlations of e: 31.0%, b: 17.2%, ")


def test_large_matrices_are_shown_as_means_of_blocks():
    matrices = spd(3, 101)
    section = matrices_section("m", matrices, [3, 2, 1], ["", "", ""], ["", "", ""])
    _, second, third = traces(section)
    assert second.z.shape == (51, 51)
    expected = correlations(matrices[1])[4:6, 14:16].mean()
    assert second.z[2, 7] == second.z[7, 2] == pytest.approx(expected, abs=0.005)
    expected = correlations(matrices[2])[100, 6:8].mean()
    assert third.z[50, 3] == pytest.approx(expected, abs=0.005)
    assert [label.split(" (")[0] for label in (third.x[3], third.x[50])] == ["6 to 7", "100"]


def test_matrices_without_any_use_and_no_matrices_at_all():
    section = matrices_section("m", spd(2, 2), [0, 0], ["a", "b"], ["", ""])
    assert [row[1] for row in section.data[1:]] == [0, 0]
    assert matrices_section("m", np.empty((0, 3, 3)), [], [], []).charts == []


# --- confusion


def test_confusion_puts_mistakes_in_words():
    counts = np.array([[50, 3, 0], [1, 60, 9], [0, 0, 70]])
    found = {"IDDL": counts, "1-NN": np.eye(3)}
    section = confusion_section("confusion", ["a", "b", "c"], found, remarks={"1-NN": "Better."})
    first, second = section.charts
    assert first.verdict == "IDDL: 180 of 193 are right (93.3%). Most frequent mistakes:"
    assert second.verdict == "1-NN: 3 of 3 are right (100.0%). Better."
    assert second.details == []
    assert first.details == [
        "b predicted as c: 9 of 70",
        "a predicted as b: 3 of 53",
        "b predicted as a: 1 of 70",
    ]
    [cells] = first.figure.data
    assert np.sign(cells.z).tolist() == [[1, -1, 0], [-1, 1, -1], [0, 0, 1]]
    assert cells.hovertext[1][2] == "true: <b>b</b><br>predicted: <b>c</b><br>9 of 70 (12.9%)"
    assert [list(row) for row in section.data] == [
        ["classifier", "true class", "a", "b", "c"],
        *(["IDDL", name, *row] for name, row in zip("abc", counts.tolist(), strict=True)),
        *(["1-NN", name, *row] for name, row in zip("abc", np.eye(3).tolist(), strict=True)),
    ]
    assert "180 of 193 are right" in first.text
    [many] = confusion_section("c", range(9), {"IDDL": np.ones((9, 9))}).charts
    assert len(many.details) == 5
    [nothing] = confusion_section("c", [0, 1], {"IDDL": np.zeros((2, 2))}).charts
    assert nothing.verdict == "IDDL: 0 of 0 are right."


# --- tables


def cells(section):
    content = section.content
    return [*content["shown"], *content["rest"]]


def test_table_cells_hold_text_value_and_style():
    rows = [
        ["a", 0.12345, 7, "x"],
        ["b", None, 12, 3],
        ["c", np.float64(np.inf), np.int64(3), None],
    ]
    section = table_section(
        "table", ["name", "share", "n", "mixed"], rows, bold=[1], formats={"share": ".1%"}
    )
    assert [heading for heading in section.content["headings"] if heading[1]] == [
        ("share", True),
        ("n", True),
    ]
    texts = [[cell["text"] for cell in row] for row in cells(section)]
    missing = "\N{EN DASH}"
    assert texts == [
        ["a", "12.3%", "7", "x"],
        ["b", missing, "12", "3"],
        ["c", "∞%", "3", missing],
    ]
    assert [row[1]["value"] for row in cells(section)] == ["0.12345", "NaN", "Infinity"]
    assert [cell["style"] for cell in cells(section)[1]] == ["b", "n b", "n b", "b"]


@pytest.mark.parametrize("n_rows", [0, 1, 50, 51, 200])
def test_table_parts_rows_in_two(n_rows):
    content = table_section("table", ["n"], [[i] for i in range(n_rows)]).content
    assert len(content["shown"]) == min(n_rows, 50)
    together = [int(row[0]["text"]) for row in content["shown"] + content["rest"]]
    assert together == list(range(n_rows))


def test_disagreement_finds_and_marks_who_is_right():
    truth = np.array(["a", "b", "a", "b"])
    predictions = {"one": np.array(["a", "a", "b", "b"]), "two": np.array(["a", "b", "b", "a"])}
    section = disagreement_section("d", truth, predictions, names=["w", "x", "y", "z"])
    headings = [heading for heading, _ in section.content["headings"]]
    assert headings == ["matrix", "truth", "one", "two"]
    assert [[cell["text"] for cell in row] for row in cells(section)] == [
        list("xbab"),
        list("zbba"),
    ]
    assert [[cell["style"] for cell in row[2:]] for row in cells(section)] == [
        ["wrong", "right"],
        ["right", "wrong"],
    ]
    assert section.note == (
        "They disagree on 2 of 4 matrices. Right predictions for these: one 1, two 1."
    )


# --- words


def test_repeat_writes_times_as_people_do_the_longest_first():
    times = {"fit": 3725.0, "map": 0.05, "read": 59.97}
    section = repeat_section("divlearn demo", "", {}, times)
    assert section.content["stages"] == [
        ("fit", "1 h 2 min", "100.0%"),
        ("read", "1 min 0 s", "1.6%"),
        ("map", "50 ms", "0.0%"),
    ]
    assert repeat_section("divlearn demo", "", {}, {}).content["stages"] == []


def test_text_is_parted_at_empty_lines():
    assert text_section("t", "a\nb\r\n\r\n\n\nc\n").content["paragraphs"] == ["a\nb", "c"]
