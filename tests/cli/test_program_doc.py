"""The examples of docs/program.md do what is written there."""

from __future__ import annotations

import doctest
import re
import shlex
import sys
from pathlib import Path

import pytest

from divlearn.cli import main
from divlearn.judge import NAMED

PAGE = Path(__file__).parents[2] / "docs" / "program.md"
COMMANDS = ("demo", "describe", "doctor", "which", "fit", "predict", "evaluate", "cluster")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SIDE, ACROSS = 32, 16  # pixels of an image, and images in a row of a photograph

for module in ("PIL", "skimage", "plotly", "matplotlib"):
    pytest.importorskip(module, reason=f"{module} is not installed")


def examples(text: str) -> list[tuple[str, str]]:
    """Commands of all blocks of a console, and what each prints."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def write_images(folder: Path) -> None:
    """Write parts of the photographs that ship with scikit-image."""
    from PIL import Image
    from skimage import data

    for name in ("brick", "grass", "gravel"):
        pixels = getattr(data, name)()
        for number in range(4, 36):
            part = folder / ("photographs" if number < 28 else "new") / name
            part.mkdir(parents=True, exist_ok=True)
            top, left = (SIDE * place for place in divmod(number, ACROSS))
            image = Image.fromarray(pixels[top : top + SIDE, left : left + SIDE])
            image.save(part / f"{number:02}.png")


def check_demo(printed: str, folder: Path) -> None:
    """What the page leaves out."""
    from matplotlib.image import imread

    for part in (*NAMED, "nearest mean, AIRM", "SVM, learned divergence"):
        assert part in printed
    right = dict(re.findall(r"^ (.+?) {2,}(\d+\.\d)% \+-", printed, re.MULTILINE))
    fixed = [float(right[f"nearest mean, {name}"]) for name in ("Burg", "AIRM", "log-cosh")]
    story = [*fixed, float(right["SVM, learned divergence"])]
    assert story == sorted(story)
    said = " ".join(printed.split())
    assert re.search(r"has an accuracy of \d+\.\d% \+- \d+\.\d% on 360 held-out matrices", said)
    assert "\x1b" not in printed  # piped, so no colours
    page = (folder / "report.html").read_text()
    for part in ("Named divergences", "Classifiers", "Confusion matrix", "divlearn demo"):
        assert part in page
    height, width = imread(folder / "plane.png").shape[:2]
    assert 900 <= width <= 2000
    assert 700 <= height <= 2000


def test_examples_are_found():
    text = "words\n```console\n$ one\n1\n2\n$ two\n```\n```python\n$ three\n```\n"
    assert examples(text) == [("one", "1\n2\n"), ("two", "")]
    shown = [
        command.split()[1] for command, _ in examples(PAGE.read_text()) if "divlearn" in command
    ]
    assert set(shown) >= set(COMMANDS)


@pytest.mark.usefixtures("short_fits", "coarse_maps")
def test_the_page_is_right(working_folder, monkeypatch, capsys):
    write_images(working_folder)
    monkeypatch.setenv("COLUMNS", "100")
    checker, code = doctest.OutputChecker(), 0
    for command, expected in examples(PAGE.read_text()):
        if command == "echo $?":
            printed = f"{code}\n"
        else:
            program, *arguments = shlex.split(command)
            assert program == "divlearn"
            monkeypatch.setattr(sys, "argv", [program, *arguments])
            code = main(arguments)
            captured = capsys.readouterr()
            printed = captured.out + captured.err
        assert checker.check_output(expected, printed, FLAGS), f"$ {command}\n{printed}"
        if command.startswith("divlearn demo"):
            check_demo(printed, working_folder / "demo")
        elif "--report" in command:
            page = arguments[arguments.index("--report") + 1]
            assert command.split(" --")[0] in (working_folder / page).read_text()
    for name in ("report", "which", "evaluation", "groups", "demo/report"):
        assert (working_folder / f"{name}.html").stat().st_size > 10_000
    assert len((working_folder / "predictions.csv").read_text().splitlines()) == 25
