"""Engines: who computes the divergences. See `divlearn.engines.base.Engine` for the verbs."""

from __future__ import annotations

import os
import warnings
from functools import cache

from divlearn.engines.base import Engine, Prepared, Pullback
from divlearn.engines.reference import ReferenceEngine

__all__ = ["Engine", "Prepared", "Pullback", "ReferenceEngine", "available_engines", "get_engine"]


@cache
def available_engines() -> tuple[str, ...]:
    """Names of the engines that run here, the fastest first.

    Examples
    --------
    >>> "reference" in available_engines()
    True
    """
    if os.environ.get("DIVLEARN_NO_NATIVE", "0") not in ("", "0"):
        return ("reference",)
    try:
        from divlearn.engines import native  # noqa: F401
    except ImportError:
        return ("reference",)
    return ("native", "reference")


@cache
def _say_once() -> None:
    warnings.warn(
        "divlearn runs on its reference engine (NumPy): the compiled engine is not installed or "
        "was switched off with DIVLEARN_NO_NATIVE. Results are the same, 10 to 30 times slower; "
        "reinstall with a C++ compiler present to get it",
        UserWarning,
        stacklevel=4,
    )


def get_engine(
    engine: str | Engine = "auto", n_threads: int | None = None, accuracy: str | float = "auto"
) -> Engine:
    """Engine by name.

    Parameters
    ----------
    engine : {"auto", "native", "reference"} or Engine
        "auto" is the fastest that runs here; an engine is returned as it is.
    n_threads : int, optional
        Threads to use; all the process may use by default.
    accuracy : {"auto", "accurate", "fast"} or float
        When to take the accurate route; see `Engine`.

    Returns
    -------
    Engine

    Examples
    --------
    >>> get_engine("reference", n_threads=1)
    ReferenceEngine(n_threads=1, accuracy='auto')
    """
    if isinstance(engine, Engine):
        return engine
    available = available_engines()
    if engine == "auto":
        engine = available[0]
        if engine == "reference":
            _say_once()
    if engine == "reference":
        return ReferenceEngine(n_threads, accuracy)
    if engine == "native" and engine in available:
        from divlearn.engines.native import NativeEngine

        return NativeEngine(n_threads, accuracy)
    if engine == "native":
        raise ValueError(
            "engine='native' is not installed or was switched off with DIVLEARN_NO_NATIVE; use "
            "'auto' or reinstall with a C++ compiler present"
        )
    raise ValueError(f"engine={engine!r} must be 'auto', 'native' or 'reference'")
