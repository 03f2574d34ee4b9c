"""How an IDDL estimator learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from divlearn.checks import check_count, check_number
from divlearn.iddl.training import METHODS, SOLVERS

_MOVED = {
    "both": ("atoms", "divergences"),
    "atoms": ("atoms",),
    "divergences": ("divergences",),
}


@dataclass(frozen=True, eq=False)
class Recipe:
    """How an IDDL estimator learns. The defaults suit most data.

    Parameters
    ----------
    solver : {"joint", "bcd", "stochastic"}, default="joint"
        "joint" optimises everything at once by Riemannian L-BFGS, "bcd" is the paper's
        block-coordinate descent, "stochastic" is Riemannian Adam on minibatches.
    learn : {"both", "atoms", "divergences"}, default="both"
        What the solver optimises.
    init : {"class-kmeans", "kmeans", "samples", "identity"} or array of atoms
        Initial atoms.
    atoms_per_class : int, optional
        Their number for ``n_atoms="auto"``, instead of the usual one.
    start : pair of floats, optional
        Initial (alpha, beta) of the divergences "S", "V" and "N"; by default the best of a grid.
    penalty : float, "auto" or "cv", default="auto"
        Factor of the squared norm of the head. "auto" chooses that of the final head by held-out
        loss. "cv", for a single model, fits models with 0.001, 0.01, 0.1 and 1 and keeps the best.
    penalty_per_matrix : bool, default=False
        Whether the penalty is divided by the number of matrices.

    Examples
    --------
    >>> from divlearn.iddl import IDDLClassifier
    >>> IDDLClassifier(recipe=Recipe(solver="bcd", penalty=0.01)).recipe.solver
    'bcd'
    """

    solver: str = "joint"
    learn: str = "both"
    init: str | ArrayLike = "class-kmeans"
    atoms_per_class: int | None = None
    start: tuple[float, float] | None = None
    penalty: float | str = "auto"
    penalty_per_matrix: bool = False

    def check(self) -> None:
        """Raise unless all values are among those above."""
        _check_name("solver", self.solver, list(SOLVERS))
        _check_name("learn", self.learn, list(_MOVED))
        if isinstance(self.init, str):
            _check_name("init", self.init, [*METHODS, "or an array of atoms"])
        if self.atoms_per_class is not None:
            check_count(self.atoms_per_class, "atoms_per_class")
        if self.penalty not in ("auto", "cv"):
            check_number(self.penalty, "penalty", word="auto")

    @property
    def moved(self) -> tuple[str, ...]:
        """What the solver optimises."""
        return _MOVED[self.learn]

    def fixed_penalty(self, n_matrices: int) -> float | None:
        """Return the penalty, or None where it is to be chosen."""
        if isinstance(self.penalty, str):
            return None
        return float(self.penalty) / (n_matrices if self.penalty_per_matrix else 1)


def _check_name(name: str, value: str, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(known)}")
