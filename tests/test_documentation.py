"""The documentation says what is so: code runs, links lead somewhere, nothing is left out."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from test_layers import ORDER, ROOT

TOP = Path(__file__).parents[1]
DOCS = TOP / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *TOP.glob("*.md")])
BLOCK = re.compile(r"(<!-- not run[^\n]*-->\n)?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def load(name: str):
    """Import a module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_code(text: str) -> str:
    return re.sub(
        r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    )


# --- code -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name
)
@pytest.mark.usefixtures("short_fits", "coarse_maps", "working_folder")
def test_code_on_pages_runs(path, few_recordings):
    """Blocks of a page run one after the other; those marked as slow are only compiled."""
    # With fewer, no alignment is better than none by more than its error.
    few_recordings(96 if path.name == "transfer.md" else 36, 4)
    names: dict = {"__name__": "page"}
    for mark, code in BLOCK.findall(path.read_text()):
        compiled = compile(code, str(path), "exec")
        if not mark:
            exec(compiled, names)


def test_both_columns_of_pyriemann_give_the_same_numbers():
    """The table of docs/peers.md, whose cells are expressions."""
    text = (DOCS / "peers.md").read_text()
    names: dict = {}
    exec(BLOCK.search(text)[2], names)
    table = text.split("| you write | you write here |\n|---|---|\n")[1].split("\n\n")[0]
    rows = [re.findall(r"`([^`]+)`", line) for line in table.splitlines()]
    assert len(rows) > 20
    for peer, ours in rows:
        with parallel_config("threading"):  # processes would import both libraries again
            values = [np.asarray(eval(one, names)) for one in (peer, ours)]
        assert values[0].shape == values[1].shape, peer
        assert values[0].dtype.kind == values[1].dtype.kind, peer
        np.testing.assert_allclose(values[1], values[0], rtol=5e-3, atol=1e-3, err_msg=peer)


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text())):
        if not re.match(r"[a-z]+:|#", target):
            file = path.parent / target.split("#")[0]
            generated = file.parent in (DOCS / "gallery", DOCS / "learn", DOCS / "api")
            assert generated or file.exists(), f"{path.name} links to {target}"


def test_every_page_is_in_a_table_of_contents():
    lists = re.findall(r"```{toctree}\n(.*?)```", "".join(p.read_text() for p in PAGES), re.DOTALL)
    listed = [line for text in lists for line in text.split("\n") if line and line[0] != ":"]
    assert len(listed) == len(set(listed))
    assert {p.stem for p in DOCS.glob("*.md")} - {"index"} <= set(listed)


# --- the reference --------------------------------------------------------------------------------


def test_every_module_is_public_or_internal():
    """A new module must be given a place in docs/reference.py, or said to be internal there."""
    reference = load("reference")
    public = {name for names in reference.GROUPS.values() for name in names}
    there = {path.stem for path in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/*.py")}
    assert not public & reference.INTERNAL
    assert there - {"__init__"} <= public | reference.INTERNAL


def test_every_public_name_is_listed_once():
    import divlearn

    reference = load("reference")
    assigned = reference.assign_names()
    everything = {
        id(getattr(module, name)): f"{module.__name__}.{name}"
        for modules in reference.public_modules().values()
        for module in modules
        for name in module.__all__
    }
    listed = [f"{module}.{name}" for module, names in assigned.items() for name in names]
    assert sorted(listed) == sorted(set(listed))
    assert len(listed) == len(everything)
    for name in divlearn.__all__:
        assert id(getattr(divlearn, name)) in everything, f"divlearn.{name} is in no module's list"


# --- what pages claim -----------------------------------------------------------------------------


def test_every_erratum_has_its_test():
    page = (DOCS / "errata.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    files = (TOP / "tests/oracle/test_errata.py", TOP / "tests/test_errata.py")
    defined = set(
        re.findall(r"^def (test_\w+)", "".join(f.read_text() for f in files), re.MULTILINE)
    )
    assert named == defined


def test_files_that_the_architecture_names_exist():
    for name in re.findall(r"`([\w/]+/\w+\.py)`", (DOCS / "architecture.md").read_text()):
        assert (ROOT / name).exists() or (TOP / name).exists(), name


def test_the_drawing_shows_the_order():
    """Lines of the drawing are the order of tests/test_layers.py, from the top down."""
    page = (DOCS / "architecture.md").read_text()
    drawing = re.search(r"```text\n( ask .*?)```", page, re.DOTALL)
    names = [line[11:31].strip() for line in drawing[1].splitlines() if "---" not in line]
    assert names[::-1] == ORDER


def test_the_readme_shows_measured_accuracy():
    """No figure is typed by hand: the rows are those of docs/accuracy.md."""
    tables = load("readme_tables")
    page = tables.between((DOCS / "accuracy.md").read_text(), "benchmark")
    shown = tables.between((TOP / "README.md").read_text(), "accuracy")
    assert shown == tables.accuracy_table(page)


def test_the_table_of_the_readme_has_what_was_measured():
    """Sets and methods may be missing: MDM was not timed, kernels were not measured at all."""
    page = """\
| accuracy, % | ETH-80 | EEGMAT |
| --- | --- | --- |
| MDM, AIRM | 64.5 +- 1.4 | 58.9 +- 2.6 |
| IDDLClassifier | 75.4 +- 1.6 | - |
| SPDClassifier | **79.3 +- 1.9** | **76.4 +- 4.0** |

| seconds to fit and predict | ETH-80 | EEGMAT |
| --- | --- | --- |
| IDDLClassifier | 10.5 | - |
| SPDClassifier | 20.5 | 4 |"""
    assert load("readme_tables").accuracy_table(page).splitlines() == [
        "| accuracy, % | ETH-80 | EEGMAT | seconds, all 2 |",
        "| --- | --- | --- | --- |",
        "| MDM, AIRM | 64.5 +- 1.4 | 58.9 +- 2.6 | - |",
        "| IDDLClassifier | 75.4 +- 1.6 | - | - |",
        "| SPDClassifier | **79.3 +- 1.9** | **76.4 +- 4.0** | 24.5 |",
    ]


def public_objects():
    reference = load("reference")
    for modules in reference.public_modules().values():
        for module in modules:
            for name in module.__all__:
                yield f"{module.__name__}.{name}", getattr(module, name)


def test_everything_public_has_a_docstring():
    """Classes, their public methods and properties, and functions."""
    for name, value in public_objects():
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name
        if inspect.isclass(value):
            for key, member in vars(value).items():
                if not key.startswith("_") and (callable(member) or isinstance(member, property)):
                    assert inspect.getdoc(getattr(value, key)), f"{name}.{key}"
