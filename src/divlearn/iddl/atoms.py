"""Atoms: their divergences, learned or fixed, how they move, and their initial values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from scipy.linalg import eigh

from divlearn.alpha_beta import Point
from divlearn.arrays import Indices, RealArray, to_device_of, to_host
from divlearn.divergence import get_member
from divlearn.divergence.named import MEMBERS, DivergenceLike
from divlearn.geometry import in_frames, move_frames
from divlearn.log_vectors import find_centres, from_log_vectors, log_vectors
from divlearn.sharded.blocks import Block
from divlearn.spd import usable

Divergences = DivergenceLike | Sequence[Point]  # of atoms: a name, one pair, or several

METHODS = ("class-kmeans", "kmeans", "samples", "identity")
_TINY = float(np.finfo(float).tiny)
_LEARN: tuple[Point, ...] = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0))  # initial pairs of "learn"
_LINE: tuple[Point, ...] = ((0.5, 0.5), (0.0, 1.0), (1.0, 0.0))  # alpha + beta = 1
_LEARNED_NAMES = ("S", "V", "N")  # in the paper
_ALIASES = {"A": "airm", "B": "log-cosh"}  # its "Burg" is (1, 1), not Burg's divergence


@dataclass(frozen=True, eq=False)
class Variant:
    """Initial parameters, and the index of each alpha and beta among them, (n_atoms, n_pairs)."""

    alpha_index: Indices
    beta_index: Indices
    start: RealArray
    learned: bool

    def expand(self, parameters: RealArray) -> tuple[RealArray, RealArray]:
        return parameters[self.alpha_index], parameters[self.beta_index]

    def pull(self, alpha: RealArray, beta: RealArray) -> RealArray:
        """Sum gradients in alpha and beta to the gradient in the parameters."""
        gradient = np.zeros(len(self.start))
        np.add.at(gradient, self.alpha_index, alpha)
        np.add.at(gradient, self.beta_index, beta)
        return gradient


def starts_from_grid(divergence: Divergences) -> bool:
    """Whether a grid search finds the initial pair, as in the paper."""
    return isinstance(divergence, str) and divergence in _LEARNED_NAMES


def uses_line(divergence: Divergences) -> bool:
    """Whether atoms have the three fixed divergences with alpha + beta = 1."""
    return isinstance(divergence, str) and divergence == "line"


def make_variant(
    divergence: Divergences,
    n_atoms: int,
    start: Point | RealArray | None = None,
    rank: int | None = None,
) -> Variant:
    """Make the parameters of atoms; `start` is the initial pair of the paper's variants."""
    if start is not None:
        start = _check_pairs([start], "start")[0]
    pairs, learned = _initial_pairs(divergence, _LEARN[0] if start is None else start)
    if rank == 1 and uses_line(divergence):
        pairs = pairs[:0]  # of 1 x 1 matrices, the determinant is enough
    m, name = len(pairs), divergence if isinstance(divergence, str) else ""
    if name == "S" or not learned:  # all atoms share the parameters
        index = np.broadcast_to(np.arange(2 * m).reshape(m, 2), (n_atoms, m, 2))
        return Variant(index[..., 0], index[..., 1], pairs.ravel(), learned)
    if name == "V":
        tied = np.arange(n_atoms * m).reshape(n_atoms, m)
        return Variant(tied, tied, np.tile(pairs.sum(axis=1) / 2, n_atoms), True)
    index = np.arange(2 * n_atoms * m).reshape(n_atoms, m, 2)
    return Variant(index[..., 0], index[..., 1], np.tile(pairs.ravel(), n_atoms), True)


def _initial_pairs(divergence: Divergences, start: Point | RealArray) -> tuple[RealArray, bool]:
    """Return the pairs of atoms, shape (n_pairs, 2), and whether they are learned."""
    if starts_from_grid(divergence):
        return np.array([start], dtype=float), True
    if isinstance(divergence, str) and divergence in ("learn", "line"):
        return np.array(_LEARN if divergence == "learn" else _LINE), divergence == "learn"
    if isinstance(divergence, list | tuple | np.ndarray) and np.ndim(divergence) == 2:
        return _check_pairs(divergence), True
    return _fixed_pair(cast(DivergenceLike, divergence)), False


def _check_pairs(values: object, name: str = "divergence") -> RealArray:
    try:
        pairs = np.asarray(values)
    except ValueError:  # entries of several lengths
        pairs = np.zeros((0, 0))
    shaped = pairs.ndim == 2 and pairs.shape[1] == 2 and len(pairs) > 0
    if not shaped or pairs.dtype.kind not in "iuf" or not _are_parameters(pairs):
        raise ValueError(f"{name}={values!r} must hold pairs (alpha, beta) of finite numbers >= 0")
    return pairs.astype(float)


def _fixed_pair(divergence: DivergenceLike) -> RealArray:
    try:
        name = _ALIASES.get(divergence, divergence) if isinstance(divergence, str) else divergence
        member = get_member(name)
    except (TypeError, ValueError) as error:
        names = ", ".join(member.name for member in MEMBERS if not member.symmetrized)
        raise ValueError(
            f'divergence={divergence!r} must be "line", "learn", S, V, N, A, B, pairs '
            f"(alpha, beta), or a named divergence: {names}"
        ) from error
    if member.symmetrized:
        raise ValueError(
            f"divergence={divergence!r} is a mean of two directions, must be a point of the plane; "
            'pass one of them, such as "burg"'
        )
    pair = np.array([[member.alpha, member.beta]], dtype=float)
    if not _are_parameters(pair):
        raise ValueError(f"divergence={divergence!r} must have finite parameters >= 0")
    return pair


def _are_parameters(values: RealArray) -> bool:
    return bool(np.isfinite(values).all() and (values >= 0).all())


def are_filters(atoms: RealArray) -> bool:
    """Whether atoms have a rank below their size."""
    return atoms.shape[-1] < atoms.shape[-2]


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Atoms :math:`B_k = A_k A_k^T` and their parameters."""

    frames: RealArray  # A_k, (n_atoms, d, d); may be on a device
    parameters: RealArray  # always on the host

    @cached_property
    def atoms(self) -> RealArray:
        """The B_k, shape (n_atoms, d, d), exactly symmetric."""
        products = self.frames @ self.frames.mT
        return 0.5 * products + 0.5 * products.mT

    def usable(self, block: Block | None) -> bool:
        """Whether the atoms are not too close to singular."""
        return (usable if block is None else block.engine.usable)(self.atoms)

    def moved(self, step: RealArray) -> RealArray:
        """Return the frames after a step in their coordinates."""
        return move_frames(self.frames, step.reshape(self.frames.shape))

    def gradient(self, from_engine: RealArray) -> RealArray:
        """Turn the gradient of an engine into that in the coordinates."""
        return in_frames(to_device_of(from_engine, self.frames), self.atoms, self.frames)

    def steps_to(self, anchors: RealArray) -> RealArray:
        """Return the steps that lead from the atoms to the anchors."""
        inverses = np.linalg.inv(self.frames)
        in_own_frames = inverses @ to_device_of(anchors, self.frames) @ inverses.mT
        values, vectors = np.linalg.eigh(0.5 * (in_own_frames + in_own_frames.mT))
        return (vectors * np.log(np.maximum(values, _TINY))[:, None, :]) @ vectors.mT


@dataclass(frozen=True, eq=False)
class Filters(Dictionary):
    """Atoms of rank p, as filters V_k of shape (d, p); see `divlearn.engines.projected`.

    A step S leads to V_k + R S_k. R is the inverse square root of a mean matrix, which makes the
    coordinates independent of the units of the data.
    """

    root: RealArray  # (d, d), symmetric

    @property
    def atoms(self) -> RealArray:
        """The filters, shape (n_atoms, d, p)."""
        return self.frames

    def usable(self, block: Block | None) -> bool:
        return bool(np.isfinite(self.frames).all())

    def moved(self, step: RealArray) -> RealArray:
        return self.frames + to_device_of(self.root, step) @ step.reshape(self.frames.shape)

    def gradient(self, from_engine: RealArray) -> RealArray:
        return to_device_of(self.root, self.frames) @ to_device_of(from_engine, self.frames)

    def steps_to(self, anchors: RealArray) -> RealArray:
        inverse = np.linalg.inv(to_device_of(self.root, self.frames))
        return inverse @ (to_device_of(anchors, self.frames) - self.frames)


def share_atoms(n_atoms: int, n_classes: int) -> Indices:
    """Divide atoms among classes; the numbers differ by one at most."""
    counts = np.full(n_classes, n_atoms // n_classes)
    counts[: n_atoms % n_classes] += 1
    return counts


def initial_atoms(
    X: RealArray,
    codes: Indices | None,
    n_atoms: int,
    method: str,
    random_state: np.random.RandomState,
    logarithms: Callable[[], RealArray] | None = None,
) -> RealArray:
    """Choose atoms: class means by k-means, random matrices of every class, or identities.

    `codes` are the class indices of X, or None; `logarithms` returns `log_vectors(X)`, which may be
    on a device.
    """
    if method == "identity":
        return np.tile(np.eye(X.shape[-1]), (n_atoms, 1, 1))
    if codes is None or method == "kmeans":
        codes = np.zeros(len(X), dtype=np.intp)
    class_rows = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    counts = share_atoms(n_atoms, len(class_rows))
    counted = [(rows, n) for rows, n in zip(class_rows, counts, strict=True) if n]
    if method == "samples":
        drawn = [random_state.choice(rows, n, replace=n > len(rows)) for rows, n in counted]
        return X[np.concatenate(drawn)]
    vectors = log_vectors(X) if logarithms is None else logarithms()
    centres = [
        find_centres(vectors[to_device_of(rows, vectors)], n, random_state) for rows, n in counted
    ]
    return to_host(from_log_vectors(np.concatenate(centres)))


def initial_filters(
    X: RealArray, centres: RealArray, n_filters: int, rank: int, random: np.random.RandomState
) -> RealArray:
    """Make filters that whiten centres of classes, shape (n_filters, d, rank).

    The columns of a centre come in order of their difference from the mean of X, as in common
    spatial patterns; when they are used up, random directions follow.
    """
    mean, d = X.mean(axis=0), X.shape[-1]
    whiteners = [_spatial_filters(centre, mean) for centre in centres]
    filters = []
    for number in range(n_filters):
        turn, centre = divmod(number, len(centres))
        columns = whiteners[centre][:, turn * rank : (turn + 1) * rank]
        if columns.shape[1] < rank:
            columns = whiteners[centre] @ np.linalg.qr(random.standard_normal((d, rank)))[0]
        filters.append(columns)
    return np.stack(filters)


def _spatial_filters(centre: RealArray, mean: RealArray) -> RealArray:
    """Columns that whiten a centre, those first whose variance differs most from the mean's."""
    values, vectors = eigh(centre, mean)
    order = np.argsort(-np.abs(np.log(values)))
    return vectors[:, order] / np.sqrt(values[order])
