"""What an IDDL estimator learns: one model of everything, or one per fold, and their average."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from divlearn.arrays import Indices, RealArray, to_device_of, to_host
from divlearn.fitting.checkpoint import stage, staged
from divlearn.fitting.interrupts import interrupt, stoppable
from divlearn.fitting.progress import tell, track
from divlearn.fitting.selection import mean_with_error
from divlearn.heads.heads import scores_of, solve_head
from divlearn.heads.losses import Loss
from divlearn.heads.samples import Head, Samples
from divlearn.iddl.features import Point, Variant
from divlearn.iddl.objective import are_filters
from divlearn.iddl.tasks import Task
from divlearn.iddl.training import (
    Discriminant,
    History,
    Judge,
    Model,
    Part,
    Settings,
    Trained,
    train,
)
from divlearn.threads import side_by_side

# Weaker penalties are tried until two in a row, or one by this factor, do worse than the best.
_WORSE = 1.03
_CLEARLY = 3.0  # standard errors by which full rank alone must be better than all ranks
_JUDGED = 1e-3  # tolerance of heads: beyond it, predictions do not change but by noise
_CHOOSING_ITERATIONS = 10  # of models that only choose a penalty


@dataclass(frozen=True, eq=False)
class Choice:
    """Heads that may be chosen, one for each fold, and what they say of held-out data."""

    loss: Loss
    penalty: float
    rows: Indices  # what was held out, fold by fold
    scores: RealArray  # of these rows, shape (n_rows, n_outputs)
    shares: RealArray  # of these rows in the held-out loss
    heads: Sequence[Head | None] = ()  # near to those of everything
    learned: bool = False  # whether the heads are for learned models, not for the first ones
    joined: Choice | None = None  # heads for the first models, whose scores are averaged with these

    @property
    def held_out_loss(self) -> float:
        return float(self.shares.sum())


Chooser = Callable[[Indices], Choice]  # from the held-out rows to choose by


class Embedded(NamedTuple):
    """Models of the folds, and the features of all matrices by each."""

    models: list[Model]
    features: list[RealArray]


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
    features: list[RealArray] = field(default_factory=list)  # of all matrices, by models of folds


def least(choices: Sequence[Choice], positions: Indices) -> Choice:
    """Return the choice of the least loss, judged by some held-out rows."""
    return min(choices, key=lambda choice: float(choice.shares[positions].sum()))


def choose_without_each(chooser: Chooser, parts: Sequence[Part]) -> tuple[Choice, list[Choice]]:
    """Choose by all folds, and without each."""
    rows = np.concatenate([part.rows for part in parts])
    best = chooser(np.arange(len(rows)))
    others = [np.flatnonzero(~np.isin(rows, part.rows)) for part in parts]
    return best, [chooser(some) if len(some) else best for some in others]


def shares_without_each(chosen: Sequence[Choice], sizes: Sequence[int]) -> RealArray:
    """Shares in the held-out loss of choices made without each fold, which is not optimistic."""
    ends = np.cumsum([0, *sizes])
    own = zip(chosen, ends[:-1], ends[1:], strict=True)
    return np.concatenate([one.shares[start:end] for one, start, end in own])


def losses_without_each(learned: Learned, task: Task) -> RealArray:
    """Shares of held-out rows in the loss of what was learned."""
    return shares_without_each(learned.without, [len(held) for _, held in task.folds])


def loss_without_each(chooser: Chooser, parts: Sequence[Part]) -> float:
    """Held-out loss of choices made without each fold."""
    _, chosen = choose_without_each(chooser, parts)
    return float(shares_without_each(chosen, [len(part.rows) for part in parts]).sum())


def judge_fixed(
    parts: Sequence[Part], first: Embedded, known: Choice, judge: Judge
) -> dict[Point, RealArray]:
    """Judge heads that see one divergence of the first atoms, with a loss and penalty known."""
    one = first.models[0]
    points = [(float(a), float(b)) for a, b in zip(one.alpha[0], one.beta[0], strict=True)]
    n_pairs = len(points)
    if n_pairs == 1:
        return {points[0]: known.shares}
    whole, found = _designs(parts, first.features), {}
    # Divergences of an atom are alike: together, their weights are near to those of one alone.
    near = [_sum_pairs(head, n_pairs) for head in known.heads]
    for pair, point in enumerate(points):
        own = (slice(None), slice(pair, None, n_pairs))
        designs = [(seen[own], unseen[own]) for seen, unseen in whole]
        (choice,) = _follow_penalties(parts, designs, known.loss, [known.penalty], judge, near)
        found[point] = choice.shares
    return found


def _sum_pairs(head: Head | None, n_pairs: int) -> Head | None:
    if head is None:
        return None
    weights, bias = head
    return weights.reshape(len(weights), -1, n_pairs).sum(axis=2), bias


def choose_heads(
    parts: Sequence[Part],
    features: Sequence[RealArray],
    losses: Sequence[Loss],
    penalties: Sequence[float],
    judge: Judge,
) -> list[list[Choice]]:
    """Try penalties for every loss on held-out data; features are those of one model per fold."""
    designs = _designs(parts, features)
    return [_follow_penalties(parts, designs, loss, penalties, judge) for loss in losses]


def _designs(
    parts: Sequence[Part], features: Sequence[RealArray]
) -> list[tuple[RealArray, RealArray]]:
    """Features of what every fold trains on, and of what it holds out."""
    known = zip(parts, features, strict=True)
    return [
        (own[to_device_of(part.seen, own)], own[to_device_of(part.rows, own)])
        for part, own in known
    ]


def _follow_penalties(
    parts: Sequence[Part],
    designs: Sequence[tuple[RealArray, RealArray]],
    loss: Loss,
    penalties: Sequence[float],
    judge: Judge,
    near: Sequence[Head | None] = (),
) -> list[Choice]:
    """Judge heads, the largest penalty first; weaker ones take longest, and end where they lose."""
    rows = np.concatenate([part.rows for part in parts])
    samples = [
        Samples(part.shards, part.targets, [seen], loss.bias)
        for part, (seen, _) in zip(parts, designs, strict=True)
    ]
    heads = list(near) or [None] * len(parts)
    choices: list[Choice] = []
    for penalty in track(sorted(penalties, reverse=True), "penalties"):
        calls = [
            partial(solve_head, loss.with_tolerance(_JUDGED), one, penalty, warm)
            for one, warm in zip(samples, heads, strict=True)
        ]
        heads = [head for head, _ in side_by_side(calls, parts[0].n_workers)]
        scores = np.concatenate(
            [
                to_host(scores_of(head, unseen))
                for head, (_, unseen) in zip(heads, designs, strict=True)
                if head is not None
            ]
        )
        choices.append(Choice(loss, penalty, rows, scores, judge(scores, rows), heads))
        losses = [one.held_out_loss for one in choices]
        if losses[-1] > _WORSE * min(losses) or min(losses) < min(losses[-2:]):
            break
    return choices


def choose_penalty(
    parts: Sequence[Part],
    settings: Settings,
    variant: Variant,
    penalties: Sequence[float],
    judge: Judge,
) -> list[Choice]:
    """Try penalties on held-out data of models that were learned with them, as the paper does.

    Models are learned by the joint solver, whichever learns the final one, for a few iterations.
    From the largest penalty on, each starts from the atoms of the one before.
    """
    rows = np.concatenate([part.rows for part in parts])
    quick = replace(settings, solver="joint", max_iter=min(settings.max_iter, _CHOOSING_ITERATIONS))
    choices = []
    for penalty in sorted(penalties, reverse=True):
        models, scores = [], []
        for part in track(parts, "models"):
            one = partial(train, part, replace(quick, penalty=penalty), variant)
            models.append(stage("model", one)[0])
            assert part.held is not None
            scores.append(models[-1].scores(part.held))
        parts = [
            replace(part, atoms=model.atoms) for part, model in zip(parts, models, strict=True)
        ]
        said = np.concatenate(scores)
        choices.append(Choice(settings.loss, penalty, rows, said, judge(said, rows)))
        tell("penalties", len(choices), len(penalties), f"loss {choices[-1].held_out_loss:.4g}")
    return choices


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
        self._whole, self._parts, self._judge = whole, parts, judge
        self._embedded = [first]
        self._n_iter = max(n_iter for _, n_iter, *_ in trained)
        self._stop_reasons = [message for *_, message, _ in trained]
        self._history = _join([history for *_, history in trained])
        self._starts, self._ends = starts, []
        if self._n_iter:
            with stoppable():
                last = _embed([model for model, *_ in trained], whole)
                self._embedded.append(last)
                ends = choose(last.features)
                self._ends = [[replace(one, learned=True) for one in some] for some in ends]

    def best(self) -> Learned:
        """Return the start, what was learned, or their average, whichever predicts best."""
        if not self._ends:
            return self._finish(partial(least, list(chain(*self._starts))))
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
        learned = self._finish(lambda some: _steady(contenders(some), some))
        kept = "both are" if learned.choice.joined else "the learned model is"
        message = (
            "held-out loss {:.4g} at the start, {:.4g} after {} iterations, {:.4g} with both "
            "averaged; {} kept"
        ).format(
            *losses[:2],
            self._n_iter,
            losses[2],
            kept if learned.choice.learned else "the start is",
        )
        history = learned.history | {"held_out_loss": np.array(losses[:2])}
        message = f"{message}; {say_reasons(self._stop_reasons)}"
        return replace(learned, message=message, history=history, fixed=self._fixed())

    def _fixed(self) -> dict[Point, RealArray]:
        """Judge each divergence alone, with the first atoms; atoms of lower rank have others."""
        first = self._embedded[0]
        if are_filters(first.models[0].atoms):
            return {}
        everything = np.arange(sum(len(part.rows) for part in self._parts))
        known = least(list(chain(*self._starts)), everything)
        with stoppable():
            return judge_fixed(self._parts, first, known, self._judge)
        return {}

    def _finish(self, chooser: Chooser) -> Learned:
        """Choose heads, and solve for them again on everything."""
        choice, without = choose_without_each(chooser, self._parts)
        loss = loss_without_each(chooser, self._parts)

        def refit(one: Choice) -> list[Model]:
            return _refit(self._whole, self._embedded[one.learned], one)

        n_iter = self._n_iter if choice.learned else 0
        message = f"held-out loss {loss:.4g} after {n_iter} iterations"
        starts = refit(choice.joined) if choice.joined else []
        return Learned(
            choice,
            without,
            refit(choice),
            starts,
            n_iter,
            message,
            self._stop_reasons,
            self._history,
            features=self._embedded[choice.learned].features,
        )


def join_scores(
    kinds: Sequence[Choice], without: Sequence[Sequence[Choice]], task: Task
) -> tuple[list[float], Choice, list[Choice]]:
    """Average scores of several kinds of models, unless the first kind alone is clearly better.

    `without` has the choices made without each fold. Returned are the factors of the kinds in the
    average, none if it is not kept, and the choices that result.
    """
    rows = kinds[0].rows
    everything = np.arange(len(rows))

    def decide(choices: Sequence[Choice], positions: Indices) -> tuple[list[float], Choice]:
        known = [one.scores[positions] for one in choices]
        factors = [task.scale(one, rows[positions]) / len(choices) for one in known]
        scaled = [factor * one.scores for factor, one in zip(factors, choices, strict=True)]
        scores = np.sum(scaled, axis=0)
        joined = replace(choices[0], scores=scores, shares=task.judge(scores, rows))
        loss, error = mean_with_error((joined.shares - choices[0].shares)[positions])
        if loss > _CLEARLY * error:
            return [], choices[0]
        return factors, joined

    factors, choice = decide(kinds, everything)
    others = [np.flatnonzero(~np.isin(rows, held)) for _, held in task.folds]
    judged = [some if len(some) else everything for some in others]
    return factors, choice, [decide(*one)[1] for one in zip(without, judged, strict=True)]


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


def _refit(whole: Part, embedded: Embedded, choice: Choice) -> list[Model]:
    """Solve for heads again on everything; after Ctrl-C the others keep those of their folds."""
    known = zip(embedded.models, choice.heads, strict=True)
    refitted = [replace(model, head=head) for model, head in known if head is not None]
    loss = choice.loss.with_tolerance(_JUDGED)

    def refit(model: Model, features: RealArray) -> Model:
        samples = Samples(whole.shards, whole.targets, [features], loss.bias)
        return replace(model, head=solve_head(loss, samples, choice.penalty, model.head)[0])

    calls = [partial(refit, *one) for one in zip(refitted, embedded.features, strict=True)]
    with stoppable():
        for number, model in enumerate(side_by_side(calls, whole.n_workers)):
            refitted[number] = model
    return refitted


def _embed(models: list[Model], whole: Part) -> Embedded:
    block = whole.shards.whole
    assert block is not None
    calls = [partial(model.embed, block) for model in models]
    return Embedded(models, list(side_by_side(calls, whole.n_workers)))


def _join(histories: Sequence[History]) -> History:
    """Histories of several models one after the other, with the number of the model."""
    joined = {name: np.concatenate([h[name] for h in histories]) for name in histories[0]}
    joined["model"] = np.repeat(np.arange(len(histories)), [len(h["objective"]) for h in histories])
    return joined
