"""Riemannian dictionary learning and sparse coding (Cherian and Sra): RSPDL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.baselines.coded import CodedClassifier, check_penalties
from divlearn.baselines.coding import Stage
from divlearn.baselines.cone import Cone, conic_codes
from divlearn.engines.pencil import whiteners
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.optim.frames import move_frames, usable
from divlearn.optim.gradients import minimize_conjugate_gradient
from divlearn.optim.problem import Trial

__all__ = ["RSPDL", "ConicAtomsProblem", "ConicCoder", "to_unit_trace"]

_PENALTIES = (3.0, 1.0, 0.1)
_STEPS = 5  # of conjugate gradients, for each update of the atoms


def to_unit_trace(atoms: RealArray, amid: RealArray) -> RealArray:
    r"""Scale atoms such that :math:`\operatorname{tr}(P^{-1} B) = d`, with W = amid, P^-1 = W^T W.

    Examples
    --------
    >>> to_unit_trace(np.array([4 * np.eye(2)]), np.eye(2))
    array([[[1., 0.],
            [0., 1.]]])
    """
    traces = np.einsum("ij,kjl,il->k", amid, atoms, amid)
    scaled: RealArray = atoms * (atoms.shape[-1] / traces)[:, None, None]
    return scaled


@dataclass(frozen=True, eq=False)
class ConicCoder:
    """Codes by conic combinations. See `conic_codes`."""

    amid: RealArray
    penalty: float

    @property
    def parameters(self) -> dict[str, float]:
        """See `Coder.parameters`."""
        return {"penalty": self.penalty}

    def codes(self, view: Cone) -> RealArray:
        """See `Coder.codes`."""
        return conic_codes(view, self.penalty)

    def learn(self, matrices: RealArray, atoms: RealArray) -> Iterator[Stage]:
        """See `Coder.learn`."""
        cone = Cone.of(matrices, atoms, self.amid)
        codes = conic_codes(cone, self.penalty)
        block = "start"
        while True:
            problem = ConicAtomsProblem(self, cone, codes)
            start = problem.trial(np.linalg.cholesky(cone.atoms))
            if not np.isfinite(start.value):
                raise ValueError(
                    "the objective is infinite at the first atoms: matrices in X are too close to "
                    "singular for conic codes; regularize them by check_spd"
                )
            yield Stage(block, cone.atoms, codes, start.value)
            found = minimize_conjugate_gradient(problem, start, max_iter=_STEPS, tol=0.0).trial
            cone = cone.span(found.point @ found.point.mT, self.amid)
            yield Stage("atoms", cone.atoms, codes, found.value)
            codes = conic_codes(cone, self.penalty, start=codes)
            block = "codes"


class ConicAtomsProblem:
    """Lower the objective by moving the atoms along fixed traces, codes held: an `optim.Problem`.

    Points are frames of the atoms, shape (n_atoms, d, d).
    """

    def __init__(self, coder: ConicCoder, cone: Cone, codes: RealArray) -> None:
        self.coder = coder
        self.cone = cone
        self.codes = codes
        self._fixed = coder.penalty * float(codes.sum(axis=1).mean())

    def trial(self, point: RealArray) -> Trial:
        """Compute the objective. See `Problem.trial`."""
        atoms = point @ point.mT
        if not usable(atoms):
            return Trial(point, np.inf)
        values, slopes = self.cone.span(atoms, self.coder.amid).look(self.codes)
        return Trial(point, float(values.mean()) + self._fixed, slopes)

    def gradient(self, trial: Trial) -> RealArray:
        """Compute the gradient. See `Problem.gradient`."""
        frames, slopes = trial.point, trial.memo
        n, d = frames.shape[:2]
        flat = self.codes.T @ slopes.reshape(len(slopes), -1) / len(slopes)
        gradients = frames.mT @ flat.reshape(n, d, d) @ frames
        # Steps are followed by scaling back to the trace: what changes it alone counts for nothing.
        whitened = self.coder.amid @ frames
        shares = np.trace(gradients, axis1=1, axis2=2) / d
        gradients -= shares[:, None, None] * (whitened.mT @ whitened)
        symmetric: RealArray = 0.5 * (gradients + gradients.mT)
        return symmetric.ravel()

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        """Take a step. See `Problem.move`."""
        moved = move_frames(point, step.reshape(point.shape))
        traces = ((self.coder.amid @ moved) ** 2).sum(axis=(1, 2))
        scaled: RealArray = moved * np.sqrt(point.shape[-1] / traces)[:, None, None]
        return scaled

    def size(self, step: RealArray) -> float:
        """Longest way an atom goes. See `Problem.size`."""
        return float(np.linalg.norm(step.reshape(self.codes.shape[1], -1), axis=1).max())

    def limits(self, point: RealArray) -> float:
        """There are none. See `Problem.limits`."""
        return -np.inf


class RSPDL(CodedClassifier):
    r"""Classify codes of SPD matrices as conic combinations of SPD atoms.

    Codes :math:`a \ge 0` and atoms minimise [1]_

    .. math:: \frac1N \sum_i \tfrac12 d^2\Bigl(X_i, \sum_j a_{ij} B_j\Bigr) + \lambda \|a_i\|_1

    in the affine-invariant distance d. Without more, atoms would grow and codes shrink; where the
    authors penalise traces of atoms, these are held here: :math:`\operatorname{tr}(P^{-1} B_j) = d`
    with P the log-Euclidean mean of the data. Then :math:`\|a\|_1` is
    :math:`\operatorname{tr}(P^{-1} M) / d` of the combination M, and :math:`\lambda` shrinks
    that; codes are sparse since they must not be negative.

    The dictionary starts at centroids of log-Euclidean k-means; codes, by spectral projected
    gradients, and atoms, by Riemannian conjugate gradients, take turns, and the objective never
    rises. A linear support vector machine classifies the codes.

    Parameters
    ----------
    n_atoms : int or "auto", default="auto"
        "auto" is 5 per class, at most one per matrix.
    penalty : float or "auto", default="auto"
        :math:`\lambda > 0`; "auto" chooses among 3, 1 and 0.1 by accuracy on data held out.
    max_iter : int, default=10
        Updates of the dictionary; 0 leaves it at the centroids.
    tol : float, default=1e-3
        Stop where an iteration lowers the objective by at most this share of it.
    random_state : int, RandomState or None
    verbose : int, default=0

    Attributes
    ----------
    classes_ : ndarray
    dictionary_ : ndarray, shape (n_atoms, d, d)
    whitener_ : ndarray, shape (d, d), inverse of the Cholesky factor of P.
    parameters_ : dict, "penalty", and "C" of the machine.
    machine_ : VectorMachine
    history_ : dict of arrays
        "objective" after every update of a "block", its "iteration" and the "seconds" until then.
    n_iter_ : int
    message_ : str, why learning stopped.
    n_features_in_ : int, size of the matrices.

    References
    ----------
    .. [1] A. Cherian and S. Sra, "Riemannian dictionary learning and sparse coding for positive
       definite matrices", IEEE Trans. Neural Networks and Learning Systems 28 (2017).

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, separation=4, random_state=0)
    >>> model = RSPDL(random_state=0).fit(X[::2], y[::2])
    >>> bool((model.transform(X[1::2]) >= 0).all()), bool(model.score(X[1::2], y[1::2]) > 0.7)
    (True, True)
    """

    whitener_: RealArray

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        penalty: float | str = "auto",
        max_iter: int = 10,
        tol: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_atoms = n_atoms
        self.penalty = penalty
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _start(self, matrices: RealArray, n_atoms: int, seed: int) -> RealArray:
        mean = from_log_vectors(log_vectors(matrices).mean(axis=0, keepdims=True))
        self.whitener_ = whiteners(np.linalg.cholesky(mean))[0]
        return to_unit_trace(super()._start(matrices, n_atoms, seed), self.whitener_)

    def _view(self, matrices: RealArray, atoms: RealArray) -> Cone:
        return Cone.of(matrices, atoms, self.whitener_)

    def _coders(self, view: Any, d: int) -> Sequence[ConicCoder]:
        return [
            ConicCoder(self.whitener_, penalty)
            for penalty in check_penalties(self.penalty, _PENALTIES)
        ]
