"""Candidate heads with their held-out losses, the choice among them, and a summary in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from divlearn.alpha_beta import Point
from divlearn.arrays import Indices, RealArray, to_device_of, to_host
from divlearn.divergence.named import MEMBERS
from divlearn.fitting.checkpoint import stage
from divlearn.fitting.folds import Folds, held_out_rows, split_by_fold
from divlearn.fitting.progress import notify, track
from divlearn.fitting.selection import mean_with_error
from divlearn.heads.heads import scores_of, solve_head, solve_heads
from divlearn.heads.losses import Loss
from divlearn.heads.samples import FeatureMap, Head, Samples
from divlearn.iddl.atoms import Variant, are_filters
from divlearn.iddl.objective import Settings, encode_rows
from divlearn.iddl.training import Model, RowLosses, Split, Task, train
from divlearn.sharded.blocks import Block
from divlearn.threads import side_by_side

_WORSE_FACTOR = 1.03  # times the least loss, beyond which no weaker penalty is tried
HEAD_TOLERANCE = 1e-3  # of candidates: more digits change predictions by less than the noise
_AVERAGE_MARGIN = 3.0  # standard errors by which one candidate must be better than the average
_SUMMARY_MARGIN = 2.0  # standard errors of a difference that counts in a summary, of many units
_GRID_VALUES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)  # of alpha and beta
_CHOOSING_ITERATIONS = 10  # of models that only choose a penalty


@dataclass(frozen=True, eq=False)
class Candidate:
    """Heads with one loss and penalty, one for each fold, and their held-out scores and losses."""

    loss: Loss
    penalty: float
    rows: Indices  # held-out rows, fold by fold
    scores: RealArray  # of these rows, shape (n_rows, n_outputs)
    row_losses: RealArray  # of these rows; their sum is the held-out loss
    heads: Sequence[Head] = ()  # warm starts for the heads of all data
    learned: bool = False  # whether the heads belong to learned models or to the initial ones
    averaged_with: Candidate | None = None  # the candidate of initial models in an average

    @property
    def held_out_loss(self) -> float:
        return float(self.row_losses.sum())


Chooser = Callable[[Indices], Candidate]  # chooses by the held-out rows at these positions


class Embedded(NamedTuple):
    """Models of the folds, and the features of all matrices by each."""

    models: Sequence[Model]
    features: Sequence[RealArray]


def best_candidate(candidates: Sequence[Candidate], positions: Indices) -> Candidate:
    """Return the candidate with the least loss of the held-out rows at these positions."""
    return min(candidates, key=lambda candidate: float(candidate.row_losses[positions].sum()))


def positions_outside_folds(folds: Folds) -> list[Indices]:
    """Positions of held-out rows outside each fold; of all rows where none is outside."""
    rows = held_out_rows(folds)
    outside = [np.flatnonzero(~np.isin(rows, held)) for _, held in folds]
    return [positions if len(positions) else np.arange(len(rows)) for positions in outside]


def choose_for_folds(choose: Chooser, folds: Folds) -> tuple[Candidate, list[Candidate]]:
    """Choose by all held-out rows; and for each fold, by those of the other folds."""
    choice = choose(np.arange(len(held_out_rows(folds))))
    return choice, list(map(choose, positions_outside_folds(folds)))


def nested_row_losses(fold_choices: Sequence[Candidate], folds: Folds) -> RealArray:
    """Held-out losses, not optimistic: those of a fold are by the choice made on the others."""
    parts = [split_by_fold(c.row_losses, folds)[k] for k, c in enumerate(fold_choices)]
    return np.concatenate(parts)


def nested_loss(fold_choices: Sequence[Candidate], folds: Folds) -> float:
    """Held-out loss of the choices for folds; see `nested_row_losses`."""
    return float(nested_row_losses(fold_choices, folds).sum())


def average_scores(
    candidates: Sequence[Candidate], fold_candidates: Sequence[Sequence[Candidate]], task: Task
) -> tuple[list[float], Candidate, list[Candidate]]:
    """Average scores of candidates, unless the first alone is clearly better.

    `fold_candidates` replace the candidates for each fold; they were chosen on the other folds.
    Returns the factors of the candidates, empty if the first alone is kept, and the choices.
    """
    rows = candidates[0].rows

    def average(members: Sequence[Candidate], positions: Indices) -> tuple[list[float], Candidate]:
        factors = task.factors([m.scores[positions] for m in members], rows[positions])
        scaled = [f * member.scores for f, member in zip(factors, members, strict=True)]
        scores = np.sum(scaled, axis=0)
        averaged = replace(members[0], scores=scores, row_losses=task.row_losses(scores, rows))
        rise, error = mean_with_error((averaged.row_losses - members[0].row_losses)[positions])
        return ([], members[0]) if rise > _AVERAGE_MARGIN * error else (factors, averaged)

    factors, choice = average(candidates, np.arange(len(rows)))
    outside = positions_outside_folds(task.folds)
    fold_choices = [average(*pair)[1] for pair in zip(fold_candidates, outside, strict=True)]
    return factors, choice, fold_choices


def losses_of_pairs(
    splits: Sequence[Split], initial: Embedded, candidate: Candidate, row_losses: RowLosses
) -> dict[Point, RealArray]:
    """Held-out losses of heads on one divergence to the initial atoms, with the same penalty."""
    alpha, beta = initial.models[0].alpha[0], initial.models[0].beta[0]
    points = [(float(a), float(b)) for a, b in zip(alpha, beta, strict=True)]
    n_pairs = len(points)
    if n_pairs == 1:
        return {points[0]: candidate.row_losses}
    fitter, losses = HeadFitter(splits, initial.features, row_losses), {}
    # Divergences to an atom are correlated: the sum of their weights is near to that of one alone.
    warm = [(W.reshape(len(W), -1, n_pairs).sum(axis=2), bias) for W, bias in candidate.heads]
    for pair, point in enumerate(points):
        columns = slice(pair, None, n_pairs)
        (alone,) = fitter.fit(candidate.loss, [candidate.penalty], warm, columns)
        losses[point] = alone.row_losses
    return losses


class HeadFitter:
    """Fits heads of all folds, each on the features of all matrices by the model of the fold."""

    def __init__(
        self, splits: Sequence[Split], features: Sequence[RealArray], row_losses: RowLosses
    ) -> None:
        self._splits, self._row_losses = splits, row_losses
        self._designs = [  # of the training rows, and of the held-out rows
            (phi[to_device_of(split.train_rows, phi)], phi[to_device_of(split.held_rows, phi)])
            for split, phi in zip(splits, features, strict=True)
        ]

    def fit(
        self,
        loss: Loss,
        penalties: Sequence[float],
        warm: Sequence[Head | None] = (),
        columns: slice = slice(None),
    ) -> list[Candidate]:
        """Solve for heads from the largest penalty on; weaker ones take longer, and may be skipped.

        It ends where a penalty is worse than the best by a factor, or two in a row are worse.
        """
        splits = self._splits
        rows = np.concatenate([split.held_rows for split in splits])
        samples = [
            Samples(split.shards, split.targets, [train[:, columns]], loss.bias)
            for split, (train, _) in zip(splits, self._designs, strict=True)
        ]
        held = [held[:, columns] for _, held in self._designs]
        warm = warm or [None] * len(splits)
        rough = loss.with_tolerance(HEAD_TOLERANCE)
        candidates: list[Candidate] = []
        for penalty in track(sorted(penalties, reverse=True), "penalties"):
            fits = zip(samples, warm, strict=True)
            calls = [partial(solve_head, rough, data, penalty, head) for data, head in fits]
            warm = heads = [head for head, _ in side_by_side(calls, splits[0].n_workers)]
            scores = np.concatenate([to_host(s) for s in map(scores_of, heads, held)])
            losses = self._row_losses(scores, rows)
            candidates.append(Candidate(loss, penalty, rows, scores, losses, heads))
            totals = [candidate.held_out_loss for candidate in candidates]
            if totals[-1] > _WORSE_FACTOR * min(totals) or min(totals) < min(totals[-2:]):
                break
        return candidates


def train_candidates(
    splits: Sequence[Split],
    settings: Settings,
    variant: Variant,
    penalties: Sequence[float],
    row_losses: RowLosses,
) -> list[Candidate]:
    """Train models with every penalty, as the paper does, for a few iterations of the joint solver.

    The largest penalty comes first; the others start from the atoms of the one before.
    """
    rows = np.concatenate([split.held_rows for split in splits])
    quick = replace(settings, solver="joint", max_iter=min(settings.max_iter, _CHOOSING_ITERATIONS))
    candidates = []
    for penalty in sorted(penalties, reverse=True):
        following, fold_scores = [], []
        for split in track(splits, "models"):
            call = partial(train, split, replace(quick, penalty=penalty), variant)
            trained = stage("model", call)
            following.append(replace(split, atoms=trained.model.atoms))
            assert split.held_out is not None
            fold_scores.append(trained.model.scores(split.held_out))
        splits, scores = following, np.concatenate(fold_scores)
        candidates.append(Candidate(settings.loss, penalty, rows, scores, row_losses(scores, rows)))
        loss = candidates[-1].held_out_loss
        notify("penalties", len(candidates), len(penalties), f"loss {loss:.4g}")
    return candidates


def search_plane(
    splits: Sequence[Split], settings: Settings, task: Task, *, tied: bool
) -> list[Point]:
    """Find the point (alpha, beta) of least held-out loss for heads on the initial atoms.

    Returns a point for each fold, chosen on the other folds, and last that of all folds.
    """
    points = list(product(_GRID_VALUES, _GRID_VALUES))
    if tied:
        points = [(a, b) for a, b in points if a == b > 0]
    rows = held_out_rows(task.folds)
    scores = np.concatenate([_held_out_scores(s, settings, points) for s in splits], axis=1)
    losses = np.stack([task.row_losses(point_scores, rows) for point_scores in scores])
    subsets = [*positions_outside_folds(task.folds), np.arange(len(rows))]
    return [points[int(losses[:, positions].sum(axis=1).argmin())] for positions in subsets]


def _held_out_scores(split: Split, settings: Settings, points: Sequence[Point]) -> RealArray:
    """Scores of held-out matrices by heads on each point, (n_points, n_matrices, n_outputs)."""
    V_train, V_held = (
        _encode(block, split.atoms, points) for block in (split.shards.whole, split.held_out)
    )
    data = split.shards, split.targets, [V_train.reshape(len(V_train), -1)]
    feature_map = FeatureMap.start(*data, plain=settings.loss.plain).standardize(*data)

    def stack(V: RealArray) -> RealArray:
        """Compute features, contiguous for every point, which makes products fast."""
        features = feature_map.compute(V.reshape(len(V), -1))
        return np.moveaxis(features.reshape(V.shape), 2, 0).copy()

    loss = settings.loss.with_tolerance()
    heads = solve_heads(loss, split.shards, split.targets, stack(V_train), settings.penalty)
    return to_host(scores_of(heads, stack(V_held)))


def _encode(block: Block | None, atoms: RealArray, points: Sequence[Point]) -> RealArray:
    """Divergences to atoms, (n_matrices, n_atoms, n_points)."""
    assert block is not None
    pairs = np.broadcast_to(points, (len(atoms), len(points), 2))
    V = encode_rows(block, atoms, pairs[..., 0], pairs[..., 1])
    return V.reshape(len(V), len(atoms), -1)[..., : len(points)]


# --- in words -------------------------------------------------------------------------------------


def name_point(alpha: float, beta: float) -> str:
    """Return the name of a point (alpha, beta), or its coordinates if it has none."""
    for member in MEMBERS:
        if not member.symmetrized and (member.alpha, member.beta) == (alpha, beta):
            return member.name
    return f"({alpha:g}, {beta:g})"


def summarize(
    models: Sequence[Model], starts: Sequence[Model], losses: Mapping[str, RealArray]
) -> str:
    """Describe divergences of models, and compare the paired losses with those of "model".

    Losses of "chance" are those of a constant prediction.
    """
    members = [*models, *starts]
    full = [model for model in members if not are_filters(model.atoms)]
    ranks = Counter(model.atoms.shape[2] for model in members if are_filters(model.atoms))
    counts = [("full rank", len(full)), *((f"rank {rank}", ranks[rank]) for rank in sorted(ranks))]
    lines = ["Models: " + ", ".join(f"{count} of {name}" for name, count in counts if count)]
    if full:
        header = f"{'divergence':<16}{'alpha':<14}{'beta':<14}{'weight':<9}held-out loss alone"
        lines += ["", header, *_describe_pairs(full, losses)]
    totals = {name: float(group_losses.sum()) for name, group_losses in losses.items()}
    averaged = totals.pop("with models of vectors", None)
    fixed = {name: total for name, total in totals.items() if name not in ("model", "chance")}
    if averaged is not None:
        lines += ["", f"Held-out loss {averaged:.4g}, averaged with other models."]
    if fixed:
        lines += ["", _compare(losses, min(fixed, key=fixed.__getitem__))]
    return "\n".join(lines)


def _describe_pairs(models: Sequence[Model], losses: Mapping[str, RealArray]) -> list[str]:
    """Make a line for every pair (alpha, beta) of the models."""
    n_pairs = models[0].alpha.shape[1]
    squares = np.sum([_sum_squares(model.head[0], n_pairs) for model in models], axis=0)
    lines = []
    for pair, share in enumerate(squares / (squares.sum() or 1.0)):  # heads of constants are zero
        alpha, beta = (
            np.concatenate([getattr(model, name)[:, pair] for model in models])
            for name in ("alpha", "beta")
        )
        fixed = np.ptp(alpha) == np.ptp(beta) == 0
        name = name_point(float(alpha[0]), float(beta[0])) if fixed else "learned"
        alone = f"{losses[name].sum():.4g}" if name in losses else "-"
        alphas, betas = _format_range(alpha), _format_range(beta)
        lines.append(f"{name:<16}{alphas:<14}{betas:<14}{share:<9.0%}{alone}")
    return lines


def _sum_squares(weights: RealArray, n_pairs: int) -> RealArray:
    """Sum the squares of the weights of a head over outputs and atoms."""
    return (weights**2).sum(axis=0).reshape(-1, n_pairs).sum(axis=0)


def _format_range(values: RealArray) -> str:
    low, high = values.min(), values.max()
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _compare(losses: Mapping[str, RealArray], best: str) -> str:
    """Compare the model with the best fixed divergence, and the better of both with chance."""
    model, fixed = losses["model"], losses[best]
    gains = fixed - model
    gain, error = (len(gains) * value for value in mean_with_error(gains))  # of the sum
    # The standard error of few groups is uncertain, as in a t-test.
    margin = stdtrit(max(len(gains) - 1, 1), ndtr(_SUMMARY_MARGIN))
    verdict = "no clear difference"
    if abs(gain) > margin * error:
        verdict = "learning pays" if gain > 0 else "the fixed divergence is better"
    # Even without signal, the average of many models has a lower loss than one model.
    better = model if gain > 0 else fixed
    gain_on_chance, chance_error = mean_with_error(losses["chance"] - better)
    if gain_on_chance <= margin * chance_error:
        verdict = "neither is clearly better than chance"
    return (
        f"Held-out loss {model.sum():.4g} of linear heads; {fixed.sum():.4g} with {best} alone, "
        f"the best fixed divergence, and the initial atoms. Gain {gain:.3g} +- {error:.2g}, paired "
        f"over {len(gains)} matrices or groups: {verdict}."
    )
