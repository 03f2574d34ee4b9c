"""Several matrices of one image: none is judged by what was learned from its neighbours."""

from __future__ import annotations

import json

import numpy as np
import pytest

from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters

pytestmark = pytest.mark.usefixtures("short_fits", "coarse_maps")
TOGETHER = "Several matrices are of one image: they are held out together."


def write(path, X, y, files):
    np.savez(path, X=X, y=y, files=[f"{number}.png" for number in files])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of which the class is chance, each of near copies; and one image for each class."""
    folder = tmp_path_factory.mktemp("images")
    (images, _), rng = make_wishart_clusters(1, 32, 3, random_state=0), np.random.default_rng(0)
    files = np.repeat(np.arange(32), 4)
    X = images[files] * np.exp(0.01 * rng.standard_normal((len(files), 1, 1)))
    write(folder / "copies.npz", X, files % 2, files)
    X, y = make_wishart_clusters(3, 20, 3, separation=5, random_state=0)
    write(folder / "one_each.npz", X, np.array(["bark", "moss", "sand"])[y], y)
    write(folder / "two_each.npz", X, y, 2 * y + np.arange(60) % 2)
    return folder


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    assert code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("model", ["iddl", "kernel"])
def test_fit_does_not_recognise_the_image(capsys, folder, tmp_path, model):
    arguments = ["fit", folder / "copies.npz", "-o", tmp_path / "m", "--model", model]
    found = json.loads(run(capsys, *arguments, "--json"))
    assert found["kept_together"]
    assert found["held_out_accuracy"] < 0.8


def test_which_does_not_recognise_the_image(capsys, folder):
    found = json.loads(run(capsys, "which", folder / "copies.npz", "--json"))
    assert found["kept_together"]
    assert all(row["score"] < 0.8 for row in found["table"])


COMMANDS = {
    "fit": ["--model", "kernel", "-o"],
    "which": ["--cv", "2"],
    "evaluate": ["--cv", "2", "--only", "1-NN, AIRM"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_said(capsys, folder, tmp_path, command):
    options = [*COMMANDS[command], *[tmp_path / "m"] * (command == "fit")]
    assert run(capsys, command, folder / "two_each.npz", *options).startswith(TOGETHER)
    printed = run(capsys, command, folder / "one_each.npz", *options)
    assert printed.startswith("Class bark has one image only, so matrices of one image are not")
    found = json.loads(run(capsys, command, folder / "one_each.npz", *options, "--json"))
    assert not found["kept_together"]


def test_what_holds_nothing_out_says_nothing_of_images(capsys, folder, tmp_path):
    arguments = ["fit", folder / "copies.npz", "-o", tmp_path / "m", "--model", "knn"]
    assert run(capsys, *arguments).startswith("DivergenceKNN learned 2 classes")
