"""The reference engine in NumPy: oracle of all others, fallback for opposite signs."""

from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from divlearn.arrays import IntArray, RealArray
from divlearn.engines.base import Engine
from divlearn.engines.data import Prepared, Pullback, Request
from divlearn.engines.parameters import Parameters
from divlearn.engines.pencil import check_domain, congruence, decompose, factorize, whiteners
from divlearn.spectral import abld_scalar
from divlearn.threads import limit_blas

_BLOCK_ENTRIES = 1 << 20  # matrix entries worked on at a time


class ReferenceEngine(Engine):
    """NumPy and LAPACK, block by block. See `Engine`."""

    name: ClassVar[str] = "reference"

    def _prepare(self, matrices: RealArray, order: IntArray | None = None) -> Prepared:
        prepared = Prepared(self.name, matrices, order=order)
        _factors(prepared)
        return prepared

    def _spectra(self, data: Prepared, atoms: RealArray) -> RealArray:
        return self._spectra_of(data, atoms, slice(0, data.n_matrices))

    def _spectra_of(self, data: Prepared, atoms: RealArray, rows: slice) -> RealArray:
        out = np.empty((rows.stop - rows.start, len(atoms), data.d))
        factor, unit = factorize(atoms)
        for block, atom, t, _ in self._blocks(data, rows, whiteners(factor), unit, vectors=False):
            out[block.start - rows.start : block.stop - rows.start, atom] = t
        return out

    def _encode(
        self, data: Prepared, atoms: RealArray, parameters: Parameters, out: RealArray
    ) -> None:
        alpha, beta = parameters.alpha, parameters.beta
        step = max(1, _BLOCK_ENTRIES // (len(atoms) * data.d))
        for start in range(0, data.n_matrices, step):
            rows = slice(start, min(start + step, data.n_matrices))
            t = self._spectra_of(data, atoms, rows)  # one evaluation of f for many atoms
            for atom, pair in np.argwhere((alpha < 0) | (beta < 0)):
                point = alpha[atom, pair], beta[atom, pair]
                check_domain(t[:, atom], *point, names=_pair_names(start, atom))
            for pair in range(out.shape[2]):
                point = alpha[:, pair, None], beta[:, pair, None]
                out[rows, :, pair] = abld_scalar(t, *point, derivatives=()).f.sum(axis=-1)

    def _pullback(self, data: Prepared, atoms: RealArray, request: Request) -> Pullback:
        parameters, cotangent = request.parameters, request.cotangent
        factor, unit = factorize(atoms)
        whitener, whitened = whiteners(factor), np.zeros_like(factor)
        first, second = np.zeros_like(parameters.alpha), np.zeros_like(parameters.beta)
        values = np.empty(cotangent.shape) if request.values else None
        derivatives = ("f_t", "f_alpha", "f_beta") if request.slopes else ("f_t",)
        all_rows = slice(0, data.n_matrices)
        for rows, atom, t, vectors in self._blocks(data, all_rows, whitener, unit, vectors=True):
            assert vectors is not None
            weight = np.zeros_like(t)
            for pair in range(cotangent.shape[2]):
                point = parameters.alpha[atom, pair], parameters.beta[atom, pair]
                check_domain(t, *point, names=_pair_names(rows.start, atom))
                scalar = abld_scalar(t, *point, derivatives=derivatives)
                c = cotangent[rows, atom, pair]
                weight += c[:, None] * _saturated(scalar.f_t)
                if request.slopes:
                    first[atom, pair] += c @ _saturated(scalar.f_alpha).sum(axis=-1)
                    second[atom, pair] += c @ _saturated(scalar.f_beta).sum(axis=-1)
                if values is not None:
                    values[rows, atom, pair] = scalar.f.sum(axis=-1)
            # grad_B D = -V diag(f_t) V^T with V = L_B^-T Z, summed over the block as one product.
            scaled = (vectors * weight[:, None, :]).transpose(1, 0, 2).reshape(data.d, -1)
            whitened[atom] -= scaled @ vectors.transpose(1, 0, 2).reshape(data.d, -1).T
        whitened = 0.5 * (whitened + whitened.mT)
        in_alpha, in_beta = (first, second) if request.slopes else (None, None)
        return Pullback(congruence(whitener, whitened, unit), whitened, in_alpha, in_beta, values)

    def _blocks(
        self, data: Prepared, rows: slice, whitener: RealArray, unit: IntArray, *, vectors: bool
    ) -> Iterator[tuple[slice, int, RealArray, RealArray | None]]:
        """Yield blocks of rows with every atom: rows, atom, log-eigenvalues, eigenvectors."""
        factor, exponents = _factors(data)
        step = max(1, _BLOCK_ENTRIES // data.d**2)
        with limit_blas(self.n_threads):
            for start in range(rows.start, rows.stop, step):
                block = slice(start, min(start + step, rows.stop))
                for atom, exponent in enumerate(unit):
                    whitened, shift = whitener[atom] @ factor[block], exponents[block] - exponent
                    yield block, atom, *decompose(whitened, shift, self.condition_limit, vectors)


def _factors(data: Prepared) -> tuple[RealArray, IntArray]:
    """Cholesky factors of the matrices scaled by 2^-exponent, and exponents; computed once."""
    return data.cached("factors", lambda: factorize(data.working))


def _saturated(derivative: RealArray | None) -> RealArray:
    """Keep derivatives in range: sums of infinities would be NaN."""
    assert derivative is not None
    return np.clip(derivative, -1e300, 1e300)


def _pair_names(first: int, atom: int) -> Callable[[int], str]:
    return lambda row: f"data[{first + row}] and atoms[{atom}]"
