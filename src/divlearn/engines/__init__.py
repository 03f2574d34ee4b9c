"""Engines: who computes the divergences. See `divlearn.engines.base.Engine` for the verbs."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from divlearn.engines.base import Engine, Prepared, Pullback
from divlearn.engines.cpu import available_engines, cpu_engine, make_engine
from divlearn.engines.dask import DaskEngine, as_dask
from divlearn.engines.reference import ReferenceEngine

__all__ = [
    "DaskEngine", "Engine", "Prepared", "Pullback", "ReferenceEngine", "available_engines",
    "cpu_engine", "cuda_problem", "get_engine", "prefer_engine",
]  # fmt: skip

_LEAST_CAPABILITY = 80
_preferred: tuple[str, int | None] = ("auto", None)


@cache
def _say_once() -> None:
    warnings.warn(
        "divlearn runs on its reference engine (NumPy): the compiled engine is not installed or "
        "was switched off with DIVLEARN_NO_NATIVE. Results are the same, many times slower; "
        "reinstall with a C++ compiler present to get it",
        UserWarning,
        stacklevel=4,
    )


@cache
def cuda_problem() -> str | None:
    """Say why engine="cuda" cannot run here; None if it can.

    Examples
    --------
    >>> problem = cuda_problem()
    >>> problem is None or "CUDA" in problem
    True
    """
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed, and the CUDA engine needs it; install divlearn[cuda]"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CUDA finds no GPU ({error})"
    if not count:
        return "CUDA finds no GPU"
    capability = int(cupy.cuda.Device().compute_capability)
    if capability < _LEAST_CAPABILITY:
        return (
            f"the GPU has CUDA compute capability {capability / 10}, but its tensor cores must do "
            f"float64, which needs {_LEAST_CAPABILITY / 10}"
        )
    return None


@contextmanager
def prefer_engine(engine: str, n_threads: int | None = None) -> Iterator[None]:
    """Let "auto" mean an engine inside a ``with`` block, in all threads of the process.

    ``n_threads`` is for those asked for by "auto" without a number of their own.

    Examples
    --------
    >>> with prefer_engine("reference"):
    ...     get_engine().name
    'reference'
    """
    global _preferred
    before, _preferred = _preferred, (engine, n_threads)
    try:
        yield
    finally:
        _preferred = before


def get_engine(
    engine: str | Engine = "auto", n_threads: int | None = None, accuracy: str | float = "auto"
) -> Engine:
    """Engine by name.

    Parameters
    ----------
    engine : {"auto", "native", "reference", "cuda"} or Engine
        "auto" is the fastest that runs on the CPU, unless `prefer_engine` says otherwise; an engine
        is returned as it is.
    n_threads, accuracy : as in `Engine`

    Examples
    --------
    >>> get_engine("reference", n_threads=1)
    ReferenceEngine(n_threads=1, accuracy='auto')
    """
    if isinstance(engine, Engine):
        return engine
    if as_dask(engine) is not None:
        raise ValueError(
            f"engine={engine!r} works where data comes in shards: IDDL classifiers and regressors, "
            "k-means, mixtures, and divlearn.sharded; set engine='auto' here"
        )
    available = available_engines()
    if engine == "auto":
        engine, threads = _preferred
        n_threads = threads if n_threads is None else n_threads
    if engine == "auto":
        engine = available[0]
        if engine == "reference":
            _say_once()
    if engine in available:
        return make_engine(engine, n_threads, accuracy)
    if engine == "native":
        raise ValueError(
            "engine='native' is not installed or was switched off with DIVLEARN_NO_NATIVE; use "
            "'auto' or reinstall with a C++ compiler present"
        )
    if engine == "cuda":
        if problem := cuda_problem():
            raise ValueError(f"engine='cuda' does not run here: {problem}")
        from divlearn.engines.cuda.engine import CudaEngine

        return CudaEngine(n_threads, accuracy)
    raise ValueError(f"engine={engine!r} must be 'auto', 'native', 'reference' or 'cuda'")
