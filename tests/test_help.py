"""`help` shows short types: the names that are written in the code, not what they stand for."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

import divlearn

LONGEST = 42  # letters of the type of a parameter or result


def functions(value: object) -> list[object]:
    """Return a public function, or a class and the public methods that divlearn defines for it."""
    if not inspect.isclass(value):
        return [value] if inspect.isfunction(value) else []
    if issubclass(value, Warning):  # which takes whatever a message is made of
        return []
    methods = [one for name, one in inspect.getmembers(value, inspect.isroutine) if name[0] != "_"]
    return [value, *(one for one in methods if _home(one).startswith("divlearn."))]


def _home(method: object) -> str:
    return getattr(method, "__module__", None) or ""


def types_of(function: object) -> list[str]:
    signature = inspect.signature(function)
    given = [one.annotation for one in signature.parameters.values()]
    known = [one for one in (*given, signature.return_annotation) if one is not inspect._empty]
    return [inspect.formatannotation(one).strip("'\"") for one in known]


@pytest.mark.parametrize("name", sorted({*divlearn._MODULES} - {"optim"}))  # which has no names
def test_types_are_short(name):
    if name == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    module = import_module(f"divlearn.{name}")
    long = {
        f"{getattr(one, '__qualname__', one)}: {text}"
        for public in module.__all__
        for one in functions(getattr(module, public))
        for text in types_of(one)
        if len(text) > LONGEST
    }
    assert not long, "begin the module with `from __future__ import annotations`, or name the type"
