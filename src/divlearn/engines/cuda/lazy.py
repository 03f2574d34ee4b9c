"""CuPy, imported when it is first used: the package is whole without it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["cp"]


class _CuPy:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by whoever inspects modules
            raise AttributeError(name)
        value = getattr(import_module("cupy"), name)
        setattr(self, name, value)  # found without this detour from now on
        return value


cp: Any = _CuPy()
