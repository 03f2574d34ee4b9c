"""Shards: matrices in blocks, and computations over all blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain, islice
from typing import Any, NoReturn

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.engines.cpu import cpu_engine
from divlearn.sharded.blocks import Block, block_in_memory
from divlearn.sharded.sources import Stored, load
from divlearn.weights import Sum, Unit, add_weights, mean_weight

FAN_IN = 8
SAMPLE = 10_000  # matrices in the sample from which fits start

Function = Callable[..., Any]
Merge = Callable[[Any, Any], Any]
Parts = Sequence[Any]  # one result for each block, stored where the block is


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
    """

    shrinkage: tuple[float, float] | None = None  # how the matrices were regularized

    def __init__(self, blocks: Sequence[Any], *, in_files: bool = False) -> None:
        self._blocks, self._in_files = list(blocks), in_files

    def map(self, function: Function, *shared: Any, parts: Sequence[Parts] = ()) -> list[Any]:
        """Call a function for each block and return the results."""
        return self._gather(list(self._apply(function, shared, parts)))

    def hold(self, function: Function, *shared: Any, parts: Sequence[Parts] = ()) -> Parts:
        """Call a function for each block and leave the results where the blocks are."""
        results = self._apply(function, shared, parts)
        return list(map(Stored, results) if self._in_files else results)

    def reduce(
        self,
        function: Function,
        *shared: Any,
        parts: Sequence[Parts] = (),
        merge: Merge | None = None,
    ) -> Any:
        """Call a function for each block and merge the results, by default into a sum.

        Neighbours are merged in groups of eight, level by level. So the result depends on the
        blocks, but not on the number of workers.
        """
        return self._gather([self._merge(self._apply(function, shared, parts), merge or add)])[0]

    def fold(
        self,
        function: Function,
        state: Any,
        order: Sequence[int],
        *shared: Any,
        parts: Sequence[Parts] = (),
    ) -> Any:
        """Update a state block by block; the function takes it before the shared arguments."""
        common, state = self._send((function, shared)), self._send(state)
        for i in order:
            state = self._call_block(i, common, *(part[i] for part in parts), state)
        return self._gather([state])[0]

    def _apply(
        self, function: Function, shared: tuple[Any, ...], parts: Sequence[Parts]
    ) -> Iterator[Any]:
        common = self._send((function, shared))
        for i in range(len(self._blocks)):
            yield self._call_block(i, common, *(part[i] for part in parts))

    def _merge(self, results: Iterator[Any], merge: Merge) -> Any:
        """Merge neighbours in groups, and these again; few results are in memory at a time."""
        groups = iter(lambda: list(islice(results, FAN_IN)), [])
        merged = (self._call(_merge, merge, *group) for group in groups)
        first = list(islice(merged, 2))
        return first[0] if len(first) == 1 else self._merge(chain(first, merged), merge)

    # `DaskShards` overrides these, which call functions in this process.

    def _call_block(self, i: int, common: Any, *arguments: Any) -> Any:
        return self._call(call_shared, common, self._blocks[i], *arguments)

    def _call(self, function: Function, *arguments: Any) -> Any:
        return function(*map(load, arguments))

    def _send(self, value: Any) -> Any:
        return value

    def _gather(self, results: list[Any]) -> list[Any]:
        return results

    def normalize_weights(self) -> None:
        """Divide all weights by their mean, as `divlearn.weights` does for data in memory."""
        self._divide_weights(mean_weight([one.weight for one in self._outlines], self.n_seen))

    def _divide_weights(self, unit: Unit) -> None:
        self._blocks = [one.reweighted(unit) for one in self._blocks]

    @property
    def whole(self) -> Block | None:
        """All matrices as one block, if they are in memory."""
        return None

    def place(self, array: RealArray) -> RealArray:
        """Move an array to the device on which the engine keeps the matrices, if there is one."""
        return array

    @cached_property
    def _outlines(self) -> list[_Outline]:
        found: list[_Outline] = self.map(_outline)
        for number, one in enumerate(found):
            if one.d != found[0].d:
                raise ValueError(
                    f"shard {number} has matrices of size {one.d}, but shard 0 of size "
                    f"{found[0].d}; all must have one size"
                )
        return found

    @property
    def n_matrices(self) -> int:
        """Number of matrices in all blocks."""
        return sum(one.n_matrices for one in self._outlines)

    @property
    def n_seen(self) -> int:
        """Number of matrices with a weight > 0."""
        return sum(one.n_seen for one in self._outlines)

    @property
    def d(self) -> int:
        """Number of rows of each matrix."""
        return self._outlines[0].d

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse the conversion, which functions for arrays in memory try."""
        raise TypeError(
            f"X is {type(self).__name__} of {self.n_matrices} matrices, but must be an array in "
            "memory here; load them with X, y, sample_weight = "
            "shards.sample(shards.n_matrices, 0), or use IDDLClassifier, IDDLRegressor, k-means or "
            "ABMixture, which learn from shards"
        )

    def __len__(self) -> int:
        return len(self._blocks)

    def sample(self, n_matrices: int, seed: int) -> tuple[RealArray, Any, RealArray]:
        """Draw about `n_matrices` matrices with a weight > 0, or all if there are fewer.

        Returns the matrices in their order, their targets or None, and their weights.
        """
        share = min(1.0, n_matrices / self.n_seen)
        X, y, weights = zip(*self.map(_draw, share, seed), strict=True)
        targets = None if y[0] is None else np.concatenate(y)
        return np.concatenate(X), targets, np.concatenate(weights)

    def draw(self, at_least: int) -> Block:
        """Draw about `SAMPLE` matrices with a weight > 0, or `at_least`, as a block in memory."""
        return block_in_memory(cpu_engine(), *self.sample(max(SAMPLE, at_least), 0))


class MemoryShards(Shards):
    """All matrices in one block in memory."""

    def __init__(self, block: Block) -> None:
        super().__init__([block])

    @property
    def whole(self) -> Block:
        block: Block = self._blocks[0]
        return block

    def place(self, array: RealArray) -> RealArray:
        return self.whole.engine.place(array, self.whole.data)

    def draw(self, at_least: int) -> Block:
        return self.whole.only(np.flatnonzero(self.whole.weights))


@dataclass(frozen=True)
class _Outline:
    n_matrices: int
    d: int
    n_seen: int  # matrices with a weight > 0
    weight: Sum


def _outline(block: Block) -> _Outline:
    n_seen = int(np.count_nonzero(block.weights))
    return _Outline(len(block), block.data.d, n_seen, add_weights(block.weights))


def call_shared(common: tuple[Function, tuple[Any, ...]], *arguments: Any) -> Any:
    function, shared = common
    return function(*arguments, *shared)


def _merge(merge: Merge, *results: Any) -> Any:
    return reduce(merge, results)


def add(first: Any, second: Any) -> Any:
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


def _draw(block: Block, share: float, seed: int) -> tuple[RealArray, Any, RealArray]:
    rows = draw_rows(block, block.weights, share, seed)
    y = None if block.y is None else block.y[rows]
    return block.matrices[rows], y, block.weights[rows]
