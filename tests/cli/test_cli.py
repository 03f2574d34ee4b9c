"""The program: every command with an example, its output, and how it fails."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from pyriemann.estimation import Covariances
from pyriemann.tangentspace import TangentSpace
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import divlearn
from divlearn import load
from divlearn.cli import main
from divlearn.cluster import ABMixture
from divlearn.datasets import make_wishart_clusters
from divlearn.nearest import DivergenceMDM

NAMES = np.array(["bark", "moss", "sand"])
pytestmark = pytest.mark.usefixtures("short_fits", "coarse_maps", "few_permutations")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    X, y = make_wishart_clusters(3, 20, 3, separation=5, random_state=0)
    np.savez(folder / "matrices.npz", X=X, y=NAMES[y])
    np.savez(
        folder / "images.npz", X=X, y=NAMES[y], files=[f"{number // 2}.png" for number in range(60)]
    )
    np.save(folder / "unlabelled.npy", X)
    np.savez(folder / "one.npz", X=X, y=np.full(60, 7))
    np.savez(folder / "rare.npz", X=X, y=np.arange(60) == 0)
    np.savez(folder / "apart.npz", X=X[:2], y=[0, 1])
    np.savez(folder / "halves.npz", X=X, y=np.arange(60) / 2)
    (folder / "alone.csv").write_text("a\n" * 60)
    (folder / "two.txt").write_text("0\n1\n" * 30)
    X[3] = np.nan
    X[7] = 1
    np.savez(folder / "bad.npz", X=X, y=y)
    return folder


def run(capsys, *arguments):
    """Exit code, what was printed, and what was complained about."""
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def run_json(capsys, *arguments):
    code, printed, _ = run(capsys, *arguments, "--json")
    return code, json.loads(printed)


# ------------------------------------------------------------------ as a program


def test_help_names_every_command(capsys):
    code, printed, _ = run(capsys, "--help")
    assert code == 0
    for name in ("demo", "describe", "doctor", "which", "fit", "predict", "evaluate", "cluster"):
        assert f"\n  {name} " in printed
        code, page, _ = run(capsys, name, "--help")
        assert code == 0
        assert f"Example: divlearn {name}" in " ".join(page.split())


def test_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "divlearn", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("divlearn 0.")


def test_help_imports_little():
    code = (
        "import sys; from divlearn.cli import main; main(['--help']); "
        "heavy = {'numpy', 'sklearn', 'rich', 'matplotlib', 'plotly', 'torch', 'dask', 'jinja2'}; "
        "print('loaded', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "loaded []" in done.stdout


def test_wrong_options(capsys, data):
    for arguments in (["fly"], ["predict", data / "matrices.npz"], ["fit", "--fast"]):
        code, _, complaint = run(capsys, *arguments)
        assert code == 2
        assert "Error" in complaint or "No such command" in complaint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["which", "nowhere.npz"], "nowhere.npz: No such file"),
        (["which", "{}"], "it is a folder"),
        (["which", "."], "divlearn: .: it is a folder"),
        (["which", "{}/bad.npz"], r"X[3] has a NaN entry"),
        (["which", "{}/matrices.npz", "--matrices", "Z"], "Z"),
        (["which", "{}/matrices.npz", "--labels", "Z"], "Z"),
        (["which", "{}/matrices.npz", "--cv", "1"], "--cv 1 must be >= 2"),
        (["evaluate", "{}/matrices.npz", "--cv", "-3"], "--cv -3 must be >= 2"),
        (["which", "{}/matrices.npz", "--seed", "-1"], "--seed -1 must be >= 0 and <= 4294967295"),
        (["which", "{}/matrices.npz", "--engine", "steam"], "--engine steam must be one of auto,"),
        (["fit", "{}/matrices.npz", "--model", "rbf", "--engine", "steam"], "--engine steam must"),
        (["which", "{}/one.npz"], "all labels of one.npz are 7, must be of >= 2 classes; add"),
        (["fit", "{}/one.npz"], "all labels of one.npz are 7, must be of >= 2 classes"),
        (["fit", "{}/rare.npz"], "one to train on and one to test on; drop it or pass --model id"),
        (["fit", "{}/apart.npz", "--model", "mdm"], "for --model mdm, one to train on and one to"),
        (["fit", "{}/apart.npz", "--model", "mdm"], "pass more, or pass --model knn"),
        (["fit", "{}/halves.npz"], "such as SPDRegressor, or save labels as text"),
        (["fit", "{}/matrices.npz", "--groups", "{}/alone.csv"], "1 group, must have >= 2 to hold"),
        (["which", "{}/matrices.npz", "--regularize", "hope"], "--regularize 'hope' must be"),
        (
            ["fit", "{}/unlabelled.npy", "-o", "x"],
            "has no labels; name their array or file with --labels",
        ),
        (["fit", "{}/matrices.npz", "-o", "x", "--model", "magic"], "--model magic must be one of"),
        (["fit", "{}/bad.npz", "-o", "."], "--output . is a folder, must be a file; add the name"),
        (["fit", "{}/bad.npz", "-o", "{}/bad.npz/m"], "bad.npz: Not a directory; choose another"),
        (["fit", "{}/bad.npz", "--report", "{}/bad.npz/page.html"], "page.html cannot be written"),
        (["cluster", "{}/bad.npz", "-k", "3", "-o", "{}"], "is a folder, must be a file"),
        (["predict", "{}/no model", "{}/bad.npz", "-o", "{}"], "is a folder, must be a file"),
        (["describe", "{}/no images", "-o", "{}"], "is a folder, must be a file"),
        (
            ["evaluate", "{}/matrices.npz", "--only", "1-NN", "--only", "magic"],
            "--only magic matches no classifier",
        ),
        (["cluster", "{}/matrices.npz", "-k", "0"], "-k/--clusters 0 must be >= 1"),
        (["cluster", "{}/matrices.npz", "-k", "61"], "-k/--clusters 61 must be <= 60, the num"),
        (["cluster", "{}/matrices.npz", "-k", "61", "--method", "mixture"], "--clusters 61 must"),
        (["cluster", "{}/matrices.npz", "-k", "3", "--method", "magic"], "--method magic must be"),
        (["cluster", "{}/matrices.npz", "-k", "3", "--divergence", "1,x"], "two numbers"),
        (["cluster", "{}/matrices.npz", "-k", "3", "--divergence", "1,2,3"], "two numbers"),
        (["cluster", "{}/matrices.npz", "-k", "3", "--divergence", "nan,1"], "two numbers"),
        (["cluster", "{}/matrices.npz", "-k", "3", "--divergence", "no"], "--divergence 'no' must"),
        (
            ["cluster", "{}/matrices.npz", "--method", "karcher", "--divergence", "stein"],
            "must be left out with --method karcher",
        ),
        (["predict", "{}/matrices.npz", "{}/matrices.npz"], "not a model of divlearn"),
        (["describe", "{}", "-o", "x.npz"], "holds no images in sub-folders"),
        (["describe", "{}", "-o", "x.npz", "--patch", "1"], "--patch 1 must be >= 2"),
        (["describe", "{}", "-o", "x.npz", "--preset", "sky"], "--preset sky must be one of"),
        (["doctor", "{}/nothing.npz"], "No such file"),
        (["doctor", "{}/matrices.npz", "--matrices", "Z"], "--matrices 'Z' is not in it"),
    ],
)
@pytest.mark.usefixtures("working_folder")
def test_one_sentence_and_exit_code_one(capsys, data, arguments, message):
    code, printed, complaint = run(capsys, *(argument.format(data) for argument in arguments))
    assert code == 1
    assert not printed
    assert len(complaint.splitlines()) == 1
    assert complaint.startswith("divlearn: ")
    assert message in complaint
    assert not re.search(r"\b(cv|engine|n_clusters|n_components|patch|divergence)=", complaint)


# ------------------------------------------------------------------ commands


def test_numbers_that_are_not_finite_are_one_sentence_too(capsys, data, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise FloatingPointError("the loss is nan, must be finite")

    monkeypatch.setattr(DivergenceMDM, "fit", fail)
    arguments = ["fit", str(data / "matrices.npz"), "--model", "mdm", "-o", str(tmp_path / "m")]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "divlearn: the loss is nan, must be finite\n"


def test_fit_says_why_members_were_left_out(capsys, tmp_path):
    X, y = make_wishart_clusters(2, 2, 3, separation=5, random_state=0)
    np.savez(tmp_path / "few.npz", X=X, y=NAMES[y])
    code, found = run_json(capsys, "fit", tmp_path / "few.npz", "-o", tmp_path / "model")
    assert code == 0
    assert "(6 of 7 members were fitted; tangent rda was left out: no class" in found["summary"]


def test_doctor(capsys, data):
    code, printed, _ = run(capsys, "doctor", data / "matrices.npz")
    assert code == 0
    assert "60 matrices of size 3, 3 classes: no problems found" in printed
    code, printed, _ = run(capsys, "doctor", data / "bad.npz")
    assert code == 1
    assert "not finite: NaN or infinite entries (matrices 3)." in printed
    assert "rank-deficient: rank 1 of 3" in printed
    code, found = run_json(capsys, "doctor", data / "bad.npz")
    assert code == 1
    assert not found["healthy"]
    assert {one["kind"]: one["indices"] for one in found["findings"]} == {
        "not finite": [3],
        "rank-deficient": [7],
    }


def test_which(capsys, data):
    code, printed, _ = run(capsys, "which", data / "matrices.npz", "--cv", 2)
    assert code == 0
    assert "airm" in printed
    assert "accuracy" in printed
    code, found = run_json(capsys, "which", data / "matrices.npz", "--cv", 2)
    assert found["criterion"] == "accuracy"
    assert [row["name"] for row in found["table"] if row["alpha"] is None] == ["best named"]
    assert len(found["table"]) == 7
    assert found["rules"][found["rule"]]["difference"] == 0
    assert len(found["data"]) == 64
    _, other = run_json(capsys, "which", data / "images.npz", "--without-labels")
    assert other["criterion"] == "likelihood"
    assert other["data"] == found["data"]
    assert not other["kept_together"]  # nothing is held out


def test_fit_and_predict(capsys, data, tmp_path):
    model = tmp_path / "model.divlearn"
    code, printed, _ = run(
        capsys, "fit", data / "matrices.npz", "-o", model, "--model", "iddl", "--seed", 1
    )
    assert code == 0
    assert "IDDLClassifier learned 3 classes from 60 matrices." in printed
    assert "Held-out accuracy: " in printed
    classifier = load(model)
    with np.load(data / "matrices.npz") as stored:
        expected = classifier.predict(stored["X"])
        accuracy = classifier.score(stored["X"], stored["y"])
    table = tmp_path / "said.csv"
    code, printed, _ = run(capsys, "predict", model, data / "matrices.npz", "-o", table)
    assert code == 0
    assert f"{accuracy:.1%} of 60 predictions agree with the labels." in printed
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["predicted"] for row in rows] == expected.tolist()
    assert sum(float(rows[0][f"p({name})"]) for name in NAMES) == pytest.approx(1, abs=2e-4)
    code, found = run_json(capsys, "predict", model, data / "unlabelled.npy")
    assert found["predicted"] == expected.tolist()
    assert found["accuracy"] is None


@pytest.mark.parametrize(
    ("shape", "search"), [((24, 3, 40), True), ((3, 3, 40), False), ((4, 5, 5), False)]
)
def test_predict_with_a_pipeline_that_takes_series(capsys, tmp_path, shape, search):
    """Also where the shape could be that of matrices."""
    n_channels, n_times = shape[1:]
    series = np.random.default_rng(0).standard_normal((24, n_channels, n_times))
    series[::2, 0] *= 3
    model = make_pipeline(Covariances("oas"), TangentSpace(), LogisticRegression())
    if search:
        model = GridSearchCV(model, {"logisticregression__C": [0.1, 1]}, cv=2)
    divlearn.save(model.fit(series, np.arange(24) % 2), tmp_path / "model")
    np.savez(tmp_path / "new.npz", X=series[: shape[0]], y=np.arange(shape[0]) % 2)
    code, found = run_json(capsys, "predict", tmp_path / "model", tmp_path / "new.npz")
    assert code == 0
    assert found["predicted"] == model.predict(series[: shape[0]]).tolist()
    assert found["accuracy"] == model.score(series[: shape[0]], np.arange(shape[0]) % 2)


def test_predict_with_a_pipeline_that_takes_matrices(capsys, data, tmp_path):
    with np.load(data / "matrices.npz") as stored:
        X, y = stored["X"], stored["y"]
    for first in (TangentSpace(), divlearn.IDDLTransformer(4, max_iter=1, random_state=0)):
        model = make_pipeline(first, StandardScaler(), LogisticRegression()).fit(X, y)
        divlearn.save(model, tmp_path / "model")
        _, found = run_json(capsys, "predict", tmp_path / "model", data / "matrices.npz")
        assert found["predicted"] == model.predict(X).tolist()
    bad = run(capsys, "predict", tmp_path / "model", data / "bad.npz")
    assert bad[2].count("X[3] has a NaN entry") == 1


class Nearest(DivergenceMDM):
    """A class of another package."""


def test_predict_with_a_class_that_is_not_trusted(capsys, data, tmp_path):
    name = f"{Nearest.__module__}.Nearest"
    with np.load(data / "matrices.npz") as stored:
        divlearn.save(Nearest().fit(stored["X"], stored["y"]), tmp_path / "model")
    code, _, complaint = run(capsys, "predict", tmp_path / "model", data / "matrices.npz")
    assert code == 1
    assert complaint.endswith(f"if you trust whoever wrote the file, pass --trust {name}\n")
    trusting = ("predict", tmp_path / "model", data / "matrices.npz", "--trust", name)
    assert run_json(capsys, *trusting)[1]["accuracy"] > 0.9


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """Matrices of rank two, in two groups of every class."""
    X, y = make_wishart_clusters(3, 8, 3, separation=5, random_state=0)
    X[:, 2] = X[:, 0] + X[:, 1]
    X[:, :, 2] = X[:, :, 0] + X[:, :, 1]
    path = tmp_path_factory.mktemp("flat") / "flat.npz"
    np.savez(path, X=X, y=NAMES[y], subject=np.arange(24) % 5)
    return path


@pytest.mark.parametrize("command", ["which", "fit", "evaluate", "cluster"])
def test_the_fix_for_rank_deficient_matrices_is_named_and_works(capsys, flat, tmp_path, command):
    options = {
        "which": ["--cv", 2, "--groups", "subject"],
        "fit": ["--model", "iddl", "-o", tmp_path / "model", "--groups", "subject"],
        "evaluate": ["--only", "1-NN, AIRM", "--cv", 2],
        # And chooses their number.
        "cluster": ["--method", "mixture", "--divergence", "wishart", "-o", tmp_path / "model"],
    }[command]
    code, _, complaint = run(capsys, command, flat, *options)
    assert code == 1
    assert "flat.npz: X[0] is rank-deficient: numerical rank 2 of 3" in complaint
    assert complaint.endswith("use more samples than variables or pass --regularize shrink\n")
    assert run(capsys, command, flat, *options, "--regularize", "shrink")[0] == 0
    assert run(capsys, command, flat, *options, "--regularize", "1.5")[0] == 1
    assert run(capsys, command, flat, *options, "--regularize", "0,1")[0] == 2


def test_a_model_knows_how_matrices_are_regularized(capsys, flat, data, tmp_path):
    path, page = tmp_path / "model", tmp_path / "page.html"
    fit = ("fit", flat, "-o", path, "--model", "iddl", "--report", page, "--regularize", 0.05)
    assert run(capsys, *fit)[0] == 0
    assert page.stat().st_size > 0
    assert load(path).regularize == 0.05
    _, found = run_json(capsys, "predict", path, flat)
    assert found["accuracy"] > 0.8
    assert run(capsys, "fit", data / "matrices.npz", "-o", path, "--model", "knn")[0] == 0
    code, _, complaint = run(capsys, "predict", path, flat)
    assert code == 1
    assert complaint.endswith("or fit with --regularize shrink\n")


@pytest.mark.parametrize("model", ["kernel", "rbf", "mdm", "knn"])
def test_other_models(capsys, data, tmp_path, model):
    path = tmp_path / "model"
    code, found = run_json(capsys, "fit", data / "matrices.npz", "-o", path, "--model", model)
    assert code == 0
    assert type(load(path)).__name__ == found["kind"]
    code, found = run_json(capsys, "predict", path, data / "matrices.npz")
    assert found["accuracy"] > 0.8


def test_evaluate(capsys, data):
    arguments = ["evaluate", data / "matrices.npz", "--cv", 3, "--only", "1-NN", "--only", "mean"]
    code, printed, _ = run(capsys, *arguments)
    assert code == 0
    for name in ("1-NN, AIRM", "1-NN, Stein", "1-NN, log-Euclidean", "nearest mean, AIRM"):
        assert name in printed
    assert "on 60 held-out matrices" in " ".join(printed.split())
    _, found = run_json(capsys, *arguments)
    assert len(found["classifiers"]) == 4
    assert not found["interrupted"]
    assert found["message"] == "all 3 folds completed"
    _, found = run_json(
        capsys, *arguments[:4], "--only", "MDM", "--only", "knn"
    )  # as in fit --model
    assert len(found["classifiers"]) == 4


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--divergence", "stein"],
        ["--divergence", "0.2,0.9"],
        ["--method", "mixture", "--divergence", "burg"],
        ["--divergence", "likelihood"],
        ["--divergence", "learn"],
        ["--method", "karcher"],
        ["--method", "log-euclidean"],
    ],
)
def test_cluster(capsys, data, tmp_path, options):
    path = tmp_path / "clusters"
    arguments = ["cluster", data / "matrices.npz", "-k", 3, "-o", path, *options]
    code, found = run_json(capsys, *arguments)
    assert code == 0
    assert sum(found["sizes"]) == 60
    assert found["agreement"]["ARI"] > 0.3
    with np.load(data / "matrices.npz") as stored:
        assert load(path).predict(stored["X"]).tolist() == found["labels"]


@pytest.mark.parametrize(
    ("options", "divergence", "others"),
    [
        ([], "learn", []),
        (["--method", "mixture", "--divergence", "wishart"], "wishart", [1, 3, 4]),
    ],
)
def test_cluster_chooses_their_number(capsys, tmp_path, options, divergence, others):
    X, y = make_wishart_clusters(2, 12, 2, separation=8, random_state=0)
    np.savez(tmp_path / "X.npz", X=X, y=y)
    arguments = ["cluster", tmp_path / "X.npz", *options]
    code, printed, _ = run(capsys, *arguments, "--report", tmp_path / "page.html")
    assert code == 0
    found = re.search(
        r"Number of clusters: 2, the lowest BIC \((\S+)\) of mixtures of 1 to 4", printed
    )
    bics = ABMixture([2, *others], divergence, random_state=0).fit(X).bics_
    assert float(found[1]) == pytest.approx(bics[2], abs=0.06)
    assert min(bics, key=bics.get) == 2
    assert ">Number of clusters</h2>" in (tmp_path / "page.html").read_text()


def test_cluster_says_if_there_may_be_more(capsys, tmp_path):
    X, _ = make_wishart_clusters(2, 5, 1, separation=20, random_state=0)
    for count, said in (
        (9, "Number of clusters: 1, the only one that was tried; pass -k for more. Div"),
        (10, "of mixtures of 1 to 2 components; pass -k for more. Div"),
    ):
        np.save(tmp_path / "X.npy", X[:count])
        options = ("--method", "mixture", "--divergence", "wishart")
        _, printed, _ = run(capsys, "cluster", tmp_path / "X.npy", *options)
        assert said in " ".join(printed.split())


def test_cluster_says_how_much_clusters_mean(capsys, data, tmp_path):
    with np.load(data / "matrices.npz") as stored:
        X, y = stored["X"], stored["y"]
    page = tmp_path / "page.html"
    shuffled, alone = tmp_path / "shuffled.npz", tmp_path / "alone.npz"
    np.savez(shuffled, X=X, y=np.random.default_rng(0).permutation(y))
    np.savez(alone, X=X)
    for path, said in (
        (data / "matrices.npz", "3 clusters agree with the classes better than chance: the adju"),
        (shuffled, "3 clusters agree with the classes no better than chance: the adjusted Rand"),
        (alone, "3 clusters; their stability is "),
    ):
        options = ("-k", 3, "--divergence", "stein", "--report", page)
        _, printed, _ = run(capsys, "cluster", path, *options)
        assert said in " ".join(printed.split())
        assert f"<h1>{said}" in page.read_text()
        assert '<p class="detail">60 matrices, ' in page.read_text()
    _, printed, _ = run(capsys, "cluster", alone, "-k", 1)
    assert "The one cluster has 60 matrices." in printed


def test_describe_says_what_it_used(capsys, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    pixels = np.random.default_rng(0).integers(256, size=(2, 24, 24, 3)).astype(np.uint8)
    for name, one in zip(("a", "b"), pixels, strict=True):
        (tmp_path / "images" / name).mkdir(parents=True)
        image.fromarray(one).save(tmp_path / "images" / name / "1.png")
    arguments = ["describe", tmp_path / "images", "-o", tmp_path / "m.npz"]
    code, printed, _ = run(capsys, *arguments)
    assert code == 0
    assert "Preset texture: covariances of I, |Ix|, |Iy|, |Ixx|, |Iyy|. Colour was ign" in printed
    code, printed, _ = run(capsys, *arguments, "--preset", "cancer")
    assert (
        "Preset cancer: covariances of R, G, B, |Ix|, |Iy|, |Ixx|, |Iyy|, magnitude.\n" in printed
    )
    _, found = run_json(capsys, *arguments, "--preset", "brodatz")
    assert (found["preset"], found["colour_ignored"]) == ("brodatz", True)
    assert found["features"] == ["x", "y", "I", "|Ix|", "|Iy|"]


def test_describe(capsys, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    rng = np.random.default_rng(0)
    for name, spread in (("smooth", 10), ("rough", 100)):
        (tmp_path / name).mkdir()
        for number in range(4):
            pixels = 128 + spread * rng.uniform(-1, 1, (48, 48))
            image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name / f"{number}.png")
    path = tmp_path / "matrices.npz"
    code, printed, _ = run(capsys, "describe", tmp_path, "-o", path)
    assert code == 0
    assert "8 matrices of size 5 from 8 images of 2 classes" in printed
    assert "Colour" not in printed
    code, found = run_json(capsys, "describe", tmp_path, "-o", path, "--patch", 16)
    assert found["n_matrices"] == 72
    with np.load(path) as stored:
        assert stored["X"].shape == (72, 5, 5)
        assert stored["y"].tolist() == 36 * ["rough"] + 36 * ["smooth"]
        assert stored["files"].tolist()[::9] == [
            f"{name}/{number}.png" for name in ("rough", "smooth") for number in range(4)
        ]
    code, found = run_json(capsys, "fit", path, "-o", tmp_path / "model", "--model", "kernel")
    assert code == 0
    code, found = run_json(capsys, "predict", tmp_path / "model", path)
    assert found["names"][:10] == 9 * ["rough/0.png"] + ["rough/1.png"]
    code, printed, _ = run(capsys, "evaluate", path, "--cv", 2, "--only", "1-NN, AIRM")
    assert code == 0
    assert printed.startswith("Several matrices are of one image")


def test_folders_of_outputs_are_made(capsys, data, tmp_path):
    model, table = tmp_path / "new" / "m", tmp_path / "other" / "new" / "said.csv"
    code, _, _ = run(capsys, "fit", data / "matrices.npz", "-o", model, "--model", "knn")
    assert code == 0
    code, _, _ = run(capsys, "predict", model, data / "matrices.npz", "-o", table)
    assert code == 0
    assert len(table.read_text().splitlines()) == 61
    assert {path.name for path in model.parent.iterdir()} == {"m"}


def test_labels_that_name_classes_otherwise_are_reported(capsys, data, tmp_path):
    model, names = tmp_path / "m", tmp_path / "names.txt"
    with np.load(data / "matrices.npz") as stored:
        names.write_text("\n".join(f"class {label}" for label in stored["y"]))
    run(capsys, "fit", data / "matrices.npz", "-o", model, "--model", "knn")
    _, printed, _ = run(capsys, "predict", model, data / "matrices.npz", "--labels", names)
    assert "is a class of the model" in printed
    _, printed, _ = run(capsys, "predict", model, data / "matrices.npz")
    assert "is a class of the model" not in printed


def test_clusters_are_no_classes_to_agree_with(capsys, data, tmp_path):
    model = tmp_path / "clusters"
    code, printed, _ = run(capsys, "cluster", data / "matrices.npz", "-k", 3, "-o", model)
    assert code == 0
    assert "Agreement with the labels: pairwise F1" in printed
    code, printed, _ = run(capsys, "predict", model, data / "matrices.npz")
    assert code == 0
    assert "agree with the labels" not in printed
    _, found = run_json(capsys, "predict", model, data / "matrices.npz")
    assert found["accuracy"] is None


def test_help_of_cluster_offers_what_there_is(capsys):
    """All of it is done above."""
    _, page, _ = run(capsys, "cluster", "--help")
    offered = 'Name, "alpha,beta" or "learn", for k-means and mixture; "likelihood" for k-means.'
    assert offered in " ".join(page.split())


# ------------------------------------------------------------------ reports


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["which", "{}/matrices.npz", "--cv", "2"], ["Map of the plane", "Named divergences"]),
        (["which", "{}/unlabelled.npy"], ["Map of the plane", "log-likelihood"]),
        (
            ["fit", "{}/matrices.npz", "-o", "{}/m", "--model", "iddl"],
            [
                "IDDLClassifier has an accuracy of ",
                "Map of the plane",
                "Learning",
                "Atoms",
                "Where the model and baselines disagree",
            ],
        ),
        (
            ["fit", "{}/matrices.npz", "-o", "{}/m", "--model", "knn"],
            ["DivergenceKNN was fitted to 3 classes", "Map of the plane"],
        ),
        (
            ["evaluate", "{}/matrices.npz", "--cv", "3", "--only", "stein", "--only", "mean"],
            ["Classifiers", "Confusion matrices", "disagree"],
        ),
        (
            ["cluster", "{}/matrices.npz", "-k", "3"],
            ["Centres", "Agreement with the classes", "Clusters and classes", "Progress"],
        ),
        (
            ["cluster", "{}/unlabelled.npy", "-k", "3", "--divergence", "burg"],
            ["Centres", "Divergence", "Progress"],
        ),
    ],
)
def test_reports(capsys, data, tmp_path, arguments, parts):
    pytest.importorskip("plotly", reason="plotly is not installed")
    path = tmp_path / "new folder" / "report.html"
    arguments = [argument.format(data) for argument in arguments] + ["--report", str(path)]
    code, printed, _ = run(capsys, *arguments)
    assert code == 0
    assert f"Report: {path}" in printed.replace("\n", "")
    page = path.read_text()
    for part in (*parts, "Reproduce"):
        assert part in page


@pytest.mark.parametrize(
    ("arguments", "ending"),
    [
        (
            ["which", "{}/matrices.npz", "--report", "new/page"],
            "new/page must end in .html or .htm",
        ),
        (["fit", "{}/matrices.npz", "--report", "new/page.txt"], ".txt must end in .html or .htm"),
        (["evaluate", "{}/bad.npz", "--report", "new/page.pdf"], ".pdf must end in .html or .htm"),
        (["predict", "{}/no model", "{}/bad.npz", "-o", "new/said.txt"], ".txt must end in .csv"),
        (["describe", "{}", "-o", "new/matrices.h5"], "new/matrices.h5 must end in .npz"),
        (["demo", "-o", "new/plane.txt"], "must end in .png or .pdf or .svg or .jpg"),
    ],
)
def test_endings_of_outputs_are_checked_before_any_work(
    capsys, data, working_folder, arguments, ending
):
    code, printed, complaint = run(capsys, *(argument.format(data) for argument in arguments))
    assert (code, printed) == (1, "")
    assert complaint.endswith(f"{ending}\n")
    assert not list(working_folder.iterdir())


@pytest.mark.parametrize("command", ["which", "evaluate"])
def test_a_number_of_folds_is_an_upper_bound_and_the_program_says_so(capsys, data, command):
    arguments = [command, data / "images.npz", *(["--only", "1-NN, AIRM"] * (command != "which"))]
    arguments += ["--groups", data / "two.txt"]
    code, printed, _ = run(capsys, *arguments, "--cv", 3)
    assert code == 0
    assert "2 folds, fewer than --cv 3: there are no more groups" in printed
    assert run_json(capsys, *arguments, "--cv", 3)[1]["n_folds"] == 2
    _, printed, _ = run(capsys, *arguments, "--cv", 2)
    assert "fewer than" not in printed


def test_warnings_are_sentences_of_the_program(capsys, tmp_path):
    np.savez(tmp_path / "equal.npz", X=np.stack([np.eye(2), 2 * np.eye(2)] * 5))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, _, complaint = run(capsys, "cluster", tmp_path / "equal.npz", "-k", 3)
    assert code == 0
    assert complaint == (
        "divlearn: found 2 distinct clusters, fewer than -k/--clusters 3, probably because X holds "
        "equal matrices; lower -k/--clusters\n"
    )
