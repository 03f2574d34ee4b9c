"""What the IDDL estimators share: parameters, checks, and how a fit is put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.engines.blas import limit_blas
from divlearn.iddl.ensemble import Ensemble, Part, make_parts, train_ensemble
from divlearn.iddl.goals import Goal
from divlearn.iddl.initialization import initial_atoms
from divlearn.iddl.losses import LOSSES, HingeLoss, Loss
from divlearn.iddl.selection import Screened, screen
from divlearn.iddl.training import SOLVERS, Recipe, Start, Task, train
from divlearn.iddl.variants import make_variant
from divlearn.spd import check_spd

__all__ = ["IDDLBase"]

_GAMMAS = (1e-4, 1e-3, 1e-2, 1e-1)
_PAIRS = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0))
_PER_CLASS = re.compile(r"([1-9]\d*) per class")
_ATOMS_PER_CLASS = 5
_MOST_ATOMS = 150  # when their number is chosen for the user
_TANGENT_COMPONENTS = 100


class IDDLBase(BaseEstimator):  # type: ignore[misc]
    """Parameters and fitting of all IDDL estimators; see `divlearn.iddl.IDDLClassifier`."""

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        variant: str | tuple[float, float] = "free",
        pairs: Sequence[tuple[float, float]] | str = "auto",
        loss: str = "auto",
        gamma: float | str = "auto",
        logarithm: bool = True,
        standardize: bool = True,
        tangent: bool | str = "auto",
        bias: bool = True,
        margin: float = 1.0,
        solver: str = "joint",
        init: str | ArrayLike = "class-kmeans",
        learn_atoms: bool = True,
        learn_parameters: bool = True,
        max_iter: int = 30,
        tol: float = 1e-5,
        ensemble: Any = 4,
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_atoms = n_atoms
        self.variant = variant
        self.pairs = pairs
        self.loss = loss
        self.gamma = gamma
        self.logarithm = logarithm
        self.standardize = standardize
        self.tangent = tangent
        self.bias = bias
        self.margin = margin
        self.solver = solver
        self.init = init
        self.learn_atoms = learn_atoms
        self.learn_parameters = learn_parameters
        self.max_iter = max_iter
        self.tol = tol
        self.ensemble = ensemble
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting

    def _fit(self, X: RealArray, goal: Goal) -> Screened | None:
        """Choose, train and keep; returns what was screened, if anything."""
        self._check_parameters()
        engine = get_engine(self.engine)
        task = Task(X, engine.prepare(X), goal.targets, goal.weights)
        seed = self._seed()
        n_atoms = self._count_atoms(len(X), goal.n_groups)

        def make_start(rows: NDArray[np.intp]) -> Start:
            codes = None if goal.codes is None else goal.codes[rows]
            return self._start(X[rows], codes, n_atoms, seed)

        with limit_blas(1):
            screened = self._learn(engine, task, make_start, goal)
        self.n_features_in_ = X.shape[-1]
        return screened

    def _learn(
        self, engine: Engine, task: Task, make_start: Callable[[NDArray[np.intp]], Start],
        goal: Goal,
    ) -> Screened | None:  # fmt: skip
        everything = np.arange(len(task.X))
        recipes = [self._recipe(name) for name in self._losses(goal)]
        if goal.folds is None:
            self._train_one(engine, task, make_start(everything), recipes[0])
            return None
        parts = make_parts(engine, task, make_start, goal.folds)
        candidates = self._screen(engine, parts, recipes, goal)
        if self.ensemble is not None:
            return self._train_many(engine, parts, candidates, goal)
        screened = min(candidates, key=lambda one: one.loss)
        self._train_one(engine, task, make_start(everything), screened.recipe)
        return screened

    def _screen(
        self, engine: Engine, parts: Sequence[Part], recipes: Sequence[Recipe], goal: Goal
    ) -> list[Screened]:
        gammas = _GAMMAS if isinstance(self.gamma, str) else (self.gamma,)
        tangents = (0, _TANGENT_COMPONENTS) if self.tangent == "auto" else (recipes[0].n_tangent,)
        return screen(engine, parts, recipes, gammas, tangents, goal.loss)

    def _train_one(self, engine: Engine, task: Task, start: Start, recipe: Recipe) -> None:
        model, fit = train(engine, task, start, recipe)
        self.recipe_, self.models_ = recipe, [model]
        self.n_iter_, self.message_ = fit.n_iter, fit.message
        self.history_ = fit.history
        self._say(f"loss {recipe.loss.name}, gamma {recipe.gamma:g}: {fit.message}")

    def _train_many(
        self, engine: Engine, parts: Sequence[Part], candidates: list[Screened], goal: Goal
    ) -> Screened:
        best: tuple[Recipe, Ensemble] | None = None
        for candidate in candidates:
            recipe = candidate.recipe
            found = train_ensemble(engine, parts, recipe, len(goal.weights), goal.loss)
            self._say(
                f"loss {recipe.loss.name}, gamma {recipe.gamma:g}, {recipe.n_tangent} tangent "
                f"components: held-out loss {found.path[0]:.4g} at the start, {found.loss:.4g} "
                f"after {found.iteration} iterations"
            )
            if best is None or found.loss < best[1].loss:
                best = recipe, found
        assert best is not None
        recipe, ensemble = best
        self.recipe_, self.models_ = recipe, ensemble.models
        self.n_iter_ = ensemble.iteration
        self.message_ = (
            f"iteration {ensemble.iteration} has the lowest held-out loss, {ensemble.loss:.4g}, of "
            f"{len(ensemble.path)}; {len(ensemble.models)} models averaged"
        )
        self.history_ = _join([fit.history for fit in ensemble.fits])
        self.history_["held_out_loss"] = ensemble.path
        rows = np.flatnonzero(np.isfinite(ensemble.out_of_fold).all(axis=1))
        return Screened(recipe, ensemble.loss, rows, ensemble.out_of_fold[rows])

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {text}")

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"solver={self.solver!r} must be one of {', '.join(SOLVERS)}")
        if self.loss != "auto" and self.loss not in LOSSES:
            raise ValueError(f"loss={self.loss!r} must be auto or one of {', '.join(LOSSES)}")
        if self.tangent not in (True, False, "auto"):
            raise ValueError(f'tangent={self.tangent!r} must be True, False or "auto"')
        for name, least in (("max_iter", 0), ("margin", 0), ("tol", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not _is_number(value) or not least <= value < np.inf:
                raise ValueError(f"{name}={value!r} must be a number >= {least}")
        if not (isinstance(self.gamma, str) and self.gamma == "auto") and (
            not _is_number(self.gamma) or not 0 <= self.gamma < np.inf  # type: ignore[operator]
        ):
            raise ValueError(f'gamma={self.gamma!r} must be "auto" or a number >= 0')

    def _losses(self, goal: Goal) -> tuple[str, ...]:
        return goal.losses if self.loss == "auto" else (self.loss,)

    def _recipe(self, name: str) -> Recipe:
        kind = LOSSES[name]
        loss: Loss = kind(self.bias)
        if isinstance(loss, HingeLoss):
            loss = HingeLoss(self.bias, self.margin)
        return Recipe(
            loss, _GAMMAS[1] if isinstance(self.gamma, str) else float(self.gamma),
            logarithm=self.logarithm, standardize=self.standardize,
            n_tangent=_TANGENT_COMPONENTS if self.tangent is True else 0, solver=self.solver,
            max_iter=int(self.max_iter), tol=float(self.tol), learn_atoms=self.learn_atoms,
            learn_parameters=self.learn_parameters,
        )  # fmt: skip

    def _count_atoms(self, n_matrices: int, n_groups: int) -> int:
        if self.n_atoms == "auto":
            each = max(1, min(_ATOMS_PER_CLASS, _MOST_ATOMS // n_groups))
            return min(each * n_groups, n_matrices)
        if isinstance(self.n_atoms, str) and (found := _PER_CLASS.fullmatch(self.n_atoms)):
            return int(found[1]) * n_groups
        if isinstance(self.n_atoms, bool) or not isinstance(self.n_atoms, int | np.integer):
            raise ValueError(
                f'n_atoms={self.n_atoms!r} must be "auto", an integer, or a string such as '
                '"5 per class"'
            )
        if not 1 <= self.n_atoms <= n_matrices:
            raise ValueError(
                f"n_atoms={self.n_atoms} must be >= 1 and <= n_matrices={n_matrices}; change "
                "n_atoms or pass more data"
            )
        return int(self.n_atoms)

    def _start(
        self, X: RealArray, codes: NDArray[np.intp] | None, n_atoms: int, seed: int
    ) -> Start:
        if isinstance(self.init, str):
            atoms = initial_atoms(X, codes, n_atoms, self.init, np.random.RandomState(seed))
        else:
            atoms = check_spd(self.init, ndim=3, name="init", dtype=np.float64)
            if atoms.shape[1:] != X.shape[1:]:
                raise ValueError(
                    f"init has matrices of size {atoms.shape[1]}, must be {X.shape[1]}, as X has"
                )
        pairs = _PAIRS if isinstance(self.pairs, str) else self.pairs
        return Start(atoms, make_variant(self.variant, len(atoms), [(a, b) for a, b in pairs]))

    # ------------------------------------------------------------------ prediction

    def _prepare(self, X: ArrayLike) -> tuple[Engine, RealArray, Prepared]:
        check_is_fitted(self)
        matrices = self._check_matrices(X, reset=False)
        engine = get_engine(self.engine)
        return engine, matrices, engine.prepare(matrices)

    def _mean_scores(self, X: ArrayLike) -> RealArray:
        engine, matrices, data = self._prepare(X)
        scores = [model.scores(engine, matrices, data) for model in self.models_]
        result: RealArray = np.mean(scores, axis=0)
        return result

    def _check_matrices(self, X: ArrayLike, *, reset: bool) -> RealArray:
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        if not reset and matrices.shape[-1] != self.n_features_in_:
            raise ValueError(
                f"X has matrices of size {matrices.shape[-1]}, but {type(self).__name__} is "
                f"expecting {self.n_features_in_}"
            )
        return matrices

    @property
    def atoms_(self) -> RealArray:
        """Atoms of all models, shape (n_atoms, d, d)."""
        return np.concatenate([model.atoms for model in self.models_])

    @property
    def alpha_(self) -> RealArray:
        """Alpha of every atom, shape (n_atoms, n_pairs)."""
        return np.concatenate([model.alpha for model in self.models_])

    @property
    def beta_(self) -> RealArray:
        """Beta of every atom, shape (n_atoms, n_pairs)."""
        return np.concatenate([model.beta for model in self.models_])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int | np.floating | np.integer)


def _join(histories: list[dict[str, NDArray[np.generic]]]) -> dict[str, NDArray[np.generic]]:
    """Histories of several models one after the other, with the number of the model."""
    joined = {name: np.concatenate([h[name] for h in histories]) for name in histories[0]}
    joined["model"] = np.repeat(np.arange(len(histories)), [len(h["objective"]) for h in histories])
    return joined
