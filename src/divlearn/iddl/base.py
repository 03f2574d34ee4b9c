"""What the IDDL estimators share: parameters, their checks, and how a fit is put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.checkpoint import draw_seed, stage
from divlearn.fitting.interrupts import Interrupts
from divlearn.fitting.labelled import MatricesMixin
from divlearn.fitting.progress import track
from divlearn.iddl.ensemble import Part, make_parts
from divlearn.iddl.goals import Goal
from divlearn.iddl.initialization import initial_atoms
from divlearn.iddl.learning import Learned, learn_ensemble, learn_single
from divlearn.iddl.losses import LOSSES, Loss
from divlearn.iddl.plane import search_plane
from divlearn.iddl.selection import Screened, screen
from divlearn.iddl.training import SOLVERS, Model, Recipe, Start, Task
from divlearn.iddl.variants import make_variant, starts_from_grid
from divlearn.log_vectors import log_vectors
from divlearn.sharded.opening import is_sharded, open_shards
from divlearn.sharded.shards import Shards
from divlearn.spd import check_spd
from divlearn.threads import limit_blas

__all__ = ["IDDLBase"]

_GAMMAS = (1e-4, 1e-3, 1e-2, 1e-1)
_PER_CLASS = re.compile(r"([1-9]\d*) per class")
_ATOMS_PER_CLASS = 5
_MOST_ATOMS = 150  # when their number is chosen for the user
_SCREENING_FOLDS = 4  # where nothing is averaged
_TOLERANCE = 1e-5  # of the gradient, relative to the start
_ACCURACY = 1e-6  # of the smallest eigenvalues of pencils: learning needs no more


_MOVED = ("atoms", "divergences")
# By name: the solver, and what it moves.
_SOLVERS = {name: (name, _MOVED) for name in SOLVERS} | {
    f"{name} {one}": (name, (one,)) for name in SOLVERS for one in _MOVED
}


class _Features(NamedTuple):
    """What the head sees of divergences, and the numbers of tangent components to choose from."""

    logarithm: bool
    standardize: bool
    n_tangent: tuple[int, ...]


FEATURES = {
    "auto": _Features(True, True, (0, 100)),
    "log": _Features(True, True, (0,)),
    "log+tangent": _Features(True, True, (100,)),
    "plain": _Features(False, False, (0,)),
}


class IDDLBase(MatricesMixin, BaseEstimator):  # type: ignore[misc]
    """Parameters and fitting of all IDDL estimators; see `divlearn.iddl.IDDLClassifier`."""

    loss: str | Loss = "auto"
    models_: list[Model]  # files of models are checked by these
    recipe_: Recipe

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        divergence: Any = "learn",
        gamma: float | str = "auto",
        features: str = "auto",
        solver: str = "joint",
        init: str | ArrayLike = "class-kmeans",
        cv: Any = 4,
        max_iter: int = 30,
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_atoms = n_atoms
        self.divergence = divergence
        self.gamma = gamma
        self.features = features
        self.solver = solver
        self.init = init
        self.cv = cv
        self.max_iter = max_iter
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting

    def _fit(self, X: RealArray, goal: Goal) -> list[Learned]:
        """Choose, train and keep the best; returns all that was learned."""
        self._check_parameters()
        with limit_blas(1), Interrupts() as interrupts:
            learned = self._learn(self._engine(), X, goal)
        self._keep(min(learned, key=lambda one: one.loss))
        if interrupts.seen and "interrupted" not in self.message_:
            self.message_ += "; interrupted by the user"
        self.n_features_in_ = X.shape[-1]
        return learned

    def _learn(self, engine: Engine, X: RealArray, goal: Goal) -> list[Learned]:
        task = Task(X, engine.keep(X), goal.targets, goal.weights)
        seed = draw_seed(self.random_state)
        n_atoms = self._count_atoms(len(X), goal.n_groups)
        recipes = [self._recipe(loss, seed) for loss in self._losses(goal)]

        @cache
        def logarithms() -> RealArray:
            return log_vectors(X)

        def make_start(rows: NDArray[np.intp]) -> Start:
            codes = None if goal.codes is None else goal.codes[rows]
            start = partial(self._start, X[rows], codes, n_atoms, seed, lambda: logarithms()[rows])
            return stage("start", start)

        single = self.cv is None
        first = make_start(np.arange(len(X))) if single or not goal.folds else None
        if not goal.folds:
            assert first is not None
            nothing = Screened.nothing(recipes[0])
            return [self._learn_single(engine, task, first, nothing)]
        parts = make_parts(engine, task, make_start, goal.folds)
        pair = self._first_pair(engine, parts, recipes[0], goal)
        if pair is not None:
            self._tell(1, f"divergences start at alpha={pair[0]:g}, beta={pair[1]:g}")
            parts = [replace(part, start=self._place(part.start, pair)) for part in parts]
            first = first and self._place(first, pair)
        screened = stage("screen", partial(self._screen, engine, parts, recipes, goal))
        if first is not None:
            best = min(screened, key=lambda one: one.loss)
            return [self._learn_single(engine, task, first, best)]
        learn = partial(learn_ensemble, engine, task, parts, goal=goal, tell=self._tell)
        return _learn_all(
            partial(stage, "ensemble", partial(learn, recipe=one.recipe))
            for one in track(screened, "losses")
        )

    def _first_pair(
        self, engine: Engine, parts: Sequence[Part], recipe: Recipe, goal: Goal
    ) -> tuple[float, float] | None:
        """Search a grid for where the paper's variants start; None for all other divergences."""
        if not starts_from_grid(self.divergence):
            return None
        search = partial(search_plane, engine, parts, recipe, tied=self.divergence == "V")
        return stage("plane", partial(search, loss=goal.loss))

    def _learn_single(
        self, engine: Engine, task: Task, start: Start, screened: Screened
    ) -> Learned:
        return stage("single", partial(learn_single, engine, task, start, screened, self._tell))

    def _screen(
        self, engine: Engine, parts: Sequence[Part], recipes: Sequence[Recipe], goal: Goal
    ) -> list[Screened]:
        gammas = _GAMMAS if isinstance(self.gamma, str) else (self.gamma,)
        tangents = FEATURES[self.features].n_tangent
        return screen(engine, parts, recipes, gammas, tangents, goal.loss)

    def _keep(self, learned: Learned) -> None:
        self.recipe_, self.models_ = learned.recipe, learned.models
        self.n_iter_, self.message_ = learned.n_iter, learned.message
        self.history_ = learned.history

    def _cv(self) -> Any:
        """Return the folds to choose by, though a single model is trained on everything."""
        return _SCREENING_FOLDS if self.cv is None else self.cv

    def _tell(self, level: int, text: str) -> None:
        if self.verbose >= level:
            print(f"[{type(self).__name__}] {text}")

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        if not isinstance(self.solver, str) or self.solver not in _SOLVERS:
            raise ValueError(
                f"solver={self.solver!r} must be {', '.join(SOLVERS)}, or one of these followed by "
                "atoms or divergences"
            )
        if not isinstance(self.features, str) or self.features not in FEATURES:
            raise ValueError(f"features={self.features!r} must be one of {', '.join(FEATURES)}")
        if not isinstance(self.loss, Loss) and self.loss not in ("auto", *LOSSES):
            raise ValueError(f"loss={self.loss!r} must be auto, {', '.join(LOSSES)} or a Loss")
        if not _is_number(self.max_iter) or not 0 <= self.max_iter < np.inf:
            raise ValueError(f"max_iter={self.max_iter!r} must be a number >= 0")
        if not (isinstance(self.gamma, str) and self.gamma == "auto") and (
            not _is_number(self.gamma) or not 0 <= self.gamma < np.inf  # type: ignore[operator]
        ):
            raise ValueError(f'gamma={self.gamma!r} must be "auto" or a number >= 0')

    def _losses(self, goal: Goal) -> tuple[Loss, ...]:
        if isinstance(self.loss, Loss):
            return (self.loss,)
        names = goal.losses if self.loss == "auto" else (self.loss,)
        return tuple(LOSSES[name]() for name in names)

    def _recipe(self, loss: Loss, seed: int) -> Recipe:
        chosen = FEATURES[self.features]
        solver, moved = _SOLVERS[self.solver]
        return Recipe(
            loss, _GAMMAS[1] if isinstance(self.gamma, str) else float(self.gamma),
            logarithm=chosen.logarithm, standardize=chosen.standardize,
            n_tangent=chosen.n_tangent[0], solver=solver, max_iter=int(self.max_iter),
            tol=_TOLERANCE, learn_atoms="atoms" in moved, learn_parameters="divergences" in moved,
            seed=seed,
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
        self, X: RealArray, codes: NDArray[np.intp] | None, n_atoms: int, seed: int,
        logarithms: Callable[[], RealArray] | None = None,
    ) -> Start:  # fmt: skip
        if isinstance(self.init, str):
            random = np.random.RandomState(seed)
            atoms = initial_atoms(X, codes, n_atoms, self.init, random, logarithms)
        else:
            atoms = check_spd(self.init, ndim=3, name="init", dtype=np.float64)
            if atoms.shape[1:] != X.shape[1:]:
                raise ValueError(
                    f"init has matrices of size {atoms.shape[1]}, must be {X.shape[1]}, as X has"
                )
        return Start(atoms, make_variant(self.divergence, len(atoms)))

    def _place(self, start: Start, pair: tuple[float, float]) -> Start:
        """Let divergences start at a point."""
        return Start(start.atoms, make_variant(self.divergence, len(start.atoms), pair))

    # ------------------------------------------------------------------ prediction

    def _prepare(self, X: ArrayLike) -> tuple[Engine, RealArray, Prepared]:
        check_is_fitted(self)
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        self._check_size(matrices.shape[-1])
        engine = self._engine()
        return engine, matrices, engine.prepare(matrices)

    def _engine(self) -> Engine:
        return get_engine(self.engine, accuracy=_ACCURACY)

    def _open_shards(self, X: Any, y: Any = None, sample_weight: Any = None) -> Shards:
        return open_shards(X, y, sample_weight, engine=self.engine, accuracy=_ACCURACY)

    def _mean_scores(self, X: ArrayLike) -> RealArray:
        if is_sharded(X, self.engine):
            from divlearn.sharded.learning import mean_scores

            check_is_fitted(self)
            shards = self._open_shards(X)
            self._check_size(shards.d)
            return mean_scores(self.models_, shards)
        engine, matrices, data = self._prepare(X)
        scores = [model.scores(engine, matrices, data) for model in self.models_]
        result: RealArray = np.mean(scores, axis=0)
        return result

    def _check_size(self, d: int) -> None:
        if d != self.n_features_in_:
            raise ValueError(
                f"X has matrices of size {d}, but {type(self).__name__} is expecting "
                f"{self.n_features_in_}"
            )

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


def _is_number(value: Any) -> bool:
    number = isinstance(value, float | int | np.floating | np.integer)
    return number and not isinstance(value, bool)


def _learn_all(learners: Iterable[Callable[[], Learned]]) -> list[Learned]:
    """Learn all; where the user interrupts that, what was learned by then will do."""
    learned: list[Learned] = []
    try:
        for learn in learners:
            learned.append(learn())
    except KeyboardInterrupt:
        if not learned:
            raise
    return learned
