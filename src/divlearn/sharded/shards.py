"""Shards: matrices in blocks, and computations over all blocks, local or on Dask workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import chain, islice
from typing import Any, NoReturn

import numpy as np

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.engines import Engine
from divlearn.engines.cpu import cpu_engine
from divlearn.sharded.blocks import (
    Block,
    Data,
    LazyBlock,
    Source,
    Stored,
    block_in_memory,
    is_dask_array,
    load,
)
from divlearn.spd import Shrinkage
from divlearn.text import counted
from divlearn.weights import Sum, Unit, add_weights, mean_weight

FAN_IN = 8
SAMPLE = 10_000  # matrices in the sample from which fits start

Client = Any  # distributed.Client, which has no types
Result = Any  # of a function of blocks: any value that pickles; with Dask, its future
Function = Callable[..., Result]
Merge = Callable[[Result, Result], Result]
Parts = Sequence[Result]  # one for each block, stored where the block is


class Shards:
    """Matrices in blocks, of which this process works on one after the other.

    The methods call a function with a block, then with the entry for this block of each sequence
    in ``parts``, then with the ``shared`` arguments. The function must be pure, because Dask calls
    it again for blocks of a lost worker.

    Parameters
    ----------
    blocks : sequence of Block or LazyBlock
    in_files : bool, default=False
        Whether `hold` stores results in temporary files.

    Attributes
    ----------
    n_matrices : int, number of matrices in all blocks.
    n_seen : int, number of matrices with a weight > 0.
    d : int, number of rows of each matrix.
    """

    shrinkage: Shrinkage | None = None  # how the matrices were regularized
    whole: Block | None = None  # all matrices, if they are one block in memory

    def __init__(self, blocks: Sequence[Block | LazyBlock], *, in_files: bool = False) -> None:
        self._blocks, self._in_files = list(blocks), in_files
        lengths, weighted_counts, sizes, self._weights = zip(*self.map(_outline), strict=True)
        for number, size in enumerate(sizes):
            if size != sizes[0]:
                raise ValueError(
                    f"shard {number} has matrices of size {size}, but shard 0 of size "
                    f"{sizes[0]}; all must have one size"
                )
        self.n_matrices, self.n_seen, self.d = sum(lengths), sum(weighted_counts), sizes[0]

    def map(self, function: Function, *shared: object, parts: Sequence[Parts] = ()) -> list[Result]:
        """Call a function for each block and return the results."""
        return self._gather(list(self._apply(function, shared, parts)))

    def hold(self, function: Function, *shared: object, parts: Sequence[Parts] = ()) -> Parts:
        """Call a function for each block and leave the results where the blocks are."""
        results = self._apply(function, shared, parts)
        return list(map(Stored, results) if self._in_files else results)

    def reduce(
        self,
        function: Function,
        *shared: object,
        parts: Sequence[Parts] = (),
        merge: Merge | None = None,
    ) -> Result:
        """Call a function for each block and merge the results, by default into a sum.

        Neighbours are merged in groups of eight, level by level. So the result depends on the
        blocks, but not on the number of workers.
        """
        return self._gather([self._merge(self._apply(function, shared, parts), merge or add)])[0]

    def fold(
        self,
        function: Function,
        state: Result,
        order: Sequence[int],
        *shared: object,
        parts: Sequence[Parts] = (),
    ) -> Result:
        """Update a state block by block; the function takes it before the shared arguments."""
        common, state = self._send((function, shared)), self._send(state)
        for i in order:
            state = self._call_block(i, common, *(part[i] for part in parts), state)
        return self._gather([state])[0]

    def _apply(
        self, function: Function, shared: tuple[object, ...], parts: Sequence[Parts]
    ) -> Iterator[Result]:
        common = self._send((function, shared))
        for i in range(len(self._blocks)):
            yield self._call_block(i, common, *(part[i] for part in parts))

    def _merge(self, results: Iterator[Result], merge: Merge) -> Result:
        """Merge neighbours in groups, and the groups likewise; few results are in memory."""
        groups = iter(lambda: list(islice(results, FAN_IN)), [])
        merged = (self._call(_merge, merge, *group) for group in groups)
        first = list(islice(merged, 2))
        return first[0] if len(first) == 1 else self._merge(chain(first, merged), merge)

    # These call functions in this process; `DaskShards` overrides them.

    def _call_block(self, i: int, common: Result, *arguments: Result) -> Result:
        return self._call(_call_shared, common, self._blocks[i], *arguments)

    def _call(self, function: Function, *arguments: Result) -> Result:
        return function(*map(load, arguments))

    def _send(self, value: object) -> Result:
        return value

    def _gather(self, results: list[Result]) -> list[Result]:
        return results

    def normalize_weights(self) -> None:
        """Divide all weights by their mean, as `divlearn.weights` does for data in memory."""
        self._divide_weights(mean_weight(self._weights, self.n_seen))

    def _divide_weights(self, unit: Unit) -> None:
        self._blocks = [block.reweighted(unit) for block in self._blocks]

    def place(self, array: RealArray) -> RealArray:
        """Move an array to the device on which the engine keeps the matrices, if there is one."""
        return array

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Refuse the conversion, which functions for arrays in memory would try."""
        raise TypeError(
            f"X is {type(self).__name__} of {counted(self.n_matrices, 'matrices')}, but must be an "
            "array in memory here; load them with X, y, sample_weight = "
            "shards.sample(shards.n_matrices, 0), or use IDDLClassifier, IDDLRegressor, k-means or "
            "ABMixture, which learn from shards"
        )

    def __len__(self) -> int:
        return len(self._blocks)

    def sample(self, n_matrices: int, seed: int) -> tuple[RealArray, Labels | None, RealArray]:
        """Draw about `n_matrices` matrices with a weight > 0, or all if there are fewer.

        Returns the matrices in their order, their targets or None, and their weights.
        """
        share = min(1.0, n_matrices / self.n_seen)
        X, y, weights = zip(*self.map(_draw, share, seed), strict=True)
        targets = None if any(part is None for part in y) else np.concatenate(y)
        return np.concatenate(X), targets, np.concatenate(weights)

    def draw(self, at_least: int) -> Block:
        """Draw about `SAMPLE` matrices with a weight > 0, or `at_least`, as a block in memory."""
        return block_in_memory(cpu_engine(), *self.sample(max(SAMPLE, at_least), 0))


class MemoryShards(Shards):
    """All matrices in one block in memory."""

    whole: Block

    def __init__(self, block: Block) -> None:
        super().__init__([block])
        self.whole = block

    def place(self, array: RealArray) -> RealArray:
        return self.whole.engine.place(array, self.whole.data)

    def draw(self, at_least: int) -> Block:
        return self.whole.only(np.flatnonzero(self.whole.weights))


class DaskShards(Shards):
    """Blocks on the workers of a Dask client; Dask loads blocks of a lost worker again."""

    def __init__(
        self,
        client: Client,
        sources: Sequence[Source],
        make_engine: Callable[[], Engine],
        shrinkage: Shrinkage | None,
    ) -> None:
        import dask

        self._client = client
        columns = [
            client.compute(values) if is_dask_array(values[0]) else values
            for values in zip(*((s.X, s.y, s.weights) for s in sources), strict=True)
        ]
        # Neighbouring blocks share a worker, because their results are merged first.
        workers = sorted(client.nthreads())
        self._homes = [workers[i * len(workers) // len(sources)] for i in range(len(sources))]
        # Arrays in memory are sent to the workers once; Dask would warn of that.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**60}):
            rows = zip((source.name for source in sources), *columns, strict=True)

            def load_block(number: int, *source: Data) -> Block:
                return LazyBlock(number, Source(*source), make_engine, shrinkage).load()

            blocks = [self._submit(i, load_block, i, *row) for i, row in enumerate(rows)]
        super().__init__(blocks)

    def _submit(self, i: int, function: Function, *arguments: Result) -> Result:
        """Call a function on the worker that has block i, or on another one if that is lost."""
        home = {"workers": [self._homes[i]], "allow_other_workers": True}
        return self._client.submit(function, *arguments, pure=False, **home)

    def _call_block(self, i: int, common: Result, *arguments: Result) -> Result:
        return self._submit(i, _call_shared, common, self._blocks[i], *arguments)

    def _call(self, function: Function, *arguments: Result) -> Result:
        return self._client.submit(function, *arguments, pure=False)

    def _send(self, value: object) -> Result:
        # The value is the result of a task, which Dask repeats if the worker that has it is lost.
        return self._client.submit(lambda: value, pure=False)

    def _gather(self, results: list[Result]) -> list[Result]:
        return list(self._client.gather(results))

    def _divide_weights(self, unit: Unit) -> None:
        self._blocks = list(self.hold(Block.reweighted, unit))


def _outline(block: Block) -> tuple[int, int, int, Sum]:
    """Numbers of matrices, of those with a weight > 0, and of their rows; sum of weights."""
    n_seen = int(np.count_nonzero(block.weights))
    return len(block), n_seen, block.data.d, add_weights(block.weights)


def _call_shared(common: tuple[Function, tuple[Result, ...]], *arguments: Result) -> Result:
    function, shared = common
    return function(*arguments, *shared)


def _merge(merge: Merge, *results: Result) -> Result:
    return reduce(merge, results)


def add(first: Result, second: Result) -> Result:
    """Sum of two results: numbers, arrays, None, or tuples of these."""
    if isinstance(first, tuple):
        return tuple(map(add, first, second))
    return None if first is None else first + second


def draw_rows(block: Block, weights: RealArray, share: float, seed: int) -> Indices:
    """Draw a share of the rows with a weight > 0, in their order."""
    rows = np.flatnonzero(weights)
    if share == 1:
        return rows
    random_state = np.random.RandomState([seed, block.number])
    count = int(np.ceil(share * len(rows)))
    return np.sort(random_state.choice(rows, count, replace=False))


def _draw(block: Block, share: float, seed: int) -> tuple[RealArray, Labels | None, RealArray]:
    rows = draw_rows(block, block.weights, share, seed)
    y = None if block.y is None else block.y[rows]
    return block.matrices[rows], y, block.weights[rows]
