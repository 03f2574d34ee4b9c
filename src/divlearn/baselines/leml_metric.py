r"""Log-Euclidean metric learning: pairs of matrices as constraints, and Bregman projections.

`LEML` states the problem. With :math:`A_c = M_c^T M_c` of any rank and a multiplier for every
constraint, >= 0 for similar pairs and <= 0 for dissimilar ones, the solution has

.. math:: Q^{-1} = Q_0^{-1} + \sum_c \mu_c A_c , \qquad 1 / \xi_c = 1 / \xi_{0c} - \mu_c / \eta ,

and a projection changes one multiplier until its constraint is an equality, or it becomes zero.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.progress import notify, stoppable
from divlearn.geometry import invsqrtm
from divlearn.nearest.vectors import VectorNeighbors


class Solution(NamedTuple):
    """A metric, how its search ended, and an entry of the history of `LEML`."""

    frame: RealArray  # F with Q = F F^T
    multipliers: RealArray
    bounds: RealArray  # with their slack
    n_iter: int  # passes
    message: str  # why they ended
    n_constraints: int
    eta: float
    seconds: float = math.nan
    accuracy: float = math.nan  # on held-out matrices


_NEIGHBORS = 5  # of each matrix in its class, for the initial metric
_SHRINKAGE = 1e-3  # of their scatter, towards a multiple of the identity
_SAMPLE = 20_000  # pairs, for percentiles
_EXACT = 1e-12  # of the logarithm of tr(Q A) / xi
_STEPS = 200  # bisection alone needs fewer


def move(logarithms: RealArray, root: RealArray) -> RealArray:
    """Vectors whose squared distances are tr(Q (S - T)^2), Q = root root^T."""
    return (logarithms @ root).reshape(len(logarithms), -1)


def find_prior(logarithms: RealArray, codes: Indices) -> RealArray:
    """Root of Q_0, the inverse scatter of neighbours of one class."""
    vectors = logarithms.reshape(len(logarithms), -1)
    pairs, similar = near_pairs(vectors, codes, 2 * _NEIGHBORS * len(codes), None)
    first, second = pairs[similar].T
    gaps = logarithms[first] - logarithms[second]
    scatter = np.tensordot(gaps, gaps, axes=([0, 1], [0, 1]))
    size = np.trace(scatter) / len(scatter)
    if size == 0:
        return np.eye(len(scatter))
    return invsqrtm(scatter / size + _SHRINKAGE * np.eye(len(scatter)))


def distance_percentiles(
    vectors: RealArray, ends: tuple[float, float], rng: np.random.Generator
) -> tuple[float, float]:
    first, second = rng.integers(len(vectors), size=(2, min(_SAMPLE, len(vectors) ** 2)))
    gaps = vectors[first] - vectors[second]
    squares = np.einsum("ij,ij->i", gaps, gaps)
    squares = squares[squares > 0]
    low, high = np.percentile(squares, ends) if len(squares) else (1.0, 1.0)
    return float(low), float(high)


def label_nearest(vectors: RealArray, codes: Indices, queries: RealArray) -> Indices:
    return codes[VectorNeighbors(vectors).find(queries, 1)[1][:, 0]]


def near_pairs(
    vectors: RealArray, codes: Indices, count: int, rng: np.random.Generator | None
) -> tuple[Indices, NDArray[np.bool_]]:
    """Pairs of near vectors, of the same class and of others in turn, at most ``count``."""
    # Every vector with its nearest ones, in an order the generator draws, then with its second
    # nearest, and so on; pairs of copies are left out. Returned are indices, and whether both are
    # of the same class.
    vectors, n = vectors - vectors.mean(axis=0), len(vectors)  # small numbers keep their digits
    ranks = -(-count // (2 * n))
    order = np.arange(n) if rng is None else rng.permutation(n)
    neighbors = np.full((2, n, ranks), -1, dtype=np.intp)  # of the same class, of others
    for code in np.unique(codes):
        same, others = np.flatnonzero(codes == code), np.flatnonzero(codes != code)
        for i, candidates in enumerate((same, others)):
            k = min(ranks, len(candidates) - (i == 0))
            if k > 0:
                index = NearestNeighbors(n_neighbors=k, algorithm="brute")
                queries = vectors[same] if i else None  # None: the candidates, without themselves
                nearest = index.fit(vectors[candidates]).kneighbors(queries, return_distance=False)
                neighbors[i, same, :k] = candidates[nearest]
    second = neighbors[:, order].transpose(2, 1, 0).ravel()  # by rank, then vector
    first = np.tile(np.repeat(order, 2), ranks)
    similar = np.tile([True, False], n * ranks)
    kept = np.flatnonzero(second >= 0)
    kept = kept[(vectors[first[kept]] != vectors[second[kept]]).any(axis=1)][:count]
    return np.column_stack([first[kept], second[kept]]), similar[kept]


def project(squares: RealArray, bound: float, eta: float) -> float:
    """Find the change mu of a multiplier that makes a constraint an equality."""
    # It is the root of sum_k l_k / (1 + mu l_k) = 1 / (1 / xi - mu / eta), unique where both sides
    # are positive; the squares l are the eigenvalues of F^T A F, ascending, the last one > 0.
    lowest, highest, change = -1 / float(squares[-1]), eta / bound, 0.0
    for _ in range(_STEPS):
        shares = squares / (1 + change * squares)
        distance, inverse = float(shares.sum()), 1 / bound - change / eta
        gap = math.log(distance * inverse)
        if abs(gap) <= _EXACT:
            break
        lowest, highest = (change, highest) if gap > 0 else (lowest, change)
        slope = float(shares @ shares) / distance + 1 / (eta * inverse)
        following = change + gap / slope
        if not lowest < following < highest:  # Newton's step leaves the bracket
            following = 0.5 * (lowest + highest)
        if following == change:
            break
        change = following
    return change


def solve_logdet(
    differences: RealArray,
    similar: NDArray[np.bool_],
    initial_bounds: RealArray,
    start: RealArray,
    eta: float,
    *,
    max_iter: int,
    tol: float,
) -> Solution:
    """Project on one constraint after the other, in passes over all of them."""
    # A constraint has a difference M, not zero, and a bound: an upper one if `similar`. `start` is
    # F with Q_0 = F F^T.
    frame, n = start, len(initial_bounds)
    multipliers, bounds = np.zeros(n), initial_bounds.astype(np.float64)
    iteration, message = 0, ""
    with stoppable():
        while iteration < max_iter and not message:
            changes = np.zeros(n)
            for c in range(n):
                moved = differences[c] @ frame
                distance = np.vdot(moved, moved)
                holds = distance <= bounds[c] if similar[c] else distance >= bounds[c]
                if holds and multipliers[c] == 0:
                    continue
                squares, vectors = np.linalg.eigh(moved.T @ moved)
                squares = np.maximum(squares, 0.0)
                change = project(squares, float(bounds[c]), eta)
                # A multiplier keeps its sign, or becomes zero: the constraint is inactive.
                limit = -float(multipliers[c])
                changes[c] = change = max(change, limit) if similar[c] else min(change, limit)
                multipliers[c] += change
                bounds[c] = 1 / (1 / float(bounds[c]) - change / eta)
                frame = frame @ (vectors / np.sqrt(1 + change * squares))
            iteration += 1
            total, changed = np.abs(multipliers).sum(), np.abs(changes).sum()
            share = float(changed / total) if total > 0 else 0.0
            notify("passes", iteration, max_iter, f"multipliers changed by a relative {share:.2g}")
            if share <= tol:
                message = f"a pass changed the multipliers by a relative {share:.2g} <= tol={tol:g}"
        message = message or f"max_iter={max_iter} reached"
    message = message or f"interrupted by the user in pass {iteration + 1}"
    return Solution(frame, multipliers, bounds, iteration, message, n, eta)
