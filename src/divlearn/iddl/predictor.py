"""The common base of IDDL classifiers and regressors: the steps of a fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from divlearn.alpha_beta import Point
from divlearn.arrays import Indices, RealArray, on_device, to_device_of
from divlearn.checks import check_count
from divlearn.engines import Engine
from divlearn.fitting.checkpoint import checkpointed, draw_seed, stage
from divlearn.fitting.folds import Splitter, held_out_rows, split_by_fold
from divlearn.fitting.held_out import FoldedData, prepare_once
from divlearn.fitting.labelled import Labelled, Numbered, fit_method
from divlearn.fitting.progress import is_interrupted, say, stoppable, track
from divlearn.fitting.selection import average_held_out
from divlearn.heads.discriminants import NoSpreadError
from divlearn.heads.losses import LOSSES, Loss, RidgeLoss, SoftmaxLoss
from divlearn.iddl.atoms import (
    Variant,
    are_filters,
    initial_filters,
    make_variant,
    uses_line,
)
from divlearn.iddl.base import IDDLBase
from divlearn.iddl.judging import (
    Candidate,
    Embedded,
    HeadFitter,
    name_point,
    nested_row_losses,
    search_plane,
    train_candidates,
)
from divlearn.iddl.learning import (
    Ensemble,
    Learned,
    add_vector_models,
    join_ranks,
    learn_single,
    train_folds,
)
from divlearn.iddl.objective import Settings
from divlearn.iddl.training import Joined, Split, Task, make_task, start_model
from divlearn.sharded.blocks import Block, block_in_memory, fingerprint_block, targets_block
from divlearn.sharded.opening import is_sharded, open_shards, open_training
from divlearn.sharded.shards import Shards
from divlearn.threads import limit_blas, side_by_side
from divlearn.tolerances import LEARNING_ACCURACY

_PENALTIES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
_TRAINING_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)  # for penalty="cv"
_LEARNING_PENALTY = 5e-3  # while the atoms move, which overfit if the head is not regularised
_LEARNING_TOLERANCE = 3e-4  # of heads while the atoms move
_TETHER = 1e-3
_ITERATIONS, _FEWEST_ITERATIONS = 10, 3
_MOST_WORK = 10**12  # matrices x atoms x size^3 x iterations: five minutes of one core
_RANKS = (1, 4)  # beside full rank: models of different ranks make errors on different matrices
_SCREENING_FOLDS = 4  # for the choices of a single model
_SOLVED_SIZE = 1000  # matrices: without an error, more than 0.3 % on new ones are unlikely


class IDDLPredictor(IDDLBase):
    """Base of estimators that predict by divergences to atoms, all learned together."""

    @abstractmethod
    def _check_targets(self, block: Block, groups: ArrayLike | None) -> Labelled | Numbered:
        """Check targets and groups of matrices in memory."""

    @abstractmethod
    def _sharded_task(self, shards: Shards, seeds: tuple[int, int]) -> Task: ...

    @abstractmethod
    def _set_held_out(self, learned: Learned, task: Task) -> None:
        """Set the attributes with held-out predictions of the training matrices."""

    @fit_method
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Learn atoms, divergences and head.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards
            Shards are data that `divlearn.sharded.open_shards` takes, such as a Dask array or
            files, which are read where they are. ``cv`` and ``groups`` must then be None, and
            `oof_proba_` is empty. A sample of 10,000 matrices determines the initial atoms and the
            values of "auto".
        y : array-like, shape (n_matrices,), or shards likewise; None for opened shards
            Classes, or numbers, which may also have the shape (n_matrices, n_outputs).
        sample_weight : array-like, shape (n_matrices,), optional
            Non-negative weights, of which only the ratios matter; zero leaves a matrix out.
        groups : array-like, shape (n_matrices,), optional
            Matrices of one group, such as patches of one image, stay in one fold.

        Returns
        -------
        self
        """
        shards = open_training(self, X, y, sample_weight, accuracy=LEARNING_ACCURACY)
        block = shards.whole
        self._check_parameters(in_memory=block is not None)
        with checkpointed(self, X=lambda: shards.map(fingerprint_block), groups=groups):
            seeds = draw_seed(self.random_state), draw_seed(self.random_state)
            if block is not None:
                data = self._check_targets(block, groups)
                folds = data.folds(self._cv(), seeds[0])
                task = make_task(block.only(data.positions), data, folds)
            elif groups is not None:
                raise ValueError("groups must be None for data in shards; pass an array in memory")
            else:
                task = self._sharded_task(shards, seeds)
            self._set_held_out(self._fit(task, seeds[1]), task)
        return self

    def fit_training(self, training: FoldedData) -> Self:
        """Fit to checked data, whose log-vectors several estimators may share."""
        self._check_parameters()
        data = cast(Labelled | Numbered, training.data)
        block = block_in_memory(training.engine, data.matrices, None, np.ones(len(data.matrices)))
        task = replace(make_task(block, data, training.folds), cache=training)
        self._set_held_out(self._fit(task, draw_seed(self.random_state)), task)
        return self

    def _average_held_out(
        self, task: Task, parts: Sequence[RealArray], final: RealArray
    ) -> tuple[RealArray, RealArray]:
        """Held-out values of all matrices: by the choice of every fold, and by the final one."""
        n_matrices = len(task.data.matrices)
        rows, nested = average_held_out(parts, task.folds, n_matrices)
        _, optimistic = average_held_out(split_by_fold(final, task.folds), task.folds, n_matrices)
        return task.data.scatter(rows, nested), task.data.scatter(rows, optimistic)

    def _fit(self, task: Task, seed: int) -> Learned:
        """Train and average models of all ranks, add models of vectors, and set attributes."""
        with limit_blas(1):
            ranks: list[Learned] = []
            with stoppable(lambda: ranks):
                for rank in self._ranks(task):
                    ranks.append(self._learn(task, seed, rank))
                    if is_interrupted() or self._is_solved(ranks[-1].choice, task):
                        break
            learned = join_ranks(ranks, task) if len(ranks) > 1 else ranks[0]
            self._set_held_out_losses(learned, task)
            if self._recipe.loss == "auto" and self._averages(task):
                # Equal matrices may differ by rounding in some folds, and in none of all matrices.
                with stoppable(lambda: learned), suppress(NoSpreadError):
                    learned = add_vector_models(learned, task)
        self._set_learned(learned, task)
        return learned

    def _is_solved(self, candidate: Candidate, task: Task) -> bool:
        """Whether a candidate makes no error on enough held-out matrices, so that learning ends."""
        if self.max_iter != "auto" or task.codes is None or len(candidate.rows) < _SOLVED_SIZE:
            return False
        return bool((candidate.scores.argmax(axis=1) == task.codes[candidate.rows]).all())

    def _averages(self, task: Task) -> bool:
        """Whether models of folds are averaged; there are none where nothing can be held out."""
        return self.cv is not None and bool(task.folds)

    def _ranks(self, task: Task) -> list[int | None]:
        """Return the ranks of atoms, None for full rank."""
        d = task.shards.d
        if self.rank == "full":
            return [None]
        if self.rank != "auto":
            rank = check_count(self.rank, "rank")
            return [rank if rank < d else None]
        usual = self._averages(task) and self._recipe.is_usual and uses_line(self.divergence)
        return [None, *(rank for rank in _RANKS if usual and 2 * rank <= d)]

    def _learn(self, task: Task, seed: int, rank: int | None = None) -> Learned:
        """Train one model on all data, or one model per fold."""
        n_atoms = self._count_atoms(task.n_matrices, task.n_classes, rank)
        losses, penalty = self._losses(task), self._recipe.fixed_penalty(task.n_matrices)
        settings = self._settings(task, losses[0], n_atoms, rank, seed)
        make_atoms = partial(self._make_atoms, task, n_atoms, seed, rank)
        single = None
        if not self._averages(task):  # one model; folds then only choose the settings
            atoms = make_atoms(np.arange(len(task.sample_targets)))
            single = Split(task.shards, task.targets, atoms)
            if not task.folds:
                return learn_single(single, settings, self._variant(single), [], [])
        calls = [partial(task.split, fold, make_atoms) for fold in range(len(task.folds))]
        tracked = zip(side_by_side(calls, task.n_workers), track(task.folds, "starts"), strict=True)
        splits = [split for split, _ in tracked]
        *points, point = self._search_plane(splits, settings, task)
        variants = list(map(self._variant, splits, points))

        def solve(features: Sequence[RealArray]) -> list[list[Candidate]]:
            penalties = _PENALTIES if penalty is None else (penalty,)
            fitter = HeadFitter(splits, features, task.row_losses)
            return [fitter.fit(loss, penalties) for loss in losses]

        initial = Embedded([], [])
        if self._recipe.penalty == "cv":
            args = settings, self._variant(splits[0], point), _TRAINING_PENALTIES, task.row_losses
            candidates = [train_candidates(splits, *args)]
        else:
            folds = zip(splits, variants, strict=True)
            starts = [partial(start_model, split, settings, v, task.sample) for split, v in folds]
            initial = Embedded(*zip(*side_by_side(starts, task.n_workers), strict=True))
            candidates = solve(initial.features)
            initial = _with_heads(initial, candidates[0], settings.penalty)
            if self._is_solved(min(chain(*candidates), key=attrgetter("held_out_loss")), task):
                settings = replace(settings, max_iter=0)
        if single is not None:
            variant = self._variant(single, point)
            return learn_single(single, settings, variant, list(chain(*candidates)), task.folds)
        trained = train_folds(splits, settings, variants, initial.models)
        return Ensemble(task, splits, initial, candidates, trained, solve).best()

    def _search_plane(
        self, splits: Sequence[Split], settings: Settings, task: Task
    ) -> Sequence[Point | None]:
        """Find initial (alpha, beta) for every fold and for all data; None if given."""
        if not self._searches_plane():
            return [None] * (len(splits) + 1)
        tied = self.divergence == "V"
        search = partial(search_plane, splits, settings, task, tied=tied)
        points = stage("plane", search)
        say(self, f"divergences start at alpha={points[-1][0]:g}, beta={points[-1][1]:g}")
        return points

    def _variant(self, split: Split, point: Point | None = None) -> Variant:
        start = self._recipe.start if point is None else point
        rank = split.atoms.shape[2] if are_filters(split.atoms) else None
        return make_variant(self.divergence, len(split.atoms), start, rank)

    def _make_atoms(
        self, task: Task, n_atoms: int, seed: int, rank: int | None, rows: Indices
    ) -> RealArray:
        """Make the initial atoms of a model that is trained on these rows of the sample."""
        X, n_centres = task.sample.matrices[rows], n_atoms
        if rank is not None:
            n_centres = min(n_atoms, self._count_atoms(task.n_matrices, task.n_classes))

        def logarithms() -> RealArray:
            vectors = task.logarithms()
            return vectors[to_device_of(rows, vectors)]

        def find_centres() -> RealArray:
            codes = None if task.codes is None else task.codes[rows]
            return self._initial_atoms(X, codes, n_centres, seed, logarithms)

        centres = task.cache.cached(("centres", n_centres, rows.tobytes()), find_centres)
        if rank is None:
            return centres
        return initial_filters(X, centres, n_atoms, rank, np.random.RandomState(seed))

    def _losses(self, task: Task) -> tuple[Loss, ...]:
        loss = self._recipe.loss
        if not isinstance(loss, str):
            return (loss if isinstance(loss, Loss) else loss(),)
        if loss != "auto":
            return (LOSSES[loss](),)
        return (RidgeLoss(),) if task.codes is None else (SoftmaxLoss(), RidgeLoss())

    def _iterations(self, task: Task, n_atoms: int, rank: int | None) -> int:
        """Return the maximum number of iterations; on a CPU, "auto" limits that of full rank."""
        if self.max_iter != "auto":
            return int(self.max_iter)
        if rank is not None or on_device(task.sample.data.device_matrices):
            return _ITERATIONS
        work = max(len(task.folds), 1) * len(task.sample_targets) * n_atoms * task.shards.d**3
        return int(np.clip(_MOST_WORK // work, _FEWEST_ITERATIONS, _ITERATIONS))

    def _settings(
        self, task: Task, loss: Loss, n_atoms: int, rank: int | None, seed: int
    ) -> Settings:
        recipe, penalty = self._recipe, self._recipe.fixed_penalty(task.n_matrices)
        return Settings(
            # Few digits suffice while atoms move if heads are refitted in the end.
            loss.with_tolerance(_LEARNING_TOLERANCE) if self._averages(task) else loss,
            penalty=_LEARNING_PENALTY if penalty is None else penalty,
            tether=_TETHER if recipe.solver == "joint" and self._averages(task) else 0.0,
            solver=recipe.solver,
            max_iter=self._iterations(task, n_atoms, rank),
            learn_atoms="atoms" in recipe.moved,
            learn_parameters="divergences" in recipe.moved,
            seed=seed,
        )

    def _cv(self) -> Splitter:
        """Return the folds for choices; a single model, which `cv=None` means, needs them too."""
        return _SCREENING_FOLDS if self.cv is None else self.cv

    def _set_learned(self, learned: Learned, task: Task) -> None:
        choice = learned.choice
        self.models_, self.starts_ = learned.models, learned.starts
        self.vector_models_ = learned.vector_models
        self.loss_, self.penalty_ = choice.loss.name, choice.penalty
        self.n_iter_, self.message_ = learned.n_iter, learned.message
        if is_interrupted() and "interrupted" not in self.message_:
            self.message_ += "; interrupted by the user"
        if not learned.n_iter and self._is_solved(choice, task):
            self.message_ += "; all held-out matrices are right without learning"
        self.stop_reasons_, self.history_ = learned.stop_reasons, learned.history
        if learned.vector_models:
            losses = nested_row_losses(learned.fold_choices, task.folds)
            self.held_out_losses_["with models of vectors"] = task.sum_by_group(losses)
        self.n_features_in_ = task.shards.d
        say(self, f"loss {self.loss_}, penalty={self.penalty_:g}: {self.message_}")

    def _set_held_out_losses(self, learned: Learned, task: Task) -> None:
        """Set losses by group, of linear heads on all divergences and on each one alone."""
        losses = {name_point(*point): values for point, values in learned.pair_losses.items()}
        if learned.fold_choices:
            losses["model"] = nested_row_losses(learned.fold_choices, task.folds)
            losses["chance"] = task.constant_losses(held_out_rows(task.folds))
        self.held_out_losses_ = {name: task.sum_by_group(values) for name, values in losses.items()}

    def _scores(self, X: ArrayLike) -> RealArray:
        check_is_fitted(self)
        vector_models = getattr(self, "vector_models_", [])  # files of earlier versions have none
        join = lambda models: Joined([*models, *self.starts_], vector_models)  # noqa: E731
        return self._map(prepare_once(self, self.models_, join).scores, X)


def _with_heads(initial: Embedded, candidates: list[Candidate], penalty: float) -> Embedded:
    """Give initial models the heads of the penalty that is closest, for learning to start from."""
    closest = min(candidates, key=lambda c: abs(np.log(c.penalty / penalty)))
    pairs = zip(initial.models, closest.heads, strict=True)
    return initial._replace(models=[replace(model, head=head) for model, head in pairs])


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
