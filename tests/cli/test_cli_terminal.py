"""Text from files and names of files, on terminals of every kind and in reports."""

from __future__ import annotations

import csv
import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters
from divlearn.report import Page
from divlearn.report.sections import table_section
from divlearn.text import harmless

STRANGE = "sand\x1b[31m\r\n\x9b2J\u202e"


def write(path, *names):
    X, y = make_wishart_clusters(len(names), 6, 2, separation=5, random_state=0)
    labels = np.array(names)[y]
    np.savez(path, X=X, y=labels, files=[f"{name}/{i}.png" for i, name in enumerate(labels)])


@pytest.fixture
def folder(working_folder):
    write("strange.npz", "moss", STRANGE)
    write("umlaut.npz", "moss", "m\u00fcsli \ud800")


def run(capsys, *arguments):
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out + printed.err


@pytest.mark.parametrize("text", ["plain text", "M\u00fcsli", "\u4e2d\u3000\u6587", "a\u00a0b"])
def test_what_can_be_seen_stays(text):
    assert harmless(text) == text


def test_what_commands_a_terminal_is_escaped():
    assert harmless("a\nb\x1b[2J\x07\t") == "a\nb\\x1b[2J\\x07\\t"
    assert harmless("a\nb\u202e\x9b", keep="") == "a\\nb\\u202e\\x9b"
    assert harmless("\ud800") == "\\ud800"


def test_escape_bytes_never_reach_the_terminal(capsys, folder):
    for arguments in (
        ["doctor", "strange.npz"],
        ["fit", "strange.npz", "--model", "knn", "-o", "m\x1b[31m"],
        ["predict", "m\x1b[31m", "strange.npz", "-o", "said.csv"],
        ["evaluate", "strange.npz", "--only", "1-NN, AIRM", "--cv", "2"],
        ["doctor", "no\x1b[31mwhere.npz"],
        ["which", "strange.npz", "--matrices", "\x1b[31m"],
        ["fit", "strange.npz", "-o", "m", "--model", "\x1b[31m"],
    ):
        code, said = run(capsys, *arguments)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said), arguments
        assert code == (0 if Path(arguments[1]).exists() and arguments[-1] != "\x1b[31m" else 1)
    with Path("said.csv").open(newline="", encoding="utf-8") as file:  # a file has it as it is
        assert {row["predicted"] for row in csv.DictReader(file)} == {"moss", STRANGE}


def test_a_label_is_one_row_of_a_table(capsys, folder):
    _, said = run(capsys, "doctor", "strange.npz")
    [row] = [line for line in said.splitlines() if "sand" in line]
    assert row.split() == [r"sand\x1b[31m\r\n\x9b2J\u202e", "6"]


def test_reports_hold_no_control_characters(capsys, folder):
    pytest.importorskip("plotly", reason="plotly is not installed")
    arguments = ["cluster", "strange.npz", "-k", "2", "--report", "page.html"]
    code, said = run(capsys, *arguments)
    assert code == 0, said
    table = table_section("Names", ["name"], [[STRANGE]])
    for page in (Path("page.html").read_text(encoding="utf-8"), Page("x", "x", [table]).html()):
        assert "sand" in page
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
        assert r"sand\x1b[31m\r\n\x9b2J\u202e".replace(r"\n", "\n") in page


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_label_on_every_terminal(folder, encoding):
    written = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(written, encoding=encoding)) as terminal:
        assert main(["doctor", "umlaut.npz"]) == 0
        assert main(["fit", "umlaut.npz", "--model", "knn", "-o", "m"]) == 0
        assert main(["predict", "m", "umlaut.npz", "-o", "said.csv"]) == 0
        terminal.flush()
    shown = "m\\xfcsli" if encoding == "ascii" else "m\u00fcsli"
    assert f"{shown} \\ud800" in written.getvalue().decode(encoding)


@pytest.mark.parametrize("columns", ["1", "5", "80"])
def test_narrow_terminals_show_everything(capsys, folder, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    write("plain.npz", "moss", 100 * "sand")
    code, said = run(capsys, "doctor", "plain.npz")
    assert code == 0
    rows = [line.split() for line in said.splitlines()]
    assert ["class", "matrices"] in rows
    assert ["moss", "6"] in rows
    assert [100 * "sand", "6"] in rows


@pytest.mark.parametrize("name", ["my model", "-m", "it's", "$HOME"])
def test_the_hint_can_be_pasted(capsys, folder, name):
    write("plain.npz", "moss", "sand")
    code, said = run(capsys, "fit", "plain.npz", "--model", "knn", f"--output={name}")
    assert code == 0
    program, *arguments = shlex.split(re.search(r"To use it: (.*) NEW\.npz", said)[1])
    assert program == "divlearn"
    code, said = run(capsys, *arguments, "plain.npz")
    assert code == 0, said
    assert "% of 12 predictions agree with the labels." in said


def test_the_hint_of_describe_can_be_pasted(capsys, folder):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    for name in ("bark", "moss"):
        Path("images", name).mkdir(parents=True)
        for number in range(2):
            pixels = np.random.default_rng(number).integers(0, 255, (32, 32), dtype=np.uint8)
            image.fromarray(pixels).save(Path("images", name, f"{number}.png"))
    code, said = run(capsys, "describe", "images", "--output=-my data.npz")
    assert code == 0
    arguments = shlex.split(re.search(r"Next: divlearn (.*) --report", said)[1])
    assert run(capsys, *arguments, "--model", "knn")[0] == 0
