"""Pages of the API reference, one per module, written from what the modules say is public."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

# What users import from, in the order in which a reader wants it.
GROUPS: dict[str, tuple[str, ...]] = {
    "Choosing": ("judge",),
    "Learning": ("committee", "iddl", "kernels", "transfer", "torch"),
    "Clusters and densities": ("cluster", "likelihood"),
    "Divergences": ("divergence", "means", "spectral", "spd"),
    "Data": ("descriptors", "datasets", "sharded"),
    "Comparing": ("baselines",),
    "Keeping and showing": ("models", "fitting", "report"),
    "Underneath": ("engines",),
}
# What only divlearn itself imports from.
INTERNAL = {
    "__main__", "arrays", "atomic", "checks", "cli", "files", "geometry", "log_vectors", "optim",
    "pairs", "threads", "tolerances", "vector_kmeans", "weights",
}  # fmt: skip


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
    lines = [*_title("API reference", "="), ""]
    for group, modules in public_modules().items():
        lines += [*_title(group, "-"), "", ".. toctree::", "   :hidden:", ""]
        lines += [f"   {module.__name__}" for module in modules] + [""]
        for module in modules:
            own = names[module.__name__]
            links = ", ".join(f"`~{module.__name__}.{name}`" for name in sorted(own))
            lines += [f"`{module.__name__}`: {_first_sentence(module)}", "", f"   {links}", ""]
            _write_if_new(folder / f"{module.__name__}.rst", _module_page(module, own))
    _write_if_new(folder / "index.rst", "\n".join(lines))


def _module_page(module: ModuleType, names: list[str]) -> str:
    """Docstring, then classes, functions and constants."""
    objects = {name: getattr(module, name) for name in names}
    classes = [name for name, value in objects.items() if inspect.isclass(value)]
    functions = [name for name, value in objects.items() if inspect.isroutine(value)]
    constants = [name for name in names if name not in {*classes, *functions}]
    lines = [
        *_title(module.__name__, "="), "", f".. module:: {module.__name__}", "",
        inspect.getdoc(module) or "", "",
    ]  # fmt: skip
    for heading, members in (("Classes", classes), ("Functions", functions)):
        if members:
            lines += [*_title(heading, "-"), "", ".. autosummary::", "   :toctree: generated", ""]
            lines += [f"   {name}" for name in sorted(members)] + [""]
    if constants:
        lines += [*_title("Constants", "-"), ""]
        for name in sorted(constants):
            lines += [f".. py:data:: {name}", "", f"   {_describe(objects[name])}", ""]
    return "\n".join(lines)


def _describe(value: Any) -> str:
    """Say what a constant holds; its own docstring is that of its type."""
    if isinstance(value, dict):
        return f"Dictionary with the keys {', '.join(f'``{key!r}``' for key in value)}."
    if isinstance(value, type(list[int])) or not hasattr(value, "__dict__"):
        return f"``{value}``".replace("numpy.", "").replace("collections.abc.", "")
    return f"A `{type(value).__module__}.{type(value).__name__}`."


def _first_sentence(module: ModuleType) -> str:
    return (inspect.getdoc(module) or "").split("\n\n")[0].replace("\n", " ")


def _title(text: str, line: str) -> list[str]:
    return [text, line * len(text)]


def _write_if_new(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
