"""Matrices in the rows of .csv files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_spd_matrix

from divlearn.cli import main
from divlearn.files import read_spd


def spd(n, d):
    X = np.stack([make_spd_matrix(d, random_state=seed) for seed in range(n)])
    return (X + X.mT) / 2  # symmetric to the last digit, as one triangle is enough for


def triangles(X):
    """Upper triangles row by row, entry by entry."""
    d = X.shape[-1]
    return np.array([[one[i, j] for i in range(d) for j in range(i, d)] for one in X])


def write(path, table, heading="", columns=()):
    """Write numbers with all their digits, and columns of text after them."""
    lines = [
        ",".join([*map(repr, map(float, row)), *texts])
        for row, *texts in zip(table, *columns, strict=True)
    ]
    path.write_text("\n".join([heading] * bool(heading) + lines) + "\n")
    return path


@pytest.mark.parametrize("d", [1, 2, 3, 6, 8])  # 36 columns are whole of size 6, or half of size 8
def test_whole_matrices_and_upper_triangles(tmp_path, d):
    X = spd(5, d)
    for name, table in {"whole": X.reshape(5, -1), "upper": triangles(X)}.items():
        np.testing.assert_array_equal(read_spd(write(tmp_path / f"{name}.csv", table)).matrices, X)


@pytest.mark.parametrize("heading", ["a,b,c", "0,1,2", "1,2,3", '"x, 1",x 2,x 3', "\ufeffa,b,c"])
def test_a_heading_is_no_matrix(tmp_path, heading):
    X = spd(4, 2)
    found = read_spd(write(tmp_path / "data.CSV", triangles(X), heading))
    np.testing.assert_array_equal(found.matrices, X)


def test_columns_of_labels_and_groups(tmp_path):
    X, y, subjects = spd(4, 2), ["2", "1", "2", "1"], ["anna", "anna", "bo", "bo"]
    path = write(tmp_path / "data.csv", triangles(X), "a,b,c,y,subject", (y, subjects))
    found = read_spd(path)
    np.testing.assert_array_equal(found.matrices, X)
    assert found.labels.tolist() == y
    assert found.group_names == ("subject",)
    assert read_spd(path, groups="subject").groups.tolist() == subjects
    path = write(tmp_path / "data.csv", triangles(X), "a,b,c,state", (subjects,))
    assert read_spd(path).labels is None
    assert read_spd(path, labels="state").labels.tolist() == subjects
    path = write(tmp_path / "data.csv", triangles(X), "a,b,c,y,notes", (y, ["odd", "", "", ""]))
    assert read_spd(path).labels.tolist() == y  # other columns may be empty


@pytest.mark.parametrize("heading", ["state,0,1,2", "state,1,2,3", "state,x1,x2,x3"])
def test_headings_that_count_some_columns(tmp_path, heading):
    X = spd(4, 2)
    lines = [
        ",".join([name, *map(repr, row.tolist())])
        for name, row in zip("abab", triangles(X), strict=True)
    ]
    (tmp_path / "data.csv").write_text("\n".join([heading, *lines]))
    found = read_spd(tmp_path / "data.csv", labels="state")
    np.testing.assert_array_equal(found.matrices, X)
    assert found.labels.tolist() == list("abab")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no rows, must have one for each matrix"),
        ("a,b,c\n", "it has no rows, must have one for each matrix"),
        ("1,0,1\n1,0\n", "line 2 has 2 entries, must have 3 as the first one"),
        ("1,0,1\n\n1,,1\n", "line 3, column 2 holds '', must hold a number"),
        ("1;0;1\n1;0;1\n", "it has 0 columns of numbers, must have d * d for whole"),
        ("1,0,1,1,5\n", "it has 5 columns of numbers, must have d * d for whole matrices or"),
        ("rest,2,0,2\nwalk,1,0,1\n", "line 1, column 1 holds rest, must hold a number"),
        ("rest,1\nwalk,2\n", "line 1, column 1 holds rest, must hold a number"),
        ("a,b,c,y\n1,0,1,u\n1,0,1,\n", "y[1] is empty; fill it in, or drop the matrix"),
        ("a,b,c,y,y\n1,0,1,u,v\n", "it holds two arrays named y"),
        ("1,nan,1\n", "matrices[0] has a NaN entry at (0, 1)"),
        ("9" * 200_000 + ",0,1\n", "line 1 cannot be split into cells (field larger than"),
        ('a,b,c,y\n1,0,1,"u\n1,0,1,v\n', "line 3 cannot be split into cells (unexpected end"),
        ('a,b,c,y\n1,0,1,"u\n1,0,1,"v\n', "line 3 cannot be split into cells ("),
        ("a;b;c\n1,5;0;1,5\n", "one matrix per line, with commas between numbers and a point for"),
        ("1,2,1\n", "matrices[0] is indefinite: smallest eigenvalue -1"),
        ("1,0.5,0.4,1\n", "; if this is noise pass (matrices + matrices.mT) / 2"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(ValueError, match=r"^data\.csv: ") as caught:
        read_spd(tmp_path / "data.csv")
    assert message in str(caught.value)


def test_text_in_another_encoding(tmp_path):
    """Spreadsheets write one of Windows unless they are told otherwise."""
    (tmp_path / "data.csv").write_bytes("a,b,c,y\n1,0,1,Füße\n".encode("cp1252"))
    message = r"^data\.csv: byte 15 is not UTF-8; save it as text in UTF-8"
    with pytest.raises(ValueError, match=message):
        read_spd(tmp_path / "data.csv")


def test_the_program_fits_and_predicts(capsys, working_folder):
    X, y = np.concatenate([spd(8, 3), 9 * spd(8, 3)]), ["rest"] * 8 + ["walk"] * 8
    write(Path("data.csv"), triangles(X), "a,b,c,d,e,f,label", (y,))
    write(Path("new.csv"), X.reshape(16, -1))
    assert main(["fit", "data.csv", "--model", "knn", "-o", "m"]) == 0
    assert main(["predict", "m", "new.csv", "-o", "found.csv"]) == 0
    rows = Path("found.csv").read_text().splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == y
