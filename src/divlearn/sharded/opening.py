"""Open shards: from arrays, files, Dask arrays or iterators, here or on workers."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.engines import Engine, get_engine
from divlearn.engines.dask import DaskEngine, as_dask
from divlearn.fitting.labelled import check_size
from divlearn.fitting.targets import check_rows
from divlearn.sharded.blocks import BlockSource, EngineChoice, block_in_memory, encode_block
from divlearn.sharded.pieces import Piece, cut_file, from_iterator, is_path, open_file, split
from divlearn.sharded.shards import LocalShards, Parts, Shards
from divlearn.spd import Shrinkage, check_and_learn, learn_shrinkage, mean_eigenvalues
from divlearn.weights import as_weights, check_weights

_BLOCK_BYTES = 1 << 24
_LEAST_ROWS = 256
_BLOCKS_PER_THREAD = 4  # so that a slow worker can be helped
_LARGE_MAP = 1 << 30  # bytes of a memory map; joblib makes maps of arrays that fit in memory
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def is_sharded(X: Any, engine: Any = None) -> bool:
    """Whether data comes in shards, or an engine would make shards of it."""
    return (
        isinstance(X, Shards)
        or _are_paths(X)
        or is_path(X)
        or callable(X)
        or _is_dask_array(X)
        or type(X).__module__.startswith("zarr.")
        or as_dask(engine) is not None
    )


def open_shards(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    engine: str | Engine | DaskEngine = "auto",
    accuracy: str | float = "auto",
    memory_limit: int | str | None = None,
    block_size: int | None = None,
    regularize: str | float | Shrinkage | None = "raise",
) -> Shards:
    """Open data in shards.

    Parameters
    ----------
    X : array, memory map, Dask array, zarr array, file or files, or callable
        Matrices, shape (n_matrices, d, d). Files are .npy, .npz (the array "X", or the only one) or
        zarr; workers must see them under the same names. A callable returns an iterator of arrays,
        or of tuples (X, y) or (X, y, sample_weight), the same each time. Shards are returned as
        they are.
    y, sample_weight : likewise, optional
        Files, as many as for X; or arrays with one row per matrix. Where .npz files of X hold them
        too, under the names "y" and "sample_weight", pass the same files again. Weights are
        divided by their mean.
    engine : str, Engine or DaskEngine, default="auto"
        "dask" or a `DaskEngine` keeps the shards on workers.
    accuracy : as in `divlearn.get_engine`
    memory_limit : int or str such as "1GB", optional
        Of shards on this machine; see `LocalShards`.
    block_size : int, optional
        Matrices per block, at most, where files and arrays have to be cut. About 16 MB by default,
        and four blocks for every thread of the workers.
    regularize : as in `divlearn.check_spd`, or `shrinkage_` of an estimator
        "shrink" and numbers take one more pass over the data, which must not be on Dask workers.

    Returns
    -------
    Shards

    Examples
    --------
    >>> shards = open_shards(np.stack([np.eye(2)] * 5), block_size=2)
    >>> len(shards), shards.n_matrices, shards.d
    (3, 5, 2)
    """
    if isinstance(X, Shards):
        if y is not None or sample_weight is not None:
            raise ValueError("X is opened already; pass y and sample_weight to open_shards")
        if regularize not in ("raise", None, X.shrinkage):
            raise ValueError(f"X is opened already; pass regularize={regularize!r} to open_shards")
        return X
    dask = as_dask(engine) or (DaskEngine() if _is_dask_array(X) else None)
    if dask is None:
        assert not isinstance(engine, DaskEngine)
        choice = EngineChoice(engine, None, accuracy)
        sources = _sources(X, y, sample_weight, block_size, choice, 0)
        shrinkage = learn_shrinkage(regularize, partial(_sizes, sources))
        choice = replace(choice, shrinkage=shrinkage)
        sources = [replace(source, choice=choice) for source in sources]
        shards: Shards = LocalShards(sources, as_bytes(memory_limit))
    else:
        from divlearn.sharded.workers import DaskShards, load_dask_array

        shrinkage = learn_shrinkage(regularize, _refuse_workers)
        client = dask.connect()
        choice = EngineChoice(dask.engine, dask.n_threads, accuracy, shrinkage)
        if _is_dask_array(X):
            shards = load_dask_array(X, y, sample_weight, client, choice)
        else:
            threads = max(1, sum(client.nthreads().values()))
            sources = _sources(X, y, sample_weight, block_size, choice, threads)
            shards = DaskShards.load(client, sources)
    if shards.n_matrices == 0:  # which looks at every matrix once
        raise ValueError("X holds no matrices (n_samples=0); pass at least one")
    shards.normalize_weights()
    shards.shrinkage = shrinkage
    return shards


def _sizes(sources: Sequence[BlockSource]) -> tuple[RealArray, RealArray | None]:
    """Mean eigenvalues of all matrices, and weights."""
    means = [mean_eigenvalues(source.X.load()) for source in sources]
    weights = [source.weights.load() for source in sources if source.weights is not None]
    return np.concatenate(means), np.concatenate(weights) if weights else None


def _refuse_workers() -> NoReturn:
    raise ValueError("regularize needs X in memory or in files, but workers of Dask have it")


def open_data(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    engine: str | Engine | DaskEngine = "auto",
    accuracy: str | float = "auto",
    regularize: Any = "raise",
) -> Shards:
    """Open and check whatever an estimator was given; an array in memory is one block."""
    if is_sharded(X, engine) or (isinstance(X, np.memmap) and X.nbytes > _LARGE_MAP):
        return open_shards(
            X, y, sample_weight, engine=engine, accuracy=accuracy, regularize=regularize
        )
    assert not isinstance(engine, DaskEngine)
    chosen = get_engine(engine, accuracy=accuracy)
    matrices, shrinkage = check_and_learn(X, regularize, sample_weight, ndim=3, dtype=np.float64)
    weights = check_weights(sample_weight, len(matrices))
    if y is not None:
        y = np.asarray(y)
        check_rows(y, len(matrices), "y")
    shards = LocalShards([block_in_memory(chosen, matrices, y, weights)])
    shards.shrinkage = shrinkage
    return shards


def open_training(estimator: Any, *data: Any, **options: Any) -> Shards:
    """Open data to learn from, and learn how to regularize this and that of `open_new`."""
    options |= {"engine": estimator.engine, "regularize": estimator.regularize}
    shards = open_data(*data, **options)
    estimator.shrinkage_ = shards.shrinkage
    return shards


def open_new(estimator: Any, X: Any, sample_weight: Any = None, **options: Any) -> Shards:
    """Open data to predict: the estimator is fitted, and on matrices of this size."""
    check_is_fitted(estimator)
    options |= {"engine": estimator.engine, "regularize": estimator.shrinkage_}
    shards = open_data(X, None, sample_weight, **options)
    check_size(estimator, shards.d)
    return shards


def as_bytes(limit: int | str | None) -> int | None:
    """Return a number of bytes, for such as "1.5 GB"."""
    if limit is None:
        return None
    found = re.fullmatch(r"([\d.]+)\s*([a-z]*)", str(limit).strip().lower())
    if isinstance(limit, bool) or not found or found[2] not in _UNITS:
        raise ValueError(f'memory_limit={limit!r} must be a number of bytes, or text such as "2GB"')
    return int(float(found[1]) * _UNITS[found[2]])


def _sources(
    X: Any, y: Any, weights: Any, block_size: int | None, choice: EngineChoice, threads: int
) -> list[BlockSource]:
    if callable(X):
        columns = [*from_iterator(X), [], []][:3]
        if y is not None or weights is not None:
            raise ValueError("X is a callable: y and sample_weight must come in its tuples, (X, y)")
    else:
        parts = []
        for part in X if _are_paths(X) else [X]:
            if not is_path(part) and not hasattr(part, "shape"):
                part = np.asarray(part)
            parts.append(split(part, "X", block_size or _rows(part, threads)))
        labels, shares = _cut(y, "y", parts, X), _cut(weights, "sample_weight", parts, X)
        columns = [[piece for pieces in parts for piece in pieces], labels, shares]
    nothing: list[Any] = [None] * len(columns[0])
    rows = zip(*(column or nothing for column in columns), strict=True)
    return [BlockSource(i, X, y, w, choice) for i, (X, y, w) in enumerate(rows)]


def _rows(X: Any, threads: int) -> int:
    shape = (open_file(X, "X") if is_path(X) else X).shape
    if len(shape) != 3:
        raise ValueError(f"X has shape {shape}, but must have three dimensions, (n_matrices, d, d)")
    rows = max(_LEAST_ROWS, _BLOCK_BYTES // max(1, 8 * shape[1] * shape[2]))
    if threads:
        rows = min(rows, max(1, -(-shape[0] // (_BLOCKS_PER_THREAD * threads))))
    return int(rows)


def _cut(values: Any, key: str, parts: Sequence[Sequence[Piece]], X: Any) -> list[Piece]:
    """Pieces of labels or weights, of the same lengths as those of X."""
    if values is None:
        return []
    if _are_paths(values) and _are_paths(X) and len(values) == len(X):
        beside: list[Piece] = []
        for file, matrices, pieces in zip(values, X, parts, strict=True):
            n_rows, n_matrices = open_file(file, key).shape[0], sum(one.n_rows for one in pieces)
            if n_rows != n_matrices:
                raise ValueError(
                    f"{file} has {n_rows} rows of {key}, but {matrices} has {n_matrices} matrices; "
                    "pass files of as many rows, in the same order"
                )
            beside += cut_file(file, key, [one.n_rows for one in pieces])
        return beside
    if is_path(values):
        values = np.asarray(open_file(values, key))
    elif callable(getattr(values, "compute", None)):
        values = values.compute()
    lengths = [piece.n_rows for pieces in parts for piece in pieces]
    if key == "sample_weight":
        values = as_weights(values, sum(lengths))
    array = np.asarray(values)
    check_rows(array, sum(lengths), key)
    return [
        Piece(key, partial(np.asarray, part)) for part in np.split(array, np.cumsum(lengths)[:-1])
    ]


def _are_paths(values: Any) -> bool:
    return isinstance(values, list | tuple) and len(values) > 0 and all(map(is_path, values))


def _is_dask_array(X: Any) -> bool:
    return type(X).__module__.startswith("dask.array")


def encode(
    X: Any,
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
        Whether to bring the divergences here. Else they stay where the shards are, and what is
        returned can be passed as ``beside`` to the methods of the shards.
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
