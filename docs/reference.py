"""Pages of the API reference, one per module, written from what the modules say is public."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

# What users import from, in the order in which a reader wants it.
GROUPS: dict[str, tuple[str, ...]] = {
    "Choosing": ("judge",),
    "Learning": (
        "committee",
        "iddl",
        "kernels",
        "nearest",
        "tangent",
        "baselines",
        "transfer",
        "torch",
    ),
    "Clusters and densities": ("cluster", "likelihood", "outliers"),
    "Divergences": ("divergence", "means", "spd"),
    "Data": ("descriptors", "datasets", "sharded"),
    "Keeping and showing": ("models", "report", "fitting"),
    "Underneath": ("engines", "spectral"),
}
# Dataclasses that users make themselves; all others are results of functions.
DATA = {"Dataset", "Divergence", "GaborBank", "Preset"}
# Public, but few users call them: they are on the pages of their modules, not in the index.
HELPERS = {
    "ImageFiles",
    "LocalShards",
    "Shards",
    "cuda_problem",
    "default_classifiers",
    "invert_f_t",
    "log_generalized_domain",
}
# What only divlearn itself imports from.
INTERNAL = {
    "__main__",
    "alpha_beta",
    "arrays",
    "atomic",
    "text",
    "checks",
    "cli",
    "files",
    "geometry",
    "heads",
    "hermitian",
    "log_vectors",
    "optim",
    "threads",
    "tolerances",
    "weights",
}


def public_modules() -> dict[str, list[ModuleType]]:
    """Modules by group; those that need something that is not installed are left out."""
    return {
        group: [
            import_module(f"divlearn.{name}")
            for name in names
            if find_spec(f"divlearn.{name}") and (name != "torch" or find_spec("torch"))
        ]
        for group, names in GROUPS.items()
    }


def assign_names() -> dict[str, list[str]]:
    """Names to list under each module, each object once: where a reader meets it first."""
    seen: set[int] = set()
    assigned = {}
    for modules in public_modules().values():
        for module in modules:
            objects = {name: getattr(module, name) for name in module.__all__}
            new = {name: value for name, value in objects.items() if id(value) not in seen}
            seen |= {id(value) for value in new.values()}
            assigned[module.__name__] = list(new)
    return assigned


def write(folder: Path) -> None:
    """Write the pages, and leave those alone that have not changed."""
    folder.mkdir(exist_ok=True)
    names = assign_names()
    lines = [
        *_title("API", "="),
        "",
        "Classes and functions to call. The page of a module also has",
    ]
    lines += ["the objects that its functions return, and its constants.", ""]
    for group, modules in public_modules().items():
        lines += [*_title(group, "-"), "", ".. toctree::", "   :hidden:", ""]
        lines += [f"   {module.__name__}" for module in modules] + [""]
        for module in modules:
            own = names[module.__name__]
            lines += [f":doc:`{module.__name__}`: {_first_paragraph(module)}", ""]
            lines += [".. list-table::", "   :widths: 35 65", ""]
            classes, functions, _, _ = _kinds(module, own)
            for name in sorted({*classes, *functions} - HELPERS, key=[*classes, *functions].index):
                summary = _first_paragraph(getattr(module, name))
                lines += [f"   * - `~{module.__name__}.{name}`", f"     - {summary}"]
            lines.append("")
            _write_if_new(folder / f"{module.__name__}.rst", _module_page(module, own))
    _write_if_new(folder / "index.rst", "\n".join(lines))


def _kinds(module: ModuleType, names: list[str]) -> tuple[list[str], ...]:
    """Sort names into classes, functions, types of results and constants."""
    objects = {name: getattr(module, name) for name in sorted(names)}
    types = {name: value for name, value in objects.items() if inspect.isclass(value)}
    results = [
        name
        for name, value in types.items()
        if name not in DATA and (is_dataclass(value) or issubclass(value, tuple))
    ]
    functions = [name for name, value in objects.items() if inspect.isroutine(value)]
    classes = [name for name in types if name not in results]
    constants = [name for name in objects if name not in {*types, *functions}]
    return classes, functions, results, constants


def _module_page(module: ModuleType, names: list[str]) -> str:
    """Docstring, then classes, functions, results and constants."""
    classes, functions, results, constants = _kinds(module, names)
    lines = [
        *_title(module.__name__, "="),
        "",
        f".. module:: {module.__name__}",
        "",
        inspect.getdoc(module) or "",
        "",
    ]
    headings = {"Classes": classes, "Functions": functions, "Returned objects": results}
    for heading, members in headings.items():
        if members:
            lines += [*_title(heading, "-"), "", ".. autosummary::", "   :toctree: generated", ""]
            lines += [f"   {name}" for name in members] + [""]
    if constants:
        lines += [*_title("Constants", "-"), ""]
        for name in constants:
            described = _describe(getattr(module, name))
            lines += [f".. py:data:: {name}", "", f"   {described}", ""]
    return "\n".join(lines)


def _describe(value: Any) -> str:
    """Say what a constant holds; its own docstring is that of its type."""
    if isinstance(value, dict):
        return f"Dictionary with the keys {', '.join(f'``{key!r}``' for key in value)}."
    if isinstance(value, type(list[int])) or not hasattr(value, "__dict__"):
        return f"``{value}``".replace("numpy.", "").replace("collections.abc.", "")
    return f"A `{type(value).__module__}.{type(value).__name__}`."


def _first_paragraph(value: Any) -> str:
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def _title(text: str, line: str) -> list[str]:
    return [text, line * len(text)]


def _write_if_new(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
