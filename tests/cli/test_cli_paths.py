"""What commands write never destroys what they read, each other, or what is no file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest

import divlearn
from divlearn.atomic import open_atomic
from divlearn.cli import main
from divlearn.datasets import load_spd, make_wishart_clusters
from divlearn.nearest import DivergenceKNN


@pytest.fixture
def folder(working_folder):
    """Folder to work in: data, a model, and other names for the data."""
    X, y = make_wishart_clusters(2, 6, 2, separation=5, random_state=0)
    np.savez("X.npz", X=X, y=y)
    np.save("groups.npy", np.arange(12) % 4)
    divlearn.save(DivergenceKNN(1, "airm").fit(X, y), "model")
    os.link("X.npz", "hard.npz")
    os.symlink("X.npz", "soft.npz")
    os.symlink("new", "page.html")
    os.mkdir("sub")
    os.mkfifo("pipe")
    # A terminal of its own is a device that no failing test can take from others.
    ends = os.openpty()
    os.symlink(os.ttyname(ends[1]), "device")
    yield working_folder
    for end in ends:
        os.close(end)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


FIT = ["fit", "X.npz", "--model", "knn"]
REFUSED = {
    "data": [*FIT, "-o", "X.npz"],
    "relative name": [*FIT, "-o", "sub/../X.npz"],
    "hard link": [*FIT, "-o", "hard.npz"],
    "soft link": [*FIT, "-o", "soft.npz"],
    "data through a link": ["fit", "soft.npz", "--model", "knn", "-o", "X.npz"],
    "groups": [*FIT, "--groups", "groups.npy", "-o", "groups.npy"],
    "report": [*FIT, "-o", "m.html", "--report", "m.html"],
    "report, new": [*FIT, "-o", "new/m.html", "--report", "sub/../new/m.html"],
    "report, link to nothing": [*FIT, "-o", "new", "--report", "page.html"],
    "checkpoint": [*FIT, "-o", "w", "--checkpoint", "w"],
    "checkpoint is data": [*FIT, "-o", "w", "--checkpoint", "X.npz", "--resume"],
    "checkpoint and report": [*FIT, "-o", "w", "--checkpoint", "c.html", "--report", "c.html"],
    "predictions": ["predict", "model", "X.npz", "-o", "X.npz"],
    "predictions on the model": ["predict", "model", "X.npz", "-o", "./model"],
    "clusters": ["cluster", "X.npz", "-k", "2", "-o", "X.npz"],
    "cluster report": ["cluster", "X.npz", "-k", "2", "-o", "c.html", "--report", "c.html"],
    "which": ["which", "X.npz", "--report", "X.npz"],
    "evaluate": ["evaluate", "X.npz", "--report", "soft.npz"],
    "demo": ["demo", "-o", "d.png", "--report", "d.png"],
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
def test_the_same_file_twice(capsys, folder, arguments):
    before = contents(folder)
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert not printed.out
    assert " are the same file; choose another --" in printed.err
    assert contents(folder) == before


def test_the_message_names_both_options_and_the_fix(capsys, folder):
    main(["fit", "X.npz", "-o", "m", "--checkpoint", "./m"])
    assert capsys.readouterr().err == (
        "divlearn: --checkpoint m and --output m are the same file; choose another --checkpoint\n"
    )
    main(["predict", "model", "soft.npz", "-o", "hard.npz"])
    assert capsys.readouterr().err == (
        "divlearn: --output hard.npz and DATA soft.npz are the same file; choose another --output\n"
    )


@pytest.mark.parametrize("option", ["--output", "--checkpoint", "--report"])
def test_what_is_no_file_stays_what_it_is(capsys, folder, option):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.html")
        os.rename("pipe", "pipe.html")
        os.rename("device", "device.html")
        os.mkdir("folder.html")
        for name in ("socket", "pipe", "device", "folder"):
            assert main([*FIT, option, f"{name}.html"]) == 1
            kind = "folder" if name == "folder" else "device, pipe or socket"
            assert f"{option} {name}.html is a {kind}, must be a file" in capsys.readouterr().err
        assert Path("socket.html").is_socket()
        assert Path("pipe.html").is_fifo()
        assert Path("device.html").is_char_device()
    assert not Path("X.divlearn").exists()


def test_an_output_inside_another(capsys, folder):
    assert main([*FIT, "-o", "new", "--report", "new/page.html"]) == 1
    assert "--report new/page.html lies in --output new;" in capsys.readouterr().err
    assert main(["demo", "-o", "new/a.png/plane.png", "--report", "new/a.png"]) == 1
    assert "--output new/a.png/plane.png lies in --report new/a.png" in capsys.readouterr().err
    assert not Path("new").exists()


def test_links_that_lead_in_circles(capsys, folder):
    os.symlink("one", "other")
    os.symlink("other", "one")
    assert main([*FIT, "-o", "one"]) == 1
    assert "--output one cannot be written" in capsys.readouterr().err


def test_images_are_not_replaced(capsys, folder):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    for name in ("bark", "moss"):
        Path("images", name).mkdir(parents=True)
        pixels = np.random.default_rng(0).integers(0, 255, (32, 32), dtype=np.uint8)
        image.fromarray(pixels).save(Path("images", name, "1.png"))
    before = contents(Path("images/bark"))
    os.symlink("images/bark/1.png", "link.npz")
    assert main(["describe", "images", "-o", "link.npz"]) == 1
    assert "and the image images/bark/1.png are the same file" in capsys.readouterr().err
    assert contents(Path("images/bark")) == before
    for _ in range(2):  # what is no image may be replaced, also in the folder
        assert main(["describe", "images", "-o", "images/matrices.npz"]) == 0


@pytest.mark.parametrize("name", ["pipe", "device"])
def test_the_library_replaces_no_device(folder, name):
    with pytest.raises(ValueError, match="is a device, pipe or socket, must be a file"):
        divlearn.save(DivergenceKNN(), name)
    with (
        pytest.raises(ValueError, match="is a device, pipe or socket, must be a file"),
        open_atomic(Path(name)),
    ):
        raise AssertionError("it was opened")
    assert not Path(name).is_file()
    with pytest.raises(IsADirectoryError, match="sub is a folder, must be a file"):
        divlearn.save(DivergenceKNN(), "sub")


# ------------------------------------------------------------------ models and data


def test_models_are_no_data(capsys, folder):
    X, _ = make_wishart_clusters(2, 6, 2, random_state=0)
    divlearn.save(divlearn.ABKMeans(3, random_state=0).fit(X), "clusters.npz")
    message = "clusters.npz: it is a model or a checkpoint of divlearn, must be data"
    for arguments in (
        ["doctor"],
        ["which"],
        ["fit", "-o", "m"],
        ["evaluate"],
        ["cluster", "-k", "2"],
        ["predict", "model"],
    ):
        assert main([*arguments, "clusters.npz"]) == 1
        printed = capsys.readouterr()
        assert message in printed.err
        assert not printed.out
    with pytest.raises(ValueError, match=message):
        load_spd("clusters.npz")


def test_data_are_no_models(capsys, folder):
    np.save("X.npy", np.load("X.npz")["X"])
    for name in ("X.npz", "X.npy"):
        assert main(["predict", name, "X.npz"]) == 1
        complaint = capsys.readouterr().err
        assert f"{name}: it holds arrays, as data does, and is not a model of divlearn" in complaint
