"""What an IDDL estimator learns: one model, or averages over folds, ranks and discriminants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product

import numpy as np

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.fitting.checkpoint import staged
from divlearn.fitting.held_out import Memo, in_turn
from divlearn.fitting.interrupts import interrupt, stoppable
from divlearn.fitting.progress import track
from divlearn.fitting.selection import HeldOut, mean_with_error
from divlearn.heads.discriminants import RDA, NoSpreadError
from divlearn.heads.heads import solve_head
from divlearn.heads.samples import Samples
from divlearn.iddl.atoms import Point, Variant, are_filters
from divlearn.iddl.judging import (
    JUDGED,
    Choice,
    Chooser,
    Embedded,
    choose_without_each,
    join_scores,
    judge_fixed,
    least,
    loss_without_each,
)
from divlearn.iddl.objective import Settings
from divlearn.iddl.training import (
    Discriminant,
    History,
    Judge,
    Model,
    Part,
    Task,
    Trained,
    count_workers,
    train,
)
from divlearn.threads import side_by_side

# How far covariances of classes are pooled, and shrunk to a multiple of the identity.
Amounts = tuple[float, float]
_GRID = in_turn(list(product((0.1, 0.5, 0.9), (0.003, 0.01, 0.03, 0.1, 0.3))))


@dataclass(frozen=True, eq=False)
class Learned:
    """Models that predict together, how their heads were chosen, and how they were learned."""

    choice: Choice
    without: list[Choice]  # those made without each fold
    models: list[Model]
    starts: list[Model]  # of the first atoms, which predict with them
    n_iter: int
    message: str
    stop_reasons: list[str]  # of the models that were trained
    history: History
    # Held-out losses, row by row, of heads that see one divergence of the first atoms, by its pair.
    fixed: dict[Point, RealArray] = field(default_factory=dict)
    discriminants: list[Discriminant] = field(default_factory=list)  # added to the mean of models
    features: Sequence[RealArray] = ()  # of all matrices, by models of folds


def learn_single(
    whole: Part,
    settings: Settings,
    variant: Variant,
    choices: Sequence[Choice],
    parts: Sequence[Part],
) -> Learned:
    """Train one model of everything; with the best of the choices, where there are some."""
    none = np.zeros(0, dtype=np.intp)
    choice = Choice(settings.loss, settings.penalty, none, np.zeros((0, 1)), np.zeros(0))
    without: list[Choice] = []
    if choices:
        choice, without = choose_without_each(partial(least, choices), parts)
        settings = replace(settings, loss=choice.loss, penalty=choice.penalty)
    model, n_iter, message, history = train(whole, settings, variant)
    return Learned(choice, without, [model], [], n_iter, message, [message], history)


def _steady(contenders: Sequence[Sequence[Choice]], positions: Indices) -> Choice:
    """Return the average, or what is better by more than one standard error of the difference.

    Folds do not show what changes in new data; the average is the least bound to them.
    """
    start, end, average = (least(some, positions) for some in contenders)
    better = [average]
    for one in (start, end):
        gain, error = mean_with_error((average.shares - one.shares)[positions])
        if gain > error:
            better.append(one)
    return least(better, positions)


class Ensemble:
    """Models of the folds, before and after learning, and the heads to choose from.

    The head that is solved for while atoms move does not tell whether they generalise: a held-out
    loss that rises with it may fall with a head that is chosen later. So nothing stops early; a
    strong penalty and a tether keep atoms from overfitting.

    `starts` and `ends` have, for every loss, the heads that were tried for the first and for the
    learned models. `ends` is empty if there was no iteration.
    """

    def __init__(
        self,
        whole: Part,
        parts: Sequence[Part],
        first: Embedded,
        starts: list[list[Choice]],
        trained: Sequence[Trained],
        choose: Callable[[Sequence[RealArray]], list[list[Choice]]],
        judge: Judge,
    ) -> None:
        self._whole, self._parts, self._judge, self._trained = whole, parts, judge, trained
        self._n_iter = max(n_iter for _, n_iter, *_ in trained)
        self._embedded, self._starts, self._ends = [first], starts, []
        if self._n_iter:
            with stoppable():
                models = [model for model, *_ in trained]
                self._embedded.append((models, _embed(models, whole)))
                ends = choose(self._embedded[1][1])
                self._ends = [[replace(one, learned=True) for one in some] for some in ends]

    def best(self) -> Learned:
        """Return the start, what was learned, or their average, whichever predicts best."""
        if not self._ends:
            first = partial(least, list(chain(*self._starts)))
            loss = loss_without_each(first, self._parts)
            return self._finish(first, f"held-out loss {loss:.4g} after 0 iterations")
        averages: dict[tuple[int, int], Choice] = {}

        def average(start: Choice, end: Choice) -> Choice:
            """Learned models err on other matrices than the first, and are too sure of them."""
            key = id(start), id(end)
            if key not in averages:
                scores = (start.scores + end.scores) / 2
                shares = self._judge(scores, end.rows)
                averages[key] = replace(end, scores=scores, shares=shares, joined=start)
            return averages[key]

        def contenders(positions: Indices) -> list[list[Choice]]:
            """Return the best start, learned model and average of every loss."""
            starts = [least(some, positions) for some in self._starts]
            ends = [least(some, positions) for some in self._ends]
            return [starts, ends, list(map(average, starts, ends))]

        losses = []
        for kind in range(3):
            chooser = lambda some, kind=kind: least(contenders(some)[kind], some)  # noqa: E731
            losses.append(loss_without_each(chooser, self._parts))
        message = (
            f"held-out loss {losses[0]:.4g} at the start, {losses[1]:.4g} after {self._n_iter} "
            f"iterations, {losses[2]:.4g} with both averaged"
        )
        learned = self._finish(lambda some: _steady(contenders(some), some), message)
        kept = "both are" if learned.choice.joined else "the learned model is"
        kept = kept if learned.choice.learned else "the start is"
        return replace(
            learned,
            message=f"{message}; {kept} kept; {say_reasons(learned.stop_reasons)}",
            history=learned.history | {"held_out_loss": np.array(losses[:2])},
            fixed=self._fixed(),
        )

    def _fixed(self) -> dict[Point, RealArray]:
        """Judge each divergence alone, with the first atoms; atoms of lower rank have others."""
        first = self._embedded[0]
        if are_filters(first[0][0].atoms):
            return {}
        everything = np.arange(sum(len(part.rows) for part in self._parts))
        known = least(list(chain(*self._starts)), everything)
        with stoppable():
            return judge_fixed(self._parts, first, known, self._judge)
        return {}

    def _finish(self, chooser: Chooser, message: str) -> Learned:
        """Choose heads, and solve for them again on everything."""
        choice, without = choose_without_each(chooser, self._parts)

        def refit(one: Choice) -> list[Model]:
            return _refit(self._whole, *self._embedded[one.learned], one)

        return Learned(
            choice,
            without,
            refit(choice),
            refit(choice.joined) if choice.joined else [],
            self._n_iter if choice.learned else 0,
            message,
            [reason for *_, reason, _ in self._trained],
            _join([history for *_, history in self._trained]),
            features=self._embedded[choice.learned][1],
        )


def say_reasons(reasons: Sequence[str]) -> str:
    """Say why the solvers of several models stopped, each reason once and without its figures."""
    counts = Counter(reason.partition(";")[0] for reason in reasons)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{count} of {len(reasons)} models: {why}" for why, count in counts.items())


def train_folds(
    parts: Sequence[Part],
    settings: Settings,
    variants: Sequence[Variant],
    first: Sequence[Model],
) -> list[Trained]:
    """Train one model per fold."""
    known = zip(parts, variants, first, strict=True)
    calls = [partial(train, part, settings, variant, start) for part, variant, start in known]
    runs: dict[int, Trained] = {}

    def run(number: int, model: Callable[[], Trained]) -> None:
        runs[number] = model()

    staged_calls = [partial(run, number, staged("model", one)) for number, one in enumerate(calls)]
    with stoppable(lambda: runs):
        done = side_by_side(staged_calls, parts[0].n_workers, interrupt)
        for _ in zip(track(calls, "models"), done, strict=True):
            pass
    # After Ctrl-C the others stay at their start: an average needs all folds.
    return [runs[number] if number in runs else one() for number, one in enumerate(calls)]


def _refit(
    whole: Part, models: Sequence[Model], features: Sequence[RealArray], choice: Choice
) -> list[Model]:
    """Solve for heads again on everything; after Ctrl-C the others keep those of their folds."""
    known = zip(models, choice.heads, strict=True)
    refitted = [replace(model, head=head) for model, head in known]
    loss = choice.loss.with_tolerance(JUDGED)

    def refit(model: Model, seen: RealArray) -> Model:
        samples = Samples(whole.shards, whole.targets, [seen], loss.bias)
        return replace(model, head=solve_head(loss, samples, choice.penalty, model.head)[0])

    calls = [partial(refit, *one) for one in zip(refitted, features, strict=True)]
    with stoppable():
        for number, model in enumerate(side_by_side(calls, whole.n_workers)):
            refitted[number] = model
    return refitted


def _embed(models: Sequence[Model], whole: Part) -> list[RealArray]:
    block = whole.shards.whole
    assert block is not None
    calls = [partial(model.embed, block) for model in models]
    return list(side_by_side(calls, whole.n_workers))


def _join(histories: Sequence[History]) -> History:
    """Histories of several models one after the other, with the number of the model."""
    joined = {name: np.concatenate([h[name] for h in histories]) for name in histories[0]}
    joined["model"] = np.repeat(np.arange(len(histories)), [len(h["objective"]) for h in histories])
    return joined


# --- averages of ranks and of discriminants -------------------------------------------------------


def join_ranks(ranks: Sequence[Learned], task: Task) -> Learned:
    """Average models of several ranks, unless full rank, which comes first, is clearly better.

    Models have heads such that the mean over all models is the mean over ranks.
    """
    factors, choice, without = join_scores(
        [one.choice for one in ranks],
        list(zip(*(one.without for one in ranks), strict=True)),
        task,
    )
    losses = ", ".join(f"{one.choice.held_out_loss:.4g}" for one in ranks)
    said = f"held-out losses of ranks {losses}, averaged {choice.held_out_loss:.4g}"
    if not factors:
        return replace(ranks[0], without=without, message=f"{ranks[0].message}; {said}, not kept")
    n_models = sum(len(one.models) + len(one.starts) for one in ranks)
    models, starts = [], []
    for one, factor in zip(ranks, factors, strict=True):
        share = factor * n_models / (len(one.models) + len(one.starts))
        models += [scaled(model, share) for model in one.models]
        starts += [scaled(model, share) for model in one.starts]
    return replace(
        ranks[0],
        choice=choice,
        without=without,
        models=models,
        features=[own for one in ranks for own in one.features],
        starts=starts,
        message=f"{ranks[0].message}; {said}",
        stop_reasons=[reason for one in ranks for reason in one.stop_reasons],
    )


def scaled(model: Model, factor: float) -> Model:
    """Multiply the head of a model."""
    weights, bias = model.head
    return replace(model, head=(factor * weights, factor * bias))


def add_discriminants(learned: Learned, task: Task) -> Learned:
    """Average linear heads and discriminants, unless linear heads alone are clearly better.

    Models come rank by rank, with one of every fold. Discriminants see the features of the models
    of a fold: those of full rank, and those of all ranks side by side.
    """
    codes, features = task.codes, learned.features
    assert codes is not None
    numbers = np.arange(len(learned.models)).reshape(-1, len(task.folds))
    n_workers = count_workers(task.shards, task.targets)
    views = [numbers[:1], numbers] if len(numbers) > 1 else [numbers]
    try:
        judged = [_choose(_together(features, view), learned, task, n_workers) for view in views]
    except NoSpreadError:
        return learned
    kinds = [learned.choice, *(choice for _, choice, _ in judged)]
    without = list(zip(learned.without, *(some for *_, some in judged), strict=True))
    factors, choice, without_each = join_scores(kinds, without, task)
    message = (
        f"{learned.message}; held-out loss {learned.choice.held_out_loss:.4g} of linear heads, "
        f"{choice.held_out_loss:.4g} averaged with discriminants"
    )
    if not factors:
        return replace(learned, without=without_each, message=f"{message}, not kept")

    def fit(own: Indices, seen: RealArray, factor: float, best: Amounts) -> Discriminant:
        gaussians = RDA(seen, codes, task.weights).learn(*best)
        return Discriminant(own, factor / len(task.folds), gaussians)

    calls = [
        partial(fit, own, seen, factor, best)
        for view, factor, (best, *_) in zip(views, factors[1:], judged, strict=True)
        for own, seen in zip(view.T, _together(features, view), strict=True)
    ]
    return replace(
        learned,
        choice=choice,
        without=without_each,
        models=[scaled(one, factors[0]) for one in learned.models],
        starts=[scaled(one, factors[0]) for one in learned.starts],
        discriminants=list(side_by_side(calls, n_workers)),
        message=message,
    )


def _together(features: Sequence[RealArray], view: Indices) -> list[RealArray]:
    """Features of the models of each fold side by side; `view` has a column of each."""
    return [np.concatenate([features[one] for one in own], axis=1) for own in view.T]


def _choose(
    features: Sequence[RealArray], learned: Learned, task: Task, n_workers: int
) -> tuple[Amounts, Choice, list[Choice]]:
    """Choose amounts by all folds, and without each."""
    codes, folds, learners = task.codes, task.folds, Memo()
    assert codes is not None

    def decide(amounts: Amounts, number: int) -> RealArray:
        (train, held), own = folds[number], features[number]
        fitted = learners.once(number, lambda: RDA(own[train], codes[train], task.weights[train]))
        return to_host(fitted.learn(*amounts).decide(own[held]))

    def judge(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        return -task.judge(np.concatenate(parts), np.concatenate(rows))

    held_out = HeldOut(decide, judge, folds, ([], []), nested=False, n_jobs=n_workers)

    def choice(amounts: Amounts) -> Choice:
        scores = np.concatenate(held_out.decisions([amounts] * len(folds)))
        return replace(learned.choice, scores=scores, shares=-held_out.shares(amounts))

    best = held_out.best(*_GRID)
    without = [held_out.best(*_GRID, without=number) for number in range(len(folds))]
    return best, choice(best), [choice(one) for one in without]
