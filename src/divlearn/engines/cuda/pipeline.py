"""Launches of the kernels for a block of data and some atoms, in pieces of bounded memory."""

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
_SUMMING_WARPS = 4096  # that sum eigenvectors at a time, about; memory limits their speed
_SLICE_ROWS = 16  # matrices each of them sums, at least
_THREADS = 128


class Failures:
    """Pairs (atom, row) for which no kernel has a result."""

    def __init__(self) -> None:
        self.pairs = cp.empty((MOST_FAILURES, 2), np.int64)
        self.length = cp.zeros(1, np.int32)

    def to_list(self) -> list[tuple[int, int]] | None:
        """Return the pairs in order; None if there are too many to list."""
        length = int(self.length[0])
        if length > MOST_FAILURES:
            return None
        return sorted((int(a), int(r)) for a, r in cp.asnumpy(self.pairs[:length]))


class Piece:
    """Rows of a block and atoms that are computed together."""

    def __init__(self, rows: slice, atoms: slice) -> None:
        self.rows, self.atoms = rows, atoms
        self.n_rows, self.n_atoms = int(rows.stop - rows.start), int(atoms.stop - atoms.start)
        self.pairs = self.n_rows * self.n_atoms
        self.sizes = np.int64(self.n_rows), np.int64(self.pairs)  # as kernels take them


def pieces(n_rows: int, n_atoms: int, pair_bytes: int) -> Iterator[Piece]:
    """Cut a table of pairs into pieces, which depend only on sizes, as results then do."""
    most = max(1, _SCRATCH_BYTES // pair_bytes)
    rows = min(n_rows, most)
    atoms = min(n_atoms, max(1, most // rows), _LARGEST_GRID)
    for atom in range(0, n_atoms, atoms):
        for start in range(0, n_rows, rows):
            row_slice = slice(start, min(start + rows, n_rows))
            yield Piece(row_slice, slice(atom, min(atom + atoms, n_atoms)))


def on_device(parameters: Parameters) -> DeviceArray:
    """Send alpha and beta to the device, (2, n_atoms, n_pairs)."""
    return cp.asarray(np.stack([parameters.alpha, parameters.beta]))


class Sums:
    """Sums over the data that become the gradients of a request."""

    def __init__(self, atoms: CudaAtoms, request: Request) -> None:
        self.point = on_device(request.parameters)
        self.inner = cp.zeros(atoms.matrices.shape)  # of Z diag(weight) Z^T
        self.with_slopes = request.slopes
        self.slopes: DeviceArray = cp.zeros(self.point.shape) if request.slopes else (None, None)

    def whitened(self) -> DeviceArray:
        return -0.5 * (self.inner + self.inner.transpose(0, 2, 1))


class Spectra:
    """Spectra of a piece or of its inverses, and eigenvectors on request."""

    def __init__(
        self, launcher: Launcher, piece: Piece, *, vectors: bool, inverse: bool = False
    ) -> None:
        layout, pairs = launcher.kernels.layout, piece.pairs
        d = layout.d
        self.launcher, self.piece = launcher, piece
        self.factors = launcher.factors_of(piece, inverse=inverse)
        self.diagonal, self.coupling, self.values = (cp.empty((d, pairs)) for _ in range(3))
        self.exponents = cp.zeros(pairs)
        self.states = cp.empty(pairs, np.uint8)
        self.pending, self.n_pending = cp.empty(pairs, np.int64), cp.zeros(1, np.int32)
        self.stored = layout.allocate(pairs) if vectors or d > 32 else None
        self.units = launcher.block.exponents[piece.rows], launcher.atoms.exponents[piece.atoms]
        self.ranges: DeviceArray = None  # of eigenvalues that come from the inverses

    def compute(self, *, vectors: bool) -> None:
        """Take the fast route, then others for the pairs that need them."""
        pairs = self.piece.pairs
        if self.launcher.condition_limit > 0:
            self.solve_fast(vectors=vectors)
            self.solve_rest(vectors=vectors)
        else:  # all pairs take the accurate route
            self.pending = cp.arange(pairs, dtype=np.int64)
            self.n_pending = cp.full(1, pairs, np.int32)
            self.solve_accurately(vectors=vectors)

    def solve_fast(self, *, vectors: bool) -> None:
        """Compute eigenvalues by the fast route; keep the reflectors if vectors may be needed."""
        self._reduce(vectors)
        self._solve(self.launcher.condition_limit)

    def solve_rest(self, *, vectors: bool) -> None:
        """Compute vectors, and the pairs that the fast route could not solve."""
        if vectors:
            self.compute_vectors()
        n_waiting = self.count_pending()
        if n_waiting > LARGEST_LISTED_SHARE * self.piece.pairs:
            self._join(n_waiting, vectors)
        if n_waiting:
            self.solve_accurately(vectors=vectors)

    def count_pending(self) -> int:
        """Count the pairs that need another route."""
        return int(self.n_pending[0])

    def _reduce(self, vectors: bool) -> None:
        launcher, piece = self.launcher, self.piece
        kernels, layout = launcher.kernels, launcher.kernels.layout
        rows = np.int64(piece.n_rows)
        whiteners, factors, count = self.factors
        if layout.d > 32:
            grid = (piece.n_rows, piece.n_atoms)
            kernels.launch("whiten", grid, 32, whiteners, factors, self.stored, count, rows)
        name, size = "reduce_and_keep" if vectors else "reduce", (piece.n_rows, piece.n_atoms)
        inputs, outputs = (whiteners, factors), (self.diagonal, self.coupling)
        kernels.launch_teams(name, *size, *inputs, _pointer(self.stored), *outputs, count, rows)

    def _solve(self, limit: float) -> None:
        kernels, pairs = self.launcher.kernels, self.piece.pairs
        threads, trailing = kernels.layout.eigenvalue_threads, (np.float64(limit), np.int64(pairs))
        grid = (-(-pairs // threads),)
        kernels.launch("eigenvalues", grid, threads, *self._solver_arguments(), *trailing)

    def compute_vectors(self) -> None:
        kernels, pairs = self.launcher.kernels, self.piece.pairs
        arguments = self.stored, *self._solver_arguments(), np.int64(pairs)
        kernels.launch_teams("eigenvectors", pairs, 1, *arguments)

    def _solver_arguments(self) -> tuple[DeviceArray, ...]:
        """Arrays that the kernels of tridiagonal matrices read and write."""
        results = self.values, self.exponents, self.states
        return self.diagonal, self.coupling, *results, self.pending, self.n_pending

    def _join(self, n_waiting: int, vectors: bool) -> None:
        """Take small eigenvalues from the inverses, where they are accurate; list other pairs."""
        launcher, piece = self.launcher, self.piece
        other = Spectra(launcher, piece, vectors=vectors, inverse=True)
        other._reduce(vectors)
        other._solve(np.inf)
        self.ranges = cp.zeros((piece.pairs, 4), np.uint8)
        sides = self.values, self.exponents, other.values, other.exponents
        errors = launcher.block.inverses[1][piece.rows], launcher.atoms.inverses[1][piece.atoms]
        remaining, length = cp.empty(n_waiting, np.int64), cp.zeros(1, np.int32)
        grid, listed = (_flat_grid(n_waiting), _THREADS), (self.pending, np.int32(n_waiting))
        limit = np.float64(launcher.condition_limit)
        launcher.kernels.launch(
            "join", *grid, *sides, *errors, *listed, self.ranges, limit, *piece.sizes
        )
        if vectors:
            self._join_vectors(self, inverse=False)
            self._join_vectors(other, inverse=True)
        outputs = self.ranges, self.states, *listed, remaining, length
        launcher.kernels.launch("joined_logs", *grid, *sides, *self.units, *outputs, *piece.sizes)
        self.pending, self.n_pending = remaining, length

    def _join_vectors(self, side: Spectra, *, inverse: bool) -> None:
        """Add the vectors of a side; those of clusters by the QL iteration with rotations."""
        kernels, pairs = self.launcher.kernels, self.piece.pairs
        clustered, length = cp.empty(pairs, np.int64), cp.zeros(1, np.int32)
        tridiagonal = side.stored, self.stored, side.diagonal, side.coupling
        selection = self.ranges, np.int32(inverse), clustered, length, np.int64(pairs)
        kernels.launch_teams(
            "joined_eigenvectors", pairs, 1, *tridiagonal, side.values, side.exponents, *selection
        )
        blocks = min(-(-pairs // kernels.layout.dense_pairs), self.launcher.accurate_blocks)
        kernels.launch(
            "dense_vectors",
            (blocks,),
            kernels.layout.dense_threads,
            *tridiagonal,
            side.exponents,
            *selection,
        )

    def solve_accurately(self, *, vectors: bool) -> None:
        launcher, piece = self.launcher, self.piece
        whiteners, factors, count = self.factors
        layout = launcher.kernels.layout
        blocks = min(-(-piece.pairs // layout.accurate_pairs), launcher.accurate_blocks)
        failures, first = launcher.failures, launcher.block.start + piece.rows.start
        stored = _pointer(self.stored if vectors else None)
        inputs = whiteners, factors, *self.units, stored, self.values, self.states
        lists = self.pending, self.n_pending, failures.pairs, failures.length
        sizes = count, *piece.sizes, np.int64(piece.atoms.start), np.int64(first)
        threads = layout.accurate_threads
        launcher.kernels.launch("accurate", (blocks,), threads, *inputs, *lists, *sizes)

    def arguments(self) -> tuple[DeviceArray, ...]:
        return self.values, self.exponents, self.states, *self.units


def _pointer(array: DeviceArray) -> DeviceArray:
    return np.uintp(0) if array is None else array


class Launcher:
    """Launches the kernels for a block of data and some atoms."""

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

    def _iterate_spectra(self, *, vectors: bool) -> Iterator[Spectra]:
        for piece in self._pieces(vectors=vectors):
            spectra = Spectra(self, piece, vectors=vectors)
            spectra.compute(vectors=vectors)
            yield spectra

    def spectra(self) -> DeviceArray:
        """Log-eigenvalues (rows, n_atoms, d), ascending."""
        n, d = len(self.atoms), self.kernels.layout.d
        out = cp.empty((len(self.block), n, d))
        for spectra in self._iterate_spectra(vectors=False):
            piece = spectra.piece
            arguments = *spectra.arguments(), _view_from(out, piece), np.int64(n * d), *piece.sizes
            self.kernels.launch("log_spectra", _flat_grid(piece.pairs), _THREADS, *arguments)
        return cp.sort(out, axis=-1)

    def divergences(self, point: DeviceArray, out: DeviceArray) -> None:
        """Values from spectra into out (rows, n_atoms, m); parameters are (2, n_atoms, m)."""
        for spectra in self._iterate_spectra(vectors=False):
            self._write_values(spectra, point, out)

    def traced_divergences(self, point: DeviceArray, out: DeviceArray) -> Spectra | None:
        """Do the same; return the spectra, to add vectors to, if they are one piece."""
        pieces = list(self._pieces(vectors=True))
        if len(pieces) > 1 or self.condition_limit == 0:
            self.divergences(point, out)
            return None
        spectra = Spectra(self, pieces[0], vectors=True)
        spectra.solve_fast(vectors=True)
        self._write_values(spectra, point, out)
        if not spectra.count_pending():
            return spectra
        spectra.solve_rest(vectors=False)
        self._write_values(spectra, point, out)
        return None

    def _write_values(
        self, spectra: Spectra, point: DeviceArray, out: DeviceArray, n_listed: int | None = None
    ) -> None:
        piece, m = spectra.piece, point.shape[2]
        selection = (None, None) if n_listed is None else (spectra.pending, spectra.n_pending)
        grid = _flat_grid(piece.pairs if n_listed is None else n_listed)
        arguments = *spectra.arguments(), *point[:, piece.atoms], _view_from(out, piece)
        sizes = np.int32(m), np.int64(out.shape[1] * m), *map(_pointer, selection), *piece.sizes
        self.kernels.launch("divergences", grid, _THREADS, *arguments, *sizes)

    def logdet_values(self, point: DeviceArray, out: DeviceArray) -> None:
        """Values on alpha + beta = 1 into out (rows, n_atoms, 1)."""
        block, atoms = self.block, self.atoms
        for piece in self._pieces(vectors=False):
            spectra = Spectra(self, piece, vectors=False)
            rows, columns = piece.rows, piece.atoms
            self.kernels.launch_teams(
                "logdet_values",
                piece.n_rows,
                piece.n_atoms,
                block.matrices[rows],
                atoms.matrices[columns],
                *spectra.units,
                block.logdets[rows],
                atoms.logdets[columns],
                block.spreads[rows],
                atoms.spreads[columns],
                *point[:, columns],
                _view_from(out, piece),
                np.int64(out.shape[1]),
                spectra.pending,
                spectra.n_pending,
                np.int64(piece.n_rows),
            )
            self._recompute_listed(spectra, point, out, int(spectra.n_pending[0]))

    def recompute(self, mask: DeviceArray, point: DeviceArray, out: DeviceArray) -> None:
        """Compute values again from spectra where a mask (rows, n_atoms) is true."""
        for piece in self._pieces(vectors=False):
            spectra = Spectra(self, piece, vectors=False)
            flat_mask = cp.ascontiguousarray(mask[piece.rows, piece.atoms].T).ravel()
            spectra.pending = cp.flatnonzero(flat_mask).astype(np.int64)
            spectra.n_pending = cp.full(1, len(spectra.pending), np.int32)
            self._recompute_listed(spectra, point, out, len(spectra.pending))

    def _recompute_listed(
        self, spectra: Spectra, point: DeviceArray, out: DeviceArray, n_listed: int
    ) -> None:
        """Compute the values of the listed pairs, or of the whole piece if they are many."""
        if n_listed == 0:
            return
        if n_listed > LARGEST_LISTED_SHARE * spectra.piece.pairs:
            spectra = Spectra(self, spectra.piece, vectors=False)
            spectra.compute(vectors=False)
            self._write_values(spectra, point, out)
        else:
            spectra.solve_accurately(vectors=False)
            self._write_values(spectra, point, out, n_listed)

    def add_gradient(self, cotangent: DeviceArray, sums: Sums, values: DeviceArray) -> None:
        """Add to sums; divergences go to values, (rows, n_atoms, m), unless it is None."""
        for spectra in self._iterate_spectra(vectors=True):
            self.add_vectors(spectra, cotangent, sums, values)

    def add_vectors(
        self, spectra: Spectra, cotangent: DeviceArray, sums: Sums, values: DeviceArray
    ) -> None:
        """Add to the sums for one piece, whose vectors were computed."""
        m, inner = sums.point.shape[2], sums.inner
        piece, weights = spectra.piece, spectra.diagonal  # whose memory is free now
        shares = cp.empty((2, m, piece.pairs)) if sums.with_slopes else None
        first, second = (None, None) if shares is None else shares
        output = None if values is None else _view_from(values, piece)
        references = None if spectra.ranges is None else cp.empty(piece.pairs)
        optional = map(_pointer, (first, second, output, spectra.ranges, references))
        arguments = (
            *spectra.arguments(),
            *sums.point[:, piece.atoms],
            _view_from(cotangent, piece),
            weights,
        )
        sizes = np.int32(m), np.int64(cotangent.shape[1] * m), *piece.sizes
        grid = _flat_grid(piece.pairs)
        self.kernels.launch("weigh", grid, _THREADS, *arguments, *optional, *sizes)
        inner[piece.atoms] += self._sum_vectors(spectra, weights)
        if references is not None:
            common = references.reshape(piece.n_atoms, piece.n_rows).sum(axis=1)
            inner[piece.atoms] += common[:, None, None] * cp.eye(inner.shape[-1])
        if shares is not None:
            added = shares.reshape(2, m, piece.n_atoms, piece.n_rows).sum(axis=3)
            sums.slopes[:, piece.atoms] += added.transpose(0, 2, 1)

    def _sum_vectors(self, spectra: Spectra, weights: DeviceArray) -> DeviceArray:
        piece, layout = spectra.piece, self.kernels.layout
        warps = 4 if layout.tiles > 4 or layout.d <= 8 else 1  # of a slice
        least = _SLICE_ROWS * (32 if layout.d <= 8 else 1) * warps
        most = -(-_SUMMING_WARPS // (warps * piece.n_atoms))
        slices = max(1, min(most, piece.n_rows // least))
        partial = cp.empty((slices, piece.n_atoms, layout.d, layout.d))
        grid = (-(-slices * warps // 4), piece.n_atoms)
        arguments = spectra.stored, weights, partial, np.int64(piece.n_rows), np.int32(slices)
        self.kernels.launch("accumulate", grid, _THREADS, *arguments)
        return partial.sum(axis=0)

    def add_inverses(self, point: DeviceArray, cotangent: DeviceArray, total: DeviceArray) -> None:
        """Add cotangent * (alpha X + beta B)^-1 to total (n_atoms, d, d), in scaled units."""
        layout = self.kernels.layout
        for piece in self._pieces(vectors=True):
            stored, rows, columns = layout.allocate(piece.pairs), piece.rows, piece.atoms
            atoms, size = self.atoms, (piece.n_rows, piece.n_atoms)
            inputs = self.block.matrices[rows], atoms.matrices[columns], atoms.exponents[columns]
            weights = _view_from(cotangent, piece), np.int64(cotangent.shape[1])
            results = stored, np.int64(piece.n_rows)
            self.kernels.launch_teams(
                "weighted_inverses", *size, *inputs, *point[:, columns], *weights, *results
            )
            total[columns] += layout.sum_stored(stored, piece.n_atoms)


def _flat_grid(count: int) -> tuple[int]:
    return (-(-count // _THREADS),)


def _view_from(table: DeviceArray, piece: Piece) -> DeviceArray:
    return table[piece.rows.start :, piece.atoms.start :]
