"""Sections of the report: what they make of what they are given."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from report_pages import GRID, plane_values, spd

from divlearn.report.page import plain
from divlearn.report.planes import plane_section
from divlearn.report.sections import (
    atoms_section,
    confusion_section,
    curves_section,
    disagreement_section,
    repeat_section,
    table_section,
    text_section,
)

# --- the plane


def plane(**options):
    return plane_section("plane", GRID, GRID, plane_values(), "accuracy", **options).content


def test_plane_has_alpha_along_rows_of_values():
    content = plane()
    for row, beta in enumerate(GRID):
        for column, alpha in enumerate(GRID):
            assert content["values"][row][column] == (alpha + beta**2) / 8


def test_points_of_the_plane_get_the_value_of_their_cell():
    learned = [(1.1, 0.4, "inside"), (9.0, 0.0, "outside"), (np.nan, 1.0, "lost")]
    content = plane(learned=learned)
    assert {"name": "Burg", "alpha": 0.0, "beta": 1.0, "value": "12.5%"} in content["named"]
    assert [point["value"] for point in content["learned"]] == ["15.6%", "", ""]
    assert [0, 2, "Burg"] in content["cells"]
    assert plain(content)["learned"][2]["alpha"] is None


def test_learned_points_of_one_place_are_shown_as_one():
    learned = [(1.0, 0.5, f"atom {i}") for i in range(5)] + [(1.0002, 0.5, "atom 5"), (1, 1, "b")]
    points = plane(learned=learned)["learned"]
    assert [(point["alpha"], point["beta"], point["name"]) for point in points] == [
        (1.0, 0.5, "atom 0, atom 1, atom 2 and 3 more"),
        (1.0, 1.0, "b"),
    ]


def test_all_of_the_plane_is_in_sight():
    inside = plane(learned=[(2.0, 0.0, "corner")])["extent"]
    assert inside == [[-0.25, 2.25], [-0.25, 2.25]]
    (low, high), vertical = plane(learned=[(9.0, 1.0, ""), (np.inf, 1.0, "")])["extent"]
    assert low == -0.25
    assert 9 < high < 10
    assert vertical == inside[1]


def test_plane_without_a_map_shows_points_alone():
    content = plane_section("plane", learned=[(3.0, 1.0, "atom")]).content
    assert plain(content)["values"] == []
    assert [name["value"] for name in content["named"]] == [""] * 5
    (low, high), _ = content["extent"]
    assert low < 0
    assert high > 3


def test_floor_of_the_plane_keeps_colours_for_what_lies_above():
    assert plane()["range"] is None
    assert plane(floor=0.25)["range"] == [0.25, 0.75]
    assert plane(floor=-1.0)["range"] == [0.0, 0.75]
    assert plane(floor=2.0)["range"] is None  # nothing would be left


# --- curves


def test_curves_keep_places_heights_and_axes():
    section = curves_section("c", {"a": [3, 2]}, second={"b": [[5, 7], [0.1, np.nan]]})
    first, second = plain(section.content)["curves"]
    assert first == {"name": "a", "x": [0, 1], "y": [3.0, 2.0], "second": False}
    assert second == {"name": "b", "x": [5.0, 7.0], "y": [0.1, None], "second": True}


# --- atoms


def read_pixels(content, n_atoms):
    levels = np.frombuffer(base64.b64decode(content["pixels"]), np.uint8).reshape(n_atoms, -1)
    size = len(content["starts"])
    full = np.zeros((n_atoms, size, size))
    rows, columns = np.triu_indices(size)
    full[:, rows, columns] = full[:, columns, rows] = (levels.astype(float) - 127) / 127
    return full


def test_atoms_come_by_use_with_their_correlations_and_scales():
    atoms, uses = spd(5, 6), np.array([1.0, 5.0, 0.0, 5.0, 9.0])
    content = atoms_section("atoms", atoms, uses, list("abcde")).content
    assert content["numbers"].tolist() == [4, 1, 3, 0, 2]
    assert content["texts"] == list("ebdac")
    assert content["uses"] == pytest.approx(uses[content["numbers"]] / 20)
    pixels = read_pixels(content, 5)
    for place, number in enumerate(content["numbers"]):
        deviations = np.sqrt(np.diag(atoms[number]))
        expected = np.diag(1 / deviations) @ atoms[number] @ np.diag(1 / deviations)
        assert np.abs(pixels[place] - expected).max() <= 0.5 / 127 + 1e-12
        assert content["scales"][place] == pytest.approx(deviations, rel=5e-3)


def test_large_atoms_are_shown_as_means_of_blocks():
    atoms = spd(3, 101)
    content = atoms_section("atoms", atoms, [3, 2, 1], ["", "", ""]).content
    assert content["size"] == 101
    assert content["starts"].tolist() == list(range(0, 101, 2))
    deviations = np.sqrt(np.einsum("nii->ni", atoms))
    correlations = atoms / deviations[:, :, None] / deviations[:, None, :]
    pixels = read_pixels(content, 3)
    assert pixels[1, 2, 7] == pytest.approx(correlations[1, 4:6, 14:16].mean(), abs=0.5 / 127)
    assert pixels[2, 50, 3] == pytest.approx(correlations[2, 100, 6:8].mean(), abs=0.5 / 127)
    assert content["scales"][0][50] == pytest.approx(deviations[0, 100], rel=5e-3)


def test_atoms_without_any_use_and_no_atoms_at_all():
    content = atoms_section("atoms", spd(2, 2), [0, 0], ["", ""]).content
    assert content["uses"].tolist() == [0, 0]
    assert atoms_section("atoms", np.empty((0, 3, 3)), [], []).content["pixels"] == ""


# --- confusion


def test_confusion_puts_mistakes_in_words():
    counts = np.array([[50, 3, 0], [1, 60, 9], [0, 0, 70]])
    content = confusion_section("confusion", ["a", "b", "c"], counts).content
    assert content["right"] == "180 of 193 are right (93.3%)"
    assert content["mistakes"] == [
        "b predicted as c: 9 of 70",
        "a predicted as b: 3 of 53",
        "b predicted as a: 1 of 70",
    ]
    assert len(confusion_section("c", range(9), np.ones((9, 9))).content["mistakes"]) == 5
    assert confusion_section("c", [0, 1], np.zeros((2, 2))).content["right"] == "0 of 0 are right"


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
    texts = [[cell.text for cell in row] for row in cells(section)]
    missing = "\N{EN DASH}"
    assert texts == [
        ["a", "12.3%", "7", "x"],
        ["b", missing, "12", "3"],
        ["c", "∞%", "3", missing],
    ]
    assert [row[1].value for row in cells(section)] == ["0.12345", "NaN", "Infinity"]
    assert [cell.style for cell in cells(section)[1]] == ["b", "n b", "n b", "b"]


@pytest.mark.parametrize("n_rows", [0, 1, 50, 51, 200])
def test_table_parts_rows_in_two(n_rows):
    content = table_section("table", ["n"], [[i] for i in range(n_rows)]).content
    assert len(content["shown"]) == min(n_rows, 50)
    together = [int(row[0].text) for row in content["shown"] + content["rest"]]
    assert together == list(range(n_rows))


def test_disagreement_finds_and_marks_who_is_right():
    truth = np.array(["a", "b", "a", "b"])
    predictions = {"one": np.array(["a", "a", "b", "b"]), "two": np.array(["a", "b", "b", "a"])}
    section = disagreement_section("d", truth, predictions, names=["w", "x", "y", "z"])
    headings = [heading for heading, _ in section.content["headings"]]
    assert headings == ["matrix", "truth", "one", "two"]
    assert [[cell.text for cell in row] for row in cells(section)] == [list("xbab"), list("zbba")]
    assert [[cell.style for cell in row[2:]] for row in cells(section)] == [
        ["wrong", "right"],
        ["right", "wrong"],
    ]
    assert section.note == (
        "They disagree on 2 of 4 matrices. Right predictions for these: one 1, two 1."
    )


# --- words


def test_repeat_writes_times_as_people_do():
    times = {"fit": 3725.0, "map": 0.05, "read": 59.97}
    section = repeat_section("divlearn demo", "", {}, times)
    assert [stage[1:] for stage in section.content["stages"]] == [
        ("1 h 2 min", "100.0%"),
        ("50 ms", "0.0%"),
        ("1 min 0 s", "1.6%"),
    ]
    assert repeat_section("divlearn demo", "", {}, {}).content["stages"] == []


def test_text_is_parted_at_empty_lines():
    assert text_section("t", "a\nb\r\n\r\n\n\nc\n").content["paragraphs"] == ["a\nb", "c"]
