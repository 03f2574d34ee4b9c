"""Routes through the kernels for a block of data and some atoms, in pieces of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from divlearn.arrays import DeviceArray
from divlearn.engines.cuda import cp
from divlearn.engines.cuda.data import Block, CudaAtoms, factors_from
from divlearn.engines.cuda.kernels import MOST_FAILURES, kernels_for
from divlearn.engines.data import Request
from divlearn.engines.parameters import Parameters
from divlearn.tolerances import LARGEST_LISTED_SHARE

_SCRATCH_BYTES = 1 << 30  # intermediate results on the device at a time
_LARGEST_GRID = 65535  # of atoms: the second dimension of a grid
_SUMMING_WARPS = 4096  # that add up eigenvectors at a time, about: they wait for memory
_SLICE_ROWS = 16  # matrices each of them sums, at least
_THREADS = 128


class Failures:
    """Pairs (atom, row) for which no kernel has an answer."""

    def __init__(self) -> None:
        self.pairs = cp.empty((MOST_FAILURES, 2), np.int64)
        self.length = cp.zeros(1, np.int32)

    def found(self) -> list[tuple[int, int]] | None:
        """Return them in order; None if there are more than were written down."""
        length = int(self.length[0])
        if length > MOST_FAILURES:
            return None
        return sorted((int(a), int(r)) for a, r in cp.asnumpy(self.pairs[:length]))


class Piece:
    """Rows of a block and atoms that are worked on together."""

    def __init__(self, rows: slice, atoms: slice) -> None:
        self.rows, self.atoms = rows, atoms
        self.n_rows, self.n_atoms = int(rows.stop - rows.start), int(atoms.stop - atoms.start)
        self.pairs = self.n_rows * self.n_atoms
        self.sizes = np.int64(self.n_rows), np.int64(self.pairs)  # as kernels take them


def pieces(n_rows: int, n_atoms: int, pair_bytes: int) -> Iterator[Piece]:
    """Cut a table of pairs; what is cut depends on sizes alone, so that results do."""
    most = max(1, _SCRATCH_BYTES // pair_bytes)
    rows = min(n_rows, most)
    atoms = min(n_atoms, max(1, most // rows), _LARGEST_GRID)
    for first in range(0, n_atoms, atoms):
        for start in range(0, n_rows, rows):
            some = slice(start, min(start + rows, n_rows))
            yield Piece(some, slice(first, min(first + atoms, n_atoms)))


def on_device(parameters: Parameters) -> DeviceArray:
    """Send alpha and beta to the device, (2, n_atoms, n_pairs)."""
    return cp.asarray(np.stack([parameters.alpha, parameters.beta]))


class Sums:
    """Sums over the data that become the gradients of a request."""

    def __init__(self, atoms: CudaAtoms, request: Request) -> None:
        self.point = on_device(request.parameters)
        self.inner = cp.zeros(atoms.matrices.shape)  # of Z diag(weight) Z^T
        wanted = request.slopes
        self.slopes: DeviceArray = cp.zeros(self.point.shape) if wanted else (None, None)
        self.with_slopes = wanted

    def whitened(self) -> DeviceArray:
        return -0.5 * (self.inner + self.inner.transpose(0, 2, 1))


class Spectra:
    """Spectra of a piece or of its inverses, and eigenvectors where they are wanted."""

    def __init__(
        self, device: Device, piece: Piece, *, vectors: bool, inverse: bool = False
    ) -> None:
        layout, pairs = device.kernels.layout, piece.pairs
        d = layout.d
        self.device, self.piece = device, piece
        self.factors = device.factors_of(piece, inverse=inverse)
        self.diagonal, self.coupling, self.values = (cp.empty((d, pairs)) for _ in range(3))
        self.exponents = cp.zeros(pairs)
        self.states = cp.empty(pairs, np.uint8)
        self.list, self.length = cp.empty(pairs, np.int64), cp.zeros(1, np.int32)
        self.stored = layout.stored(pairs) if vectors or d > 32 else None
        self.units = device.block.exponents[piece.rows], device.atoms.exponents[piece.atoms]
        self.ranges: DeviceArray = None  # where spectra of inverses take over

    def compute(self, *, vectors: bool) -> None:
        """Run the fast route, then others for the pairs that need them."""
        pairs = self.piece.pairs
        if self.device.condition_limit > 0:
            self.start(vectors=vectors)
            self.complete(vectors=vectors)
        else:  # every pair is on the list
            self.list = cp.arange(pairs, dtype=np.int64)
            self.length = cp.full(1, pairs, np.int32)
            self.accurate(vectors=vectors)

    def start(self, *, vectors: bool) -> None:
        """Find eigenvalues by the fast route; with what vectors need, if they may be wanted."""
        self._reduce(vectors)
        self._solve(self.device.condition_limit)

    def complete(self, *, vectors: bool) -> None:
        """Add vectors, and what the fast route leaves to others."""
        if vectors:
            self.find_vectors()
        waiting = self.waiting()
        if waiting > LARGEST_LISTED_SHARE * self.piece.pairs:
            self._join(waiting, vectors)
        if waiting:
            self.accurate(vectors=vectors)

    def waiting(self) -> int:
        """Count the pairs that the fast route leaves to others."""
        return int(self.length[0])

    def _reduce(self, vectors: bool) -> None:
        device, piece = self.device, self.piece
        kernels, layout = device.kernels, device.kernels.layout
        rows = np.int64(piece.n_rows)
        whiteners, factors, count = self.factors
        if layout.d > 32:
            grid = (piece.n_rows, piece.n_atoms)
            kernels.launch("whiten", grid, 32, whiteners, factors, self.stored, count, rows)
        name, size = "reduce_and_keep" if vectors else "reduce", (piece.n_rows, piece.n_atoms)
        given, reduced = (whiteners, factors), (self.diagonal, self.coupling)
        kernels.launch_teams(name, *size, *given, _pointer(self.stored), *reduced, count, rows)

    def _solve(self, limit: float) -> None:
        kernels, pairs = self.device.kernels, self.piece.pairs
        solvers, trailing = kernels.layout.solvers, (np.float64(limit), np.int64(pairs))
        grid = (-(-pairs // solvers),)
        kernels.launch("eigenvalues", grid, solvers, *self._solution(), *trailing)

    def find_vectors(self) -> None:
        kernels, pairs = self.device.kernels, self.piece.pairs
        given = self.stored, *self._solution(), np.int64(pairs)
        kernels.launch_teams("eigenvectors", pairs, 1, *given)

    def _solution(self) -> tuple[DeviceArray, ...]:
        """Return what kernels of tridiagonal matrices read and write."""
        found = self.values, self.exponents, self.states
        return self.diagonal, self.coupling, *found, self.list, self.length

    def _join(self, waiting: int, vectors: bool) -> None:
        """Take from the inverses what rounding spares there; the list keeps what is left."""
        device, piece = self.device, self.piece
        other = Spectra(device, piece, vectors=vectors, inverse=True)
        other._reduce(vectors)
        other._solve(np.inf)
        self.ranges = cp.zeros((piece.pairs, 4), np.uint8)
        sides = self.values, self.exponents, other.values, other.exponents
        errors = device.block.inverses[1][piece.rows], device.atoms.inverses[1][piece.atoms]
        rest, length = cp.empty(waiting, np.int64), cp.zeros(1, np.int32)
        grid, listed = (_flat_grid(waiting), _THREADS), (self.list, np.int32(waiting))
        limit = np.float64(device.condition_limit)
        device.kernels.launch(
            "join", *grid, *sides, *errors, *listed, self.ranges, limit, *piece.sizes
        )
        if vectors:
            self._join_vectors(self, inverse=False)
            self._join_vectors(other, inverse=True)
        found = self.ranges, self.states, *listed, rest, length
        device.kernels.launch("joined_logs", *grid, *sides, *self.units, *found, *piece.sizes)
        self.list, self.length = rest, length

    def _join_vectors(self, side: Spectra, *, inverse: bool) -> None:
        """Add the vectors of a side; those of clusters by all rotations of QL."""
        kernels, pairs = self.device.kernels, self.piece.pairs
        clustered, length = cp.empty(pairs, np.int64), cp.zeros(1, np.int32)
        reduced = side.stored, self.stored, side.diagonal, side.coupling
        chosen = self.ranges, np.int32(inverse), clustered, length, np.int64(pairs)
        kernels.launch_teams(
            "joined_eigenvectors", pairs, 1, *reduced, side.values, side.exponents, *chosen
        )
        blocks = min(-(-pairs // kernels.layout.benches), self.device.accurate_blocks)
        kernels.launch(
            "dense_vectors", (blocks,), kernels.layout.dense, *reduced, side.exponents, *chosen
        )

    def accurate(self, *, vectors: bool) -> None:
        device, piece = self.device, self.piece
        whiteners, factors, count = self.factors
        tables = device.kernels.layout.tables
        blocks = min(-(-piece.pairs // tables), device.accurate_blocks)
        failures, first = device.failures, device.block.start + piece.rows.start
        stored = _pointer(self.stored if vectors else None)
        given = whiteners, factors, *self.units, stored, self.values, self.states
        lists = self.list, self.length, failures.pairs, failures.length
        sizes = count, *piece.sizes, np.int64(piece.atoms.start), np.int64(first)
        threads = device.kernels.layout.rotators
        device.kernels.launch("accurate", (blocks,), threads, *given, *lists, *sizes)

    def arguments(self) -> tuple[DeviceArray, ...]:
        return self.values, self.exponents, self.states, *self.units


def _pointer(array: DeviceArray) -> DeviceArray:
    return np.uintp(0) if array is None else array


class Device:
    """A block of data and some atoms on the device."""

    def __init__(
        self, block: Block, atoms: CudaAtoms, condition_limit: float, failures: Failures
    ) -> None:
        self.block, self.atoms = block, atoms
        self.condition_limit, self.failures = condition_limit, failures
        self.kernels = kernels_for(atoms.matrices.shape[-1])
        self.accurate_blocks = 8 * self.kernels.multiprocessors

    def factors_of(
        self, piece: Piece, *, inverse: bool
    ) -> tuple[DeviceArray, DeviceArray, np.int64]:
        """Return the factors of atoms and data, and how many matrices the latter belong to."""
        block, layout = self.block, self.kernels.layout
        left, right, count = self.atoms.factors, block.factors, block.count
        if inverse:
            left, right, count = self.atoms.inverses[0], block.inverses[0], len(block)
        whiteners = left.reshape(-1, layout.factor)[piece.atoms.start :]
        return whiteners, factors_from(right, piece.rows.start, layout.d), np.int64(count)

    def _pieces(self, *, vectors: bool) -> Iterator[Piece]:
        layout = self.kernels.layout
        matrix = layout.d * layout.row if vectors or layout.d > 32 else 0
        return pieces(len(self.block), len(self.atoms), 8 * (3 * layout.d + matrix + 4))

    def _computed(self, *, vectors: bool) -> Iterator[Spectra]:
        for piece in self._pieces(vectors=vectors):
            found = Spectra(self, piece, vectors=vectors)
            found.compute(vectors=vectors)
            yield found

    def spectra(self) -> DeviceArray:
        """Log-eigenvalues (rows, n_atoms, d), ascending."""
        n, d = len(self.atoms), self.kernels.layout.d
        out = cp.empty((len(self.block), n, d))
        for found in self._computed(vectors=False):
            piece = found.piece
            given = *found.arguments(), _corner(out, piece), np.int64(n * d), *piece.sizes
            self.kernels.launch("log_spectra", _flat_grid(piece.pairs), _THREADS, *given)
        return cp.sort(out, axis=-1)

    def divergences(self, point: DeviceArray, out: DeviceArray) -> None:
        """Values from spectra into out (rows, n_atoms, m); parameters are (2, n_atoms, m)."""
        for found in self._computed(vectors=False):
            self._write_values(found, point, out)

    def traced_divergences(self, point: DeviceArray, out: DeviceArray) -> Spectra | None:
        """Do the same; return spectra that vectors can be added to, where one piece is enough."""
        pieces = list(self._pieces(vectors=True))
        if len(pieces) > 1 or self.condition_limit == 0:
            self.divergences(point, out)
            return None
        found = Spectra(self, pieces[0], vectors=True)
        found.start(vectors=True)
        self._write_values(found, point, out)
        if not found.waiting():
            return found
        found.complete(vectors=False)
        self._write_values(found, point, out)
        return None

    def _write_values(
        self, found: Spectra, point: DeviceArray, out: DeviceArray, listed: int | None = None
    ) -> None:
        piece, m = found.piece, point.shape[2]
        chosen = (None, None) if listed is None else (found.list, found.length)
        grid = _flat_grid(piece.pairs if listed is None else listed)
        given = *found.arguments(), *point[:, piece.atoms], _corner(out, piece)
        sizes = np.int32(m), np.int64(out.shape[1] * m), *map(_pointer, chosen), *piece.sizes
        self.kernels.launch("divergences", grid, _THREADS, *given, *sizes)

    def logdet_values(self, point: DeviceArray, out: DeviceArray) -> None:
        """Values on alpha + beta = 1 into out (rows, n_atoms, 1)."""
        block, atoms = self.block, self.atoms
        for piece in self._pieces(vectors=False):
            found = Spectra(self, piece, vectors=False)
            rows, some = piece.rows, piece.atoms
            self.kernels.launch_teams(
                "logdet_values",
                piece.n_rows,
                piece.n_atoms,
                block.matrices[rows],
                atoms.matrices[some],
                *found.units,
                block.logdets[rows],
                atoms.logdets[some],
                block.spreads[rows],
                atoms.spreads[some],
                *point[:, some],
                _corner(out, piece),
                np.int64(out.shape[1]),
                found.list,
                found.length,
                np.int64(piece.n_rows),
            )
            self._redo(found, point, out, int(found.length[0]))

    def redo(self, where: DeviceArray, point: DeviceArray, out: DeviceArray) -> None:
        """Compute values again from spectra where (rows, n_atoms) says so."""
        for piece in self._pieces(vectors=False):
            found = Spectra(self, piece, vectors=False)
            marks = cp.ascontiguousarray(where[piece.rows, piece.atoms].T).ravel()
            found.list = cp.flatnonzero(marks).astype(np.int64)
            found.length = cp.full(1, len(found.list), np.int32)
            self._redo(found, point, out, len(found.list))

    def _redo(self, found: Spectra, point: DeviceArray, out: DeviceArray, length: int) -> None:
        """Compute the values of the pairs on the list, or of the whole piece if they are many."""
        if length == 0:
            return
        if length > LARGEST_LISTED_SHARE * found.piece.pairs:
            found = Spectra(self, found.piece, vectors=False)
            found.compute(vectors=False)
            self._write_values(found, point, out)
        else:
            found.accurate(vectors=False)
            self._write_values(found, point, out, length)

    def add_gradient(self, cotangent: DeviceArray, sums: Sums, values: DeviceArray) -> None:
        """Add to sums; divergences go to values, (rows, n_atoms, m), unless it is None."""
        for found in self._computed(vectors=True):
            self.add_vectors(found, cotangent, sums, values)

    def add_vectors(
        self, found: Spectra, cotangent: DeviceArray, sums: Sums, values: DeviceArray
    ) -> None:
        """Do so for one piece, whose vectors were found."""
        m, inner = sums.point.shape[2], sums.inner
        piece, weights = found.piece, found.diagonal  # which is not needed any more
        shares = cp.empty((2, m, piece.pairs)) if sums.with_slopes else None
        first, second = (None, None) if shares is None else shares
        corner = None if values is None else _corner(values, piece)
        references = None if found.ranges is None else cp.empty(piece.pairs)
        optional = map(_pointer, (first, second, corner, found.ranges, references))
        given = *found.arguments(), *sums.point[:, piece.atoms], _corner(cotangent, piece), weights
        sizes = np.int32(m), np.int64(cotangent.shape[1] * m), *piece.sizes
        grid = _flat_grid(piece.pairs)
        self.kernels.launch("weigh", grid, _THREADS, *given, *optional, *sizes)
        inner[piece.atoms] += self._sum_vectors(found, weights)
        if references is not None:
            common = references.reshape(piece.n_atoms, piece.n_rows).sum(axis=1)
            inner[piece.atoms] += common[:, None, None] * cp.eye(inner.shape[-1])
        if shares is not None:
            added = shares.reshape(2, m, piece.n_atoms, piece.n_rows).sum(axis=3)
            sums.slopes[:, piece.atoms] += added.transpose(0, 2, 1)

    def _sum_vectors(self, found: Spectra, weights: DeviceArray) -> DeviceArray:
        piece, layout = found.piece, self.kernels.layout
        warps = 4 if layout.tiles > 4 or layout.d <= 8 else 1  # of a slice
        least = _SLICE_ROWS * (32 if layout.d <= 8 else 1) * warps
        wanted = -(-_SUMMING_WARPS // (warps * piece.n_atoms))
        slices = max(1, min(wanted, piece.n_rows // least))
        partial = cp.empty((slices, piece.n_atoms, layout.d, layout.d))
        grid = (-(-slices * warps // 4), piece.n_atoms)
        given = found.stored, weights, partial, np.int64(piece.n_rows), np.int32(slices)
        self.kernels.launch("accumulate", grid, _THREADS, *given)
        return partial.sum(axis=0)

    def add_inverses(self, point: DeviceArray, cotangent: DeviceArray, total: DeviceArray) -> None:
        """Add cotangent * (alpha X + beta B)^-1 to total (n_atoms, d, d), in scaled units."""
        layout = self.kernels.layout
        for piece in self._pieces(vectors=True):
            stored, rows, some = layout.stored(piece.pairs), piece.rows, piece.atoms
            atoms, size = self.atoms, (piece.n_rows, piece.n_atoms)
            given = self.block.matrices[rows], atoms.matrices[some], atoms.exponents[some]
            weights = _corner(cotangent, piece), np.int64(cotangent.shape[1])
            results = stored, np.int64(piece.n_rows)
            self.kernels.launch_teams(
                "weighted_inverses", *size, *given, *point[:, some], *weights, *results
            )
            total[some] += layout.sum_stored(stored, piece.n_atoms)


def _flat_grid(count: int) -> tuple[int]:
    return (-(-count // _THREADS),)


def _corner(table: DeviceArray, piece: Piece) -> DeviceArray:
    return table[piece.rows.start :, piece.atoms.start :]
