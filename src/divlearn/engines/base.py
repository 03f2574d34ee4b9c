"""Interface of all engines: one primitive and three operations, whose input is validated here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import DeviceArray, IntArray, RealArray, as_real, to_device_of, to_host
from divlearn.checks import check_count
from divlearn.engines.data import (
    Gradients,
    Prepared,
    Pull,
    Pullback,
    Request,
    cast_results,
    check_cotangent_shape,
    check_gradients,
    check_out,
    check_same_size,
    check_values,
    is_descending,
    permute,
    restore_order,
    typical_sizes,
)
from divlearn.engines.parameters import Parameters
from divlearn.engines.projected import encode_filters, pull_filters
from divlearn.geometry import logm
from divlearn.spd import check_spd, usable
from divlearn.threads import available_threads, limit_blas, map_rows, share
from divlearn.tolerances import condition_limit

ACCURACIES = ("auto", "accurate", "fast")
_BLOCK_ENTRIES = 1 << 15  # matrix entries in a block of logarithms, which then stays in cache
_MOST_THREADS = 1024  # OpenMP runtimes abort the process if they cannot start all threads


def _check_matrices(X: ArrayLike, name: str) -> RealArray:
    with limit_blas(1):  # threads would cost more than these factorizations
        return check_spd(X, ndim=3, name=name)


class Engine(ABC):
    r"""Divergences of data to atoms, and their gradients.

    .. math:: V_{ik} = D^{(\alpha_k, \beta_k)}(X_i \,\|\, B_k)
              = \sum_j f(t_{ikj}; \alpha_k, \beta_k)

    with :math:`t_{ikj}` the logarithms of the generalized eigenvalues of the pencil
    :math:`(X_i, B_k)`. Data and atoms may be arrays of shape (n, d, d) or, for the data, the
    result of `prepare`; atoms that need no check may come as `Prepared.checked`.

    Parameters
    ----------
    n_threads : int, optional
        Threads to use. By default as many as `divlearn.threads.available_threads` counts at every
        call: OMP_NUM_THREADS and limits of threadpoolctl and joblib hold.
    accuracy : {"auto", "accurate", "fast"} or float
        "auto" takes the accurate route (one-sided Jacobi) for pencils whose eigenvalues span
        more than `tolerances.condition_limit`; "accurate" takes it always, "fast" never. A number
        bounds the relative error that rounding may cause in the smallest eigenvalue.
    """

    name: ClassVar[str]
    table_entries: ClassVar[int] = 1 << 22  # of a block of a table of results

    def __init__(self, n_threads: int | None = None, accuracy: str | float = "auto") -> None:
        if n_threads is not None:
            fix = "; pass None for all cores"
            n_threads = check_count(n_threads, "n_threads", most=_MOST_THREADS, fix=fix)
        number = isinstance(accuracy, float) and 0 < accuracy < 1
        if not number and accuracy not in ACCURACIES:
            raise ValueError(
                f"accuracy={accuracy!r} must be one of {', '.join(ACCURACIES)}, or a number > 0 "
                "and < 1"
            )
        self.given_threads, self.accuracy = n_threads, accuracy

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_threads={self.given_threads}, accuracy={self.accuracy!r})"

    @property
    def n_threads(self) -> int:
        """Threads to use now: the number requested, or all that are available."""
        return share(self.given_threads) if self.given_threads else self._available_threads()

    def _available_threads(self) -> int:
        return available_threads()

    @property
    def condition_limit(self) -> float:
        """Ratio of eigenvalues above which the accurate route is taken."""
        if isinstance(self.accuracy, float):
            return self.accuracy / float(np.finfo(np.float64).eps)
        return {"auto": condition_limit(), "accurate": 0.0, "fast": np.inf}[self.accuracy]

    def prepare(self, X: ArrayLike | Prepared) -> Prepared:
        """Validate data, shape (n_matrices, d, d), and compute what depends on it alone."""
        if isinstance(X, Prepared):
            return X if X.engine == self.name else self._prepare_sorted(X.matrices)
        return self._prepare_sorted(_check_matrices(X, "X"))

    def _prepare_sorted(self, matrices: RealArray) -> Prepared:
        sizes = typical_sizes(matrices)
        if is_descending(sizes):
            prepared = self._prepare(matrices)
        else:
            prepared = self._prepare_in(np.argsort(-sizes, kind="stable"), matrices)
        prepared.sizes = sizes
        return prepared

    def _prepare_in(self, order: IntArray, matrices: RealArray) -> Prepared:
        return self._prepare(permute(matrices, order), order)

    def keep(self, X: ArrayLike | Prepared) -> Prepared:
        """Prepare data for many calls: results stay where the engine works, such as a device."""
        return self.prepare(X)

    def send(self, array: RealArray) -> RealArray:
        """Move an array to the device on which the engine works, if there is one with room."""
        return array

    def place(self, array: RealArray, data: Prepared) -> RealArray:
        """Move an array to the device that holds results for the data."""
        return array

    def take(self, data: Prepared, rows: IntArray) -> Prepared:
        """Prepare a subset of prepared matrices, on the device where they are."""
        chosen = data.working[rows]
        if data.order is not None:
            chosen = permute(chosen, np.argsort(data.order))
        return self.prepare(Prepared.checked(chosen))

    def spectra(self, data: ArrayLike | Prepared, atoms: ArrayLike | Prepared) -> RealArray:
        """Log generalized eigenvalues of every pencil, ascending, (n_matrices, n_atoms, d)."""
        with self._on_device_of(data):
            prepared, checked = self._check(data, atoms)
            return self._finish(self._spectra(prepared, checked), prepared)

    def encode(
        self,
        data: ArrayLike | Prepared,
        atoms: ArrayLike | Prepared,
        alpha: ArrayLike,
        beta: ArrayLike,
        *,
        out: RealArray | None = None,
    ) -> RealArray:
        """Divergence of every matrix to every atom.

        Parameters
        ----------
        data : array-like, shape (n_matrices, d, d), or Prepared
        atoms : array-like, shape (n_atoms, d, d)
        alpha, beta : float or array-like, shape (n_atoms,) or (n_atoms, n_pairs)
            With several pairs per atom one pass of spectra serves them all.
        out : ndarray, optional
            Where to write the result; a memory map will do. Blocks are written as they come.

        Returns
        -------
        ndarray, shape (n_matrices, n_atoms) or (n_matrices, n_atoms, n_pairs)
        """
        with self._on_device_of(data):
            prepared, checked = self._check(data, atoms)
            parameters = Parameters(self._on_host(alpha), self._on_host(beta), len(checked))
            target = self._target(out, (prepared.n_matrices, *parameters.shape), prepared)
            table = target.reshape(len(target), *parameters.alpha.shape)
            with np.errstate(over="ignore"):  # beyond the range of a narrower out is infinite
                self._encode(prepared, checked, parameters, table)
            check_values(self.name, table)
            return self._deliver(target, prepared) if out is None else out

    def pullback(
        self,
        data: ArrayLike | Prepared,
        atoms: ArrayLike | Prepared,
        alpha: ArrayLike,
        beta: ArrayLike,
        cotangent: ArrayLike,
        *,
        parameters: bool = True,
        values: bool = False,
    ) -> Pullback:
        """Gradients of ``sum(cotangent * encode(...))`` in one blocked pass.

        Parameters
        ----------
        data, atoms, alpha, beta, cotangent : as in `encode`, and of the shape of its result
        parameters : bool, default=True
            Whether the gradients with respect to alpha and beta are wanted. Without them the
            members alpha + beta = 1 need no eigenvectors.
        values : bool, default=False
            Whether to return the divergences too.
        """
        with self._on_device_of(data):
            prepared, checked = self._check(data, atoms)
            resolved = Parameters(self._on_host(alpha), self._on_host(beta), len(checked))
            shape = (prepared.n_matrices, *resolved.shape)
            weights = self._weights(cotangent, shape, prepared)
            table = weights.reshape(len(weights), *resolved.alpha.shape)
            sums = self._pullback(prepared, checked, Request(resolved, table, parameters, values))
            gradient, frames, first, second = sums.atoms, sums.whitened, sums.alpha, sums.beta
            check_gradients(self.name, (frames, first, second), weights)
            if first is not None and second is not None:
                first, second = resolved.restore(first, second)
            divergences = None if sums.values is None else sums.values.reshape(shape)
            if prepared.order is not None:
                gradient, frames = restore_order(gradient, frames, checked, prepared.order)
            arrays = gradient, frames, first, second, divergences
            return Pullback(*(self._finish(array, prepared) for array in arrays))

    def trace(
        self,
        data: ArrayLike | Prepared,
        atoms: ArrayLike | Prepared,
        alpha: ArrayLike,
        beta: ArrayLike,
    ) -> tuple[RealArray, Pull]:
        """Encode, and return a function from a cotangent to gradients as well.

        Its second argument says whether to compute gradients in the parameters. Engines with enough
        memory keep the spectra for the first gradient.
        """

        def pull(cotangent: RealArray, parameters: bool) -> Gradients:
            back = self.pullback(data, atoms, alpha, beta, cotangent, parameters=parameters)
            return back.whitened, back.alpha, back.beta

        return self.encode(data, atoms, alpha, beta), pull

    def logarithms(self, matrices: RealArray) -> RealArray:
        """Logarithms of checked matrices of the host, shape (n, d, d)."""
        logs = np.empty(matrices.shape)

        def fill(part: slice) -> None:
            logs[part] = logm(matrices[part])

        with limit_blas(1):  # more threads inside LAPACK gain nothing
            map_rows(fill, len(logs), max(1, _BLOCK_ENTRIES // matrices.shape[-1] ** 2))
        return logs

    def encode_filters(
        self, data: Prepared, filters: RealArray, alpha: RealArray, beta: RealArray
    ) -> RealArray:
        r"""Compute values of atoms of rank p < d, which are filters V of shape (d, p).

        Parameters
        ----------
        data : Prepared
        filters : ndarray, shape (n_filters, d, p)
        alpha, beta : ndarray, shape (n_filters, n_pairs)

        Returns
        -------
        ndarray, shape (n_matrices, n_filters, n_pairs + 1)
            :math:`D(V^T X V \,\|\, I)` for every pair, then :math:`\det(V^T X V)^{1/p}`.
        """
        values = self._encode_filters(data, filters, alpha, beta)
        check_values(self.name, values)
        return values

    def pull_filters(
        self,
        data: Prepared,
        filters: RealArray,
        alpha: RealArray,
        beta: RealArray,
        cotangent: RealArray,
        *,
        parameters: bool = False,
    ) -> Gradients:
        """Gradients of ``(cotangent * encode_filters(data, filters, alpha, beta)).sum()``.

        Those in alpha and beta are None unless `parameters` asks for them.
        """
        gradients = self._pull_filters(data, filters, alpha, beta, cotangent, parameters=parameters)
        check_gradients(self.name, gradients, cotangent)
        return gradients

    def _encode_filters(
        self, data: Prepared, filters: RealArray, alpha: RealArray, beta: RealArray
    ) -> RealArray:
        X = data.device_matrices
        return encode_filters(X, to_device_of(filters, X), alpha, beta)

    def _pull_filters(
        self,
        data: Prepared,
        filters: RealArray,
        alpha: RealArray,
        beta: RealArray,
        cotangent: RealArray,
        *,
        parameters: bool,
    ) -> Gradients:
        X = data.device_matrices
        filters, cotangent = to_device_of(filters, X), to_device_of(cotangent, X)
        return pull_filters(X, filters, alpha, beta, cotangent, parameters=parameters)

    def usable(self, atoms: RealArray) -> bool:
        """`divlearn.spd.usable` for atoms that may be on the device of the engine."""
        return usable(to_host(atoms))

    def _check(
        self, data: ArrayLike | Prepared, atoms: ArrayLike | Prepared
    ) -> tuple[Prepared, RealArray]:
        prepared = self.prepare(data)
        # Atoms are checked in their own precision and used in double precision.
        checked = atoms.matrices if isinstance(atoms, Prepared) else _check_matrices(atoms, "atoms")
        checked = checked.astype(np.float64, copy=False)
        check_same_size(prepared, checked)
        # Variables are ordered by their size in the data relative to that in the atoms.
        sizes = prepared.sizes - typical_sizes(checked)
        if not is_descending(sizes if prepared.order is None else sizes[prepared.order]):
            prepared = self._prepare_in(np.argsort(-sizes, kind="stable"), prepared.matrices)
        return prepared, checked if prepared.order is None else permute(checked, prepared.order)

    @abstractmethod
    def _prepare(self, matrices: RealArray, order: IntArray | None = None) -> Prepared: ...

    @abstractmethod
    def _spectra(self, data: Prepared, atoms: RealArray) -> RealArray: ...

    @abstractmethod
    def _encode(
        self, data: Prepared, atoms: RealArray, parameters: Parameters, out: RealArray
    ) -> None: ...

    @abstractmethod
    def _pullback(self, data: Prepared, atoms: RealArray, request: Request) -> Pullback: ...

    # Engines that work on a device override these: they move arrays there and back.

    def _on_device_of(self, data: ArrayLike | Prepared) -> AbstractContextManager[object]:
        """Work on the device where data is, or was prepared."""
        return nullcontext()

    def _on_host(self, parameter: ArrayLike) -> ArrayLike:
        return parameter

    def _weights(self, cotangent: ArrayLike, shape: tuple[int, ...], data: Prepared) -> RealArray:
        """Check a cotangent and move it to the device of the engine."""
        weights = np.ascontiguousarray(as_real(cotangent, "cotangent"))
        check_cotangent_shape(weights.shape, shape)
        return weights

    def _target(self, out: RealArray | None, shape: tuple[int, ...], data: Prepared) -> RealArray:
        """Return ``out`` after checks, or a new array for the results if it is None."""
        return check_out(out, shape, data.dtype)

    def _deliver(self, array: RealArray, data: Prepared) -> RealArray:
        """Move results to the device that the data came from."""
        return array

    def _finish(self, array: DeviceArray, data: Prepared) -> DeviceArray:
        """Cast results to the dtype of the data and deliver them."""
        return None if array is None else self._deliver(cast_results(array, data.dtype), data)
