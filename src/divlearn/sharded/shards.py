"""Shards: blocks of matrices that live somewhere, and what can be asked of all of them."""

from __future__ import annotations

import pickle
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from divlearn.arrays import Indices, IntArray, RealArray
from divlearn.atomic import naming_full_disk
from divlearn.engines.cpu import cpu_engine
from divlearn.sharded.blocks import Block, BlockSource, block_in_memory, bytes_of
from divlearn.weights import Sum, Unit, add_weights, mean_weight

FAN_IN = 8
SAMPLE = 10_000  # matrices that starts are made of
_SHARE = 0.5  # of the memory there is, for blocks; the rest is for what is computed from them

Function = Callable[..., Any]
Merge = Callable[[Any, Any], Any]
Parts = Sequence[Any]  # one for each block, wherever the block is


class Shards(ABC):
    """A sequence of blocks, each of which lives somewhere.

    Functions that are mapped get a block, then one part of everything in ``beside``, then what is
    shared by all. They are pure: a block that is lost is made again, and gives the same.
    """

    shrinkage: tuple[float, float] | None = None  # how the matrices were regularized

    @abstractmethod
    def map(self, function: Function, *shared: Any, beside: Sequence[Parts] = ()) -> list[Any]:
        """Call a function for every block, and bring the results here."""

    @abstractmethod
    def hold(self, function: Function, *shared: Any, beside: Sequence[Parts] = ()) -> Parts:
        """Call a function for every block, and leave the results where the blocks are."""

    @abstractmethod
    def reduce(
        self,
        function: Function,
        *shared: Any,
        beside: Sequence[Parts] = (),
        merge: Merge | None = None,
    ) -> Any:
        """Call a function for every block, and merge the results; sums of tuples by default.

        Neighbours are merged by eights, and these again, so that the result depends on the blocks
        but not on who is ready first.
        """

    @abstractmethod
    def fold(
        self,
        function: Function,
        state: Any,
        order: Sequence[int],
        *shared: Any,
        beside: Sequence[Parts] = (),
    ) -> Any:
        """Hand a state from block to block; the function gets it before what is shared."""

    @abstractmethod
    def _divide_weights(self, unit: Unit) -> None:
        """Divide the weights of all blocks."""

    def normalize_weights(self) -> None:
        """Divide all weights by their mean, as `divlearn.weights` does for data in memory."""
        unit = mean_weight([weights for *_, weights in self._outline], self.n_seen)
        if unit != (1.0, 1.0):
            self._divide_weights(unit)

    @property
    def whole(self) -> Block | None:
        """All matrices as one block, where they are in memory."""
        return None

    def place(self, array: RealArray) -> RealArray:
        """Put an array where results for the matrices are, if that is one place."""
        return array

    @cached_property
    def _outline(self) -> list[_Outline]:
        found: list[_Outline] = self.map(_outline)
        for number, (_, d, _, _) in enumerate(found):
            if d != found[0][1]:
                raise ValueError(
                    f"shard {number} has matrices of size {d}, but shard 0 of size {found[0][1]}; "
                    "all must have one size"
                )
        return found

    @property
    def lengths(self) -> IntArray:
        """Matrices in every block."""
        return np.array([n_matrices for n_matrices, *_ in self._outline])

    @property
    def n_matrices(self) -> int:
        """Matrices in all blocks."""
        return int(self.lengths.sum())

    @property
    def n_seen(self) -> int:
        """Matrices with a weight."""
        return sum(n_seen for *_, n_seen, _ in self._outline)

    @property
    def d(self) -> int:
        """Rows of a matrix."""
        return self._outline[0][1]

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: what takes an array wants matrices in memory."""
        raise TypeError(
            f"X is {type(self).__name__} of {self.n_matrices} matrices, but must be an array in "
            "memory here; load them with X, y, sample_weight = "
            "shards.sample(shards.n_matrices, 0), or use IDDLClassifier, IDDLRegressor, k-means or "
            "ABMixture, which learn from shards"
        )

    def __len__(self) -> int:
        return len(self._outline)

    def sample(self, n_matrices: int, seed: int) -> tuple[RealArray, Any, RealArray]:
        """Draw about so many matrices with a weight; all in their order if there are fewer.

        Returns the matrices, what is to be predicted of them or None, and their weights.
        """
        share = min(1.0, n_matrices / self.n_seen)
        parts = self.map(_draw, share, seed)
        X, y, weights = zip(*parts, strict=True)
        labels = None if y[0] is None else np.concatenate(y)
        return np.concatenate(X), labels, np.concatenate(weights)

    def draw(self, at_least: int) -> Block:
        """Make one block here of matrices with a weight: about `SAMPLE`, or more if needed."""
        return block_in_memory(cpu_engine(), *self.sample(max(SAMPLE, at_least), 0))


class LocalShards(Shards):
    """Blocks on this machine: read, worked on and dropped, one after the other.

    The memory limit, in bytes, holds for matrices and for what is computed from them, beside the
    block at hand. What is beyond is read anew, or written to temporary files.
    """

    def __init__(
        self, sources: Sequence[BlockSource | Block], memory_limit: int | None = None
    ) -> None:
        self._sources = list(sources)
        limit = np.inf if memory_limit is None else float(memory_limit)
        self._blocks_left, self._parts_left = _Budget(_SHARE * limit), _Budget(_SHARE * limit)
        self._kept: dict[int, Block] = {}
        self._unit: Unit = (1.0, 1.0)  # of the weights that are read
        self._checked: set[int] = set()

    def map(self, function: Function, *shared: Any, beside: Sequence[Parts] = ()) -> list[Any]:
        return list(self._results(function, shared, beside))

    def hold(self, function: Function, *shared: Any, beside: Sequence[Parts] = ()) -> Parts:
        return _LocalParts(self._results(function, shared, beside), self._parts_left)

    def reduce(
        self,
        function: Function,
        *shared: Any,
        beside: Sequence[Parts] = (),
        merge: Merge | None = None,
    ) -> Any:
        return merge_all(self._results(function, shared, beside), merge or add)

    def fold(
        self,
        function: Function,
        state: Any,
        order: Sequence[int],
        *shared: Any,
        beside: Sequence[Parts] = (),
    ) -> Any:
        for i in order:
            state = function(self._block(i), *(parts[i] for parts in beside), state, *shared)
        return state

    def _divide_weights(self, unit: Unit) -> None:
        self._unit = unit
        self._kept = {number: block.reweighted(unit) for number, block in self._kept.items()}

    @property
    def whole(self) -> Block | None:
        first = self._sources[0]
        return first if len(self._sources) == 1 and isinstance(first, Block) else None

    def place(self, array: RealArray) -> RealArray:
        return array if self.whole is None else self.whole.engine.place(array, self.whole.data)

    def draw(self, at_least: int) -> Block:
        if self.whole is None:
            return super().draw(at_least)
        return self.whole.only(np.flatnonzero(self.whole.weights))

    def _results(
        self, function: Function, shared: tuple[Any, ...], beside: Sequence[Parts]
    ) -> Iterator[Any]:
        for i in range(len(self._sources)):
            yield function(self._block(i), *(parts[i] for parts in beside), *shared)

    def _block(self, number: int) -> Block:
        if number in self._kept:
            return self._kept[number]
        source = self._sources[number]
        if isinstance(source, Block):
            return source
        block = source.load(check=number not in self._checked).reweighted(self._unit)
        self._checked.add(number)
        if self._blocks_left.take(block.__sizeof__()):
            self._kept[number] = block
        return block


class _Budget:
    def __init__(self, left: float) -> None:
        self.left = left

    def take(self, size: float) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


class _LocalParts(Sequence[Any]):
    """Results, in memory as long as there is room, else in a temporary folder."""

    def __init__(self, results: Iterator[Any], budget: _Budget) -> None:
        self._values: list[Any] = []
        folder: Path | None = None
        used = 0
        for i, result in enumerate(results):
            size = bytes_of(result)
            if budget.take(size):
                used += size
                self._values.append(result)
            else:
                if folder is None:
                    folder = Path(tempfile.mkdtemp(prefix="divlearn-"))
                    weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                path = folder / f"{i}.pickle"
                with naming_full_disk(str(path)), path.open("wb") as file:
                    pickle.dump(result, file, protocol=5)
                self._values.append(path)
        weakref.finalize(self, budget.take, -used)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, i: Any) -> Any:
        value = self._values[i]
        if not isinstance(value, Path):
            return value
        with value.open("rb") as file:
            return pickle.load(file)


def merge_all(results: Iterator[Any], merge: Merge) -> Any:
    """Merge neighbours by eights, and these again, holding few at a time."""
    groups = iter(lambda: list(islice(results, FAN_IN)), [])
    merged = (reduce(merge, group) for group in groups)
    first = list(islice(merged, 2))
    if not first:
        raise ValueError("there are no shards; pass at least one")
    return first[0] if len(first) == 1 else merge_all(chain(first, merged), merge)


def add(first: Any, second: Any) -> Any:
    """Sum of two results: numbers, arrays, None, or tuples of these."""
    if isinstance(first, tuple):
        return tuple(map(add, first, second))
    return None if first is None else first + second


# Of a block as it was read: its matrices, their rows, how many have a weight, and its sum.
_Outline = tuple[int, int, int, Sum]


def _outline(block: Block) -> _Outline:
    n_seen = int(np.count_nonzero(block.weights))
    return len(block), block.data.d, n_seen, add_weights(block.weights)


def draw_rows(block: Block, weights: RealArray, share: float, seed: int) -> Indices:
    """Draw a share of the rows that have a weight, in their order."""
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
