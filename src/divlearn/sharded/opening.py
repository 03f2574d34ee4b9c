"""Open data as shards: arrays, files, Dask arrays or iterators, in this process or on workers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.checks import check_count
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.engines.dask import DaskEngine, as_dask
from divlearn.fitting.labelled import check_size, engine_of, real_new, real_training
from divlearn.fitting.targets import check_rows
from divlearn.sharded.blocks import (
    COPIES,
    Block,
    Data,
    LazyBlock,
    Source,
    are_paths,
    block_in_memory,
    encode_block,
    is_dask_array,
    is_path,
    load,
    open_sources,
)
from divlearn.sharded.shards import DaskShards, MemoryShards, Parts, Shards
from divlearn.spd import Regularize, check_and_learn, learn_shrinkage, mean_eigenvalues
from divlearn.weights import check_weights

_BLOCK_BYTES = 1 << 24
_LEAST_ROWS = 256
_BLOCKS_PER_THREAD = 4  # lets fast workers take more blocks than slow ones
_BLOCK_SHARE = 0.5  # of the memory limit; the rest is for results and the current block
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_LARGE_MAP = 1 << 30  # bytes of a memory map; joblib makes maps of arrays that fit in memory


def is_sharded(X: Data, engine: str | Engine | DaskEngine = "auto") -> bool:
    """Whether data comes in shards, or the engine keeps data in shards."""
    return (
        isinstance(X, Shards)
        or are_paths(X)
        or is_path(X)
        or callable(X)
        or is_dask_array(X)
        or type(X).__module__.startswith("zarr.")
        or as_dask(engine) is not None
    )


def open_shards(
    X: Data,
    y: Data = None,
    sample_weight: Data = None,
    *,
    engine: str | Engine | DaskEngine = "auto",
    accuracy: str | float = "auto",
    memory_limit: int | str | None = None,
    block_size: int | None = None,
    regularize: Regularize = "raise",
) -> Shards:
    """Open data in shards.

    Parameters
    ----------
    X : array, memory map, Dask array, zarr array, file or files, or callable
        Matrices, shape (n_matrices, d, d). Files are .npy, .npz (the array "X", or the only one) or
        zarr; workers must see them under the same names. A callable returns an iterator of arrays,
        or of tuples (X, y) or (X, y, sample_weight). Shards are returned unchanged.
    y, sample_weight : likewise, optional
        Files, as many as for X, or arrays. Where .npz files of X hold "y" and "sample_weight" too,
        pass the same files again. Weights are divided by their mean.
    engine : str, Engine or DaskEngine, default="auto"; "dask" keeps the shards on workers.
    accuracy : as in `divlearn.get_engine`
    memory_limit : int or str such as "1GB", optional
        Memory for blocks and results, without workers. Blocks beyond half of it are read again for
        each pass; results and items of an iterator are stored in temporary files.
    block_size : int, optional
        Largest number of matrices per block; about 16 MB by default.
    regularize : as in `divlearn.check_spd`, or `shrinkage_` of an estimator

    Examples
    --------
    >>> shards = open_shards(np.stack([np.eye(2)] * 5), block_size=2)
    >>> len(shards), shards.n_matrices, shards.d
    (3, 5, 2)
    """
    if isinstance(X, Shards):
        return _check_opened(X, y, sample_weight, regularize)
    dask = as_dask(engine) or (DaskEngine() if is_dask_array(X) else None)
    client = None if dask is None else dask.connect()
    limit = _parse_limit(memory_limit) if client is None else None
    threads = 0 if client is None else sum(client.nthreads().values())
    arrays = open_sources(X, y, sample_weight, in_files=limit is not None)
    if block_size is not None:
        block_size = check_count(block_size, "block_size")
    blocks = [block for a in arrays for block in a.cut(_lengths(a.X, block_size, threads))]
    sources = [block for block in blocks if block.X.shape[0]] or blocks
    shrinkage = learn_shrinkage(regularize, partial(_mean_sizes, sources))
    name: Any = engine if dask is None else dask.engine
    make_engine = partial(get_engine, name, dask.n_threads if dask else None, accuracy)
    if client is None:
        lazy = [LazyBlock(i, source, make_engine, shrinkage) for i, source in enumerate(sources)]
        shards = Shards(_load_first(lazy, limit), in_files=limit is not None)
    else:
        shards = DaskShards(client, sources, make_engine, shrinkage)
    if shards.n_matrices == 0:
        raise ValueError("X holds no matrices (n_samples=0); pass at least one")
    shards.normalize_weights()
    shards.shrinkage = shrinkage
    return shards


def _check_opened(X: Shards, y: Data, sample_weight: Data, regularize: Regularize) -> Shards:
    if y is not None or sample_weight is not None:
        raise ValueError("X is opened already; pass y and sample_weight to open_shards")
    if regularize not in ("raise", None, X.shrinkage):
        raise ValueError(f"X is opened already; pass regularize={regularize!r} to open_shards")
    return X


def _load_first(blocks: Sequence[LazyBlock], limit: float | None) -> list[Block | LazyBlock]:
    """Load the first blocks, which fit into half of the memory limit; others stay lazy."""
    sizes = accumulate(COPIES * 8 * math.prod(block.source.X.shape) for block in blocks)
    share = math.inf if limit is None else _BLOCK_SHARE * limit
    return [b.load() if size <= share else b for b, size in zip(blocks, sizes, strict=True)]


def _mean_sizes(sources: Sequence[Source]) -> tuple[RealArray, RealArray | None]:
    """Mean eigenvalue of each matrix, computed by Dask for a Dask array, and the weights."""
    means = [np.asarray(mean_eigenvalues(load(source.X))) for source in sources]
    if all(source.weights is None for source in sources):
        return np.concatenate(means), None
    weights = [
        np.ones(len(part)) if source.weights is None else load(source.weights)
        for source, part in zip(sources, means, strict=True)
    ]
    return np.concatenate(means), np.concatenate(weights)


def _parse_limit(limit: int | str | None) -> float | None:
    """Return the bytes of a memory limit such as "1.5 GB"."""
    if limit is None:
        return None
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([a-z]*)", str(limit).strip().lower())
    if isinstance(limit, bool) or not match or match[2] not in _UNITS:
        raise ValueError(f'memory_limit={limit!r} must be a number of bytes, or text such as "2GB"')
    return float(match[1]) * _UNITS[match[2]]


def _lengths(X: Data, block_size: int | None, threads: int) -> Sequence[int]:
    """Return the lengths of blocks; a Dask array keeps its chunks."""
    if is_dask_array(X):
        chunks: tuple[int, ...] = X.chunks[0]
        return chunks
    n_matrices, d, _ = X.shape
    rows = block_size or max(_LEAST_ROWS, _BLOCK_BYTES // max(1, 8 * d**2))
    if threads and block_size is None:
        rows = min(rows, max(1, -(-n_matrices // (_BLOCKS_PER_THREAD * threads))))
    return [min(rows, n_matrices - i) for i in range(0, n_matrices, rows)] or [0]


def open_data(
    X: Data,
    y: Data = None,
    sample_weight: Data = None,
    *,
    engine: str | Engine | DaskEngine = "auto",
    accuracy: str | float = "auto",
    regularize: Regularize = "raise",
) -> Shards:
    """Open and check the data of an estimator; an array in memory is one block.

    `Prepared` matrices were checked and regularized before.
    """
    if is_sharded(X, engine) or (isinstance(X, np.memmap) and X.nbytes > _LARGE_MAP):
        return open_shards(
            X, y, sample_weight, engine=engine, accuracy=accuracy, regularize=regularize
        )
    assert not isinstance(engine, DaskEngine)
    engine = get_engine(engine, accuracy=accuracy)
    if isinstance(X, Prepared):
        matrices, shrinkage = X.matrices, None
    else:
        matrices, shrinkage = check_and_learn(
            X, regularize, sample_weight, ndim=3, dtype=np.float64
        )
    weights = check_weights(sample_weight, len(matrices))
    if y is not None:
        y = np.asarray(y)
        check_rows(y, len(matrices), "y")
    shards = MemoryShards(block_in_memory(engine, matrices, y, weights))
    shards.shrinkage = shrinkage
    return shards


def open_training(estimator: Any, X: Data, *more: Data, accuracy: str | float = "auto") -> Shards:
    """Open training data, and store the regularization for new data in `shrinkage_`."""
    options = _options(estimator, accuracy, estimator.regularize)
    shards = open_data(real_training(estimator, X), *more, **options)
    estimator.shrinkage_ = shards.shrinkage
    return shards


def open_new(
    estimator: Any, X: Data, sample_weight: Data = None, *, accuracy: str | float = "auto"
) -> Shards:
    """Open new data for a fitted estimator, and check the size of its matrices."""
    if not isinstance(X, Prepared):
        check_is_fitted(estimator)
        X = real_new(estimator, X)
    options = _options(estimator, accuracy, estimator.shrinkage_)
    shards = open_data(X, None, sample_weight, **options)
    check_size(estimator, shards.d)
    return shards


def _options(estimator: Any, accuracy: str | float, regularize: Regularize) -> dict[str, Any]:
    engine = as_dask(estimator.engine) or engine_of(estimator, accuracy)
    return {"engine": engine, "accuracy": accuracy, "regularize": regularize}


def encode(
    X: Data,
    atoms: ArrayLike,
    alpha: ArrayLike,
    beta: ArrayLike,
    *,
    gather: bool = True,
    **options: Any,
) -> RealArray | Parts:
    """Divergence of every matrix in shards to every atom.

    Parameters
    ----------
    X : shards, or what `open_shards` takes
    atoms, alpha, beta : as in `divlearn.engines.Engine.encode`
    gather : bool, default=True
        Whether to return an array. If False the divergences stay where the shards are, and the
        methods of the shards take the result as ``parts``.
    **options
        Of `open_shards`.

    Returns
    -------
    ndarray, shape (n_matrices, n_atoms) or (n_matrices, n_atoms, n_pairs); or parts

    Examples
    --------
    >>> X = np.stack([np.eye(2), 2 * np.eye(2), np.eye(2)])
    >>> encode(X, np.eye(2)[None], 0, 0, block_size=2).round(4).ravel()
    array([0.    , 0.4805, 0.    ])
    """
    shards = open_shards(X, **options)
    shared = tuple(map(np.asarray, (atoms, alpha, beta)))
    if not gather:
        return shards.hold(encode_block, *shared)
    return np.concatenate(shards.map(encode_block, *shared))
