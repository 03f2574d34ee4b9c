"""Riemannian dictionary learning and sparse coding (Cherian and Sra): RSPDL."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np

from divlearn.arrays import RealArray
from divlearn.baselines import coded
from divlearn.baselines.coded import Parameters, Stage
from divlearn.baselines.cone import Cone, conic_codes
from divlearn.checks import RandomState
from divlearn.engines.pencil import whiteners
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.optim.frames import move_frames
from divlearn.optim.gradients import minimize_conjugate_gradient
from divlearn.optim.problem import Trial
from divlearn.spd import usable

_PENALTIES = (3.0, 1.0, 0.1)
_STEPS = 5  # of conjugate gradients, for each update of the atoms


def to_unit_trace(atoms: RealArray, amid: RealArray) -> RealArray:
    """Scale atoms such that tr(P^-1 B) = d, with P^-1 = W^T W and W = amid."""
    traces = np.einsum("ij,kjl,il->k", amid, atoms, amid)
    return atoms * (atoms.shape[-1] / traces)[:, None, None]


def learn_conic(cone: Cone, penalty: float) -> Iterator[Stage]:
    """Yield the start, then atoms and codes in turn; the objective never rises."""
    codes = conic_codes(cone, penalty)
    block = "start"
    while True:
        problem = ConicAtomsProblem(cone, codes, penalty)
        start = problem.start(np.linalg.cholesky(cone.atoms))
        yield block, cone.atoms, codes, start.value
        found = minimize_conjugate_gradient(problem, start, max_iter=_STEPS, tol=0.0).trial
        cone = cone.span(found.point @ found.point.mT)
        yield "atoms", cone.atoms, codes, found.value
        codes = conic_codes(cone, penalty, start=codes)
        block = "codes"


class ConicAtomsProblem(coded.AtomsProblem):
    """Lower the mean objective of conic codes, traces of atoms held; points are their frames."""

    def __init__(self, cone: Cone, codes: RealArray, penalty: float) -> None:
        self.cone = cone
        self.codes = codes
        self._fixed = penalty * float(codes.sum(axis=1).mean())

    def trial(self, point: RealArray) -> Trial:
        atoms = point @ point.mT
        if not usable(atoms):
            return Trial(point, np.inf)
        values, slopes = self.cone.span(atoms).look(self.codes)
        return Trial(point, float(values.mean()) + self._fixed, slopes)

    def gradient(self, trial: Trial) -> RealArray:
        frames, slopes = trial.point, trial.memo
        n, d = frames.shape[:2]
        flat = self.codes.T @ slopes.reshape(len(slopes), -1) / len(slopes)
        gradients = frames.mT @ flat.reshape(n, d, d) @ frames
        # Steps are followed by scaling back to the trace: what changes it alone counts for nothing.
        whitened = self.cone.amid @ frames
        shares = np.trace(gradients, axis1=1, axis2=2) / d
        gradients -= shares[:, None, None] * (whitened.mT @ whitened)
        symmetric: RealArray = 0.5 * (gradients + gradients.mT)
        return symmetric.ravel()

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        moved = move_frames(point, step.reshape(point.shape))
        traces = ((self.cone.amid @ moved) ** 2).sum(axis=(1, 2))
        return moved * np.sqrt(point.shape[-1] / traces)[:, None, None]


class RSPDL(coded.CodedClassifier):
    r"""Classify codes of SPD matrices as conic combinations of SPD atoms.

    Codes :math:`a \ge 0` and atoms minimise [1]_

    .. math:: \frac1N \sum_i \tfrac12 d^2\Bigl(X_i, \sum_j a_{ij} B_j\Bigr) + \lambda \|a_i\|_1

    in the affine-invariant distance d. Lest atoms grow and codes shrink, the traces of atoms, which
    the authors penalise, are held here: :math:`\operatorname{tr}(P^{-1} B_j) = d` with P the
    log-Euclidean mean of the data. Codes are sparse since they must not be negative. Dictionary
    and machine are learned as in `KernelSparseCoding`.

    Parameters
    ----------
    penalty : float or "auto", default="auto"
        :math:`\lambda > 0`; "auto" chooses among 3, 1 and 0.1 by held-out accuracy.
    n_atoms, max_iter, tol, random_state, verbose, regularize : as in `KernelSparseCoding`

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
    >>> model = RSPDL(random_state=0).fit(X[::2], y[::2])
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
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_atoms, self.penalty, self.regularize = n_atoms, penalty, regularize
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.verbose = random_state, verbose

    def _start(self, matrices: RealArray, n_atoms: int, seed: int) -> RealArray:
        mean = from_log_vectors(log_vectors(matrices).mean(axis=0, keepdims=True))
        self.whitener_ = whiteners(np.linalg.cholesky(mean))[0]
        return to_unit_trace(super()._start(matrices, n_atoms, seed), self.whitener_)

    def _view(self, matrices: RealArray, atoms: RealArray) -> Cone:
        return Cone(matrices, atoms, self.whitener_)

    def _candidates(self, view: Cone, d: int) -> Sequence[Parameters]:
        return [{"penalty": penalty} for penalty in coded.check_penalties(self.penalty, _PENALTIES)]

    def _codes(self, view: Cone, parameters: Parameters) -> RealArray:
        return conic_codes(view, parameters["penalty"])

    def _learn(
        self, matrices: RealArray, atoms: RealArray, parameters: Parameters
    ) -> Iterator[Stage]:
        return learn_conic(self._view(matrices, atoms), parameters["penalty"])
