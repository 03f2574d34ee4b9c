"""Interface of all engines: one primitive and three operations, whose input is validated here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import DeviceArray, Indices, IntArray, RealArray, as_real, beside, to_host
from divlearn.checks import check_count
from divlearn.engines.parameters import Parameters
from divlearn.engines.projected import FilterPullback, encode_filters, pull_filters
from divlearn.geometry import logm
from divlearn.spd import check_spd, usable
from divlearn.threads import available_threads, limit_blas, map_rows
from divlearn.tolerances import ALIKE, condition_limit

ACCURACIES = ("auto", "accurate", "fast")
_BLOCK_ENTRIES = 1 << 15  # of matrices whose logarithms are taken at a time: they stay in cache
_MOST_THREADS = 1024  # runtimes end the process where they cannot start the number asked for


@dataclass(eq=False)
class Prepared:
    """Data an engine has validated and brought into its own form."""

    engine: str  # name of the one that prepared it
    working: RealArray  # (n_matrices, d, d), the checked matrices, variables in `order`
    # Variables of very different size are put in descending order: only then do factors of graded
    # matrices keep the small ones.
    order: IntArray | None = field(default=None, kw_only=True)

    @classmethod
    def checked(cls, matrices: RealArray) -> Self:
        """Wrap matrices that were checked before, such that engines take them as they are."""
        return cls("checked", matrices)

    @property
    def matrices(self) -> RealArray:
        """The checked matrices as they were passed."""
        return self.working if self.order is None else permute(self.working, np.argsort(self.order))

    @property
    def there(self) -> RealArray:
        """The same where results for the data are, on the host or on a device."""
        return self.matrices

    @cached_property
    def sizes(self) -> RealArray:
        """Mean logarithm of each variable's variance, in the order of `matrices`."""
        sizes = typical_sizes(self.working)
        return sizes if self.order is None else sizes[np.argsort(self.order)]

    @property
    def n_matrices(self) -> int:
        """Number of matrices."""
        return len(self.working)

    @property
    def d(self) -> int:
        """Dimension of the matrices."""
        return int(self.working.shape[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating-point type of the data and of every result."""
        return self.working.dtype


@dataclass(frozen=True, eq=False)
class Pullback:
    """Gradients of ``sum_ik cotangent[i, k] D(X_i || B_k)``.

    Attributes
    ----------
    atoms : ndarray, shape (n_atoms, d, d), Euclidean and symmetric.
    whitened : ndarray, shape (n_atoms, d, d), the same in the frame of each atom's Cholesky
        factor, L^T (gradient) L: what steps on the manifold need, free of the atom's conditioning.
    alpha, beta : ndarray of the parameters' shape, or None where ``parameters=False``.
    values : ndarray of the cotangent's shape, the divergences, or None unless asked for.
    """

    atoms: RealArray
    whitened: RealArray
    alpha: RealArray | None = None
    beta: RealArray | None = None
    values: RealArray | None = None


@dataclass(frozen=True, eq=False)
class Request:
    """Gradients of ``sum(cotangent * D)`` that are wanted, in atoms and maybe in parameters."""

    parameters: Parameters
    cotangent: RealArray  # (n_matrices, n_atoms, n_pairs)
    slopes: bool = False  # whether gradients in alpha and beta are wanted
    values: bool = False  # whether divergences are wanted

    def part(self, rows: slice, atoms: Indices | slice) -> Self:
        """Ask the same of some matrices and some atoms."""
        index = np.arange(len(self.parameters.alpha))[atoms]
        cotangent = self.cotangent[rows, atoms]
        return replace(self, parameters=self.parameters.chosen(index), cotangent=cotangent)


@dataclass(frozen=True, eq=False)
class Trace:
    """Divergences, and what computes their gradients, once.

    Attributes
    ----------
    values : ndarray, as `Engine.encode` returns them.
    pull : callable
        Takes a cotangent, and whether gradients in the parameters are wanted; returns `whitened`,
        `alpha` and `beta` of a `Pullback`.
    """

    values: RealArray
    pull: Callable[[RealArray, bool], tuple[RealArray, RealArray | None, RealArray | None]]


def permute(matrices: RealArray, order: IntArray) -> RealArray:
    return np.ascontiguousarray(matrices[..., order[:, None], order])


def typical_sizes(matrices: RealArray) -> RealArray:
    """Mean logarithm of each variable's variance, on the host wherever the matrices are."""
    variances = np.diagonal(matrices, axis1=1, axis2=2).astype(np.float64, copy=False)
    return to_host(np.log(variances).mean(axis=0))


def is_descending(sizes: RealArray) -> bool:
    """Whether no size exceeds one before it by more than factors keep apart anyway."""
    return bool((sizes - np.minimum.accumulate(sizes, axis=-1)).max() <= ALIKE)


def restore_order(
    gradient: RealArray, whitened: RealArray, atoms: RealArray, order: IntArray
) -> tuple[RealArray, RealArray]:
    """Bring gradients back to the order of the caller's variables, frames included."""
    back = np.argsort(order)
    gradient, whitened, atoms = to_host(gradient), to_host(whitened), to_host(atoms)
    original = permute(atoms, back)
    # Both Cholesky factors are square roots of the same atom: they differ by a rotation.
    rotated = np.linalg.cholesky(atoms)[:, back]
    rotation = np.linalg.solve(np.linalg.cholesky(original), rotated)
    frames = rotation @ whitened @ rotation.mT
    return permute(gradient, back), 0.5 * (frames + frames.mT)


def _check_matrices(X: ArrayLike, name: str) -> RealArray:
    with limit_blas(1):  # threads would cost more than these factorizations
        return check_spd(X, ndim=3, name=name)


def check_cotangent_shape(given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if given != shape:
        raise ValueError(
            f"cotangent has shape {given}, but must have the shape {shape} of the encoding: one "
            "weight per matrix and atom"
        )


def check_same_size(prepared: Prepared, atoms: RealArray) -> None:
    if atoms.shape[-1] != prepared.d:
        raise ValueError(
            f"atoms are {atoms.shape[-1]} by {atoms.shape[-1]}, but the data is "
            f"{prepared.d} by {prepared.d}; both must have the same dimension"
        )


def add_part(result: Pullback, extra: Pullback, rows: slice, atom: slice) -> None:
    """Add what an engine of the CPU found for some rows of one atom, in place."""
    for name in ("atoms", "whitened", "alpha", "beta"):
        sums, share = getattr(result, name), getattr(extra, name)
        if sums is not None:
            sums[atom] += beside(share, sums)
    if result.values is not None:
        result.values[rows, atom] = beside(extra.values, result.values)


def lost_atoms(found: Pullback) -> Indices:
    """Return the atoms whose gradients are not finite, wherever the gradients are."""
    finite = np.isfinite(found.whitened).all(axis=(1, 2))
    for slopes in (found.alpha, found.beta):
        if slopes is not None:
            finite &= np.isfinite(slopes).reshape(len(slopes), -1).all(axis=1)
    return np.flatnonzero(to_host(finite) == 0)


def refuse_lost(engine: str, lost: Indices, n_atoms: int, cotangent: RealArray) -> None:
    """Raise if gradients for finite weights are not finite: they must not pass for small ones."""
    if len(lost) and bool(np.isfinite(cotangent).all()):
        raise FloatingPointError(
            f"the {engine} engine found no finite gradient of {len(lost)} of "
            f"{n_atoms} atoms (the first is atom {lost[0]}): eigenvalues of these "
            'pairs exceed double precision; rescale the matrices, or pass regularize="shrink"'
        )


def refuse_nan(engine: str, values: RealArray) -> None:
    """Raise if a divergence is not a number; a divergence may be infinite."""
    lost = np.isnan(values)
    if bool(lost.any()):
        row, atom = (int(where[0]) for where in np.nonzero(to_host(lost))[:2])
        raise FloatingPointError(
            f"the {engine} engine found no divergence of {int(lost.sum())} of {values.size} pairs "
            f"(the first is matrix {row}, atom {atom}); rescale the matrices, or pass another "
            "engine"
        )


def cast_results(values: RealArray, dtype: np.dtype[Any]) -> RealArray:
    """Round to the type of the data; what exceeds its range is infinite."""
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False)


def check_out(out: RealArray | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> RealArray:
    """Return ``out`` if it can take a result of that shape, a new array if it is None."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out is a {type(out).__name__}, but must be a NumPy array")
    real = out.dtype.kind == "f" and out.dtype.itemsize >= 4
    if out.shape != shape or not real or not out.flags.writeable:
        raise ValueError(
            f"out has shape {out.shape} and dtype {out.dtype}, but must be a writeable "
            f"floating-point array of shape {shape}"
        )
    if any(stride == 0 and size > 1 for stride, size in zip(out.strides, shape, strict=True)):
        raise ValueError("out has entries that share memory; pass an array of its own")
    return out


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
        takes it where rounding may change the smallest eigenvalue by more than that share of it.
    """

    name: ClassVar[str]
    table_entries: ClassVar[int] = 1 << 22  # of results held at a time, where some will do

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
        """Threads to use now: those given, or all that are available."""
        return self.given_threads or available_threads()

    @property
    def condition_limit(self) -> float:
        """Ratio of eigenvalues above which the accurate route is taken."""
        if isinstance(self.accuracy, float):
            return self.accuracy / float(np.finfo(np.float64).eps)
        return {"auto": condition_limit(), "accurate": 0.0, "fast": np.inf}[self.accuracy]

    def prepare(self, X: ArrayLike | Prepared) -> Prepared:
        """Validate data, shape (n_matrices, d, d), and do once what depends on it alone."""
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

    def place(self, array: RealArray, data: Prepared) -> RealArray:
        """Put an array where results for data are."""
        return array

    def take(self, data: Prepared, rows: IntArray) -> Prepared:
        """Prepare some of the matrices that were prepared, where they are."""
        chosen = data.working[rows]
        if data.order is not None:
            chosen = permute(chosen, np.argsort(data.order))
        return self.prepare(Prepared.checked(chosen))

    def spectra(self, data: ArrayLike | Prepared, atoms: ArrayLike | Prepared) -> RealArray:
        """Log generalized eigenvalues of every pencil, ascending, (n_matrices, n_atoms, d)."""
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
        prepared, checked = self._check(data, atoms)
        parameters = Parameters(alpha, beta, len(checked))
        target = self._target(out, (prepared.n_matrices, *parameters.shape), prepared)
        table = target.reshape(len(target), *parameters.alpha.shape)
        with np.errstate(over="ignore"):  # beyond the range of a narrower out is infinite
            self._encode(prepared, checked, parameters, table)
        refuse_nan(self.name, table)
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
        prepared, checked = self._check(data, atoms)
        resolved = Parameters(alpha, beta, len(checked))
        shape = (prepared.n_matrices, *resolved.shape)
        weights = self._weights(cotangent, shape, prepared)
        table = weights.reshape(len(weights), *resolved.alpha.shape)
        found = self._pullback(prepared, checked, Request(resolved, table, parameters, values))
        refuse_lost(self.name, lost_atoms(found), len(found.whitened), weights)
        gradient, frames, first, second = found.atoms, found.whitened, found.alpha, found.beta
        if first is not None and second is not None:
            first, second = resolved.restore(first, second)
        divergences = None if found.values is None else found.values.reshape(shape)
        if prepared.order is not None:
            gradient, frames = restore_order(gradient, frames, checked, prepared.order)

        fields = gradient, frames, first, second, divergences
        return Pullback(*(self._finish(one, prepared) for one in fields))

    def trace(
        self,
        data: ArrayLike | Prepared,
        atoms: ArrayLike | Prepared,
        alpha: ArrayLike,
        beta: ArrayLike,
    ) -> Trace:
        """Do what `encode` does; an engine with room for it keeps what gradients need, too."""

        def pull(cotangent: RealArray, parameters: bool) -> DeviceArray:
            back = self.pullback(data, atoms, alpha, beta, cotangent, parameters=parameters)
            return back.whitened, back.alpha, back.beta

        return Trace(self.encode(data, atoms, alpha, beta), pull)

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
        refuse_nan(self.name, values)
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
    ) -> FilterPullback:
        """Gradients of ``(cotangent * encode_filters(data, filters, alpha, beta)).sum()``.

        Those in alpha and beta are zeros unless `parameters` asks for them.
        """
        found = self._pull_filters(data, filters, alpha, beta, cotangent, parameters=parameters)
        refuse_lost(self.name, found.lost(), len(filters), cotangent)
        return found

    def _encode_filters(
        self, data: Prepared, filters: RealArray, alpha: RealArray, beta: RealArray
    ) -> RealArray:
        X = data.there
        return encode_filters(X, beside(filters, X), alpha, beta)

    def _pull_filters(
        self, data: Prepared, filters: RealArray, *given: RealArray, parameters: bool
    ) -> FilterPullback:
        X = data.there
        return pull_filters(X, beside(filters, X), *given, parameters=parameters)

    def usable(self, atoms: RealArray) -> bool:
        """Say what `divlearn.spd.usable` does, of atoms that may be where the engine works."""
        return usable(to_host(atoms))

    def _check(
        self, data: ArrayLike | Prepared, atoms: ArrayLike | Prepared
    ) -> tuple[Prepared, RealArray]:
        prepared = self.prepare(data)
        # Judged in the precision they come in, used in double.
        checked = atoms.matrices if isinstance(atoms, Prepared) else _check_matrices(atoms, "atoms")
        checked = checked.astype(np.float64, copy=False)
        check_same_size(prepared, checked)
        # What counts is the size of the data's variables in units of the atoms'.
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

    # An engine with arrays elsewhere also says how these come in and go out.

    def _weights(self, cotangent: ArrayLike, shape: tuple[int, ...], data: Prepared) -> RealArray:
        """Return a checked cotangent where the engine wants it."""
        weights = np.ascontiguousarray(as_real(cotangent, "cotangent"))
        check_cotangent_shape(weights.shape, shape)
        return weights

    def _target(self, out: RealArray | None, shape: tuple[int, ...], data: Prepared) -> RealArray:
        """Return an array for results: ``out``, checked, unless it is None."""
        return check_out(out, shape, data.dtype)

    def _deliver(self, array: RealArray, data: Prepared) -> RealArray:
        """Bring results where the data came from."""
        return array

    def _finish(self, array: DeviceArray, data: Prepared) -> DeviceArray:
        """Bring results to the type and the kind of the data."""
        return None if array is None else self._deliver(cast_results(array, data.dtype), data)
