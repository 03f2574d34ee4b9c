"""The layering: nothing below imports anything above it, and the core imports little else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import divlearn

ROOT = Path(divlearn.__file__).parent
ALLOWED = {"numpy", "scipy", "sklearn", "joblib", "threadpoolctl"}
OPTIONAL = {
    "PIL",
    "aeon",
    "cupy",
    "dask",
    "distributed",
    "h5py",
    "jinja2",
    "matplotlib",
    "plotly",
    "pyriemann",
    "skimage",
    "torch",
    "zarr",
}

# From the ground up; a module may import its own package and the packages before it.
ORDER = [
    "text",
    "atomic",
    "arrays",
    "checks",
    "tolerances",
    "threads",
    "weights",
    "hermitian",
    "geometry",
    "spectral",
    "spd",
    "engines",
    "log_vectors",
    "alpha_beta",
    "optim",
    "means",
    "divergence",
    "files",
    "models",
    "fitting",
    "descriptors",
    "datasets",
    "likelihood",
    "sharded",
    "heads",
    "iddl",
    "cluster",
    "kernels",
    "tangent",
    "nearest",
    "baselines",
    "transfer",
    "outliers",
    "committee",
    "torch",
    "judge",
    "report",
    "cli",
    "__main__",
]


@cache
def modules() -> dict[str, Path]:
    """Dotted name under divlearn -> file."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(ROOT.rglob("*.py"))
    }


@cache
def imports(path: Path, *, top_level: bool) -> set[str]:
    """Absolute names of everything a file imports, or only of what it imports when loaded."""
    package = ("divlearn", *path.relative_to(ROOT).parts[:-1])
    found = set()
    pending = list(ast.parse(path.read_text()).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*parents, *filter(None, [node.module])))
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending += node.orelse if top_level else [*node.body, *node.orelse]
        elif isinstance(node, ast.expr):
            continue
        elif not (top_level and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            pending += ast.iter_child_nodes(node)
    return found


def place(name: str) -> int:
    """Where the package of a module stands in the order; a new one must be given a place."""
    return ORDER.index(name.split(".")[0])


def core() -> list[str]:
    last = ORDER.index("divergence")
    return [name for name in modules() if name != "__init__" and place(name) <= last]


def test_nothing_imports_what_lies_above():
    """Imports inside functions count."""
    for name in modules().keys() - {"__init__"}:
        for imported in imports(modules()[name], top_level=False):
            package, _, rest = imported.partition(".")
            if package != "divlearn" or rest == "__version__":  # a constant, which is there by then
                continue
            if rest.split(".")[0] not in ORDER:  # the package itself, which pulls in everything
                assert place(name) >= place("report"), f"{name} imports the whole package"
            else:
                assert place(rest) <= place(name), f"{name} imports {imported}, which is above it"


def test_no_files_import_each_other_in_a_circle():
    """Imports inside functions count."""
    known = modules()
    graph = {name: set() for name in known}
    for name in known.keys() - {"__init__"}:
        for imported in imports(known[name], top_level=False):
            package, _, target = imported.partition(".")
            while target and not {target, f"{target}.__init__"} & known.keys():
                target = target.rpartition(".")[0]
            file = target if target in known else f"{target}.__init__"
            if package == "divlearn" and target and file != name:
                graph[name].add(file)
    TopologicalSorter(graph).prepare()


def test_the_core_imports_only_what_is_required():
    for name in core():
        for imported in imports(modules()[name], top_level=True):
            package = imported.split(".")[0]
            if package not in {"divlearn", *sys.stdlib_module_names}:
                assert package in ALLOWED, f"{name} imports {imported} when loaded"


def test_importing_the_package_loads_nothing_else():
    code = "import sys, divlearn; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    loaded = set(done.stdout.split())
    assert "divlearn" in loaded
    assert not loaded & (OPTIONAL | ALLOWED)


def test_the_parser_of_imports_sees_them(tmp_path):
    """A test of the test: every form of import is found, functions only when asked for."""
    path = ROOT / "engines" / "cpu.py"
    everything, loaded = imports(path, top_level=False), imports(path, top_level=True)
    assert "divlearn.engines.native.NativeEngine" in everything
    assert "divlearn.engines.native.NativeEngine" not in loaded
    assert "divlearn.engines.base.Engine" in loaded
