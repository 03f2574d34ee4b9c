r"""Riemannian dictionary learning and sparse coding (Cherian and Sra): RSPDL.

A matrix X is approximated by :math:`M = \sum_j a_j B_j`, :math:`a \ge 0`, so that

.. math:: f(a) = \tfrac12 d^2(X, M) + \lambda \sum_j a_j
          = \tfrac12 \sum_i t_i^2 + \lambda \sum_j a_j

is small, with :math:`X = L L^T`, :math:`L^{-1} M L^{-T} = Q e^t Q^T`. Its gradients are
:math:`\partial f / \partial a_j = \langle G, B_j \rangle + \lambda` and
:math:`\partial f / \partial B_j = a_j G`, :math:`G = L^{-T} Q\, t e^{-t} Q^T L^{-1}`. It is convex
where :math:`M \preceq X` (Cherian and Sra 2017); elsewhere solutions are only stationary points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.baselines.coded import CodedClassifier, Parameters, View, check_penalties
from divlearn.checks import RandomState
from divlearn.engines.pencil import whiteners
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.threads import map_rows

_PENALTIES = (3.0, 1.0, 0.1)
_BLOCK_ENTRIES = 1 << 15  # of matrices that are decomposed at a time, and stay in cache
_MAX_ITER = 50
_INNER = 100  # iterations for each quadratic model
_RELAXATION = 1.6
_WEIGHT = 1.0  # of the quadratic term, relative to the mean eigenvalue of H
_ARMIJO = 1e-4
_HALVINGS = 30
_MEMORY = 5  # iterations; a step must improve on the worst of their objectives
_SHORTEST, _LONGEST = 1e-2, 1e2  # Barzilai-Borwein lengths


class Cone(View):
    """Conic combinations of atoms of fixed traces.

    ``whitener`` is the inverse of the Cholesky factor of a mean of the matrices. ``gram`` holds the
    inner products of whitened atoms: about the Hessian of f, if the combination is close to X.
    """

    def __init__(self, matrices: RealArray, atoms: RealArray, whitener: RealArray) -> None:
        self.whitener = whitener
        self._whiteners = whiteners(np.linalg.cholesky(matrices))
        self._set_atoms(atoms)

    def _set_atoms(self, atoms: RealArray) -> None:
        whitened = (self.whitener @ atoms @ self.whitener.T).reshape(len(atoms), -1)
        self.atoms, self.gram = atoms, whitened @ whitened.T

    def misfit(self, codes: RealArray, rows: Indices | None = None) -> tuple[RealArray, RealArray]:
        """Half the squared distances, infinite if a combination is not definite, and all G."""
        d = self.atoms.shape[-1]
        values, slopes = np.empty(len(codes)), np.empty((len(codes), d, d))
        flat = self.atoms.reshape(len(self.atoms), -1)
        matrix_rows = np.arange(len(codes)) if rows is None else rows

        def fill(part: slice) -> None:
            W = self._whiteners[matrix_rows[part]]
            with np.errstate(over="ignore", invalid="ignore"):  # steps may be too long
                sums = (codes[part] @ flat).reshape(-1, d, d)
                whitened = W @ sums @ W.mT
            invalid = ~np.isfinite(whitened).all(axis=(1, 2))
            whitened[invalid] = np.eye(d)
            eigenvalues, vectors = np.linalg.eigh(whitened)
            invalid |= eigenvalues[:, 0] <= 0
            eigenvalues[invalid] = 1
            t = np.log(eigenvalues)
            values[part] = np.where(invalid, np.inf, 0.5 * (t**2).sum(axis=1))
            basis = W.mT @ vectors
            slopes[part] = (basis * (t / eigenvalues)[:, None, :]) @ basis.mT

        map_rows(fill, len(codes), max(1, _BLOCK_ENTRIES // d**2))
        return values, slopes

    def evaluate(
        self, codes: RealArray, penalty: float, rows: Indices | None = None
    ) -> tuple[RealArray, RealArray]:
        """Objectives, shape (n_rows,), and their gradients in the codes, (n_rows, n_atoms)."""
        values, slopes = self.misfit(codes, rows)
        flat = self.atoms.reshape(len(self.atoms), -1)
        gradients = slopes.reshape(len(codes), -1) @ flat.T + penalty
        return values + penalty * codes.sum(axis=1), gradients

    def start(self) -> RealArray:
        """Equal codes, scaled so that the determinants of combination and matrix agree."""
        n = len(self.atoms)
        equal = np.full((len(self._whiteners), n), 1 / n)
        mean = self._whiteners @ self.atoms.mean(axis=0) @ self._whiteners.mT
        log_scales = np.linalg.slogdet(mean)[1] / mean.shape[-1]
        return equal * np.exp(-log_scales)[:, None]

    def objective(self, codes: RealArray, parameters: Parameters) -> tuple[float, RealArray]:
        values, slopes = self.misfit(codes)
        penalty = parameters["penalty"] * float(codes.sum(axis=1).mean())
        return float(values.mean()) + penalty, slopes

    def gradient(
        self, point: RealArray, codes: RealArray, parameters: Parameters, memo: RealArray
    ) -> RealArray:
        n, d = point.shape[:2]
        flat = codes.T @ memo.reshape(len(memo), -1) / len(memo)
        gradients = point.mT @ flat.reshape(n, d, d) @ point
        # `move` scales atoms back to their traces: leave out the part of the gradient along them.
        whitened = self.whitener @ point
        shares = np.trace(gradients, axis1=1, axis2=2) / d
        gradients -= shares[:, None, None] * (whitened.mT @ whitened)
        return 0.5 * (gradients + gradients.mT)

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        moved = super().move(point, step)
        traces = ((self.whitener @ moved) ** 2).sum(axis=(1, 2))
        return moved * np.sqrt(point.shape[-1] / traces)[:, None, None]


def to_unit_trace(atoms: RealArray, whitener: RealArray) -> RealArray:
    """Scale atoms such that tr(P^-1 B) = d, with P^-1 = W^T W and W the whitener."""
    traces = np.einsum("ij,kjl,il->k", whitener, atoms, whitener)
    return atoms * (atoms.shape[-1] / traces)[:, None, None]


@np.errstate(over="ignore", invalid="ignore")  # steps that overflow are not taken
def conic_codes(
    cone: Cone,
    penalty: float,
    *,
    start: RealArray | None = None,
    tol: float = 1e-2,
    max_iter: int = _MAX_ITER,
) -> RealArray:
    r"""Code all matrices by spectral projected gradients.

    Steps minimise :math:`\langle g, s \rangle + s^T H s / (2 \eta)` over :math:`a + s \ge 0`, H the
    Gram matrix of the cone and :math:`\eta` the Barzilai-Borwein length of each; with H the
    identity ten times as many are needed. A step improves on the worst of the last five values. A
    code is done if :math:`\langle a, g \rangle + \|a\|_1 \max_j (-g_j)_+`, its first-order gap, is
    at most ``tol`` times its objective. No code gets worse than the start.
    """
    start = cone.start() if start is None else start
    codes = start.copy()
    values, gradients = cone.evaluate(codes, penalty)
    for row in np.flatnonzero(~np.isfinite(values))[:1]:  # a search cannot start here
        raise ValueError(
            f"X[{row}] has the distance {values[row]} to a combination of the atoms: it is too "
            'close to singular, or too far from the training data; pass regularize="shrink"'
        )
    start_values = values.copy()
    recent = np.repeat(values[:, None], _MEMORY, axis=1)
    rows, lengths = np.arange(len(codes)), np.ones(len(codes))
    model = _Model(cone.gram)
    for iteration in range(max_iter):
        products = (codes[rows] * gradients[rows]).sum(axis=1)
        gaps = products + codes[rows].sum(axis=1) * np.maximum(-gradients[rows], 0).max(axis=1)
        rows = rows[gaps > tol * np.abs(values[rows])]
        if not len(rows):
            break
        steps = model.steps(codes[rows], gradients[rows], lengths[rows])
        worst = recent[rows].max(axis=1)
        rows, new_codes, new_values, new_gradients = _search(
            cone, penalty, rows, codes[rows], worst, gradients[rows], steps
        )
        lengths[rows] = model.lengths(new_codes - codes[rows], new_gradients - gradients[rows])
        codes[rows], values[rows], gradients[rows] = new_codes, new_values, new_gradients
        recent[rows, iteration % _MEMORY] = new_values
    better = (values <= start_values) & np.isfinite(codes).all(axis=1)
    return np.where(better[:, None], codes, start)


class _Model:
    """Quadratic models of many functions, whose Hessians are H up to factors."""

    def __init__(self, gram: RealArray) -> None:
        self.gram = gram
        self._weight = _WEIGHT * np.trace(gram) / len(gram)
        self._inverse = np.linalg.inv(gram + self._weight * np.eye(len(gram)))

    def steps(self, codes: RealArray, gradients: RealArray, lengths: RealArray) -> RealArray:
        """Minimise the models over non-negative codes, by alternating directions."""
        slopes = lengths[:, None] * gradients
        targets = codes @ self.gram - slopes
        minima, dual = codes, np.zeros_like(codes)
        for _ in range(_INNER):
            moved = (targets + self._weight * (minima - dual)) @ self._inverse
            moved = _RELAXATION * moved + (1 - _RELAXATION) * minima + dual
            minima = np.maximum(moved, 0)
            dual = moved - minima
        steps = minima - codes
        # The trace exceeds every eigenvalue of H: so short a projected gradient always descends.
        short = np.maximum(codes - slopes / np.trace(self.gram), 0) - codes
        descends = (steps * gradients).sum(axis=1) < (short * gradients).sum(axis=1)
        return np.where(descends[:, None], steps, short)

    def lengths(self, steps: RealArray, changes: RealArray) -> RealArray:
        """Barzilai-Borwein lengths, in the metric of H, from steps and changes of gradients."""
        squares = (steps @ self.gram * steps).sum(axis=1)
        curvatures = np.maximum((steps * changes).sum(axis=1), squares / _LONGEST)
        return np.maximum(squares / np.where(squares > 0, curvatures, 1), _SHORTEST)


def _search(
    cone: Cone,
    penalty: float,
    rows: Indices,
    codes: RealArray,
    values: RealArray,
    gradients: RealArray,
    steps: RealArray,
) -> tuple[Indices, RealArray, RealArray, RealArray]:
    """Backtrack until the objectives decrease sufficiently; drop rows where they never do."""
    slopes = (gradients * steps).sum(axis=1)
    lengths = np.ones(len(rows))
    moved, new_values, new_gradients = codes.copy(), values.copy(), gradients.copy()
    left = np.arange(len(rows))
    for _ in range(_HALVINGS):
        moved[left] = codes[left] + lengths[left, None] * steps[left]
        new_values[left], new_gradients[left] = cone.evaluate(moved[left], penalty, rows[left])
        rises = new_values[left] > values[left] + _ARMIJO * lengths[left] * slopes[left]
        left = left[rises]
        if not len(left):
            break
        excess = new_values[left] - values[left] - lengths[left] * slopes[left]
        ratios = -slopes[left] * lengths[left] / (2 * np.maximum(excess, np.finfo(float).tiny))
        lengths[left] *= np.clip(np.nan_to_num(ratios, nan=0.1), 0.1, 0.5)
    lower = np.delete(np.arange(len(rows)), left)
    return rows[lower], moved[lower], new_values[lower], new_gradients[lower]


class RSPDL(CodedClassifier[Cone]):
    r"""Classify codes of SPD matrices as conic combinations of SPD atoms.

    Codes :math:`a \ge 0` and atoms minimise [1]_

    .. math:: \frac1N \sum_i \tfrac12 d^2\Bigl(X_i, \sum_j a_{ij} B_j\Bigr) + \lambda \|a_i\|_1

    in the affine-invariant distance d. The traces of atoms, which the authors penalise, are fixed
    here: :math:`\operatorname{tr}(P^{-1} B_j) = d` with P the log-Euclidean mean of the data.
    Otherwise atoms would grow and codes shrink. Codes are sparse since they must not be negative.
    Dictionary and machine are learned as in `KernelSparseCoding`.

    Parameters
    ----------
    penalty : float or "auto", default="auto"
        :math:`\lambda > 0`; "auto" chooses among 3, 1 and 0.1 by held-out accuracy.
    n_atoms, max_iter, tol, random_state, n_jobs, verbose, regularize : as in `KernelSparseCoding`

    Attributes
    ----------
    whitener_ : ndarray, shape (d, d), inverse of the Cholesky factor of P.
    best_params_ : dict, "penalty", and "C" of the machine.
    others : as in `KernelSparseCoding`

    References
    ----------
    .. [1] A. Cherian and S. Sra, "Riemannian dictionary learning and sparse coding for positive
       definite matrices", IEEE Trans. Neural Networks and Learning Systems 28 (2017).

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, separation=4, random_state=0)
    >>> model = RSPDL(penalty=1.0, max_iter=1, random_state=0).fit(X[::2], y[::2])
    >>> bool((model.transform(X[1::2]) >= 0).all()), bool(model.score(X[1::2], y[1::2]) > 0.7)
    (True, True)
    """

    whitener_: Annotated[RealArray, "d d"]

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        penalty: float | str = "auto",
        max_iter: int = 10,
        tol: float = 1e-3,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_atoms, self.penalty, self.regularize = n_atoms, penalty, regularize
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs, self.verbose = random_state, n_jobs, verbose

    def _start(self, matrices: RealArray, n_atoms: int, seed: int) -> RealArray:
        mean = from_log_vectors(log_vectors(matrices).mean(axis=0, keepdims=True))
        self.whitener_ = whiteners(np.linalg.cholesky(mean))[0]
        return to_unit_trace(super()._start(matrices, n_atoms, seed), self.whitener_)

    def _view(self, matrices: RealArray, atoms: RealArray) -> Cone:
        return Cone(matrices, atoms, self.whitener_)

    def _codings(self, view: Cone) -> Sequence[Parameters]:
        return [{"penalty": penalty} for penalty in check_penalties(self.penalty, _PENALTIES)]

    def _codes(
        self, view: Cone, parameters: Parameters, start: RealArray | None = None
    ) -> RealArray:
        return conic_codes(view, parameters["penalty"], start=start)
