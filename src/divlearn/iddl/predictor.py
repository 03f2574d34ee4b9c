"""What IDDL classifiers and regressors share: how a fit is put together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, RealArray, on_device, to_device_of
from divlearn.checks import check_count
from divlearn.engines import Engine
from divlearn.fitting.checkpoint import checkpointed, draw_seed, stage
from divlearn.fitting.folds import Splitter
from divlearn.fitting.held_out import Folded
from divlearn.fitting.interrupts import is_interrupted, stoppable
from divlearn.fitting.labelled import Labelled, fit_method
from divlearn.fitting.progress import say, track
from divlearn.fitting.regression import Numbered
from divlearn.heads.losses import LOSSES, Loss, RidgeLoss, SoftmaxLoss
from divlearn.iddl.atoms import Variant, are_filters, initial_filters, make_variant, uses_line
from divlearn.iddl.base import IDDLBase
from divlearn.iddl.judging import (
    Choice,
    Embedded,
    choose_heads,
    choose_penalty,
    name_point,
    search_plane,
    shares_without_each,
)
from divlearn.iddl.learning import (
    Ensemble,
    Learned,
    add_discriminants,
    join_ranks,
    learn_single,
    train_folds,
)
from divlearn.iddl.objective import Settings
from divlearn.iddl.training import Part, Task, count_workers, make_task, start_model, sum_scores
from divlearn.log_vectors import log_vectors
from divlearn.sharded.blocks import Block, block_in_memory, fingerprint_block, targets_block
from divlearn.sharded.opening import is_sharded, open_shards, open_training
from divlearn.sharded.shards import Shards
from divlearn.threads import limit_blas, side_by_side
from divlearn.tolerances import LEARNING_ACCURACY

_PENALTIES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
_LEARNED_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)  # for penalty="cv"
_LEARNING_PENALTY = 5e-3  # while the atoms move: they overfit through a head that is free to
_TETHER = 1e-3
_ITERATIONS, _FEWEST_ITERATIONS = 10, 3
_MOST_WORK = 10**12  # matrices x atoms x size^3 x iterations: five minutes of one core
_RANKS = (1, 4)  # beside full rank: models of other ranks err on other matrices
_SCREENING_FOLDS = 4  # where nothing is averaged
_MANY = 1000  # matrices: if none is wrong, more than 0.3 % of new ones are unlikely to be


class IDDLPredictor(IDDLBase):
    """Base of estimators that predict by divergences to atoms, all learned together."""

    @abstractmethod
    def _check_targets(self, block: Block, groups: ArrayLike | None) -> Labelled | Numbered:
        """Check targets and groups of matrices in memory."""

    @abstractmethod
    def _sharded_task(self, shards: Shards, seeds: tuple[int, int]) -> Task: ...

    @abstractmethod
    def _keep_held_out(self, learned: Learned, task: Task) -> None:
        """Keep what held-out scores say of the training matrices."""

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
            Shards are whatever `divlearn.sharded.open_shards` takes, such as a Dask array or files,
            which are read where they are. ``cv`` and ``groups`` must then be None, and `oof_proba_`
            is empty. A sample of 10,000 matrices determines the initial atoms and the values of
            "auto".
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
                task = make_task(block.only(data.kept), data, folds)
            elif groups is not None:
                raise ValueError("groups must be None for data in shards; pass an array in memory")
            else:
                task = self._sharded_task(shards, seeds)
            self._keep_held_out(self._fit(task, seeds[1]), task)
        return self

    def fit_training(self, training: Folded) -> Self:
        """Fit to data that was checked, and to logarithms that others have computed."""
        self._check_parameters()
        data = cast(Labelled | Numbered, training.data)
        block = block_in_memory(training.engine, data.matrices, None, np.ones(len(data.matrices)))
        task = replace(make_task(block, data, training.folds), known=training)
        self._keep_held_out(self._fit(task, draw_seed(self.random_state)), task)
        return self

    def _fit(self, task: Task, seed: int) -> Learned:
        """Choose, train and keep the best."""
        with limit_blas(1):
            kept: list[Learned] = []
            with stoppable(lambda: kept):
                for rank in self._ranks(task):
                    kept.append(self._learn(task, seed, rank))
                    if is_interrupted() or self._is_solved(kept[-1].choice, task):
                        break
            joined = join_ranks(kept, task) if len(kept) > 1 else kept[0]
            self._keep_losses(joined, task)
            if self.loss == "auto" and self._averages(task) and task.codes is not None:
                with stoppable(lambda: joined):
                    joined = add_discriminants(joined, task)
        self._keep(joined, task)
        return joined

    def _is_solved(self, choice: Choice, task: Task) -> bool:
        """Whether so many held-out matrices are right, all of them, that learning gains nothing."""
        if self.max_iter != "auto" or task.codes is None or len(choice.rows) < _MANY:
            return False
        return bool((choice.scores.argmax(axis=1) == task.codes[choice.rows]).all())

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
        usual = self._averages(task) and self.recipe is None and uses_line(self.divergence)
        return [None, *(rank for rank in _RANKS if usual and 2 * rank <= d)]

    def _learn(self, task: Task, seed: int, rank: int | None = None) -> Learned:
        """Train one model of everything, or models of the folds."""
        n_atoms = self._count_atoms(task.n_seen, task.n_groups, rank)
        losses, given = self._losses(task), self._how.fixed_penalty(task.n_seen)
        settings = self._settings(task, losses[0], n_atoms, rank, seed)
        make_atoms = partial(self._first_atoms, task, n_atoms, seed, rank)
        whole = None
        if not self._averages(task):  # one model; folds then only choose the settings
            atoms = make_atoms(np.arange(len(task.wanted)))
            whole = Part(task.shards, task.targets, atoms)
            if not task.folds:
                return learn_single(whole, settings, self._variant(whole), [], [])
        n_workers = count_workers(task.shards, task.targets)
        begin = [partial(task.part, number, make_atoms) for number in range(len(task.folds))]
        begun = zip(side_by_side(begin, n_workers), track(task.folds, "starts"), strict=True)
        parts = [part for part, _ in begun]
        *pairs, pair = self._search_plane(parts, settings, task)
        variants = [self._variant(part, one) for part, one in zip(parts, pairs, strict=True)]

        def choose(features: Sequence[RealArray]) -> list[list[Choice]]:
            penalties = _PENALTIES if given is None else (given,)
            return choose_heads(parts, features, losses, penalties, task.judge)

        first: Embedded = [], []
        if self._how.penalty == "cv":
            variant = self._variant(parts[0], pair)
            starts = [choose_penalty(parts, settings, variant, _LEARNED_PENALTIES, task.judge)]
        else:
            known = zip(parts, variants, strict=True)
            start = [partial(start_model, part, settings, one, task.sample) for part, one in known]
            models, features = zip(*side_by_side(start, n_workers), strict=True)
            first, starts = (models, features), choose(features)
            if self._is_solved(min(chain(*starts), key=attrgetter("held_out_loss")), task):
                settings = replace(settings, max_iter=0)
        if whole is not None:
            return learn_single(
                whole, settings, self._variant(whole, pair), list(chain(*starts)), parts
            )
        whole = Part(task.shards, task.targets, parts[0].atoms)
        trained = train_folds(parts, settings, variants, first[0])
        return Ensemble(whole, parts, first, starts, trained, choose, task.judge).best()

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

    def _first_atoms(
        self, task: Task, n_atoms: int, seed: int, rank: int | None, rows: Indices
    ) -> RealArray:
        """Find the atoms that a model of some rows of the sample starts from."""
        X, n_centres = task.sample.matrices[rows], n_atoms
        if rank is not None:
            n_centres = min(n_atoms, self._count_atoms(task.n_seen, task.n_groups))

        def logarithms() -> RealArray:
            data = task.sample.data
            vectors = task.known.once("log vectors", lambda: log_vectors(data.there))
            return vectors[to_device_of(rows, vectors)]

        def find_centres() -> RealArray:
            codes = None if task.codes is None else task.codes[rows]
            return self._start(X, codes, n_centres, seed, logarithms)

        centres = task.known.once(("centres", n_centres, rows.tobytes()), find_centres)
        if rank is None:
            return centres
        return initial_filters(X, centres, n_atoms, rank, np.random.RandomState(seed))

    def _losses(self, task: Task) -> tuple[Loss, ...]:
        if not isinstance(self.loss, str):
            return (self.loss if isinstance(self.loss, Loss) else self.loss(),)
        if self.loss != "auto":
            return (LOSSES[self.loss](),)
        return (RidgeLoss(),) if task.codes is None else (SoftmaxLoss(), RidgeLoss())

    def _iterations(self, task: Task, n_atoms: int, rank: int | None) -> int:
        """Return the most iterations; on a CPU, "auto" limits the work of atoms of full rank."""
        if self.max_iter != "auto":
            return int(self.max_iter)
        if rank is not None or on_device(task.sample.data.there):
            return _ITERATIONS
        work = max(len(task.folds), 1) * len(task.wanted) * n_atoms * task.shards.d**3
        return int(np.clip(_MOST_WORK // work, _FEWEST_ITERATIONS, _ITERATIONS))

    def _settings(
        self, task: Task, loss: Loss, n_atoms: int, rank: int | None, seed: int
    ) -> Settings:
        how, given = self._how, self._how.fixed_penalty(task.n_seen)
        return Settings(
            # Heads that are solved for again in the end need few digits while atoms move.
            loss.with_tolerance() if self._averages(task) else loss,
            penalty=_LEARNING_PENALTY if given is None else given,
            tether=_TETHER if how.solver == "joint" and self._averages(task) else 0.0,
            solver=how.solver,
            max_iter=self._iterations(task, n_atoms, rank),
            learn_atoms="atoms" in how.moved,
            learn_parameters="divergences" in how.moved,
            seed=seed,
        )

    def _cv(self) -> Splitter:
        """Return the folds to choose by, though a single model is trained on everything."""
        return _SCREENING_FOLDS if self.cv is None else self.cv

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
            shares = shares_without_each(learned.without, [held for _, held in task.folds])
            self.held_out_losses_["with discriminants"] = task.sum_held_out(shares)
        self.n_features_in_ = task.shards.d
        say(self, f"loss {self.loss_}, penalty={self.penalty_:g}: {self.message_}")

    def _keep_losses(self, learned: Learned, task: Task) -> None:
        """Keep held-out losses of linear heads that see one divergence or all, group by group."""
        losses = {name_point(*point): one for point, one in learned.fixed.items()}
        if learned.without:
            held_out = [held for _, held in task.folds]
            losses["model"] = shares_without_each(learned.without, held_out)
            # Of standardised numbers, or of equal probabilities.
            chance = 1.0 if task.codes is None else float(np.log(task.wanted.shape[1]))
            weights = task.weights[np.concatenate(held_out)]
            losses["chance"] = chance * weights / weights.sum()
        self.held_out_losses_ = {name: task.sum_held_out(one) for name, one in losses.items()}

    def _scores(self, X: ArrayLike) -> RealArray:
        check_is_fitted(self)
        discriminants = getattr(self, "discriminants_", [])  # files of earlier versions have none
        return self._map(sum_scores, X, [*self.models_, *self.starts_], discriminants)


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
