"""Shards of Dask arrays: their chunks, computed and prepared on the workers."""

from typing import Any

import numpy as np

from divlearn.engines.dask import DaskEngine
from divlearn.fitting.targets import check_rows
from divlearn.sharded.blocks import Block, EngineChoice, make_block
from divlearn.sharded.workers import DaskShards, place
from divlearn.weights import as_weights


def load_dask_array(
    X: Any, y: Any, weights: Any, engine: DaskEngine, accuracy: str | float
) -> DaskShards:
    """Let workers compute the chunks of an array, and prepare them."""
    import dask.array as da

    from_array: Any = da.from_array

    client = engine.connect()
    if X.ndim != 3:
        raise ValueError(f"X has {X.ndim} dimensions, but must have three, (n_matrices, d, d)")
    if any(np.isnan(size) for size in X.shape):
        raise ValueError("X has chunks of unknown size; call X.compute_chunk_sizes() first")
    X = X.rechunk({1: -1, 2: -1})
    columns = [_chunks(client, X)]
    for name, values in (("y", y), ("sample_weight", weights)):
        if values is None:
            columns.append([None] * len(columns[0]))
            continue
        if not isinstance(values, da.Array):
            values = as_weights(values, len(X)) if name == "sample_weight" else np.asarray(values)
            values = from_array(values)
        check_rows(values, len(X), name)
        whole = dict.fromkeys(range(1, values.ndim), -1)  # rows are not cut, as those of X
        columns.append(_chunks(client, values.rechunk({0: X.chunks[0], **whole})))
    choice = EngineChoice(engine.engine, engine.n_threads, accuracy)
    rows = [(i, choice, *row) for i, row in enumerate(zip(*columns, strict=True))]
    return DaskShards(client, *place(client, _load, rows))


def _chunks(client: Any, array: Any) -> list[Any]:
    """Futures of the chunks along the first axis."""
    return client.compute(list(array.to_delayed().reshape(len(array.chunks[0]), -1)[:, 0]))


def _load(number: int, choice: EngineChoice, X: Any, y: Any, weights: Any) -> Block:
    return make_block(number, f"chunk {number}", choice, X, y, weights)
