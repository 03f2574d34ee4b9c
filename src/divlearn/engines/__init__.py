"""Engines compute the divergences. See `divlearn.engines.base.Engine` for their methods."""

import warnings
from functools import cache

from divlearn.engines.base import Engine
from divlearn.engines.cpu import available_engines, make_engine, native_problem
from divlearn.engines.dask import DaskEngine, as_dask
from divlearn.engines.data import Prepared, Pullback
from divlearn.engines.reference import ReferenceEngine

__all__ = [
    "DaskEngine",
    "Engine",
    "Prepared",
    "Pullback",
    "ReferenceEngine",
    "available_engines",
    "cuda_problem",
    "get_engine",
]

_MIN_CAPABILITY = 80


@cache
def _warn_of_reference() -> None:
    warnings.warn(
        "divlearn runs on its reference engine (NumPy): results are the same but take 5 to 50 "
        f"times as long. The compiled engine does not run here: {native_problem()}",
        stacklevel=4,
    )


@cache
def cuda_problem() -> str | None:
    """Say why engine="cuda" cannot run here; None if it can."""
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
    if capability < _MIN_CAPABILITY:
        return (
            f"the GPU has CUDA compute capability {capability / 10}, but its tensor cores must do "
            f"float64, which needs {_MIN_CAPABILITY / 10}"
        )
    return None


def get_engine(
    engine: str | Engine = "auto", n_threads: int | None = None, accuracy: str | float = "auto"
) -> Engine:
    """Engine by name.

    Parameters
    ----------
    engine : {"auto", "native", "reference", "cuda"} or Engine
        "auto" is the fastest that runs on the CPU; an engine is returned as it is.
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
        engine = available[0]
        if engine == "reference":
            _warn_of_reference()
    if engine in available:
        return make_engine(engine, n_threads, accuracy)
    if engine == "native":
        raise ValueError(f"engine='native' does not run here: {native_problem()}; use 'auto'")
    if engine == "cuda":
        if problem := cuda_problem():
            raise ValueError(f"engine='cuda' does not run here: {problem}")
        from divlearn.engines.cuda.engine import CudaEngine

        return CudaEngine(n_threads, accuracy)
    raise ValueError(f"engine={engine!r} must be 'auto', 'native', 'reference' or 'cuda'")
