"""The common base of IDDL estimators: parameters and their checks, initial atoms, and models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, RealArray
from divlearn.checks import RandomState, check_count, check_flag, check_name, check_number
from divlearn.engines import Engine
from divlearn.fitting.folds import Splitter
from divlearn.fitting.labelled import MatricesMixin, rewrite_keywords
from divlearn.heads.losses import LOSSES, Loss
from divlearn.iddl.atoms import (
    METHODS,
    Divergences,
    are_filters,
    initial_atoms,
    make_variant,
    starts_from_grid,
)
from divlearn.iddl.judging import summarize
from divlearn.iddl.training import SOLVERS, History, Model, VectorModel
from divlearn.sharded.opening import open_new
from divlearn.spd import check_spd
from divlearn.text import counted
from divlearn.tolerances import LEARNING_ACCURACY

# Numbers for n_atoms="auto": three atoms per class, and more if classes are few.
_ATOMS_PER_CLASS, _FEWEST_ATOMS, _MOST_ATOMS = 3, 48, 150
_MATRICES_PER_ATOM = 3
_DIRECTIONS = 64  # columns of all filters of a model; four per class if that is more
_MATRICES_PER_DIRECTION = 7
_Class = TypeVar("_Class", bound=type)
_LEARNED = {"both": ("atoms", "divergences"), "atoms": ("atoms",), "divergences": ("divergences",)}


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
    loss : {"auto", "softmax", "ridge", "hinge"} or Loss, default="auto"
        "auto" takes softmax or ridge, whichever has the lower held-out loss, and adds discriminant
        analysis; other values give linear models only. A `Loss` of your own may be an instance or
        a class; see docs/extending.md. ``RidgeLoss(plain=True)`` of `divlearn.iddl` has the
        divergences themselves as features. Numbers need ridge.
    init : {"class-kmeans", "kmeans", "samples", "identity"} or array of atoms
        Initial atoms. Of full rank, an array has as many as an integer ``n_atoms`` says.
    atoms_per_class : int, optional
        Their number for ``n_atoms="auto"``, instead of the usual one.
    start : pair of floats, optional
        Initial (alpha, beta) of the divergences "S", "V" and "N"; by default the best of a grid.
    penalty : float > 0, "auto" or "cv", default="auto"
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
    loss: str | Loss | type[Loss] = "auto"
    init: str | ArrayLike = "class-kmeans"
    atoms_per_class: int | None = None
    start: tuple[float, float] | None = None
    penalty: float | str = "auto"
    penalty_per_matrix: bool = False

    def check(self) -> None:
        """Raise unless all values are among those above."""
        check_name(self.solver, "solver", SOLVERS)
        check_name(self.learn, "learn", _LEARNED)
        named = isinstance(self.loss, str) and self.loss in ("auto", *LOSSES)
        if not named and not is_loss(self.loss, Loss):
            raise ValueError(f"loss={self.loss!r} must be auto, {', '.join(LOSSES)} or a Loss")
        if isinstance(self.init, str) and self.init not in METHODS:
            names = ", ".join(METHODS)
            raise ValueError(f"init={self.init!r} must be one of {names}, or an array of atoms")
        if self.atoms_per_class is not None:
            check_count(self.atoms_per_class, "atoms_per_class")
        if not (isinstance(self.penalty, str) and self.penalty in ("auto", "cv")):
            check_number(self.penalty, "penalty", positive=True, word="auto")
        check_flag(self.penalty_per_matrix, "penalty_per_matrix")
        if self.penalty_per_matrix and isinstance(self.penalty, str):
            raise ValueError(
                f"penalty_per_matrix=True needs a number to divide, not penalty={self.penalty!r}; "
                "set penalty to a number, or leave penalty_per_matrix out"
            )

    @property
    def is_usual(self) -> bool:
        """Whether at most the loss differs from the defaults."""
        values = [(getattr(self, f.name), f.default) for f in fields(self) if f.name != "loss"]
        return all(type(value) is type(usual) and value == usual for value, usual in values)

    @property
    def moved(self) -> tuple[str, ...]:
        """What the solver optimises."""
        return _LEARNED[self.learn]

    def fixed_penalty(self, n_matrices: int) -> float | None:
        """Return the penalty, or None if held-out data choose it."""
        if isinstance(self.penalty, str):
            return None
        return float(self.penalty) / (n_matrices if self.penalty_per_matrix else 1)


def default_atoms(n_matrices: int, n_classes: int) -> int:
    """Return the default number of atoms of full rank, the same for each class."""
    target = max(_ATOMS_PER_CLASS, -(-_FEWEST_ATOMS // n_classes))
    most = min(_MOST_ATOMS // n_classes, n_matrices // (_MATRICES_PER_ATOM * n_classes))
    return min(max(1, min(target, most)) * n_classes, n_matrices)


def is_loss(loss: object, kind: type) -> bool:
    """Whether this is a loss of a kind: an instance, or a class."""
    return issubclass(loss if isinstance(loss, type) else type(loss), kind)


def takes_loss(estimator: _Class) -> _Class:
    """Let a class accept ``loss``, a parameter of version 0.2, for the field of its recipe."""

    def move(self: Any, keywords: dict[str, Any]) -> dict[str, Any]:
        if "loss" not in keywords:
            return keywords
        loss, before = keywords.pop("loss"), getattr(self, "recipe", None)
        warnings.warn(
            f"loss={loss!r} is a field of the recipe since version 0.3; pass "
            f"recipe=Recipe(loss={loss!r})",
            FutureWarning,
            stacklevel=3,
        )
        return keywords | {"recipe": replace(keywords.get("recipe", before) or Recipe(), loss=loss)}

    return rewrite_keywords(estimator, move)


class IDDLBase(MatricesMixin, BaseEstimator):  # type: ignore[misc]
    models_: list[Model]  # files of models are checked by these
    starts_: list[Model]
    vector_models_: list[VectorModel]
    loss_: str
    penalty_: float
    n_iter_: int
    message_: str
    history_: History
    held_out_losses_: dict[str, Annotated[RealArray, "n_held_out"]]

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        divergence: Divergences = "line",
        rank: int | str = "auto",
        recipe: Recipe | None = None,
        cv: Splitter = 4,
        max_iter: int | str = "auto",
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_atoms, self.divergence, self.rank = n_atoms, divergence, rank
        self.recipe, self.cv = recipe, cv
        self.max_iter, self.random_state, self.engine = max_iter, random_state, engine
        self.n_jobs, self.verbose, self.regularize = n_jobs, verbose, regularize

    def _searches_plane(self) -> bool:
        return starts_from_grid(self.divergence) and self._recipe.start is None

    @property
    def _recipe(self) -> Recipe:
        return Recipe() if self.recipe is None else self.recipe

    def _check_parameters(self, *, in_memory: bool = True) -> None:
        if not isinstance(self.recipe, Recipe | None):
            raise ValueError(f"recipe={self.recipe!r} must be a Recipe or None; pass Recipe(...)")
        self._recipe.check()
        if self.max_iter != "auto":
            check_number(self.max_iter, "max_iter", word="auto")
        if self.rank not in ("auto", "full"):
            check_count(self.rank, "rank", fix=', or "auto" or "full"')
            if self._recipe.solver != "joint":
                raise ValueError(
                    f"rank={self.rank} needs solver='joint', not {self._recipe.solver!r}; set "
                    'rank="full", or the other solver'
                )
        if "atoms" not in self._recipe.moved and not make_variant(self.divergence, 1).learned:
            raise ValueError(
                f"learn='divergences' needs pairs to learn, and divergence={self.divergence!r} has "
                'none; set divergence="learn", or learn="atoms"'
            )
        if self._recipe.start is not None and not starts_from_grid(self.divergence):
            raise ValueError(
                f"start={self._recipe.start!r} is for divergence='S', 'V' or 'N', not "
                f"{self.divergence!r}; leave out start"
            )
        if self._recipe.penalty == "cv" and self.cv is not None:
            raise ValueError(
                f'cv={self.cv!r} must be None with penalty="cv", which chooses for a single model; '
                'set cv=None, or penalty="auto"'
            )
        if not in_memory and self.cv is not None:
            raise ValueError(
                f"cv={self.cv!r} must be None for data in shards: models of folds are trained in "
                "memory; set cv=None, or pass an array that fits in memory"
            )

    def _count_atoms(self, n_matrices: int, n_classes: int, rank: int | None = None) -> int:
        if rank is not None and (self.n_atoms == "auto" or self.rank == "auto"):
            directions = max(_DIRECTIONS, 4 * n_classes)
            n_filters = min(directions, n_matrices // _MATRICES_PER_DIRECTION) // rank
            return min(max(n_filters, n_classes), n_matrices)
        if self.n_atoms == "auto" and self._recipe.atoms_per_class is not None:
            return self._recipe.atoms_per_class * n_classes
        if self.n_atoms == "auto":
            return default_atoms(n_matrices, n_classes)
        if isinstance(self.n_atoms, bool) or not isinstance(self.n_atoms, int | np.integer):
            raise ValueError(f'n_atoms={self.n_atoms!r} must be "auto" or an integer')
        if not 1 <= self.n_atoms <= n_matrices:
            raise ValueError(
                f"n_atoms={self.n_atoms} must be >= 1 and <= n_matrices={n_matrices}; change "
                "n_atoms or pass more data"
            )
        return int(self.n_atoms)

    def _initial_atoms(
        self,
        X: RealArray,
        codes: Indices | None,
        n_atoms: int,
        seed: int,
        logarithms: Callable[[], RealArray] | None = None,
    ) -> RealArray:
        init = self._recipe.init
        if isinstance(init, str):
            random = np.random.RandomState(seed)
            return initial_atoms(X, codes, n_atoms, init, random, logarithms)
        atoms = check_spd(init, ndim=3, name="init", dtype=np.float64)
        if atoms.shape[1:] != X.shape[1:]:
            raise ValueError(
                f"init has matrices of size {atoms.shape[1]}, must be {X.shape[1]} as in X"
            )
        is_full = self.rank in ("auto", "full") or int(self.rank) >= X.shape[-1]
        if is_full and self.n_atoms not in ("auto", len(atoms)):
            raise ValueError(
                f"init has {counted(len(atoms), 'matrices')}, must have n_atoms={self.n_atoms}; "
                'set n_atoms="auto", or pass as many'
            )
        return atoms

    def _map(self, function: Callable[..., RealArray], X: ArrayLike, *args: object) -> RealArray:
        """Call a function of a block, and of other arguments, on the blocks of new matrices."""
        shards = open_new(self, X, accuracy=LEARNING_ACCURACY)
        return np.concatenate(shards.map(function, *args))

    @property
    def atoms_(self) -> RealArray:
        """Atoms of all models of full rank, shape (n_atoms, d, d)."""
        return self._concatenate("atoms")

    @property
    def alpha_(self) -> RealArray:
        """Alpha of every atom, shape (n_atoms, n_pairs)."""
        return self._concatenate("alpha")

    @property
    def beta_(self) -> RealArray:
        """Beta of every atom, shape (n_atoms, n_pairs)."""
        return self._concatenate("beta")

    @property
    def filters_(self) -> list[RealArray]:
        """Filters of the models of lower rank, shape (n_atoms, d, rank) each."""
        return [model.atoms for model in self.models_ if are_filters(model.atoms)]

    def summary(self) -> str:
        """Describe the learned divergences, and compare them with fixed ones.

        Returns
        -------
        str
            A line for every pair (alpha, beta) of atoms of full rank: its share in the weights of
            the heads, and the held-out loss of a head on this divergence alone, to the initial
            atoms. Then the held-out loss of the model and that of the best single divergence, with
            the difference and its standard error, paired over groups, or over matrices without
            groups; and a note if the model is not clearly better than chance.
        """
        check_is_fitted(self)
        losses = getattr(self, "held_out_losses_", {})  # files of earlier versions have none
        return summarize(self.models_, self.starts_, losses)

    def _concatenate(self, name: str) -> RealArray:
        """Concatenate an array of the models of full rank; of all models if there are none."""
        full = [model for model in self.models_ if not are_filters(model.atoms)]
        return np.concatenate([getattr(model, name) for model in full or self.models_])
