"""Shards on the workers of a Dask cluster."""

import pickle
from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from typing import Any, Self
from uuid import uuid4

import numpy as np

from divlearn.fitting.targets import check_rows
from divlearn.sharded.blocks import Block, BlockSource, EngineChoice, make_block
from divlearn.sharded.shards import FAN_IN, Function, Merge, Parts, Shards, add
from divlearn.weights import Unit, as_weights


class DaskShards(Shards):
    """Blocks that were prepared once on workers; those of a lost worker are made again."""

    def __init__(self, client: Any, blocks: Sequence[Any], homes: Sequence[str]) -> None:
        self._client, self._blocks, self._homes = client, list(blocks), list(homes)
        self.sent = self.received = 0  # bytes

    @classmethod
    def load(cls, client: Any, sources: Sequence[BlockSource]) -> Self:
        import dask

        # Data in memory here has to travel, once: no reason for a warning.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**60}):
            return cls(client, *place(client, BlockSource.load, [(source,) for source in sources]))

    def map(self, function: Function, *shared: Any, beside: Sequence[Parts] = ()) -> list[Any]:
        return self._gather(self._submit(function, shared, beside))

    def hold(self, function: Function, *shared: Any, beside: Sequence[Parts] = ()) -> Parts:
        return self._submit(function, shared, beside)

    def reduce(
        self,
        function: Function,
        *shared: Any,
        beside: Sequence[Parts] = (),
        merge: Merge | None = None,
    ) -> Any:
        level = self._submit(function, shared, beside)
        while len(level) > 1:
            level = [
                self._client.submit(reduce, merge or add, level[i : i + FAN_IN], pure=False)
                for i in range(0, len(level), FAN_IN)
            ]
        return self._gather(level)[0]

    def fold(
        self,
        function: Function,
        state: Any,
        order: Sequence[int],
        *shared: Any,
        beside: Sequence[Parts] = (),
    ) -> Any:
        common = self._share(shared)
        carried = self._share(state)
        for i in order:
            parts = [part[i] for part in beside]
            carried = self._client.submit(
                _call,
                function,
                common,
                self._blocks[i],
                *parts,
                carried,
                pure=False,
                key=_names(1)[0],
                workers=[self._homes[i]],
                allow_other_workers=True,
            )
        return self._gather([carried])[0]

    def _divide_weights(self, unit: Unit) -> None:
        self._blocks = self._submit(Block.reweighted, (unit,), ())

    def _submit(
        self, function: Function, shared: tuple[Any, ...], beside: Sequence[Parts]
    ) -> list[Any]:
        common = self._share(shared)
        futures: list[Any] = []
        # Blocks of one home are neighbours.
        for home, group in groupby(range(len(self._blocks)), key=self._homes.__getitem__):
            numbers = list(group)
            part = slice(numbers[0], numbers[-1] + 1)
            columns = [self._blocks[part], *(parts[part] for parts in beside)]
            futures += self._client.map(
                _call,
                [function] * len(numbers),
                [common] * len(numbers),
                *columns,
                pure=False,
                key=_names(len(numbers)),
                workers=[home],
                allow_other_workers=True,
            )
        return futures

    def _share(self, value: Any) -> Any:
        # A task of its own, which a worker that joins gets like any other input. Dask does not look
        # into a closure for futures.
        self.sent += len(pickle.dumps(value, protocol=5))
        return self._client.submit(lambda: value, pure=False)

    def _gather(self, futures: list[Any]) -> Any:
        found = self._client.gather(futures)
        self.received += len(pickle.dumps(found, protocol=5))
        return found


def place(
    client: Any, function: Function, arguments: Sequence[tuple[Any, ...]]
) -> tuple[list[Any], list[str]]:
    """Make blocks, with neighbours on one worker, as their results are merged first."""
    workers, count = sorted(client.nthreads()), len(arguments)
    homes = [workers[i * len(workers) // count] for i in range(count)]
    blocks = [
        client.submit(function, *one, pure=False, workers=[home], allow_other_workers=True)
        for one, home in zip(arguments, homes, strict=True)
    ]
    return blocks, homes


def _names(count: int) -> list[str]:
    """Names of tasks that Dask takes for short, and so leaves where their block is."""
    return [f"rechunk-split-{uuid4().hex}-{i}" for i in range(count)]


def _call(function: Function, shared: tuple[Any, ...], block: Any, *parts: Any) -> Any:
    return function(block, *parts, *shared)


def load_dask_array(X: Any, y: Any, weights: Any, client: Any, choice: EngineChoice) -> DaskShards:
    """Let workers compute the chunks of an array, and prepare them."""
    import dask.array as da

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
            values = da.from_array(values)  # type: ignore[no-untyped-call]
        check_rows(values, len(X), name)
        whole = dict.fromkeys(range(1, values.ndim), -1)  # rows are not cut, as those of X
        columns.append(_chunks(client, values.rechunk({0: X.chunks[0], **whole})))
    rows = [(i, f"chunk {i}", choice, *row) for i, row in enumerate(zip(*columns, strict=True))]
    return DaskShards(client, *place(client, make_block, rows))


def _chunks(client: Any, array: Any) -> list[Any]:
    return client.compute(list(array.to_delayed().reshape(len(array.chunks[0]), -1)[:, 0]))
