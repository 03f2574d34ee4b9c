"""The kernels: their sources, compiled for one dimension at first use, and their launches."""

from __future__ import annotations

import re
from functools import cache, cached_property
from pathlib import Path

from divlearn.arrays import DeviceArray
from divlearn.engines.cuda import Handle, cp

LARGEST_DIMENSION = 128  # longer columns do not fit into registers
MOST_FAILURES = 1 << 16  # pairs without a result that are listed
_FOLDER = Path(__file__).parent
_WARP = 32
# Kernels by file; the kernels of a file are compiled together, at their first use.
_PARTS = {
    "prepare": ("prepare_data", "prepare_atoms", "prepare_inverses"),
    "tridiagonal": ("reduce", "reduce_and_keep", "whiten"),
    "eigenvalues": ("eigenvalues",),
    "joining": ("join", "joined_logs"),
    "dense": ("dense_vectors",),
    "jacobi": ("accurate",),
    "values": ("divergences", "log_spectra"),
    "weights": ("weigh",),
    "eigenvectors": ("eigenvectors", "joined_eigenvectors"),
    "accumulate": ("accumulate",),
    "logdet": ("logdet_values", "weighted_inverses"),
}
# (largest d, team, columns, blocks) per part; larger dimensions have a thread per column.
_LAYOUTS: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "": ((12, 4, 3, 4), (16, 8, 2, 4), (24, 8, 3, 2), (32, 16, 2, 3), (52, 32, 2, 2)),
    "tridiagonal": (
        (12, 4, 3, 4),
        (16, 4, 4, 3),
        (20, 4, 5, 2),
        (24, 8, 3, 2),
        (32, 16, 2, 3),
        (52, 32, 2, 2),
    ),
    "eigenvectors": (
        (12, 4, 3, 4),
        (16, 8, 2, 4),
        (20, 8, 3, 3),
        (24, 16, 2, 4),
        (32, 16, 2, 3),
        (44, 64, 1, 8),
        (64, 64, 1, 6),
    ),
}
PART_OF = {kernel: part for part, kernels in _PARTS.items() for kernel in kernels}


def _even(x: int) -> int:
    return x + x % 2


class Layout:
    """Distribution of the columns of a matrix over a team of threads, as in ``team.cuh``."""

    def __init__(self, d: int, part: str = "") -> None:
        team, columns, blocks = -(-d // _WARP) * _WARP, 1, 1
        if d <= 8:  # a matrix fits into the registers of a thread
            team, columns = 1, d
        else:
            for largest, *sizes in reversed(_LAYOUTS.get(part, _LAYOUTS[""])):
                if d <= largest:
                    team, columns, blocks = sizes
        self.d, self.team, self.columns, self.blocks = d, team, columns, blocks
        self.row = -(-d // 4) * 4  # doubles from one row of a stored matrix to the next
        self.tiles = -(-d // 8)  # rows of 8 x 8 tiles
        tiled = self.tiles * (self.tiles + 1) // 2 * 64
        self.factor = d * (d + 1) // 2 if d <= 8 else tiled  # doubles of a triangular factor
        self.threads = max(team, 128) if team <= _WARP else team  # of a block of teams
        self.teams = self.threads // team  # of a block
        # Threads of a block, and pairs that it computes at a time.
        self.eigenvalue_threads = 128 if d <= 18 else _WARP
        self.accurate_threads = 128 if d <= _WARP else 256
        rotations = 1 << (-(-d // 2) - 1).bit_length()
        self.accurate_pairs = self.accurate_threads // rotations if d <= _WARP else 1
        self.dense_threads = 128 if d <= _WARP else _WARP
        self.dense_pairs = self.dense_threads // min(_WARP, 1 << (d - 1).bit_length())
        self.prepare_threads = _WARP if d <= _WARP else 128  # of a matrix

    def shared(self, kernel: str) -> int:
        d, odd = self.d, self.d | 1
        sums = _even(2 * (self.team // _WARP)) if self.team > _WARP else 0
        vector = _even(max(self.team * self.columns, d) + 2)
        matrix = d * self.row if 8 < d <= _WARP else 0
        single_thread = self.team == 1
        doubles = {
            "prepare_data": d * odd,
            "prepare_atoms": d * odd,
            "prepare_inverses": d * odd + 3 * d,
            "reduce": 0 if single_thread else self.teams * (matrix + 3 * vector + sums),
            "whiten": self.factor + 72 if self.tiles > 4 else 0,
            "accumulate": 4 * self.factor if d <= 8 else 0,
            "eigenvalues": 2 * d * self.eigenvalue_threads,
            "dense_vectors": self.dense_pairs * (d * odd + 3 * _even(d)),
            "accurate": self.accurate_pairs * d * odd + self.accurate_threads // _WARP,
            "eigenvectors": 0
            if single_thread
            else self.teams * (5 * _even(d) + _even((d + 1) // 2) + sums),
            "logdet_values": 0 if single_thread else self.teams * (2 * vector + sums),
        }
        doubles["reduce_and_keep"] = doubles["reduce"]
        doubles["joined_eigenvectors"] = doubles["eigenvectors"]
        doubles["weighted_inverses"] = doubles["logdet_values"]
        return 8 * doubles.get(kernel, 0)

    def allocate(self, pairs: int) -> DeviceArray:
        """Empty device array for one matrix per pair; see ``place`` in ``team.cuh``."""
        small = self.d <= 8
        return cp.empty((self.d, self.d, pairs) if small else (pairs, self.d, self.row))

    def sum_stored(self, stored: DeviceArray, n_atoms: int) -> DeviceArray:
        """Sum over the data of stored matrices, (n_atoms, d, d)."""
        d = self.d
        if d <= 8:
            return stored.reshape(d, d, n_atoms, -1).sum(axis=3).transpose(2, 0, 1)
        ones = cp.ones((n_atoms, 1, len(stored) // n_atoms))  # a product is the faster sum
        summed = cp.matmul(ones, stored.reshape(n_atoms, -1, d * self.row))
        return summed.reshape(n_atoms, d, self.row)[:, :, :d]

    def options(self) -> tuple[str, ...]:
        named = {
            "DIMENSION": self.d,
            "TEAM": self.team,
            "COLUMNS": self.columns,
            "BLOCKS": self.blocks,
            "MOST_FAILURES": MOST_FAILURES,
        }
        return (
            "-std=c++17",
            "--device-as-default-execution-space",
            *(f"-D{name}={value}" for name, value in named.items()),
        )


def source(part: str) -> str:
    """Source of a part with its includes, which the cache of compiled kernels would not follow."""
    included: set[str] = set()

    def expand(name: str) -> str:
        if name in included:
            return ""
        included.add(name)
        text = (_FOLDER / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
        return re.sub(r'#include "(.*)"\n', lambda match: expand(match[1]), text)

    return expand(f"{part}.cuh")


class Kernels:
    def __init__(self, d: int) -> None:
        self.layout = Layout(d)
        self.layouts = {part: Layout(d, part) for part in _PARTS}
        self._modules: dict[str, Handle] = {}
        self._functions: dict[str, Handle] = {}

    @cached_property
    def multiprocessors(self) -> int:
        """Number of multiprocessors of the device that the kernels were compiled on."""
        return int(cp.cuda.Device().attributes["MultiProcessorCount"])

    def launch(self, kernel: str, grid: tuple[int, ...], threads: int, *arguments: object) -> None:
        """Launch a kernel on the current stream; compile it if it is new."""
        if 0 in grid:
            return
        function = self._functions.get(kernel) or self._load(kernel)
        shared = self.layouts[PART_OF[kernel]].shared(kernel)
        function(grid, (threads,), arguments, shared_mem=shared)

    def launch_teams(self, kernel: str, rows: int, n_atoms: int, *arguments: object) -> None:
        layout = self.layouts[PART_OF[kernel]]
        self.launch(kernel, (-(-rows // layout.teams), n_atoms), layout.threads, *arguments)

    def _load(self, kernel: str) -> Handle:
        part = PART_OF[kernel]
        layout = self.layouts[part]
        if part not in self._modules:
            self._modules[part] = cp.RawModule(code=source(part), options=layout.options())
        function = self._modules[part].get_function(kernel)
        if layout.shared(kernel) > 48 << 10:
            function.max_dynamic_shared_size_bytes = layout.shared(kernel)
        self._functions[kernel] = function
        return function

    def shared(self) -> int:
        """Largest shared memory of a kernel, in bytes."""
        return max(self.layouts[part].shared(kernel) for kernel, part in PART_OF.items())


@cache
def _kernels_on(d: int, device: int) -> Kernels:
    return Kernels(d)


@cache
def _largest_on(device: int) -> int:
    available = cp.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"]
    dimensions = (d for d in range(LARGEST_DIMENSION, 0, -1) if Kernels(d).shared() <= available)
    return next(dimensions)


def largest_dimension() -> int:
    """Largest dimension for which the current device has enough shared memory."""
    return _largest_on(cp.cuda.Device().id)


def kernels_for(d: int) -> Kernels:
    """Kernels of a dimension for the current device, compiled at most once in a process."""
    return _kernels_on(d, cp.cuda.Device().id)
