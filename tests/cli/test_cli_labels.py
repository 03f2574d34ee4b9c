"""Labels in a file of their own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from divlearn import load
from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters

pytestmark = pytest.mark.usefixtures("short_fits", "coarse_maps")
NAMES = np.array(["rest", "walk"])


@pytest.fixture
def classes(working_folder):
    """Write matrices, once with labels and once without, and the labels alone in four files."""
    X, y = make_wishart_clusters(2, 12, 3, separation=2, random_state=0)
    order = np.random.default_rng(0).permutation(24)  # a file that is ignored gives other results
    X, y = X[order], NAMES[y][order]
    np.savez("labelled.npz", X=X, y=y)
    np.save("plain.npy", X)
    np.savez("other.npz", X=X, y=np.roll(y, 5), label=np.arange(24))
    np.save("labels.npy", y)
    np.savez("labels.npz", y=y, age=np.arange(24))
    Path("labels.txt").write_text("\n".join(y))
    Path("labels.csv").write_text("state\n" + "\n".join(y) + "\n")
    return y


def run(capsys, *arguments):
    code = main(list(arguments))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def run_json(capsys, *arguments):
    return json.loads(run(capsys, *arguments, "--json"))


@pytest.mark.parametrize("file", ["labels.npy", "labels.npz", "labels.txt", "labels.csv"])
def test_every_kind_of_file_is_read(capsys, classes, file):
    found = run_json(capsys, "doctor", "plain.npy", "--labels", file)
    assert found["classes"] == {"rest": 12, "walk": 12}
    run(capsys, "fit", "plain.npy", "--labels", file, "--model", "knn", "-o", "m")
    assert run_json(capsys, "predict", "m", "plain.npy")["predicted"] == classes.tolist()


def test_commands_take_them_as_labels_of_the_data(capsys, classes):
    for command in (
        ["which", "--cv", "2"],
        ["evaluate", "--only", "1-NN, AIRM", "--cv", "3"],
        ["cluster", "-k", "2", "--method", "log-euclidean"],
    ):
        inside = run_json(capsys, *command, "labelled.npz")
        beside = run_json(capsys, *command, "plain.npy", "--labels", "labels.csv")
        for found in (inside, beside):
            for row in found.get("classifiers", []):
                del row["seconds"]
        assert beside == inside


def test_predict_compares_with_them(capsys, classes):
    run(capsys, "fit", "labelled.npz", "--model", "knn", "-o", "m")
    found = run_json(capsys, "predict", "m", "plain.npy", "--labels", "labels.txt")
    assert found["accuracy"] == 1


def test_numbers_agree_however_they_are_written(capsys, classes):
    codes = np.flatnonzero(classes[:, None] == NAMES) % 2
    np.savez("coded.npz", X=np.load("plain.npy"), y=codes)
    Path("floats.txt").write_text("\n".join(map(str, codes.astype(float))))
    np.save("flags.npy", codes == 1)
    run(capsys, "fit", "coded.npz", "--model", "knn", "-o", "m")
    for file, accuracy in (("floats.txt", 1), ("flags.npy", 1), ("labels.txt", 0)):
        found = run_json(capsys, "predict", "m", "plain.npy", "--labels", file)
        assert found["accuracy"] == accuracy


def test_they_replace_those_of_the_data(capsys, classes):
    run(capsys, "fit", "other.npz", "--labels", "labels.txt", "--model", "mdm", "-o", "m")
    assert load("m").classes_.tolist() == ["rest", "walk"]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("no.txt", "no.txt: No such file"),
        ("short.txt", "it has 2 entries in 2 lines, must have one for each of 24 matrices; save"),
        ("short.npy", "matrices (3,) int64 must have one label for each of 24 matrices; save labe"),
        ("headed.csv", "headed.csv: it has 23 entries in 23 lines, must have one for each of 24 m"),
        ("gap.csv", "gap.csv: it has 23 entries in 24 lines, must have one for each of 24 matric"),
        ("named.csv", "named.csv: it has 23 entries in 23 lines, must have one for each of 24 mat"),
        ("wide.csv", "wide.csv: it has 2 columns, must have one; save the labels alone"),
        (
            "quoted.csv",
            "quoted.csv: line 24 cannot be split into cells (unexpected end of data); cl",
        ),
        ("plain.npz", "plain.npz: it holds a (24,) int64, b (24,) int64, must hold one array"),
    ],
)
def test_labels_that_cannot_be_used(capsys, classes, file, message):
    Path("short.txt").write_text("a\nb\n")
    np.save("short.npy", np.arange(3))
    Path("headed.csv").write_text("state\n" + "1\n2.5\n" * 11 + "1\n")  # not 24 with its heading
    Path("gap.csv").write_text("state\na\n\n" + "b\n" * 22)  # nor with the heading for the gap
    Path("named.csv").write_text("label\n" + "a\n" * 23)
    Path("wide.csv").write_text("a,b\n" * 24)
    Path("quoted.csv").write_text("a\n" * 23 + '"a')
    np.savez("plain.npz", a=np.arange(24), b=np.arange(24))
    assert main(["fit", "plain.npy", "--labels", file, "-o", "m"]) == 1
    complaint = capsys.readouterr().err
    assert message in complaint
    assert len(complaint.splitlines()) == 1
    assert not Path("m").exists()


def test_a_model_does_not_replace_them(capsys, classes):
    assert main(["fit", "plain.npy", "--labels", "labels.txt", "-o", "labels.txt"]) == 1
    assert (
        "--output labels.txt and --labels labels.txt are the same file" in capsys.readouterr().err
    )
