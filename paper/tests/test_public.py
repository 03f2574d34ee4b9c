"""The paper uses the library as any user would, and the library does not know of it."""

import ast
import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_paper_imports_public_names_only():
    """A module is public if docs/reference.py lists it, and a name if its module does."""
    page = ast.parse((ROOT / "docs/reference.py").read_text())
    assigned = [node for node in page.body if isinstance(node, ast.AnnAssign)]
    groups = next(ast.literal_eval(one.value) for one in assigned if one.target.id == "GROUPS")
    public = {f"divlearn.{name}" for group in groups.values() for name in group}
    found = 0
    for path in (ROOT / "paper").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("divlearn"):
                module = import_module(node.module)
                for alias in node.names:
                    assert node.module == "divlearn" or node.module in public, (path, node.module)
                    submodule = f"{node.module}.{alias.name}" in public
                    assert submodule or alias.name in module.__all__, (path, alias.name)
                    found += 1
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("divlearn.") for alias in node.names)
    assert found > 20


def test_the_library_does_not_know_the_paper():
    for path in (ROOT / "src").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) paper\b", path.read_text(), re.MULTILINE), path
