"""What an IDDL estimator learns: one model, or averages over folds, ranks and models of vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product

import numpy as np

from divlearn.alpha_beta import Point
from divlearn.arrays import Indices, RealArray, to_device_of, to_host
from divlearn.fitting.checkpoint import staged
from divlearn.fitting.folds import Folds, held_out_rows
from divlearn.fitting.held_out import Grid, Memo, coordinate_grid
from divlearn.fitting.progress import interrupt, stoppable, track
from divlearn.fitting.selection import HeldOut, Nest, mean_with_error
from divlearn.heads.discriminants import RDA, Linear, Quadratic
from divlearn.heads.heads import solve_head
from divlearn.heads.ridge import RIDGE_PENALTIES, fit_ridge
from divlearn.heads.samples import Samples
from divlearn.iddl.atoms import Variant, are_filters
from divlearn.iddl.judging import (
    HEAD_TOLERANCE,
    Candidate,
    Chooser,
    Embedded,
    average_scores,
    best_candidate,
    choose_for_folds,
    losses_of_pairs,
    nested_loss,
)
from divlearn.iddl.objective import Settings
from divlearn.iddl.training import (
    History,
    Model,
    Split,
    Task,
    Trained,
    VectorModel,
    train,
)
from divlearn.log_vectors import spread
from divlearn.threads import side_by_side

# Regularisation of models of vectors. Of RDA: how far covariances are pooled, and shrunk to a
# multiple of the identity. Of ridge regression: its penalty.
Shrinkages = tuple[float, ...]
_SHRINKAGES: Grid[Shrinkages] = coordinate_grid(
    list(product((0.1, 0.5, 0.9), (0.003, 0.01, 0.03, 0.1, 0.3)))
)
_PENALTIES = Grid[Shrinkages]([(penalty,) for penalty in RIDGE_PENALTIES])


@dataclass(frozen=True, eq=False)
class Learned:
    """Models that are averaged in predictions, and how they were trained and chosen."""

    choice: Candidate
    fold_choices: list[Candidate]  # for each fold, the choice made on the other folds
    models: list[Model]
    starts: list[Model]  # models with initial atoms in the average
    n_iter: int
    message: str
    stop_reasons: list[str]  # of the models that were trained
    history: History
    # Losses of held-out rows by heads on one divergence to the initial atoms, by its pair.
    pair_losses: dict[Point, RealArray] = field(default_factory=dict)
    vector_models: list[VectorModel] = field(default_factory=list)  # added to the mean of models
    features: Sequence[RealArray] = ()  # of all matrices, by each model
    start_features: Sequence[RealArray] = ()  # by the models with initial atoms


def learn_single(
    split: Split,
    settings: Settings,
    variant: Variant,
    candidates: Sequence[Candidate],
    folds: Folds,
) -> Learned:
    """Train one model on all data, with loss and penalty of the best candidate, if there is any."""
    no_rows = np.zeros(0, dtype=np.intp)
    choice = Candidate(settings.loss, settings.penalty, no_rows, np.zeros((0, 1)), np.zeros(0))
    fold_choices: list[Candidate] = []
    if candidates:
        choice, fold_choices = choose_for_folds(partial(best_candidate, candidates), folds)
        settings = replace(settings, loss=choice.loss, penalty=choice.penalty)
    run = train(split, settings, variant)
    models, reasons = [run.model], [run.message]
    return Learned(choice, fold_choices, models, [], run.n_iter, run.message, reasons, run.history)


class Ensemble:
    """Models of the folds, before and after learning, and the candidates for their heads.

    The held-out loss of a head that is solved for during learning does not tell whether the atoms
    generalise: it may rise while that of the head chosen later falls. So there is no early
    stopping; a strong penalty and a tether keep atoms from overfitting.

    `start_candidates` and `end_candidates` are lists for every loss: heads for the initial and for
    the learned models. The latter are empty if there was no iteration.
    """

    def __init__(
        self,
        task: Task,
        splits: Sequence[Split],
        initial: Embedded,
        start_candidates: list[list[Candidate]],
        trained: Sequence[Trained],
        solve_candidates: Callable[[Sequence[RealArray]], list[list[Candidate]]],
    ) -> None:
        self._task, self._splits = task, splits
        self._trained, self._n_iter = trained, max(result.n_iter for result in trained)
        self._initial = self._final = initial
        self._start_candidates = start_candidates
        self._end_candidates: list[list[Candidate]] = []
        if self._n_iter:
            with stoppable():
                models = [result.model for result in trained]
                self._final = Embedded(models, _embed(models, task))
                groups = solve_candidates(self._final.features)
                self._end_candidates = [
                    [replace(c, learned=True) for c in group] for group in groups
                ]

    def best(self) -> Learned:
        """Return initial models, learned models, or both, whichever predict best."""
        if not self._end_candidates:
            choose = partial(best_candidate, list(chain(*self._start_candidates)))
            loss = self._nested_loss(choose)
            return self._finish(choose, f"held-out loss {loss:.4g} after 0 iterations")
        averages: dict[tuple[int, int], Candidate] = {}

        def average(start: Candidate, end: Candidate) -> Candidate:
            """Average scores: initial and learned models make errors on different matrices."""
            key = id(start), id(end)
            if key not in averages:
                scores = (start.scores + end.scores) / 2
                losses = self._task.row_losses(scores, end.rows)
                averages[key] = replace(end, scores=scores, row_losses=losses, averaged_with=start)
            return averages[key]

        def best_of_each(positions: Indices) -> list[Candidate]:
            """Return the best initial model, learned model and average of both."""
            starts = [best_candidate(group, positions) for group in self._start_candidates]
            ends = [best_candidate(group, positions) for group in self._end_candidates]
            groups = starts, ends, list(map(average, starts, ends))
            return [best_candidate(group, positions) for group in groups]

        choosers = [lambda rows, i=i: best_of_each(rows)[i] for i in range(3)]
        losses = [self._nested_loss(choose) for choose in choosers]
        message = (
            f"held-out loss {losses[0]:.4g} at the start, {losses[1]:.4g} after {self._n_iter} "
            f"iterations, {losses[2]:.4g} with both averaged"
        )
        learned = self._finish(lambda rows: _prefer_average(best_of_each(rows), rows), message)
        kept = "both are" if learned.choice.averaged_with else "the learned model is"
        kept = kept if learned.choice.learned else "the start is"
        return replace(
            learned,
            message=f"{message}; {kept} kept; {say_reasons(learned.stop_reasons)}",
            history=learned.history | {"held_out_loss": np.array(losses[:2])},
            pair_losses=self._pair_losses(),
        )

    def _nested_loss(self, choose: Chooser) -> float:
        return nested_loss(choose_for_folds(choose, self._task.folds)[1], self._task.folds)

    def _pair_losses(self) -> dict[Point, RealArray]:
        """Losses of each divergence to the initial atoms alone; none for atoms of lower rank."""
        if are_filters(self._initial.models[0].atoms):
            return {}
        positions = np.arange(len(held_out_rows(self._task.folds)))
        best = best_candidate(list(chain(*self._start_candidates)), positions)
        with stoppable():
            return losses_of_pairs(self._splits, self._initial, best, self._task.row_losses)
        return {}

    def _finish(self, chooser: Chooser, message: str) -> Learned:
        """Choose heads, and refit them on all data."""
        choice, fold_choices = choose_for_folds(chooser, self._task.folds)
        embedded, start = self._final if choice.learned else self._initial, choice.averaged_with
        return Learned(
            choice,
            fold_choices,
            _refit(self._task, embedded, choice),
            _refit(self._task, self._initial, start) if start else [],
            self._n_iter if choice.learned else 0,
            message,
            [result.message for result in self._trained],
            _concatenate([result.history for result in self._trained]),
            features=embedded.features,
            start_features=self._initial.features if start else (),
        )


def _prefer_average(candidates: Sequence[Candidate], positions: Indices) -> Candidate:
    """Return the last candidate, an average, unless others are better by a standard error.

    The average depends least on the training data, and folds do not show how new data differ.
    """
    *others, average = candidates
    better = [average]
    for candidate in others:
        gain, error = mean_with_error((average.row_losses - candidate.row_losses)[positions])
        if gain > error:
            better.append(candidate)
    return best_candidate(better, positions)


def say_reasons(reasons: Sequence[str]) -> str:
    """Say why the solvers of several models stopped, each reason once and without its figures."""
    counts = Counter(reason.partition(";")[0] for reason in reasons)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{count} of {len(reasons)} models: {why}" for why, count in counts.items())


def train_folds(
    splits: Sequence[Split],
    settings: Settings,
    variants: Sequence[Variant],
    initial_models: Sequence[Model],
) -> list[Trained]:
    """Train one model per fold."""
    folds = zip(splits, variants, initial_models, strict=True)
    calls = [partial(train, split, settings, variant, initial) for split, variant, initial in folds]
    results: dict[int, Trained] = {}

    def run(fold: int, train_fold: Callable[[], Trained]) -> None:
        results[fold] = train_fold()

    staged_calls = [partial(run, fold, staged("model", call)) for fold, call in enumerate(calls)]
    with stoppable(lambda: results):
        done = side_by_side(staged_calls, splits[0].n_workers, interrupt)
        for _ in zip(track(calls, "models"), done, strict=True):
            pass
    # After Ctrl-C, `train` returns the initial models of the other folds: an average needs all.
    return [results[fold] if fold in results else call() for fold, call in enumerate(calls)]


def _refit(task: Task, embedded: Embedded, candidate: Candidate) -> list[Model]:
    """Refit heads on all data; after Ctrl-C the others keep those of their folds."""
    pairs = zip(embedded.models, candidate.heads, strict=True)
    refitted = [replace(model, head=head) for model, head in pairs]
    loss = candidate.loss.with_tolerance(HEAD_TOLERANCE)

    def refit(model: Model, features: RealArray) -> Model:
        samples = Samples(task.shards, task.targets, [features], loss.bias)
        return replace(model, head=solve_head(loss, samples, candidate.penalty, model.head)[0])

    calls = [partial(refit, *pair) for pair in zip(refitted, embedded.features, strict=True)]
    with stoppable():
        for number, model in enumerate(side_by_side(calls, task.n_workers)):
            refitted[number] = model
    return refitted


def _embed(models: Sequence[Model], task: Task) -> list[RealArray]:
    calls = [partial(model.embed, task.sample) for model in models]
    return list(side_by_side(calls, task.n_workers))


def _concatenate(histories: Sequence[History]) -> History:
    """Concatenate histories of several models, with the number of the model of every row."""
    joined = {name: np.concatenate([h[name] for h in histories]) for name in histories[0]}
    joined["model"] = np.repeat(np.arange(len(histories)), [len(h["objective"]) for h in histories])
    return joined


# --- averages of ranks and of models of vectors ---------------------------------------------------


def join_ranks(ranks: Sequence[Learned], task: Task) -> Learned:
    """Average models of several ranks, unless full rank, which comes first, is clearly better.

    Heads are scaled such that the mean over all models is the mean over ranks.
    """
    factors, choice, fold_choices = average_scores(
        [rank.choice for rank in ranks],
        list(zip(*(rank.fold_choices for rank in ranks), strict=True)),
        task,
    )
    losses = ", ".join(f"{nested_loss(rank.fold_choices, task.folds):.4g}" for rank in ranks)
    averaged = nested_loss(fold_choices, task.folds)
    comparison = f"held-out losses of ranks {losses}, averaged {averaged:.4g}"
    message = f"{ranks[0].message}; {comparison}"
    if not factors:
        return replace(ranks[0], fold_choices=fold_choices, message=f"{message}, not kept")
    n_models = sum(len(rank.models) + len(rank.starts) for rank in ranks)
    models, starts = [], []
    for rank, factor in zip(ranks, factors, strict=True):
        scale = factor * n_models / (len(rank.models) + len(rank.starts))
        models += [_scale_head(model, scale) for model in rank.models]
        starts += [_scale_head(model, scale) for model in rank.starts]
    return replace(
        ranks[0],
        choice=choice,
        fold_choices=fold_choices,
        models=models,
        features=list(chain.from_iterable(rank.features for rank in ranks)),
        start_features=list(chain.from_iterable(rank.start_features for rank in ranks)),
        starts=starts,
        message=message,
        stop_reasons=[reason for rank in ranks for reason in rank.stop_reasons],
    )


def _scale_head(model: Model, factor: float) -> Model:
    weights, bias = model.head
    return replace(model, head=(factor * weights, factor * bias))


def add_vector_models(learned: Learned, task: Task) -> Learned:
    """Average heads with other models of vectors, unless the heads alone are clearly better.

    For classes these are regularised discriminants, of the logarithms of the matrices and of the
    features of all models of a fold, concatenated. For numbers it is a ridge regression on the
    logarithms. Learned models come before those with initial atoms, both rank by rank, with one of
    every fold.
    """
    n_folds, features = len(task.folds), [*learned.features, *learned.start_features]
    models = np.arange(len(features)).reshape(-1, n_folds)
    no_models = models[:0, :1]  # one function of the logarithms serves all folds
    sources = [(no_models, [task.logarithms()] * n_folds)]
    if task.codes is not None:
        sources.append((models, _fold_features(features, models)))
    chosen = [_choose_vector_model(vectors, learned, task) for _, vectors in sources]
    factors, choice, fold_choices = average_scores(
        [learned.choice, *(choice for _, choice, _ in chosen)],
        list(zip(learned.fold_choices, *(choices for *_, choices in chosen), strict=True)),
        task,
    )
    names = "ridge regression on logarithms" if task.codes is None else "discriminants"
    message = (
        f"{learned.message}; held-out loss {nested_loss(learned.fold_choices, task.folds):.4g} of "
        f"linear heads, {nested_loss(fold_choices, task.folds):.4g} averaged with {names}"
    )
    if not factors:
        return replace(learned, fold_choices=fold_choices, message=f"{message}, not kept")

    def fit(members: Indices, vectors: RealArray, weight: float, best: Shrinkages) -> VectorModel:
        every = np.arange(len(vectors))
        return VectorModel(members, weight, _vector_learner(vectors, every, task)(*best))

    calls = [
        partial(fit, members, fold_vectors, factor / numbers.shape[1], best)
        for (numbers, vectors), factor, (best, *_) in zip(sources, factors[1:], chosen, strict=True)
        if factor
        for members, fold_vectors in zip(numbers.T, vectors, strict=False)
    ]
    return replace(
        learned,
        choice=choice,
        fold_choices=fold_choices,
        models=[_scale_head(model, factors[0]) for model in learned.models],
        starts=[_scale_head(model, factors[0]) for model in learned.starts],
        vector_models=list(side_by_side(calls, task.n_workers)),
        message=message,
    )


def _fold_features(features: Sequence[RealArray], models: Indices) -> list[RealArray]:
    """Concatenate features of the models of each fold, the columns of `models`."""
    return [np.concatenate([features[model] for model in column], axis=1) for column in models.T]


def _vector_learner(
    vectors: RealArray, rows: Indices, task: Task
) -> Callable[..., Linear | Quadratic]:
    """Prepare some vectors; return a function from shrinkages to the model of these vectors."""
    vectors, weights = vectors[to_device_of(rows, vectors)], task.weights[rows]
    if task.codes is not None:
        return RDA(vectors, task.codes[rows], weights).learn
    vectors, deviation = to_host(vectors), spread(vectors)
    learn = fit_ridge(vectors / deviation, task.sample_targets[rows], weights / weights.mean())

    def learn_unscaled(penalty: float) -> Linear:
        model = learn(penalty)
        return replace(model, coefficients=model.coefficients / deviation)

    return learn_unscaled


def _choose_vector_model(
    features: Sequence[RealArray], learned: Learned, task: Task
) -> tuple[Shrinkages, Candidate, list[Candidate]]:
    """Choose the shrinkages of models of vectors by all folds, and for each fold by the others."""
    folds, cache = task.folds, Memo()

    def decide(shrinkages: Shrinkages, fold: int) -> RealArray:
        (train, held), vectors = folds[fold], features[fold]
        learn = cache.cached(fold, lambda: _vector_learner(vectors, train, task))
        return to_host(learn(*shrinkages).decide(vectors[to_device_of(held, vectors)]))

    def criterion(scores: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        return -task.row_losses(np.concatenate(scores), np.concatenate(rows))

    held_out = HeldOut(decide, criterion, folds, Nest([], []), nested=False, n_jobs=task.n_workers)

    def candidate(shrinkages: Shrinkages) -> Candidate:
        scores = np.concatenate(held_out.decisions([shrinkages] * len(folds)))
        return replace(learned.choice, scores=scores, row_losses=-held_out.shares(shrinkages))

    grid = _PENALTIES if task.codes is None else _SHRINKAGES
    best = held_out.best(*grid)
    fold_bests = [held_out.best(*grid, without=fold) for fold in range(len(folds))]
    return best, candidate(best), list(map(candidate, fold_bests))
