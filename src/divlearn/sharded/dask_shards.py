"""Shards on the workers of a Dask cluster."""

from collections.abc import Sequence
from typing import Any

import dask

from divlearn.sharded.blocks import Block, EngineChoice, make_block
from divlearn.sharded.shards import Function, Shards, call_shared
from divlearn.sharded.sources import Source, is_dask_array
from divlearn.weights import Unit


class DaskShards(Shards):
    """Blocks on the workers of a Dask client; Dask loads blocks of a lost worker again."""

    def __init__(self, client: Any, sources: Sequence[Source], choice: EngineChoice) -> None:
        self._client = client
        names = [source.name for source in sources]
        columns = [
            self._start([getattr(source, column) for source in sources])
            for column in ("X", "y", "weights")
        ]
        # Neighbours are on one worker, because their results are merged first.
        workers = sorted(client.nthreads())
        self._homes = [workers[i * len(workers) // len(names)] for i in range(len(names))]
        # Arrays in memory have to travel to the workers once, which Dask would warn of.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**60}):
            super().__init__(
                [
                    self._submit(i, _make_block, choice, i, *row)
                    for i, row in enumerate(zip(names, *columns, strict=True))
                ]
            )

    def _start(self, values: list[Any]) -> list[Any]:
        """Start to compute Dask arrays; others are left unchanged."""
        return list(self._client.compute(values)) if is_dask_array(values[0]) else values

    def _submit(self, i: int, function: Function, *arguments: Any) -> Any:
        """Call a function on the worker that has a block, or on any other if that is lost."""
        home = {"workers": [self._homes[i]], "allow_other_workers": True}
        return self._client.submit(function, *arguments, pure=False, **home)

    def _call_block(self, i: int, common: Any, *arguments: Any) -> Any:
        return self._submit(i, call_shared, common, self._blocks[i], *arguments)

    def _call(self, function: Function, *arguments: Any) -> Any:
        return self._client.submit(function, *arguments, pure=False)

    def _send(self, value: Any) -> Any:
        # As the result of a task, which Dask runs again if the worker that has it is lost.
        return self._client.submit(lambda: value, pure=False)

    def _gather(self, results: list[Any]) -> list[Any]:
        return list(self._client.gather(results))

    def _divide_weights(self, unit: Unit) -> None:
        self._blocks = list(self.hold(Block.reweighted, unit))


def _make_block(choice: EngineChoice, number: int, *source: Any) -> Block:
    return make_block(number, Source(*source), choice)
