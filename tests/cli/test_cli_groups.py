"""Groups of matrices: named on the command line, offered where a file has them, read once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from divlearn import load
from divlearn.cli import main
from divlearn.datasets import dataset, load_spd, make_wishart_clusters
from divlearn.files import stacks
from divlearn.fitting import checkpoint
from divlearn.judge import evaluate, which_divergence
from divlearn.judge.evaluation import held_out_predictions
from divlearn.nearest import DivergenceKNN

pytestmark = pytest.mark.usefixtures("short_fits", "coarse_maps")
SUBJECTS = np.repeat(np.arange(16), 4)


@pytest.fixture(scope="module")
def data():
    """Near copies of 16 matrices, of which the class is chance: only leaks can tell it."""
    (X, _), rng = make_wishart_clusters(1, 16, 3, random_state=0), np.random.default_rng(0)
    return X[SUBJECTS] * np.exp(0.01 * rng.standard_normal((64, 1, 1))), SUBJECTS % 2


@pytest.fixture
def folder(working_folder, data):
    X, y = data
    np.savez("named.npz", X=X, y=y, subject=SUBJECTS)
    np.savez("plain.npz", X=X, y=y)
    names = [f"s{number:02}" for number in SUBJECTS]
    np.save("subjects.npy", SUBJECTS)
    np.savez("subjects.npz", SUBJECTS)
    np.savez("several.npz", subject=names, age=np.arange(64))
    Path("subjects.txt").write_text("\n".join(names) + "\n")
    Path("subjects.csv").write_text("subject\n" + "\n".join(names) + "\n")
    Path("bare.csv").write_text("\ufeff" + "\n".join(names) + "\n", encoding="utf-8")
    return working_folder


def run(capsys, *arguments):
    code = main(list(arguments))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


GROUPS = [
    ("named.npz", "subject"),
    ("plain.npz", "subjects.npy"),
    ("plain.npz", "subjects.npz"),
    ("plain.npz", "several.npz"),
    ("plain.npz", "subjects.txt"),
    ("plain.npz", "subjects.csv"),
    ("plain.npz", "bare.csv"),
    ("named.npz", "./subjects.txt"),
]


@pytest.fixture(scope="module")
def expected(data):
    chosen = {"1-NN": DivergenceKNN(1, "airm")}
    together, apart = (
        evaluate(*data, chosen, cv=4, groups=groups).table()[0].accuracy
        for groups in (SUBJECTS, None)
    )
    assert together < 0.8 < apart
    return together


@pytest.mark.parametrize(("file", "groups"), GROUPS)
def test_every_way_to_name_them_gives_the_same(capsys, folder, expected, file, groups):
    options = ["--groups", groups, "--only", "1-NN, AIRM", "--cv", "4", "--json"]
    found = json.loads(run(capsys, "evaluate", file, *options))
    assert found["kept_together"]
    [row] = found["classifiers"]
    assert row["accuracy"] == pytest.approx(expected, abs=1e-12)


def test_which_and_fit_pass_them_on(capsys, folder, data):
    options = ["named.npz", "--groups", "subject"]
    found = json.loads(run(capsys, "which", *options, "--cv", "4", "--json"))
    answer = which_divergence(*data, groups=SUBJECTS, cv=4, random_state=0)
    assert answer.score < 0.8 < which_divergence(*data, cv=4, random_state=0).score
    assert found["kept_together"]
    scores = {row["name"]: row["score"] for row in found["table"]}
    assert scores == pytest.approx({row["name"]: row["score"] for row in answer.table()})
    assert found["score"] == pytest.approx(answer.score)
    printed = run(capsys, "fit", *options, "--model", "kernel", "-o", "m")
    assert printed.startswith("Folds keep the 16 groups of 'subject' together.")
    found = held_out_predictions(load("m"), data[1])
    assert found.accuracy(found.best) < 0.8


def test_a_model_that_holds_nothing_out_says_so(capsys, folder):
    printed = run(capsys, "fit", "named.npz", "--groups", "subject", "--model", "knn", "-o", "m")
    assert printed.startswith("DivergenceKNN holds nothing out: --groups has no effect.")


def test_clusters_are_compared_with_groups(capsys, folder):
    cluster = ["cluster", "named.npz", "-k", "16", "--method", "log-euclidean"]
    found = json.loads(run(capsys, *cluster, "--groups", "subject", "--json"))
    assert found["agreement_with_groups"]["ARI"] > 0.8 > 0.5 > found["agreement"]["ARI"]
    printed = run(capsys, *cluster, "--groups", "subject", "--report", "page.html")
    said = printed[printed.index("Agreement with the groups: ") :].split("\n")[0]
    assert said in " ".join((folder / "page.html").read_text().split())
    assert run(capsys, *cluster).startswith(
        "named.npz has an array `subject`; pass --groups subject to compare clusters with it."
    )


OFFER = "named.npz has an array `subject`; pass --groups subject to keep its groups together.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["which", "--cv", "2"],
        ["fit", "--model", "kernel", "-o", "m"],
        ["doctor"],
        ["evaluate", "--only", "1-NN, AIRM", "--cv", "2"],
    ],
)
def test_groups_in_the_file_are_offered(capsys, folder, arguments):
    assert OFFER in run(capsys, *arguments, "named.npz")
    assert "--groups" not in run(capsys, *arguments, "plain.npz")


def test_groups_that_are_used_are_not_offered(capsys, folder):
    printed = run(capsys, "which", "named.npz", "--cv", "2", "--groups", "subject")
    assert "has an array" not in printed


def test_what_has_another_use_is_not_offered(capsys, folder, data):
    X, y = data
    np.savez("other.npz", X=X, group=y, session=np.arange(63), subjects=y, sessions=[[1, 2]])
    printed = run(capsys, "doctor", "other.npz", "--labels", "group")
    assert "`subjects`" in printed
    assert printed.count("has an array") == 1
    assert "--groups" not in run(capsys, "predict", _fitted(capsys), "named.npz")


def _fitted(capsys):
    run(capsys, "fit", "plain.npz", "--model", "knn", "-o", "knn")
    return "knn"


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("nobody", "named.npz: --groups 'nobody' is not in it; it holds X"),
        ("X", "must have one group for each of 64 matrices; save groups of shape (64,)"),
        ("no.npy", "no.npy: No such file"),
        ("short.npy", "matrices (3,) int64 must have one group for each of 64 matrices"),
        ("short.txt", "it has 2 entries in 3 lines, must have one for each of 64 matrices"),
        ("wide.csv", "wide.csv: it has 2 columns, must have one; save the groups alone"),
        ("two.npz", "it holds a (64,) int64, b (64,) int64, must hold one array"),
        ("latin.txt", "latin.txt: byte 0 is not UTF-8; save it as text in UTF-8"),
        ("objects.npy", "objects are never unpickled"),
        ("days.npy", "days.npy: matrices holds times, must hold numbers or text; save them with"),
        ("model.npz", "must hold one array"),
    ],
)
def test_groups_that_cannot_be_used(capsys, folder, groups, message):
    np.save("short.npy", np.arange(3))
    Path("short.txt").write_text("a\n\nb\n")
    Path("wide.csv").write_text("a,b\n" * 64)
    np.savez("two.npz", a=np.arange(64), b=np.arange(64))
    Path("latin.txt").write_bytes(b"\xfc\n" * 64)
    np.save("days.npy", np.arange(64).astype("datetime64[D]"))
    np.save("objects.npy", np.array([None] * 64), allow_pickle=True)
    np.savez("model.npz")
    assert main(["which", "named.npz", "--groups", groups]) == 1
    complaint = capsys.readouterr().err
    assert message in complaint
    assert len(complaint.splitlines()) == 1


def test_groups_need_labels(capsys, folder):
    assert main(["which", "named.npz", "--without-labels", "--groups", "subject"]) == 1
    assert "--groups needs labels" in capsys.readouterr().err


# ------------------------------------------------------------------ the reader


def test_parts_of_a_split_have_groups_of_their_own(folder, data):
    X, y = data
    train, test = slice(0, 40), slice(40, None)
    arrays = {"X": X, "y": y, "subject": SUBJECTS, "files": SUBJECTS.astype(str)}
    parts = {f"{name}_train": array[train] for name, array in arrays.items()}
    np.savez("split.npz", **parts, **{f"{name}_test": one[test] for name, one in arrays.items()})
    whole = load_spd("split.npz", groups="subject")
    np.testing.assert_array_equal(whole.groups, SUBJECTS)
    np.testing.assert_array_equal(whole.files, SUBJECTS.astype(str))
    assert not whole.notes
    one = load_spd("split.npz", matrices="X_test", groups="subject")
    np.testing.assert_array_equal(one.groups, SUBJECTS[test])
    np.testing.assert_array_equal(one.files, SUBJECTS[test].astype(str))
    assert load_spd("split.npz").groups is None
    assert load_spd("split.npz").notes == (
        'split.npz has an array `subject`; pass groups="subject" to keep its groups together',
    )


@pytest.fixture
def count(monkeypatch):
    """Count calls of a function of a module with some first argument."""

    def counting(module, name, wanted=lambda value: True):
        calls, function = [], getattr(module, name)

        def counted(value, *rest, **named):
            if wanted(value):
                calls.append(module.__name__)
            return function(value, *rest, **named)

        monkeypatch.setattr(module, name, counted)
        return calls

    return counting


def test_a_command_reads_its_data_once(capsys, folder, data, count):
    X, y = data
    np.savez("all.npz", X=X, y=y, subject=SUBJECTS, files=SUBJECTS.astype(str))
    opened = count(stacks, "open_regular")
    for arguments in (
        ["fit", "all.npz", "--model", "knn", "-o", "m"],
        ["predict", "m", "all.npz"],
        ["evaluate", "all.npz", "--only", "1-NN, AIRM", "--groups", "subject"],
        ["which", "all.npz", "--cv", "2"],
        ["doctor", "all.npz"],
    ):
        opened.clear()
        run(capsys, *arguments)
        assert len(opened) == 1


def test_fit_checks_and_hashes_its_data_once(capsys, folder, data, count):
    X, _ = data

    def is_whole(value):
        return np.size(value) == X.size or (isinstance(value, bytes) and len(value) == X.nbytes)

    checked = [count(stacks, "check_and_learn", is_whole), count(dataset, "check_spd", is_whole)]
    hashed = [count(dataset, "sha256", is_whole), count(checkpoint, "fingerprint", is_whole)]
    options = ["--groups", "subject", "--checkpoint", "c", "--json"]
    run(capsys, "fit", "named.npz", "--model", "knn", "-o", "m", *options)
    assert [len(calls) for calls in checked] == [1, 0]
    assert [len(calls) for calls in hashed] == [1, 0]
