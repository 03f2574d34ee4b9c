"""From cells to text: every experiment on tiny data, and the figures of docs/results.md."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paper import cache, published, rendering
from paper.comparison import Row, differences, judge
from paper.data import SOURCES, load_data, missing
from paper.experiments import EXPERIMENTS
from paper.protocol import FULL, QUICK
from paper.running import compute
from paper.tests.tiny import DATA, TINY, make_data

DOCUMENT = Path(__file__).parents[2] / "docs" / "results.md"
NAMES = list(EXPERIMENTS)


@pytest.fixture(scope="module")
def records_of(tmp_path_factory):
    """Records of an experiment by its name; cells are computed once, where a test needs them."""
    folder = tmp_path_factory.mktemp("cells")

    def find(name):
        data = {"kth": DATA["kth"]} if name == "cluster-table" else DATA  # mixtures take seconds
        cells = {cell.key: cell for cell in EXPERIMENTS[name].cells(data, TINY)}
        assert compute(list(cells.values()), folder) == []
        return [cache.record(folder, cell) for cell in cells.values()]

    return find


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_from_data_to_text(name, records_of, tmp_path):
    experiment, records = EXPERIMENTS[name], records_of(name)
    rows = experiment.rows(records)
    assert rows
    skipped = {"ABMixture"} if experiment.timed else set()
    assert all(np.isfinite(row.value) for row in rows if row.column not in skipped)
    if experiment.unit == "accuracy in %" and name != "heat-map":
        assert min(row.value for row in rows) > 50  # three classes well apart
    picture = rendering.draw(experiment, records, tmp_path / "results.md")
    assert (picture is None) == (experiment.draw is None)
    if picture:
        assert (tmp_path / picture).stat().st_size > 1000
    text = rendering.section(experiment, TINY, DATA, records, len(records), [], picture)
    assert f"`{name}`: {experiment.where} of the paper." in text
    assert "The paper: " in text  # each has something to say of a claim
    assert "Still to be computed" not in text
    for row in rows:
        assert f"| {row.row} |" in text
        assert f"| {row} " in text


@pytest.mark.parametrize("name", NAMES)
def test_some_cells_are_enough_for_a_result(name, records_of, tmp_path):
    experiment, records = EXPERIMENTS[name], records_of(name)
    some = records[::3]
    text = rendering.section(experiment, TINY, DATA, some, len(records))
    left = len(records) - len(some)
    assert (f"Still to be computed: {left} of {len(records)}." in text) == (left > 0)
    rendering.draw(experiment, some, tmp_path / "results.md")


@pytest.mark.parametrize("name", NAMES)
def test_missing_data_is_named(name):
    text = rendering.section(EXPERIMENTS[name], TINY, {}, [], 0)
    for key in EXPERIMENTS[name].sources:
        assert SOURCES[key].paper in text


def test_tables_share_cells():
    names = ("standard-measures", "state-of-the-art", "losses", "atoms")
    keys = [{cell.key for cell in EXPERIMENTS[name].cells(DATA, TINY)} for name in names]
    assert all(len(one & keys[1]) >= 4 for one in keys)


def test_what_takes_too_long_is_left_out():
    data = {"brodatz": make_data(0), "virus": make_data(1)}
    cells = {
        protocol.name: [str(cell) for cell in EXPERIMENTS["losses"].cells(data, protocol)]
        for protocol in (QUICK, FULL)
    }
    assert "Brodatz, IDDL-V, structured SVM, 0" in cells["quick"]
    assert not any("Brodatz" in name and "structured" in name for name in cells["full"])
    assert "Virus, IDDL-V, structured SVM, 0" in cells["full"]


def test_a_set_that_stands_in_is_not_missing():
    assert missing({"kth": None}, ["kth-images", "kth", "virus"]) == ["VIRUS"]


def test_sources_that_share_files_are_loaded_once(tmp_path):
    X, y = DATA["kth"].matrices, DATA["kth"].labels
    for name in ("prostate", "rgbd"):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "matrices.npz", matrices=X, labels=y)
    found = load_data(tmp_path, ["virus", "prostate"])
    assert list(found) == ["prostate"]
    np.testing.assert_array_equal(found["prostate"].matrices, X)
    with pytest.raises(NotADirectoryError, match="must be a folder with one sub-folder for each"):
        load_data(tmp_path / "nowhere", ["virus"])


# --- sentences ------------------------------------------------------------------------------------


def test_a_difference_counts_from_two_standard_errors_on():
    near, far = Row("Virus", "LE", 70.0, 1.0, 68.1), Row("Virus", "LE", 70.0, 1.0, 67.9)
    assert differences([near], {}) == ["Virus: within two standard errors of the paper."]
    (told,) = differences([far], {"Virus": "the splits are ours", "LE": "so it is"})
    assert told.startswith("Virus: LE +2.1")
    assert told.endswith("errors: the splits are ours; so it is.")
    assert differences([far], {})[0].endswith("for no reason we know.")
    assert differences([Row("Virus", "LE", None, None, 67.9)], {}) == []
    assert differences([Row("Virus", "LE", 70.0, None, 10.0)], {}) == []  # a single run says little


def test_claims_hold_somewhere_or_nowhere():
    assert judge("x", {}) == []
    assert judge("x", {"A": False, "B": False})[0].endswith("does not hold on A and B.")
    assert judge("x", {"A": True, "B": False})[0].endswith("holds on A, but not on B.")


def test_a_claim_with_an_exception():
    """The paper: joint learning is best, but for 15 atoms."""
    values = {15: (80.0, 60.0, 70.0), 45: (60.0, 70.0, 80.0), 75: (9.0, 8.0, 7.0)}
    rows = [
        Row(f"{atoms} atoms", name, value)
        for atoms, found in values.items()
        for name, value in zip(published.JOINT[15], found, strict=True)
    ]
    (told,) = EXPERIMENTS["joint-learning"].claims(rows, [])
    assert told.endswith("Here that holds on 15 atoms and 45 atoms, but not on 75 atoms.")


# --- docs/results.md ------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    parts = re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]
    return {re.search(r"^`([\w-]+)`:", part, re.MULTILINE)[1]: part for part in parts}


def parse(text: str) -> list[Row]:
    """Read the figures of a table again."""
    head, _, *body = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    rows = []
    for name, *figures in body:
        for column, figure in zip(head[1:], figures, strict=True):
            parts = re.fullmatch(r"([\d.]+|-)(?: \+- ([\d.]+))?(?: \(([\d.]+)\))?", figure)
            if parts:
                value, error, paper = (float(x) if x and x != "-" else None for x in parts.groups())
                decimals = len(parts[1].partition(".")[2])
                rows.append(Row(name, column, value, error, paper, decimals))
    return rows


def test_the_document_has_every_experiment_in_order():
    assert list(sections()) == NAMES == list(dict.fromkeys(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_the_document_states_the_protocol(name):
    experiment, text = EXPERIMENTS[name], sections()[name]
    assert text.startswith(f"{experiment.title}\n")
    assert f"`{name}`: {experiment.where} of the paper. {experiment.effort(FULL)}.\n" in text
    assert f"| {experiment.unit} |" in text


def test_the_documents_comparison_follows_from_its_figures():
    """Where rounding to the figures shown cannot move a difference over two standard errors."""
    n_checked = 0
    for name, text in sections().items():
        for row in parse(text):
            if None in (row.value, row.error, row.paper):
                continue
            margin = abs(row.value - row.paper) - 2 * row.error
            if abs(margin) > 1.5 * 10**-row.decimals:
                told = re.search(rf"^- {re.escape(row.row)}: .*two standard errors", text, re.M)[0]
                named = re.search(rf"(: |, |and ){re.escape(row.column)} [+-]", told)
                assert bool(named) == row.differs, (name, row)
                n_checked += 1
    assert n_checked > 80


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("standard-measures", published.STANDARD), ("state-of-the-art", published.STATE_OF_THE_ART),
        ("losses", published.LOSSES), ("cluster-table", published.CLUSTERS),
    ],
)  # fmt: skip
def test_the_document_shows_the_papers_figures(name, table):
    titles = {source.title: source.paper for source in SOURCES.values()}
    known = [row for row in parse(sections()[name]) if row.paper is not None]
    assert known
    for row in known:
        assert row.paper == table[titles[row.row]][row.column]


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


def test_differences_come_with_the_full_protocol_only(records_of):
    experiment, records = EXPERIMENTS["standard-measures"], records_of("standard-measures")
    quick, full = (
        rendering.section(experiment, replace(TINY, name=name), DATA, records, len(records))
        for name in ("quick", "full")
    )
    assert "standard errors" not in quick
    assert "standard errors" in full
