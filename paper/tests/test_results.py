"""From cells to text: every experiment on tiny data, and the figures of docs/results.md."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from paper import published, rendering
from paper.cells import compute, read_results
from paper.comparison import Claim, Row, compare
from paper.data import SOURCES, load_data
from paper.experiments import EXPERIMENTS
from paper.protocol import FULL, QUICK
from paper.tests.tiny import DATA, TINY

ROOT = Path(__file__).parents[2]
DOCUMENT, RESULTS = ROOT / "docs" / "results.md", ROOT / "paper" / "results.jsonl"
NAMES = list(EXPERIMENTS)


@pytest.fixture(scope="module")
def found_of(tmp_path_factory):
    """What is found of an experiment; cells are computed once, where a test needs them."""
    path = tmp_path_factory.mktemp("results") / "results.jsonl"

    def find(name):
        data = {"kth": DATA["kth"]} if name == "cluster-table" else DATA  # mixtures take seconds
        cells = [
            cell for cell in EXPERIMENTS[name].cells(TINY) if not cell.source or cell.source in data
        ]
        assert compute(cells, data, path) == []
        keys = {cell.key for cell in cells}  # experiments share cells
        results = {key: line for key, line in read_results(path).items() if key in keys}
        return rendering.find(EXPERIMENTS[name], TINY, results)

    return find


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_from_data_to_text(name, found_of, tmp_path):
    found = found_of(name)
    experiment, rows = found.experiment, found.rows
    assert rows
    skipped = {"ABMixture"} if experiment.timed else set()
    assert all(np.isfinite(row.value) for row in rows if row.column not in skipped)
    if experiment.unit == "accuracy in %" and name not in (
        "heat-map",
        "joint-learning",
        "set-up",
        "solvers",
    ):
        assert min(row.value for row in rows) > 50  # three classes well apart
    assert experiment.claims(rows)  # each has something to say of a claim
    text = rendering.document([found], TINY, tmp_path / "results.md")
    assert f"`{name}`: {experiment.where} of the paper." in text
    picture = tmp_path / "results" / f"{name}.png"
    assert picture.exists() == (experiment.draw is not None)
    assert (f"(results/{name}.png)" in text) == picture.exists()
    for row in rows:
        assert f"| {row.row} |" in text
        assert f"| {row} " in text
    check_that_some_cells_are_enough(found, tmp_path / "some.md")


def check_that_some_cells_are_enough(found, path):
    some = found.done[::3]
    if found.experiment.draw is not None:
        found.experiment.draw(Figure(), some)
    part = found._replace(rows=found.experiment.rows(some), done=[], n_missing=7)
    text = rendering.document([part], TINY, path)
    assert "Cells still to be computed: 7." in text


def test_tables_share_cells():
    names = ("standard-measures", "state-of-the-art", "losses", "atoms")
    keys = [{cell.key for cell in EXPERIMENTS[name].cells(TINY)} for name in names]
    assert all(len(one & keys[1]) >= 4 for one in keys)


def test_what_takes_too_long_is_left_out():
    cells = {
        protocol.name: [str(cell) for cell in EXPERIMENTS["losses"].cells(protocol)]
        for protocol in (QUICK, FULL)
    }
    assert "Brodatz, IDDL-V, structured SVM, 0" in cells["quick"]
    assert not any("Brodatz, IDDL-V, structured" in name for name in cells["full"])
    assert "Brodatz, 20 textures, IDDL-V, structured SVM, 0" in cells["full"]
    assert not any("20 textures" in name for name in cells["quick"])
    assert "Virus, IDDL-V, structured SVM, 0" in cells["full"]


def test_a_table_has_blanks_for_what_is_never_computed():
    """All patches of Brodatz are too many for LEML, and one split of them is enough."""
    experiment = EXPERIMENTS["state-of-the-art"]
    cells = [cell for cell in experiment.cells(FULL) if cell.source == "brodatz-all"]
    assert [str(cell) for cell in cells[:2]] == [
        "Brodatz, all patches, IDDL-S, 0",
        "Brodatz, all patches, IDDL-V, 0",
    ]
    line = {"seconds": 1.0, "engine": "auto"}
    outcome = {"accuracy": 0.5, "n_test": 100, "test": "0"}
    results = {cells[0].key: {"key": cells[0].key, "outcome": outcome} | line}
    (row,) = rendering.find(experiment, FULL, results).rows
    assert (row.column, str(row)) == ("IDDL-S", "50.0 +- 5.0 (72.5*)")


def test_sources_that_share_files_are_loaded_once(tmp_path):
    X, y = DATA["kth"].matrices, DATA["kth"].labels
    for name in ("prostate", "rgbd"):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "matrices.npz", matrices=X, labels=y)
    found = load_data(tmp_path, ["virus", "prostate", ""])
    assert list(found) == ["prostate"]
    np.testing.assert_array_equal(found["prostate"].matrices, X)
    with pytest.raises(NotADirectoryError, match="must be a folder with one sub-folder for each"):
        load_data(tmp_path / "nowhere", ["virus"])


def test_numbers_of_splits_are_those_of_the_data():
    """Cells are listed without data, by the number that a source states."""
    folder = Path(os.environ.get("DIVLEARN_DATA", "/nowhere"))
    there = [one for one in SOURCES.values() if (folder / one.folder).exists()]
    if not there:
        pytest.skip("DIVLEARN_DATA names no folder of data")
    for source in there:
        dataset = source.load(folder / source.folder)
        assert source.n_splits == (len(dataset.official_splits) or dataset.n_splits)


# --- claims ---------------------------------------------------------------------------------------


def test_a_difference_counts_from_two_standard_errors_on():
    assert str(Row("Virus", "LE", 70.0, 1.0, 68.1)) == "70.0 +- 1.0 (68.1)"
    assert str(Row("Virus", "LE", 70.0, 1.0, 67.9)) == "70.0 +- 1.0 (67.9*)"
    assert str(Row("Virus", "LE", None, None, 67.9)) == "- (67.9)"
    assert str(Row("Virus", "LE", 70.0, None, 10.0)) == "70.0 (10)"  # a single run says little


def test_a_claim_is_said_once():
    claims = [Claim("x", "A", True, "1"), Claim("x", "B", False, "2", "3")]
    assert rendering.claims_table(claims)[2:] == [
        "| x | A | yes | 1 |  |",
        "|  | B | **no** | 2 | 3 |",
    ]


def test_a_claim_within_errors():
    """The difference of 4 has a standard error of 5 or 1; the paper says that E is better."""
    for error, verdict in ((3.0, "no, within errors"), (0.6, "**no**")):
        rows = [Row("Virus", "LE", 50.0, error), Row("Virus", "E", 46.0, 4 * error / 3)]
        (claim,) = compare(rows, {"VIRUS": {"LE": 1.0, "E": 2.0}}, ["E"], ["LE"], ("better", ""))
        assert (claim.verdict, claim.here) == (verdict, "E 46.0, LE 50.0")


def test_a_claim_with_an_exception():
    """The paper: joint learning is best, but for 15 atoms."""
    values = {15: (80.0, 60.0, 70.0), 45: (60.0, 70.0, 80.0), 75: (9.0, 8.0, 7.0)}
    rows = [
        Row(f"{atoms} atoms", name, value)
        for atoms, found in values.items()
        for name, value in zip(published.JOINT[15], found, strict=True)
    ]
    claims = EXPERIMENTS["joint-learning"].claims(rows)
    assert [(claim.on, claim.holds) for claim in claims] == [
        ("Virus, 45 atoms", True),
        ("Virus, 75 atoms", False),
        ("Virus, 15 atoms", True),
    ]
    assert claims[1].here == "joint 7.0, Fix(alpha, beta) 9.0 (p = 0.00)"
    assert claims[1].paper == "joint 82.3, Fix(alpha, beta) 81.7"


def test_a_claim_that_solvers_agree():
    """By pairs: gaps of 2 and -1 have errors of 1.4; one of 4 is too large. N has no partner."""
    values = {"S": (60.0, 62.0), "V": (70.0, 69.0), "N": (80.0, None), "A": (50.0, 54.0)}
    for methods, verdict, here in (
        ("SVN", "yes", "at 2 of 2; joint - BCD is +0.5 on average"),
        ("SVNA", "**no**", "at 2 of 3; joint - BCD is +1.7 on average"),
    ):
        rows = [
            Row(f"Brodatz, 20 textures, 5 per class, {solver}", f"IDDL-{letter}", value, 1.0)
            for letter in methods
            for solver, value in zip(("BCD", "joint solver"), values[letter], strict=True)
        ]
        (claim,) = EXPERIMENTS["solvers"].claims(rows)
        assert (claim.on, claim.verdict, claim.here) == ("Brodatz, 20 textures", verdict, here)


# --- docs/results.md ------------------------------------------------------------------------------


def test_the_document_follows_from_the_results(tmp_path):
    """Its text, that is; pictures are not drawn again."""
    results = read_results(RESULTS)
    every = [rendering.find(one, FULL, results) for one in EXPERIMENTS.values()]
    bare = [one._replace(done=[]) for one in every]
    lines = rendering.document(bare, FULL, DOCUMENT).splitlines()
    shown = DOCUMENT.read_text()
    assert not [line for line in lines if line.startswith("|") and line not in shown]
    assert [line for line in shown.splitlines() if line.startswith("## ")] == [
        f"## {EXPERIMENTS[name].title}" for name in NAMES
    ]


def test_no_sentence_is_said_twice():
    text = [line for line in DOCUMENT.read_text().splitlines() if line and line[0] not in "|!#"]
    sentences = [one for line in text for one in re.split(r"(?<=[.;:]) ", line) if len(one) > 40]
    assert len(sentences) == len(set(sentences)) > 20


def test_results_are_lines_of_json():
    for line in RESULTS.read_text().splitlines():
        assert "key" in json.loads(line)


def test_the_papers_figures():
    """Spot checks against its tables."""
    assert published.STANDARD["VIRUS"]["LE 1-NN"] == 66.67
    assert published.STANDARD["BRODATZ"]["SVM-LE"] == 86.80
    assert published.STATE_OF_THE_ART["VIRUS"]["IDDL-N"] == 79.44
    assert published.STATE_OF_THE_ART["KTH TIPS"]["RSPDL"] == 64.5
    assert published.STATE_OF_THE_ART["JHMDB"]["kSP_JBLD"] == 44.40
    assert published.LOSSES["BRODATZ"]["IDDL-N, structured SVM"] == 82.1
    assert published.LOSSES["VIRUS"]["IDDL-V, structured SVM"] == 79.6
    assert published.JOINT[45] == {"Fix(alpha, beta)": 80.33, "Fix(B)": 70.00, "joint": 83.67}
    assert published.CLUSTERS["KTH TIPS"] == dict(
        zip(("LE", "Karcher", "E", "NE"), (0.379, 0.400, 0.429, 0.419), strict=True)
    )
