"""Engines that run on the CPU: which are installed, and the fastest of them."""

import os
from functools import cache

from divlearn.engines.base import Engine
from divlearn.engines.reference import ReferenceEngine


@cache
def native_problem() -> str | None:
    """Say why engine="native" cannot run here; None if it can."""
    if os.environ.get("DIVLEARN_NO_NATIVE", "0") not in ("", "0"):
        return "DIVLEARN_NO_NATIVE switches it off"
    try:
        import divlearn.engines.native  # noqa: F401
    except ModuleNotFoundError:
        return (
            "it was not compiled; install a C++ compiler and the headers of Python (Debian: "
            "apt install g++ python3-dev), then install divlearn again, in a clone after make clean"
        )
    except ImportError as error:  # for example, a shared library is missing
        return f"it was compiled, but cannot be loaded ({error})"
    return None


def available_engines() -> tuple[str, ...]:
    """Names of the engines that run on the CPU here, the fastest first.

    The environment variable DIVLEARN_NO_NATIVE=1 hides the compiled one.

    Examples
    --------
    >>> "reference" in available_engines()
    True
    """
    return ("reference",) if native_problem() else ("native", "reference")


def cpu_engine(n_threads: int | None = None, accuracy: str | float = "auto") -> Engine:
    """Return the fastest engine that needs no other device."""
    return make_engine(available_engines()[0], n_threads, accuracy)


def make_engine(name: str, n_threads: int | None, accuracy: str | float) -> Engine:
    if name == "reference":
        return ReferenceEngine(n_threads, accuracy)
    from divlearn.engines.native import NativeEngine

    return NativeEngine(n_threads, accuracy)
