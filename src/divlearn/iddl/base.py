"""What IDDL estimators share: parameters, their checks, and how a fit is put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, RealArray, on_device, to_device_of
from divlearn.checks import RandomState, check_count, check_number
from divlearn.engines import Engine
from divlearn.fitting.checkpoint import stage
from divlearn.fitting.folds import Splitter
from divlearn.fitting.interrupts import is_interrupted, stoppable
from divlearn.fitting.labelled import MatricesMixin
from divlearn.fitting.progress import say, track
from divlearn.heads.losses import LOSSES, Loss
from divlearn.iddl.discriminants import add_discriminants
from divlearn.iddl.features import Divergences, Variant, make_variant, starts_from_grid, uses_line
from divlearn.iddl.learning import (
    Choice,
    Embedded,
    Ensemble,
    Learned,
    choose_heads,
    choose_penalty,
    join_ranks,
    learn_single,
    losses_without_each,
    train_folds,
)
from divlearn.iddl.objective import are_filters
from divlearn.iddl.recipe import Recipe
from divlearn.iddl.summary import name_point, summarize
from divlearn.iddl.tasks import Task
from divlearn.iddl.training import (
    Discriminant,
    History,
    Model,
    Part,
    Settings,
    count_workers,
    initial_atoms,
    initial_filters,
    search_plane,
    start_model,
    sum_scores,
)
from divlearn.log_vectors import log_vectors
from divlearn.sharded.blocks import targets_block
from divlearn.sharded.opening import is_sharded, open_new, open_shards
from divlearn.sharded.shards import Shards
from divlearn.spd import check_spd
from divlearn.threads import limit_blas, side_by_side
from divlearn.tolerances import LEARNING_ACCURACY

_PENALTIES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
_LEARNED_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)  # for penalty="cv"
_LEARNING_PENALTY = 5e-3  # while the atoms move: they overfit through a head that is free to
_TETHER = 1e-3
_ITERATIONS, _FEWEST_ITERATIONS = 10, 3
_MOST_WORK = 10**12  # matrices x atoms x size^3 x iterations: five minutes of one core
# When the number of atoms is chosen for the user: three per class, and more if classes are few.
_ATOMS_PER_CLASS, _FEWEST_ATOMS, _MOST_ATOMS = 3, 48, 150
_MATRICES_PER_ATOM = 3
_RANKS = (1, 4)  # beside full rank: models of other ranks err on other matrices
_DIRECTIONS = 64  # of all filters of a model together; four per class where classes are many
_MATRICES_PER_DIRECTION = 7
_SCREENING_FOLDS = 4  # where nothing is averaged
_MANY = 1000  # matrices: if none is wrong, more than 0.3 % of new ones are unlikely to be


def default_atoms(n_matrices: int, n_groups: int) -> int:
    """Count atoms of full rank, as many for each of the classes."""
    wanted = max(_ATOMS_PER_CLASS, -(-_FEWEST_ATOMS // n_groups))
    share = n_matrices // (_MATRICES_PER_ATOM * n_groups)
    each = max(1, min(wanted, _MOST_ATOMS // n_groups, share))
    return min(each * n_groups, n_matrices)


class IDDLBase(MatricesMixin, BaseEstimator):  # type: ignore[misc]
    loss: str | Loss | type[Loss] = "auto"
    models_: list[Model]  # files of models are checked by these
    starts_: list[Model]
    discriminants_: list[Discriminant]
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
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_atoms, self.divergence, self.rank = n_atoms, divergence, rank
        self.recipe, self.cv = recipe, cv
        self.max_iter, self.random_state, self.engine = max_iter, random_state, engine
        self.verbose, self.regularize = verbose, regularize

    def _fit(self, task: Task, seed: int) -> Learned:
        """Choose, train and keep the best."""
        with limit_blas(1):
            kept: list[Learned] = []
            with stoppable(lambda: kept):
                for rank in self._ranks(task.shards.d):
                    learned = self._learn(task, seed, rank)
                    kept.append(learned.best() if isinstance(learned, Ensemble) else learned)
                    if is_interrupted() or self._is_solved(kept[-1].choice, task):
                        break
            joined = join_ranks(kept, task) if len(kept) > 1 else kept[0]
            self._keep_losses(joined, task)
            if self._adds_discriminants(task):
                with stoppable(lambda: joined):
                    joined = add_discriminants(joined, task)
        self._keep(joined, task)
        return joined

    def _is_solved(self, choice: Choice, task: Task) -> bool:
        """Whether so many held-out matrices are right, all of them, that learning gains nothing."""
        if self.max_iter != "auto" or task.codes is None or len(choice.rows) < _MANY:
            return False
        return bool((choice.scores.argmax(axis=1) == task.codes[choice.rows]).all())

    def _adds_discriminants(self, task: Task) -> bool:
        """Whether to try discriminants of the features: for classes, if no loss is given."""
        return self.loss == "auto" and task.codes is not None and self.cv is not None

    def _ranks(self, d: int) -> list[int | None]:
        """Return the ranks of atoms, None for full rank."""
        if self.rank == "full":
            return [None]
        if self.rank != "auto":
            rank = check_count(self.rank, "rank")
            return [rank if rank < d else None]
        usual = self.cv is not None and self.recipe is None and uses_line(self.divergence)
        return [None, *(rank for rank in _RANKS if usual and 2 * rank <= d)]

    def _learn(self, task: Task, seed: int, rank: int | None = None) -> Learned | Ensemble:
        """Train one model of everything, or models of the folds."""
        n_atoms = self._count_atoms(task.n_seen, task.n_groups, rank)
        losses = self._losses(task)
        # Heads that are solved for again in the end need few digits while atoms move.
        given = self._how.fixed_penalty(task.n_seen)
        settings = self._settings(
            losses[0] if self.cv is None else losses[0].with_tolerance(),
            given,
            self._iterations(task, n_atoms, rank),
            seed,
        )
        make_atoms = self._starter(task, n_atoms, seed, rank)
        single = self.cv is None or not task.folds
        # Without folds there is one model; folds then only choose the settings.
        whole = Part(task.shards, task.targets, make_atoms(None)) if single else None
        if not task.folds:
            assert whole is not None
            return learn_single(whole, settings, self._variant(whole), [], [])
        block, n_workers = task.sample.whole, count_workers(task.shards, task.targets)
        assert block is not None
        begin = [partial(task.part, number, make_atoms) for number in range(len(task.folds))]
        begun = zip(side_by_side(begin, n_workers), track(task.folds, "starts"), strict=True)
        parts = [part for part, _ in begun]
        *pairs, pair = self._search_plane(parts, settings, task)
        variants = [self._variant(part, one) for part, one in zip(parts, pairs, strict=True)]

        def choose(features: Sequence[RealArray]) -> list[list[Choice]]:
            penalties = _PENALTIES if given is None else (given,)
            return choose_heads(parts, features, losses, penalties, task.judge)

        first = Embedded([], [])
        if self._how.penalty == "cv":
            variant = self._variant(parts[0], pair)
            starts = [choose_penalty(parts, settings, variant, _LEARNED_PENALTIES, task.judge)]
        else:
            known = zip(parts, variants, strict=True)
            start = [partial(start_model, part, settings, one, block) for part, one in known]
            first = Embedded(*map(list, zip(*side_by_side(start, n_workers), strict=True)))
            starts = choose(first.features)
            if self._is_solved(min(chain(*starts), key=attrgetter("held_out_loss")), task):
                settings = replace(settings, max_iter=0)
        if whole is not None:
            return learn_single(
                whole, settings, self._variant(whole, pair), list(chain(*starts)), parts
            )
        whole = Part(task.shards, task.targets, parts[0].atoms)
        trained = train_folds(parts, settings, variants, first.models)
        return Ensemble(whole, parts, first, starts, trained, choose, task.judge)

    def _search_plane(
        self, parts: Sequence[Part], settings: Settings, task: Task
    ) -> Sequence[tuple[float, float] | None]:
        """Find where divergences start, for every fold and for all data; None if that is given."""
        if not self._searches_plane():
            return [None] * (len(parts) + 1)
        search = partial(search_plane, parts, settings, task.judge, tied=self.divergence == "V")
        found = stage("plane", search)
        say(self, f"divergences start at alpha={found[-1][0]:g}, beta={found[-1][1]:g}")
        return found

    def _variant(self, part: Part, pair: tuple[float, float] | None = None) -> Variant:
        start = self._how.start if pair is None else pair
        rank = part.atoms.shape[2] if are_filters(part.atoms) else None
        return make_variant(self.divergence, len(part.atoms), start, rank)

    def _searches_plane(self) -> bool:
        return starts_from_grid(self.divergence) and self._how.start is None

    @property
    def _how(self) -> Recipe:
        return Recipe() if self.recipe is None else self.recipe

    def _starter(
        self, task: Task, n_atoms: int, seed: int, rank: int | None
    ) -> Callable[[Indices | None], RealArray]:
        """Make a function from rows of the sample, all by default, to first atoms."""
        block = task.sample.whole
        assert block is not None
        X = block.matrices

        n_centres = n_atoms
        if rank is not None:
            n_centres = min(n_atoms, self._count_atoms(task.n_seen, task.n_groups))

        def logarithms() -> RealArray:
            return task.known.once("log vectors", lambda: log_vectors(block.data.there))

        def find_centres(chosen: Indices) -> RealArray:
            codes = None if task.codes is None else task.codes[chosen]
            known = lambda: logarithms()[to_device_of(chosen, logarithms())]  # noqa: E731
            return self._start(X[chosen], codes, n_centres, seed, known)

        def make_atoms(rows: Indices | None) -> RealArray:
            chosen = np.arange(len(X)) if rows is None else rows
            key = "centres", n_centres, chosen.tobytes()
            centres = task.known.once(key, lambda: find_centres(chosen))
            if rank is None:
                return centres
            random = np.random.RandomState(seed)
            return initial_filters(X[chosen], centres, n_atoms, rank, random)

        return make_atoms

    def _keep(self, learned: Learned, task: Task) -> None:
        choice = learned.choice
        self.models_, self.starts_ = learned.models, learned.starts
        self.discriminants_ = learned.discriminants
        self.loss_, self.penalty_ = choice.loss.name, choice.penalty
        self.n_iter_, self.message_ = learned.n_iter, learned.message
        if is_interrupted() and "interrupted" not in self.message_:
            self.message_ += "; interrupted by the user"
        if not learned.n_iter and self._is_solved(choice, task):
            self.message_ += "; all held-out matrices are right without learning"
        self.stop_reasons_, self.history_ = learned.stop_reasons, learned.history
        if learned.discriminants:
            losses = task.sum_held_out(losses_without_each(learned, task))
            self.held_out_losses_["with discriminants"] = losses
        self.n_features_in_ = task.shards.d
        say(self, f"loss {self.loss_}, penalty={self.penalty_:g}: {self.message_}")

    def _keep_losses(self, learned: Learned, task: Task) -> None:
        """Keep held-out losses of linear heads that see one divergence or all, group by group."""
        losses = {name_point(*point): one for point, one in learned.fixed.items()}
        if learned.without:
            losses["model"] = losses_without_each(learned, task)
            # Of standardised numbers, or of equal probabilities.
            chance = 1.0 if task.codes is None else float(np.log(task.wanted.shape[1]))
            weights = np.concatenate([task.weights[held] for _, held in task.folds])
            losses["chance"] = chance * weights / weights.sum()
        self.held_out_losses_ = {name: task.sum_held_out(one) for name, one in losses.items()}

    def _cv(self) -> Splitter:
        """Return the folds to choose by, though a single model is trained on everything."""
        return _SCREENING_FOLDS if self.cv is None else self.cv

    def _check_parameters(self, *, in_memory: bool = True) -> None:
        if not isinstance(self.recipe, Recipe | None):
            raise ValueError(f"recipe={self.recipe!r} must be a Recipe or None; pass Recipe(...)")
        self._how.check()
        named = isinstance(self.loss, str) and self.loss in ("auto", *LOSSES)
        kind = self.loss if isinstance(self.loss, type) else type(self.loss)
        if not named and not issubclass(kind, Loss):
            raise ValueError(f"loss={self.loss!r} must be auto, {', '.join(LOSSES)} or a Loss")
        if self.max_iter != "auto":
            check_number(self.max_iter, "max_iter", word="auto")
        if self.rank not in ("auto", "full"):
            check_count(self.rank, "rank", fix=', or "auto" or "full"')
            if self._how.solver != "joint":
                raise ValueError(
                    f"rank={self.rank} needs solver='joint', not {self._how.solver!r}; set "
                    'rank="full", or the other solver'
                )
        if "atoms" not in self._how.moved and not make_variant(self.divergence, 1).learned:
            raise ValueError(
                f"learn='divergences' needs pairs to learn, and divergence={self.divergence!r} has "
                'none; set divergence="learn", or learn="atoms"'
            )
        if self._how.penalty == "cv" and self.cv is not None:
            raise ValueError(
                f'cv={self.cv!r} must be None with penalty="cv", which chooses for a single model; '
                'set cv=None, or penalty="auto"'
            )
        if not in_memory and self.cv is not None:
            raise ValueError(
                f"cv={self.cv!r} must be None for data in shards: models of folds are trained in "
                "memory; set cv=None, or pass an array that fits in memory"
            )

    def _losses(self, task: Task) -> tuple[Loss, ...]:
        if not isinstance(self.loss, str):
            return (self.loss if isinstance(self.loss, Loss) else self.loss(),)
        names = task.losses if self.loss == "auto" else (self.loss,)
        return tuple(LOSSES[name]() for name in names)

    def _iterations(self, task: Task, n_atoms: int, rank: int | None) -> int:
        """Return the most iterations; on a CPU, "auto" limits the work of atoms of full rank."""
        if self.max_iter != "auto":
            return int(self.max_iter)
        block = task.sample.whole
        assert block is not None
        if rank is not None or on_device(block.data.there):
            return _ITERATIONS
        work = len(task.folds) * len(task.wanted) * n_atoms * task.shards.d**3
        return int(np.clip(_MOST_WORK // work, _FEWEST_ITERATIONS, _ITERATIONS))

    def _settings(self, loss: Loss, given: float | None, max_iter: int, seed: int) -> Settings:
        how = self._how
        return Settings(
            loss,
            penalty=_LEARNING_PENALTY if given is None else given,
            tether=_TETHER if how.solver == "joint" and self.cv is not None else 0.0,
            solver=how.solver,
            max_iter=max_iter,
            learn_atoms="atoms" in how.moved,
            learn_parameters="divergences" in how.moved,
            seed=seed,
        )

    def _count_atoms(self, n_matrices: int, n_groups: int, rank: int | None = None) -> int:
        if rank is not None and (self.n_atoms == "auto" or self.rank == "auto"):
            directions = max(_DIRECTIONS, 4 * n_groups)
            each = min(directions, n_matrices // _MATRICES_PER_DIRECTION) // rank
            return min(max(each, n_groups), n_matrices)
        if self.n_atoms == "auto" and self._how.atoms_per_class is not None:
            return self._how.atoms_per_class * n_groups
        if self.n_atoms == "auto":
            return default_atoms(n_matrices, n_groups)
        if isinstance(self.n_atoms, bool) or not isinstance(self.n_atoms, int | np.integer):
            raise ValueError(f'n_atoms={self.n_atoms!r} must be "auto" or an integer')
        if not 1 <= self.n_atoms <= n_matrices:
            raise ValueError(
                f"n_atoms={self.n_atoms} must be >= 1 and <= n_matrices={n_matrices}; change "
                "n_atoms or pass more data"
            )
        return int(self.n_atoms)

    def _start(
        self,
        X: RealArray,
        codes: Indices | None,
        n_atoms: int,
        seed: int,
        logarithms: Callable[[], RealArray] | None = None,
    ) -> RealArray:
        init = self._how.init
        if isinstance(init, str):
            random = np.random.RandomState(seed)
            return initial_atoms(X, codes, n_atoms, init, random, logarithms)
        atoms = check_spd(init, ndim=3, name="init", dtype=np.float64)
        if atoms.shape[1:] != X.shape[1:]:
            raise ValueError(
                f"init has matrices of size {atoms.shape[1]}, must be {X.shape[1]} as in X"
            )
        return atoms

    def _map(self, function: Callable[..., RealArray], X: ArrayLike, *known: object) -> RealArray:
        shards = open_new(self, X, accuracy=LEARNING_ACCURACY)
        return np.concatenate(shards.map(function, *known))

    def _scores(self, X: ArrayLike) -> RealArray:
        check_is_fitted(self)
        discriminants = getattr(self, "discriminants_", [])  # files of earlier versions have none
        return self._map(sum_scores, X, [*self.models_, *self.starts_], discriminants)

    @property
    def atoms_(self) -> RealArray:
        """Atoms of all models of full rank, shape (n_atoms, d, d)."""
        return self._of_full_rank("atoms")

    @property
    def alpha_(self) -> RealArray:
        """Alpha of every atom, shape (n_atoms, n_pairs)."""
        return self._of_full_rank("alpha")

    @property
    def beta_(self) -> RealArray:
        """Beta of every atom, shape (n_atoms, n_pairs)."""
        return self._of_full_rank("beta")

    @property
    def filters_(self) -> list[RealArray]:
        """Filters of the models of lower rank, shape (n_atoms, d, rank) each."""
        return [model.atoms for model in self.models_ if are_filters(model.atoms)]

    def summary(self) -> str:
        """Say which divergences the model ended with, and what they are worth.

        Returns
        -------
        str
            A line for every pair (alpha, beta) of atoms of full rank: its share in the weights of
            the heads, and the held-out loss of a head that sees this divergence alone, with the
            initial atoms. Then the held-out loss of the model beside the best of these, with the
            difference and its standard error, paired over groups, or matrices without groups. A
            model that is not clearly better than chance is said to be so.
        """
        check_is_fitted(self)
        losses = getattr(self, "held_out_losses_", {})  # files of earlier versions have none
        return summarize(self.models_, self.starts_, losses)

    def _of_full_rank(self, name: str) -> RealArray:
        full = [model for model in self.models_ if not are_filters(model.atoms)]
        return np.concatenate([getattr(model, name) for model in full or self.models_])


class ScoreMixin:
    engine: str | Engine

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the mean accuracy, or the coefficient of determination of numbers.

        If X is opened shards, which hold y and weights, pass y=None.
        """
        if is_sharded(X, self.engine):
            if not isinstance(X, Shards):
                X = open_shards(X, y, sample_weight, engine=self.engine)
                y = sample_weight = None
            y = np.concatenate(X.map(targets_block)) if y is None else y
            if sample_weight is None:
                sample_weight = np.concatenate(X.map(attrgetter("weights")))
        return super().score(X, y, sample_weight)  # type: ignore[misc]
