"""Input and output of engines: prepared matrices, requests and gradients, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self, TypeVar, cast

import numpy as np

from divlearn.arrays import Indices, IntArray, RealArray, to_device_of, to_host
from divlearn.engines.parameters import Parameters
from divlearn.tolerances import ALIKE

_F = TypeVar("_F")
# In atoms (whitened) or filters, in alpha, and in beta; the last two are None unless requested.
Gradients = tuple[RealArray, RealArray | None, RealArray | None]
Pull = Callable[[RealArray, bool], Gradients]  # of a cotangent; True includes alpha and beta


@dataclass(eq=False)
class Prepared:
    """Data in the form of an engine, validated."""

    engine: str  # name of the engine that prepared the data
    working: RealArray  # (n_matrices, d, d), the checked matrices, variables in `order`
    # Variables of very different size are put in descending order, which keeps the digits of the
    # small ones in Cholesky factors.
    order: IntArray | None = field(default=None, kw_only=True)
    cache: dict[Hashable, object] = field(default_factory=dict, kw_only=True, repr=False)

    @classmethod
    def checked(cls, matrices: RealArray) -> Self:
        """Wrap matrices that were checked before, such that engines take them as they are."""
        return cls("checked", matrices)

    @property
    def matrices(self) -> RealArray:
        """The checked matrices as they were passed."""
        return self.working if self.order is None else permute(self.working, np.argsort(self.order))

    @property
    def device_matrices(self) -> RealArray:
        """The matrices on the device that holds results for the data, or on the host."""
        return self.matrices

    @cached_property
    def sizes(self) -> RealArray:
        """Mean logarithm of each variable's variance, in the order of `matrices`."""
        sizes = typical_sizes(self.working)
        return sizes if self.order is None else sizes[np.argsort(self.order)]

    def cached(self, key: Hashable, compute: Callable[[], _F]) -> _F:
        """Return the value cached under a key; compute and cache it first if there is none."""
        if key not in self.cache:
            self.cache[key] = compute()
        return cast(_F, self.cache[key])

    @property
    def n_matrices(self) -> int:
        """Number of matrices."""
        return len(self.working)

    @property
    def d(self) -> int:
        """Dimension of the matrices."""
        return int(self.working.shape[-1])

    @property
    def dtype(self) -> np.dtype:
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
    """Which gradients of ``sum(cotangent * D)`` to compute: in atoms, maybe in parameters."""

    parameters: Parameters
    cotangent: RealArray  # (n_matrices, n_atoms, n_pairs)
    slopes: bool = False  # whether to compute gradients in alpha and beta
    values: bool = False  # whether to compute the divergences

    def part(self, rows: slice, atoms: Indices | slice) -> Self:
        """Restrict the request to a block of matrices and atoms."""
        index = np.arange(len(self.parameters.alpha))[atoms]
        cotangent = self.cotangent[rows, atoms]
        return replace(self, parameters=self.parameters.select(index), cotangent=cotangent)


def permute(matrices: RealArray, order: IntArray) -> RealArray:
    return np.ascontiguousarray(matrices[..., order[:, None], order])


def typical_sizes(matrices: RealArray) -> RealArray:
    """Mean logarithm of each variable's variance, on the host wherever the matrices are."""
    variances = np.diagonal(matrices, axis1=1, axis2=2).astype(np.float64, copy=False)
    return to_host(np.log(variances).mean(axis=0))


def is_descending(sizes: RealArray) -> bool:
    """Whether sizes descend, up to differences that Cholesky factors tolerate."""
    return bool((sizes - np.minimum.accumulate(sizes, axis=-1)).max() <= ALIKE)


def restore_order(
    gradient: RealArray, whitened: RealArray, atoms: RealArray, order: IntArray
) -> tuple[RealArray, RealArray]:
    """Bring gradients back to the order of the caller's variables, frames included."""
    back = np.argsort(order)
    gradient, whitened, atoms = to_host(gradient), to_host(whitened), to_host(atoms)
    original = permute(atoms, back)
    # Both Cholesky factors are square roots of the same atom, so they differ by a rotation.
    rotated = np.linalg.cholesky(atoms)[:, back]
    rotation = np.linalg.solve(np.linalg.cholesky(original), rotated)
    frames = rotation @ whitened @ rotation.mT
    return permute(gradient, back), 0.5 * (frames + frames.mT)


def check_cotangent_shape(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(
            f"cotangent has shape {shape}, but must have the shape {expected} of the encoding: one "
            "weight per matrix and atom"
        )


def check_same_size(prepared: Prepared, atoms: RealArray) -> None:
    if atoms.shape[-1] != prepared.d:
        raise ValueError(
            f"atoms are {atoms.shape[-1]} by {atoms.shape[-1]}, but the data is "
            f"{prepared.d} by {prepared.d}; both must have the same dimension"
        )


def add_part(result: Pullback, extra: Pullback, rows: slice, atom: slice) -> None:
    """Add gradients for a block of rows and one atom, computed on the CPU, in place."""
    for name in ("atoms", "whitened", "alpha", "beta"):
        sums, share = getattr(result, name), getattr(extra, name)
        if sums is not None:
            sums[atom] += to_device_of(share, sums)
    if result.values is not None:
        result.values[rows, atom] = to_device_of(extra.values, result.values)


def nonfinite_atoms(*gradients: RealArray | None) -> Indices:
    """Atoms with a gradient that is not finite."""
    arrays = [array for array in gradients if array is not None]
    finite = [to_host(np.isfinite(g).reshape(len(g), -1).all(axis=1)) for g in arrays]
    return np.flatnonzero(~np.all(finite, axis=0))


def check_gradients(engine: str, gradients: Gradients, cotangent: RealArray) -> None:
    """Raise if gradients are not finite although the weights are."""
    lost = nonfinite_atoms(*gradients)
    if len(lost) and bool(np.isfinite(cotangent).all()):
        raise FloatingPointError(
            f"the {engine} engine found no finite gradient of {len(lost)} of "
            f"{len(gradients[0])} atoms (the first is atom {lost[0]}): eigenvalues of these "
            'pairs exceed double precision; rescale the matrices, or pass regularize="shrink"'
        )


def check_values(engine: str, values: RealArray) -> None:
    """Raise if a divergence is NaN; infinity is allowed."""
    lost = np.isnan(values)
    if bool(lost.any()):
        row, atom = (int(index[0]) for index in np.nonzero(to_host(lost))[:2])
        raise FloatingPointError(
            f"the {engine} engine found no divergence of {int(lost.sum())} of {values.size} pairs "
            f"(the first is matrix {row}, atom {atom}); rescale the matrices, or pass another "
            "engine"
        )


def cast_results(values: RealArray, dtype: np.dtype) -> RealArray:
    """Cast to the dtype of the data; values beyond its range become infinite."""
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False)


def check_out(out: RealArray | None, shape: tuple[int, ...], dtype: np.dtype) -> RealArray:
    """Return ``out`` if it can hold a result of that shape, or a new array if it is None."""
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
