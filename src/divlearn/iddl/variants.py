"""Variants: which atoms share which (alpha, beta), and which of these are learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.divergence import DIVERGENCES, get_divergence

__all__ = ["Variant", "make_variant"]

# The paper's letters. Its "Burg" is (1, 1), which is not Burg's divergence.
_LETTERS = {"S": "shared", "V": "tied", "N": "free", "A": "airm", "B": "log-cosh"}
_LEARNED = ("shared", "tied", "free")


@dataclass(frozen=True, eq=False)
class Variant:
    """How a vector of parameters becomes the alpha and beta of every atom.

    Attributes
    ----------
    alpha_index, beta_index : ndarray of int, shape (n_atoms, n_pairs)
        Which parameter each alpha and each beta is.
    start : ndarray, shape (n_parameters,)
    learned : bool
    """

    alpha_index: NDArray[np.intp]
    beta_index: NDArray[np.intp]
    start: RealArray
    learned: bool

    def expand(self, parameters: RealArray) -> tuple[RealArray, RealArray]:
        """Alpha and beta of every atom, each of shape (n_atoms, n_pairs)."""
        return parameters[self.alpha_index], parameters[self.beta_index]

    def collect(self, alpha: RealArray, beta: RealArray) -> RealArray:
        """Parameters that expand to alpha and beta; means of what shares one."""
        count = self.pull(np.ones_like(alpha), np.ones_like(beta))
        return self.pull(alpha, beta) / np.maximum(count, 1)

    def pull(self, alpha: RealArray, beta: RealArray) -> RealArray:
        """Gradient in the parameters from those in alpha and beta."""
        size = len(self.start)
        gradient = np.zeros(size)
        np.add.at(gradient, self.alpha_index, alpha)
        np.add.at(gradient, self.beta_index, beta)
        return gradient


def make_variant(
    variant: str | tuple[float, float], n_atoms: int, starts: list[tuple[float, float]]
) -> Variant:
    """Variant by name.

    Parameters
    ----------
    variant : str or (alpha, beta)
        "shared" (one pair for all atoms; the paper's S), "tied" (alpha = beta for every atom; V),
        "free" (every atom its own pair; N), the name of a divergence (A is AIRM, B the paper's
        "Burg", (1, 1)), or a pair: the latter are not learned.
    n_atoms : int
    starts : list of (alpha, beta)
        Pairs each atom has, where they start. Fixed variants have one and ignore these.

    Returns
    -------
    Variant

    Examples
    --------
    >>> tied = make_variant("V", 3, [(1.0, 1.0)])
    >>> tied.start
    array([1., 1., 1.])
    >>> make_variant("burg", 2, []).expand(np.array([0.0, 1.0]))
    (array([[0.],
           [0.]]), array([[1.],
           [1.]]))
    """
    name = _LETTERS.get(variant, variant) if isinstance(variant, str) else variant
    if name not in _LEARNED:
        return _fixed(name, variant, n_atoms)
    m = len(starts)
    alpha, beta = np.array(starts, dtype=float).T
    if name == "shared":
        pairs = np.arange(2 * m).reshape(m, 2)
        index = np.broadcast_to(pairs, (n_atoms, m, 2))
        return Variant(index[..., 0], index[..., 1], np.stack([alpha, beta], axis=1).ravel(), True)
    if name == "tied":
        index = np.arange(n_atoms * m).reshape(n_atoms, m)
        return Variant(index, index, np.tile((alpha + beta) / 2, n_atoms), True)
    index = np.arange(2 * n_atoms * m).reshape(n_atoms, m, 2)
    start = np.tile(np.stack([alpha, beta], axis=1).ravel(), n_atoms)
    return Variant(index[..., 0], index[..., 1], start, True)


def _fixed(
    name: str | tuple[float, float], variant: str | tuple[float, float], n_atoms: int
) -> Variant:
    if isinstance(name, str):
        try:
            known = get_divergence(name)
        except ValueError as error:
            raise ValueError(
                f"variant={variant!r} must be shared (S), tied (V), free (N), A, B, a pair (alpha, "
                f"beta) or a named divergence: {', '.join(DIVERGENCES)}"
            ) from error
        pair = (known.alpha, known.beta)
    else:
        pair = name
    start = np.array(pair, dtype=float)
    if start.shape != (2,) or not (np.isfinite(start).all() and (start >= 0).all()):
        raise ValueError(f"variant={variant!r} must have two finite parameters >= 0")
    zero = np.zeros((n_atoms, 1), dtype=np.intp)
    return Variant(zero, zero + 1, start, False)
