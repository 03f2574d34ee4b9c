"""Images that cannot be read, among those to describe."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from divlearn.cli import main

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")


@pytest.fixture
def images(working_folder):
    """Write eight images of two classes; return their paths."""
    rng, paths = np.random.default_rng(0), []
    for name in ("rough", "smooth"):
        Path("images", name).mkdir(parents=True)
        for number in range(4):
            paths.append(Path("images", name, f"{number}.png"))
            pixels = rng.integers(256, size=(24, 24)).astype(np.uint8)
            Image.fromarray(pixels).save(paths[-1])
    return paths


def describe(capsys, output, *options):
    code = main(["describe", "images", "-o", output, *options])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_only_they_are_skipped(capsys, images):
    code, printed, _ = describe(capsys, "all.npz", "--skip-broken")
    assert code == 0
    assert "Skipped" not in printed
    images[1].write_bytes(images[1].read_bytes()[:200])  # truncated
    images[5].write_text("no image")
    images[6].unlink()
    images[6].symlink_to("nowhere.png")
    code, _, complaint = describe(capsys, "some.npz")
    assert code == 1
    assert complaint.startswith(f"divlearn: {images[1]}: the file is damaged")
    assert not Path("some.npz").exists()
    code, printed, complaint = describe(capsys, "some.npz", "--skip-broken")
    assert code == 0
    assert not complaint
    assert f"Skipped: {images[1]}: the file is damaged" in printed
    assert f"Skipped: {images[5]}: its content is not the PNG image that its suffix" in printed
    assert "5 matrices of size 5 from 5 images of 2 classes" in printed
    whole = [0, 2, 3, 4, 7]
    with np.load("all.npz") as everything, np.load("some.npz") as some:
        for name in ("X", "y", "files"):
            np.testing.assert_array_equal(some[name], everything[name][whole])
    found = json.loads(describe(capsys, "some.npz", "--skip-broken", "--json")[1])
    assert list(found["broken"]) == [str(images[place]) for place in (1, 5, 6)]
    assert found["n_images"] == 5


def test_many_are_counted(capsys, images):
    for number in range(12):
        Path("images", "rough", f"broken {number}.png").write_text("no image")
    code, printed, _ = describe(capsys, "some.npz", "--skip-broken")
    assert code == 0
    assert printed.count("Skipped: ") == 10
    assert "... and 2 more, which --json lists\n" in printed


def test_one_must_be_whole(capsys, images):
    for path in images:
        path.write_text("no image")
    code, _, complaint = describe(capsys, "some.npz", "--skip-broken")
    assert code == 1
    assert "no image of 8 can be read, >= 1 must be; the first one: " in complaint
    assert not Path("some.npz").exists()


def test_an_image_that_is_constant_is_named(capsys, images):
    Image.new("L", (24, 24)).save(images[2])
    code, _, complaint = describe(capsys, "some.npz", "--skip-broken")
    assert code == 1
    assert f"{images[2]} has no feature that varies in the box (0, 0, 24, 24)" in complaint
