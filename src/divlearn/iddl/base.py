"""What the IDDL estimators share: parameters, checks, and how a fit is put together."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.checkpoint import checkpointed, draw_seed, stage
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.iddl.ensemble import Part, make_parts
from divlearn.iddl.goals import Goal
from divlearn.iddl.initialization import initial_atoms
from divlearn.iddl.learning import Learned, learn_ensemble, learn_heads, learn_single
from divlearn.iddl.losses import LOSSES, HingeLoss, Loss
from divlearn.iddl.machines import HEADS
from divlearn.iddl.plane import search_plane
from divlearn.iddl.selection import Screened, screen
from divlearn.iddl.training import SOLVERS, Model, Recipe, Start, Task
from divlearn.iddl.variants import Variant, make_variant
from divlearn.interrupts import Interrupts, see_through
from divlearn.labelled import MatricesMixin
from divlearn.log_vectors import log_vectors
from divlearn.progress import track
from divlearn.sharded.opening import is_sharded, open_shards
from divlearn.sharded.shards import Shards
from divlearn.spd import check_spd
from divlearn.threads import limit_blas

__all__ = ["IDDLBase"]

_GAMMAS = (1e-4, 1e-3, 1e-2, 1e-1)
_PAIRS = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0))
_PER_CLASS = re.compile(r"([1-9]\d*) per class")
_ATOMS_PER_CLASS = 5
_MOST_ATOMS = 150  # when their number is chosen for the user
_TANGENT_COMPONENTS = 100
_SCREENING_FOLDS = 4  # where nothing is averaged
_ACCURACY = 1e-6  # of the smallest eigenvalues of pencils: learning needs no more


class IDDLBase(MatricesMixin, BaseEstimator):  # type: ignore[misc]
    """Parameters and fitting of all IDDL estimators; see `divlearn.iddl.IDDLClassifier`."""

    models_: list[Model]
    recipe_: Recipe

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
        head: str = "auto",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
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
        self.head = head
        self.warm_start = warm_start
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose
        self.checkpoint = checkpoint

    # ------------------------------------------------------------------ fitting

    def _checkpointed(self, **data: Any) -> AbstractContextManager[None]:
        """Keep the fit of some data in the file, if there is one."""
        if self.warm_start:
            data["the model to go on from"] = getattr(self, "models_", None)
        return checkpointed(self, **data)

    def _fit(self, X: RealArray, goal: Goal) -> list[Learned]:
        """Choose, train and keep the best; returns all that was learned."""
        self._check_parameters()
        with limit_blas(1), Interrupts() as interrupts:
            learned = self._learn(self._engine(), X, goal)
        self._keep(min(learned, key=lambda one: one.loss))
        if interrupts.seen and "interrupted" not in self.message_:
            self.message_ += "; interrupted by the user"
        self.n_features_in_, self.n_samples_seen_ = X.shape[-1], len(X)
        return learned

    def _learn(self, engine: Engine, X: RealArray, goal: Goal) -> list[Learned]:
        task = Task(X, engine.keep(X), goal.targets, goal.weights)
        seed = self._seed()
        n_atoms = self._count_atoms(len(X), goal.n_groups)
        recipes = [self._recipe(name, seed) for name in self._losses(goal)]

        @cache
        def logarithms() -> RealArray:
            return log_vectors(X)

        def make_start(number: int, rows: NDArray[np.intp], warm: bool) -> Start:
            codes = None if goal.codes is None else goal.codes[rows]
            start = partial(
                self._start, X[rows], codes, n_atoms, seed, number, warm=warm,
                logarithms=lambda: logarithms()[rows],
            )  # fmt: skip
            return stage("start", start)

        single = self.ensemble is None
        first = make_start(0, np.arange(len(X)), True) if single else None
        if not goal.folds:
            first = first or make_start(0, np.arange(len(X)), True)
            nothing = Screened.nothing(recipes[0])
            return [
                stage("single", partial(learn_single, engine, task, first, nothing, self._tell))
            ]
        # A model of everything has seen what the folds hold out: they do not go on from it.
        parts = make_parts(engine, task, partial(make_start, warm=not single), goal.folds)
        if self._searches_plane():
            tied = self.variant in ("tied", "V")
            search = partial(search_plane, engine, parts, recipes[0], tied=tied, loss=goal.loss)
            pair = stage("plane", search)
            self._tell(1, f"divergences start at alpha={pair[0]:g}, beta={pair[1]:g}")
            parts = [replace(part, start=self._place(part.start, pair)) for part in parts]
            first = first and self._place(first, pair)
        screened = stage("screen", partial(self._screen, engine, parts, recipes, goal))
        if first is not None:
            best = min(screened, key=lambda one: one.loss)
            learned = [
                stage("single", partial(learn_single, engine, task, first, best, self._tell))
            ]
        else:
            learn = partial(learn_ensemble, engine, task, parts, goal=goal, tell=self._tell)
            learned = _learn_beside(
                [],
                (
                    partial(stage, "ensemble", partial(learn, recipe=one.recipe))
                    for one in track(screened, "losses")
                ),
            )
        return self._with_heads(engine, learned, parts, task, goal)

    def _with_heads(
        self, engine: Engine, learned: list[Learned], parts: Sequence[Part], task: Task, goal: Goal
    ) -> list[Learned]:
        kinds = self._heads(goal)
        machines = [
            partial(learn_heads, engine, kind, one, parts, task, goal, self._tell)
            for kind in kinds
            if kind != "linear"
            for one in learned
        ]
        if "linear" in kinds:
            return _learn_beside(learned, (partial(stage, "heads", one) for one in machines))
        return [stage("heads", partial(see_through, one)) for one in machines]

    def _screen(
        self, engine: Engine, parts: Sequence[Part], recipes: Sequence[Recipe], goal: Goal
    ) -> list[Screened]:
        gammas = _GAMMAS if isinstance(self.gamma, str) else (self.gamma,)
        tangents = (0, _TANGENT_COMPONENTS) if self.tangent == "auto" else (recipes[0].n_tangent,)
        return screen(engine, parts, recipes, gammas, tangents, goal.loss)

    def _keep(self, learned: Learned) -> None:
        self.recipe_, self.head_, self.models_ = learned.recipe, learned.head, learned.models
        self.n_iter_, self.message_ = learned.n_iter, learned.message
        self.history_ = learned.history

    def _has_tangent(self) -> bool:
        """Whether a tangent block was asked for, by a bool of any kind."""
        return not isinstance(self.tangent, str) and bool(self.tangent)

    def _cv(self) -> Any:
        """Return the folds to choose by, though a single model is trained on everything."""
        return _SCREENING_FOLDS if self.ensemble is None else self.ensemble

    def _seed(self) -> int:
        return draw_seed(self.random_state)

    def _tell(self, level: int, text: str) -> None:
        if self.verbose >= level:
            print(f"[{type(self).__name__}] {text}")

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"solver={self.solver!r} must be one of {', '.join(SOLVERS)}")
        if self.loss != "auto" and self.loss not in LOSSES:
            raise ValueError(f"loss={self.loss!r} must be auto or one of {', '.join(LOSSES)}")
        if self.head not in HEADS:
            raise ValueError(f"head={self.head!r} must be one of {', '.join(HEADS)}")
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

    def _heads(self, goal: Goal) -> tuple[str, ...]:
        if self.head != "auto":
            return (self.head,)
        # A machine for one model would be chosen on another embedding than it is fitted to.
        return ("linear",) if goal.codes is None or self.ensemble is None else ("linear", "rbf")

    def _searches_plane(self) -> bool:
        warm = self.warm_start and hasattr(self, "models_")
        return isinstance(self.pairs, str) and self.pairs == "grid" and not warm

    def _recipe(self, name: str, seed: int) -> Recipe:
        kind = LOSSES[name]
        loss: Loss = kind(self.bias)
        if isinstance(loss, HingeLoss):
            loss = HingeLoss(self.bias, self.margin)
        return Recipe(
            loss, _GAMMAS[1] if isinstance(self.gamma, str) else float(self.gamma),
            logarithm=self.logarithm, standardize=self.standardize,
            n_tangent=_TANGENT_COMPONENTS if self._has_tangent() else 0, solver=self.solver,
            max_iter=int(self.max_iter), tol=float(self.tol), learn_atoms=self.learn_atoms,
            learn_parameters=self.learn_parameters, seed=seed,
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
        number: int = 0, *, warm: bool = True,
        logarithms: Callable[[], RealArray] | None = None,
    ) -> Start:  # fmt: skip
        if warm and self.warm_start and hasattr(self, "models_"):
            return self._continue(X, self.models_[number % len(self.models_)])
        if isinstance(self.init, str):
            random = np.random.RandomState(seed)
            atoms = initial_atoms(X, codes, n_atoms, self.init, random, logarithms)
        else:
            atoms = check_spd(self.init, ndim=3, name="init", dtype=np.float64)
            if atoms.shape[1:] != X.shape[1:]:
                raise ValueError(
                    f"init has matrices of size {atoms.shape[1]}, must be {X.shape[1]}, as X has"
                )
        return Start(atoms, self._variant(len(atoms)))

    def _continue(self, X: RealArray, model: Model) -> Start:
        """Go on from a model."""
        if model.atoms.shape[1:] != X.shape[1:]:
            raise ValueError(
                f"X has matrices of size {X.shape[1]}, but warm_start=True goes on with atoms of "
                f"size {model.atoms.shape[1]}; set it to False"
            )
        variant = self._variant(len(model.atoms))
        if variant.alpha_index.shape == model.alpha.shape and variant.learned:
            variant = replace(variant, start=variant.collect(model.alpha, model.beta))
        return Start(model.atoms, variant)

    def _place(self, start: Start, pair: tuple[float, float]) -> Start:
        """Let divergences start at a point."""
        return Start(start.atoms, make_variant(self.variant, len(start.atoms), [pair]))

    def _variant(self, n_atoms: int) -> Variant:
        pairs = self.pairs
        if isinstance(pairs, str):
            if pairs not in ("auto", "grid"):
                raise ValueError(
                    f'pairs={pairs!r} must be "auto", "grid" or a sequence of (alpha, beta)'
                )
            pairs = _PAIRS if pairs == "auto" else _PAIRS[:1]
        return make_variant(self.variant, n_atoms, _check_pairs(pairs))

    # ------------------------------------------------------------------ prediction

    def _prepare(self, X: ArrayLike) -> tuple[Engine, RealArray, Prepared]:
        check_is_fitted(self)
        matrices = self._check_matrices(X, reset=False)
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

    def _check_matrices(self, X: ArrayLike, *, reset: bool) -> RealArray:
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        if not reset:
            self._check_size(matrices.shape[-1])
        return matrices

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
    return isinstance(value, float | int | np.floating | np.integer)


def _check_pairs(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    try:
        found = np.array(pairs, dtype=float)
    except (TypeError, ValueError):
        found = np.zeros(0)
    right = found.ndim == 2 and found.shape[0] > 0 and found.shape[1] == 2
    if not right or not (np.isfinite(found).all() and (found >= 0).all()):
        raise ValueError(
            f'pairs={pairs!r} must be "auto", "grid" or a sequence of (alpha, beta), finite and >= '
            "0; one pair is [(alpha, beta)]"
        )
    return [(float(a), float(b)) for a, b in found]


def _learn_beside(known: list[Learned], more: Iterable[Callable[[], Learned]]) -> list[Learned]:
    """Learn more; where the user interrupts that, what is known will do."""
    learned = list(known)
    try:
        for learn in more:
            learned.append(learn())
    except KeyboardInterrupt:
        if not learned:
            raise
    return learned
