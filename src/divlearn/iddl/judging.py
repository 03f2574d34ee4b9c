"""Judgement by held-out losses: heads to choose from, and what divergences are worth, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from divlearn.arrays import Indices, RealArray, to_device_of, to_host
from divlearn.divergence.named import MEMBERS
from divlearn.fitting.checkpoint import stage
from divlearn.fitting.progress import tell, track
from divlearn.fitting.selection import mean_with_error
from divlearn.heads.heads import scores_of, solve_head, solve_heads
from divlearn.heads.losses import Loss
from divlearn.heads.samples import FeatureMap, Head, Samples
from divlearn.iddl.atoms import Point, Variant, are_filters
from divlearn.iddl.objective import Settings, encode_rows
from divlearn.iddl.training import Judge, Model, Part, Task, train
from divlearn.sharded.blocks import Block
from divlearn.threads import side_by_side

# Weaker penalties are tried until two in a row, or one by this factor, do worse than the best.
_WORSE = 1.03
_CLEARLY = 2.0  # standard errors of a difference that counts in a summary
JUDGED = 1e-3  # tolerance of heads: beyond it, predictions do not change but by noise
_CLEARLY_BETTER = 3.0  # standard errors by which one kind alone must be better than all
_VALUES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)  # of alpha and beta on the grid
_CHOOSING_ITERATIONS = 10  # of models that only choose a penalty


@dataclass(frozen=True, eq=False)
class Choice:
    """Heads that may be chosen, one for each fold, and what they say of held-out data."""

    loss: Loss
    penalty: float
    rows: Indices  # what was held out, fold by fold
    scores: RealArray  # of these rows, shape (n_rows, n_outputs)
    shares: RealArray  # of these rows in the held-out loss
    heads: Sequence[Head] = ()  # near to those of everything
    learned: bool = False  # whether the heads are for learned models, not for the first ones
    joined: Choice | None = None  # heads for the first models, whose scores are averaged with these

    @property
    def held_out_loss(self) -> float:
        return float(self.shares.sum())


Chooser = Callable[[Indices], Choice]  # from the held-out rows to choose by
# Models of the folds, and the features of all matrices by each.
Embedded = tuple[Sequence[Model], Sequence[RealArray]]


def least(choices: Sequence[Choice], positions: Indices) -> Choice:
    """Return the choice of the least loss, judged by some held-out rows."""
    return min(choices, key=lambda choice: float(choice.shares[positions].sum()))


def positions_without_each(held: Sequence[Indices]) -> list[Indices]:
    """Positions of held-out rows outside each fold; of all rows where none is outside."""
    rows = np.concatenate(held)
    others = [np.flatnonzero(~np.isin(rows, one)) for one in held]
    return [some if len(some) else np.arange(len(rows)) for some in others]


def choose_without_each(chooser: Chooser, parts: Sequence[Part]) -> tuple[Choice, list[Choice]]:
    """Choose by all folds, and without each."""
    held = [part.rows for part in parts]
    best = chooser(np.arange(sum(map(len, held))))
    return best, list(map(chooser, positions_without_each(held)))


def shares_without_each(chosen: Sequence[Choice], held: Sequence[Indices]) -> RealArray:
    """Shares in the held-out loss of choices made without each fold, which is not optimistic."""
    ends = np.cumsum([len(rows) for rows in held])[:-1]
    return np.concatenate([np.split(one.shares, ends)[k] for k, one in enumerate(chosen)])


def loss_without_each(chooser: Chooser, parts: Sequence[Part]) -> float:
    """Held-out loss of choices made without each fold."""
    _, chosen = choose_without_each(chooser, parts)
    return float(shares_without_each(chosen, [part.rows for part in parts]).sum())


def join_scores(
    kinds: Sequence[Choice], without: Sequence[Sequence[Choice]], task: Task
) -> tuple[list[float], Choice, list[Choice]]:
    """Average scores of several kinds of models, unless the first kind alone is clearly better.

    `without` has the choices made without each fold. Returned are the factors of the kinds in the
    average, none if it is not kept, and the choices that result.
    """
    rows = kinds[0].rows

    def decide(choices: Sequence[Choice], positions: Indices) -> tuple[list[float], Choice]:
        known = [one.scores[positions] for one in choices]
        factors = [task.scale(one, rows[positions]) / len(choices) for one in known]
        scaled = [factor * one.scores for factor, one in zip(factors, choices, strict=True)]
        scores = np.sum(scaled, axis=0)
        joined = replace(choices[0], scores=scores, shares=task.judge(scores, rows))
        loss, error = mean_with_error((joined.shares - choices[0].shares)[positions])
        if loss > _CLEARLY_BETTER * error:
            return [], choices[0]
        return factors, joined

    factors, choice = decide(kinds, np.arange(len(rows)))
    judged = positions_without_each([held for _, held in task.folds])
    return factors, choice, [decide(*one)[1] for one in zip(without, judged, strict=True)]


def judge_fixed(
    parts: Sequence[Part], first: Embedded, known: Choice, judge: Judge
) -> dict[Point, RealArray]:
    """Judge heads that see one divergence of the first atoms, with a loss and penalty known."""
    models, features = first
    one = models[0]
    points = [(float(a), float(b)) for a, b in zip(one.alpha[0], one.beta[0], strict=True)]
    n_pairs = len(points)
    if n_pairs == 1:
        return {points[0]: known.shares}
    whole, found = _designs(parts, features), {}
    # Divergences of an atom are alike: together, their weights are near to those of one alone.
    near = [(W.reshape(len(W), -1, n_pairs).sum(axis=2), bias) for W, bias in known.heads]
    for pair, point in enumerate(points):
        own = (slice(None), slice(pair, None, n_pairs))
        designs = [(seen[own], unseen[own]) for seen, unseen in whole]
        (choice,) = _follow_penalties(parts, designs, known.loss, [known.penalty], judge, near)
        found[point] = choice.shares
    return found


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
    near: Sequence[Head] = (),
) -> list[Choice]:
    """Judge heads, the largest penalty first; weaker ones take longest, and end where they lose."""
    rows = np.concatenate([part.rows for part in parts])
    samples = [
        Samples(part.shards, part.targets, [seen], loss.bias)
        for part, (seen, _) in zip(parts, designs, strict=True)
    ]
    warm: Sequence[Head | None] = near or [None] * len(parts)
    rough = loss.with_tolerance(JUDGED)
    choices: list[Choice] = []
    for penalty in track(sorted(penalties, reverse=True), "penalties"):
        known = zip(samples, warm, strict=True)
        calls = [partial(solve_head, rough, one, penalty, head) for one, head in known]
        warm = heads = [head for head, _ in side_by_side(calls, parts[0].n_workers)]
        judged = zip(heads, designs, strict=True)
        scores = np.concatenate([to_host(scores_of(head, unseen)) for head, (_, unseen) in judged])
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


def search_plane(
    parts: Sequence[Part], settings: Settings, judge: Judge, *, tied: bool
) -> list[tuple[float, float]]:
    """Find the points whose divergences to the first atoms, with a head, do best held out.

    Returns the best without each fold, which the model of the fold starts from, and that of all.
    """
    points = list(product(_VALUES, _VALUES))
    if tied:
        points = [(a, b) for a, b in points if a == b > 0]
    rows = np.concatenate([part.rows for part in parts])
    scores = np.concatenate([_scores(part, settings, points) for part in parts], axis=1)
    shares = np.stack([judge(one, rows) for one in scores])
    judged = [*positions_without_each([part.rows for part in parts]), np.arange(len(rows))]
    return [points[int(shares[:, some].sum(axis=1).argmin())] for some in judged]


def _scores(part: Part, settings: Settings, points: Sequence[tuple[float, float]]) -> RealArray:
    """Scores of what is held out by heads of what is seen, (n_points, n_matrices, n_outputs)."""
    seen, unseen = (_encode(block, part.atoms, points) for block in (part.shards.whole, part.held))
    known = part.shards, part.targets, [seen.reshape(len(seen), -1)]
    feature_map = FeatureMap.start(*known, plain=settings.loss.plain).standardize(*known)

    def stack(V: RealArray) -> RealArray:
        """Features of every point, in one piece of memory each, as products need them."""
        features = feature_map.compute(V.reshape(len(V), -1))
        return np.moveaxis(features.reshape(V.shape), 2, 0).copy()

    loss = settings.loss.with_tolerance()
    heads = solve_heads(loss, part.shards, part.targets, stack(seen), settings.penalty)
    return to_host(scores_of(heads, stack(unseen)))


def _encode(
    block: Block | None, atoms: RealArray, points: Sequence[tuple[float, float]]
) -> RealArray:
    """Divergences to atoms, (n_matrices, n_atoms, n_points)."""
    assert block is not None
    pairs = np.broadcast_to(points, (len(atoms), len(points), 2))
    V = encode_rows(block, atoms, pairs[..., 0], pairs[..., 1])
    return V.reshape(len(V), len(atoms), -1)[..., : len(points)]


# --- in words -------------------------------------------------------------------------------------


def name_point(alpha: float, beta: float) -> str:
    """Name a point (alpha, beta) if it has a name."""
    names = [
        one.name
        for one in MEMBERS
        if not one.symmetrized and (one.alpha, one.beta) == (alpha, beta)
    ]
    return names[0] if names else f"({alpha:g}, {beta:g})"


def summarize(
    models: Sequence[Model], starts: Sequence[Model], losses: Mapping[str, RealArray]
) -> str:
    """Describe divergences of models, and compare losses, one by one, with those of "model".

    Those of "chance" are of a prediction that does not look at the matrices.
    """
    every = [*models, *starts]
    full = [one for one in every if not are_filters(one.atoms)]
    ranks = sorted({one.atoms.shape[2] for one in every if are_filters(one.atoms)})
    counts = [("full rank", len(full))]
    counts += [(f"rank {rank}", sum(one.atoms.shape[2] == rank for one in every)) for rank in ranks]
    lines = ["Models: " + ", ".join(f"{count} of {name}" for name, count in counts if count)]
    if full:
        lines += [
            "",
            f"{'divergence':<16}{'alpha':<14}{'beta':<14}{'weight':<9}held-out loss alone",
        ]
        lines += _pairs(full, losses)
    totals = {name: float(one.sum()) for name, one in losses.items()}
    joined = totals.pop("with discriminants", None)
    fixed = {name: total for name, total in totals.items() if name not in ("model", "chance")}
    if joined is not None:
        lines += ["", f"Held-out loss {joined:.4g}, averaged with discriminants of the features."]
    if fixed:
        lines += ["", _compare(losses, min(fixed, key=fixed.__getitem__))]
    return "\n".join(lines)


def _pairs(models: Sequence[Model], losses: Mapping[str, RealArray]) -> list[str]:
    """Make a line for every pair of the models."""
    n_pairs = models[0].alpha.shape[1]
    squares = np.sum([_squares(one.head[0], n_pairs) for one in models], axis=0)
    lines = []
    for pair, share in enumerate(squares / (squares.sum() or 1.0)):  # heads of constants are zero
        alpha, beta = (
            np.concatenate([getattr(one, name)[:, pair] for one in models])
            for name in ("alpha", "beta")
        )
        fixed = np.ptp(alpha) == np.ptp(beta) == 0
        name = name_point(float(alpha[0]), float(beta[0])) if fixed else "learned"
        alone = f"{losses[name].sum():.4g}" if name in losses else "-"
        lines.append(f"{name:<16}{_range(alpha):<14}{_range(beta):<14}{share:<9.0%}{alone}")
    return lines


def _squares(weights: RealArray, n_pairs: int) -> RealArray:
    """Sum the squares of a head over outputs and atoms."""
    return (weights**2).sum(axis=0).reshape(-1, n_pairs).sum(axis=0)


def _range(values: RealArray) -> str:
    low, high = values.min(), values.max()
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _compare(losses: Mapping[str, RealArray], best: str) -> str:
    model, other = losses["model"], losses[best]
    gains = other - model
    gain, error = (len(gains) * one for one in mean_with_error(gains))  # of the sum
    verdict = "no clear difference"
    if abs(gain) > _CLEARLY * error:
        verdict = "learning pays" if gain > 0 else "the fixed divergence is better"
    # Without signal, the average of many models loses less than one alone, and pays for nothing.
    better = model if gain > 0 else other
    known, doubt = mean_with_error(losses["chance"] - better)
    if known <= _CLEARLY * doubt:
        verdict = "neither is clearly better than chance"
    return (
        f"Held-out loss {model.sum():.4g} of linear heads; {other.sum():.4g} with {best} alone, "
        f"the best fixed divergence, and the initial atoms. Gain {gain:.3g} +- {error:.2g}, paired "
        f"over {len(gains)} matrices or groups: {verdict}."
    )
