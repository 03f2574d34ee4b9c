"""Variants: which atoms share which (alpha, beta), and which of these are learned."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.divergence import get_member
from divlearn.divergence.named import MEMBERS

Point = tuple[float, float]

_PAIRS: tuple[Point, ...] = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0))  # where "learn" starts
_LINE: tuple[Point, ...] = ((0.5, 0.5), (0.0, 1.0), (1.0, 0.0))  # alpha + beta = 1
_LEARNED = ("S", "V", "N")  # in the paper
_FIXED = {"A": "airm", "B": "log-cosh"}  # its "Burg" is (1, 1), which is not Burg's divergence


@dataclass(frozen=True, eq=False)
class Variant:
    """Which parameter each alpha and each beta of every atom is, shape (n_atoms, n_pairs)."""

    alpha_index: Indices
    beta_index: Indices
    start: RealArray
    learned: bool

    def expand(self, parameters: RealArray) -> tuple[RealArray, RealArray]:
        return parameters[self.alpha_index], parameters[self.beta_index]

    def pull(self, alpha: RealArray, beta: RealArray) -> RealArray:
        """Gradient in the parameters from those in alpha and beta."""
        size = len(self.start)
        gradient = np.zeros(size)
        np.add.at(gradient, self.alpha_index, alpha)
        np.add.at(gradient, self.beta_index, beta)
        return gradient


def starts_from_grid(divergence: Any) -> bool:
    """Tell whether the pair that atoms start with is to be searched on a grid, as in the paper."""
    return isinstance(divergence, str) and divergence in _LEARNED


def make_variant(divergence: Any, n_atoms: int, start: Point | RealArray | None = None) -> Variant:
    """Make the parameters of atoms; `start` is the first pair of the paper's variants."""
    if start is not None:
        start = _check_pairs([start], "start")[0]
    pairs, learned = _starts(divergence, _PAIRS[0] if start is None else start)
    m, name = len(pairs), divergence if isinstance(divergence, str) else ""
    if name == "S" or not learned:  # what all atoms share
        index = np.broadcast_to(np.arange(2 * m).reshape(m, 2), (n_atoms, m, 2))
        return Variant(index[..., 0], index[..., 1], pairs.ravel(), learned)
    if name == "V":
        tied = np.arange(n_atoms * m).reshape(n_atoms, m)
        return Variant(tied, tied, np.tile(pairs.sum(axis=1) / 2, n_atoms), True)
    index = np.arange(2 * n_atoms * m).reshape(n_atoms, m, 2)
    return Variant(index[..., 0], index[..., 1], np.tile(pairs.ravel(), n_atoms), True)


def _starts(divergence: Any, start: Point | RealArray) -> tuple[RealArray, bool]:
    """Return the pairs of atoms, shape (n_pairs, 2), and whether they are learned."""
    if starts_from_grid(divergence):
        return np.array([start], dtype=float), True
    if isinstance(divergence, str) and divergence in ("learn", "line"):
        return np.array(_PAIRS if divergence == "learn" else _LINE), divergence == "learn"
    if isinstance(divergence, list | tuple | np.ndarray) and np.ndim(divergence) == 2:
        return _check_pairs(divergence), True
    return _fixed(divergence), False


def _check_pairs(given: Any, name: str = "divergence") -> RealArray:
    try:
        pairs = np.asarray(given)
    except ValueError:  # entries of several lengths
        pairs = np.zeros((0, 0))
    shaped = pairs.ndim == 2 and pairs.shape[1] == 2 and len(pairs) > 0
    if not shaped or pairs.dtype.kind not in "iuf" or not _are_parameters(pairs):
        raise ValueError(f"{name}={given!r} must hold pairs (alpha, beta) of finite numbers >= 0")
    return pairs.astype(float)


def _fixed(divergence: Any) -> RealArray:
    try:
        name = _FIXED.get(divergence, divergence) if isinstance(divergence, str) else divergence
        known = get_member(name)
    except (TypeError, ValueError) as error:
        names = ", ".join(one.name for one in MEMBERS if not one.symmetrized)
        raise ValueError(
            f'divergence={divergence!r} must be "line", "learn", S, V, N, A, B, pairs '
            f"(alpha, beta), or a named divergence: {names}"
        ) from error
    if known.symmetrized:
        raise ValueError(
            f"divergence={divergence!r} is a mean of two directions, must be a point of the plane; "
            'pass one of them, such as "burg"'
        )
    pair = np.array([[known.alpha, known.beta]], dtype=float)
    if not _are_parameters(pair):
        raise ValueError(f"divergence={divergence!r} must have finite parameters >= 0")
    return pair


def _are_parameters(values: RealArray) -> bool:
    return bool(np.isfinite(values).all() and (values >= 0).all())
