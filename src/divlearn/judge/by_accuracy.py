"""The divergence that suits labelled matrices: held-out accuracies of means and of neighbours."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, Self

import numpy as np

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.engines import Engine, Prepared
from divlearn.fitting.progress import track
from divlearn.judge import maps
from divlearn.judge.answer import (
    LEARNED,
    MEAN,
    NEIGHBOUR,
    NamedScore,
    Point,
    RuleScore,
    WhichDivergence,
    say_how_many,
)
from divlearn.judge.significance import (
    SIGNIFICANT,
    balanced_weights,
    compare_all,
    compare_jointly,
    least_above_chance,
    p_above_chance,
    standard_error,
)
from divlearn.means import arithmetic_mean, harmonic_mean, mean_abld, search_mean
from divlearn.nearest import plane
from divlearn.nearest.plane import NAMED, NAMED_POINTS, Flags
from divlearn.sharded.blocks import engine_for
from divlearn.threads import limit_blas

_TOLERANCE, _ROUGH = 1e-5, 1e-3  # of gradients at means, and at that of all, where searches start
_STEPS = 200
_CLOSED = {(0.0, 1.0): arithmetic_mean, (1.0, 0.0): harmonic_mean}
_DECIMALS = 12  # of scores that are compared; sums in another order tie


@dataclass(frozen=True, eq=False)
class _Contenders:
    """Whether classifiers are right, and how a choice among them does."""

    correct: Flags  # (n_folds, n_contenders, n_matrices), without each fold and without the own one
    codes: Indices
    folds: Indices
    groups: Indices | None

    def take(self, first: int, last: int | None = None) -> Self:
        return type(self)(self.correct[:, first:last], self.codes, self.folds, self.groups)

    @property
    def held_out(self) -> Flags:
        """Whether each is right without the own fold, (n_contenders, n_matrices)."""
        return self.correct[self.folds, :, np.arange(len(self.folds))].T

    def scores(self) -> RealArray:
        return _score(self.held_out, self.codes)

    def cross_fit(self, choose: Callable[[RealArray], int]) -> tuple[Flags, list[int]]:
        """Choose a contender without each fold: whether it is right there, and which it is."""
        chosen = []
        for fold, flags in enumerate(self.correct):
            others = self.folds != fold
            chosen.append(choose(_score(flags[:, others], self.codes[others])))
        places = np.array(chosen)[self.folds]
        return self.correct[self.folds, places, np.arange(len(self.folds))], chosen

    def compare(self, one: Flags, other: Flags) -> tuple[float, float]:
        """Difference of two balanced accuracies, and its standard error."""
        gains = one.astype(float) - other
        difference = float(_score(one, self.codes) - _score(other, self.codes))
        return difference, standard_error(gains, self.groups, self.codes)


def _score(flags: Flags, codes: Indices) -> RealArray:
    """Balanced accuracies."""
    scores: RealArray = flags @ balanced_weights(codes) / len(codes)
    return scores


def _first_best(scores: RealArray) -> int:
    return int(np.round(scores, _DECIMALS).argmax())


def judge_by_accuracy(
    matrices: RealArray,
    codes: Indices,
    folds: Indices,
    groups: Indices | None,
    alphas: RealArray,
    betas: RealArray,
    engine: Engine,
) -> WhichDivergence:
    matrices = matrices.astype(np.float64, copy=False)
    by_means = judge_means(matrices, codes, folds, NAMED_POINTS, engine)
    grid = maps.make_grid(alphas, betas)
    by_neighbours, judged = plane.judge_neighbors(
        matrices, codes, folds, groups, np.vstack([NAMED_POINTS, grid]), engine
    )
    # Means are first: they win ties with neighbours, which take longer to find.
    everyone = _Contenders(
        np.concatenate([by_means[:, :, judged], by_neighbours[:-1]], axis=1),
        codes[judged],
        folds[judged],
        None if groups is None else groups[judged],
    )
    return _answer(everyone, grid, alphas, betas, len(matrices))


def _answer(
    everyone: _Contenders, grid: RealArray, alphas: RealArray, betas: RealArray, n_given: int
) -> WhichDivergence:
    def choose(scores: RealArray) -> int:
        return int(plane.rank_best(grid, np.round(scores, _DECIMALS))[0])

    n, n_named = len(everyone.codes), len(NAMED)
    points = everyone.take(2 * n_named)
    learned, choices = points.cross_fit(choose)
    rules = {
        MEAN: everyone.take(0, n_named).cross_fit(_first_best)[0],
        NEIGHBOUR: everyone.take(n_named, 2 * n_named).cross_fit(_first_best)[0],
        LEARNED: learned,
    }
    surface, places = points.scores(), [(alpha, beta) for alpha, beta in grid.tolist()]
    counts = np.unique(everyone.codes, return_counts=True)[1]
    p_values = [p_above_chance(one, everyone.codes, everyone.groups) for one in rules.values()]
    p_chance = min(1.0, len(rules) * min(p_values))
    return WhichDivergence(
        criterion="accuracy",
        measure="accuracy" if counts.min() == counts.max() else "balanced accuracy",
        best=places[choose(surface)],
        score=float(_score(learned, everyone.codes)),
        named=_compare_named(everyone, learned, p_chance),
        alphas=alphas,
        betas=betas,
        map=surface.reshape(len(alphas), len(betas)),
        n_matrices=n,
        message=say_how_many(n, n_given, "matrices were judged"),
        chosen=tuple(places[choice] for choice in choices),
        chance=1 / len(counts),
        p_chance=p_chance,
        p_least=len(rules) * least_above_chance(everyone.codes, everyone.groups),
        n_groups=None if everyone.groups is None else len(np.unique(everyone.groups)),
        **_recommend(everyone, rules, p_chance),
    )


def _compare_named(everyone: _Contenders, learned: Flags, p_chance: float) -> dict[str, NamedScore]:
    """Compare the learned point with every named one, and score means."""
    n_named = len(NAMED)
    neighbours = everyone.take(n_named, 2 * n_named)
    flags, scores = neighbours.held_out, neighbours.scores()
    means = everyone.take(0, n_named).scores()
    gains = balanced_weights(everyone.codes) * (learned.astype(float) - flags)
    p_values = np.maximum(compare_jointly(gains, everyone.groups), p_chance)
    named = {}
    for place, (name, divergence) in enumerate(NAMED.items()):
        difference, error = everyone.compare(learned, flags[place])
        named[name] = NamedScore(
            alpha=divergence.alpha,
            beta=divergence.beta,
            score=float(scores[place]),
            difference=difference,
            standard_error=error,
            p_value=float(p_values[place]),
            mean_score=float(means[place]),
        )
    return named


def _recommend(
    everyone: _Contenders, rules: Mapping[str, Flags], p_chance: float
) -> dict[str, Any]:
    """Choose a rule, judge the choice, and compare it with the others."""
    n_named = len(NAMED)
    named = everyone.take(0, 2 * n_named)
    rule = MEAN if _first_best(named.scores()) < n_named else NEIGHBOUR
    flags, _ = named.cross_fit(_first_best)
    found = compare_all(rules, everyone.groups, balanced_weights(everyone.codes))
    p_values = {pair: max(p, p_chance) for pair, p in found.items()}
    gain, _ = everyone.compare(rules[LEARNED], rules[rule])
    if gain > 0 and p_values[frozenset((LEARNED, rule))] < SIGNIFICANT:
        rule, flags = LEARNED, rules[LEARNED]
    return {
        "rule": rule,
        "rule_score": float(_score(flags, everyone.codes)),
        "rule_error": standard_error(flags, everyone.groups, everyone.codes),
        "rules": {
            name: RuleScore(
                float(_score(one, everyone.codes)),
                *everyone.compare(rules[rule], one),
                p_values.get(frozenset((rule, name)), 1.0),
            )
            for name, one in rules.items()
        },
    }


def judge_means(
    matrices: RealArray, codes: Indices, folds: Indices, points: RealArray, engine: Engine
) -> Flags:
    """Tell whether the nearest mean has the same class, leaving out each fold in turn."""
    # Returned are flags (n_folds, n_points, n_matrices), those of a matrix by means without the
    # left-out fold and without its own.
    flags = []
    with limit_blas(1):  # threads would cost more than these matrices
        for alpha, beta in track(points.tolist(), "divergences of means"):
            flags.append(_judge_point(matrices, codes, folds, (alpha, beta), engine))
    return np.stack(flags, axis=1)


def _judge_point(
    matrices: RealArray, codes: Indices, folds: Indices, point: Point, engine: Engine
) -> Flags:
    n_folds, n_classes = int(folds.max()) + 1, int(codes.max()) + 1
    left_out = np.array(list(combinations_with_replacement(range(n_folds), 2)))
    kept = (folds != left_out[:, :, None]).all(axis=1)
    # A class of which nothing is kept has no mean, and is never the nearest.
    means: list[dict[int, RealArray]] = [{} for _ in left_out]
    for code in range(n_classes):
        members = codes == code
        parts = np.flatnonzero(kept[:, members].any(axis=1))
        found = _find_means(matrices[members], kept[np.ix_(parts, members)], point, engine)
        for part, mean in zip(parts.tolist(), found, strict=True):
            means[part][code] = mean
    correct = np.zeros((n_folds, len(matrices)), dtype=np.bool_)
    for part, (one, other) in enumerate(left_out.tolist()):
        if not means[part]:
            continue
        held = np.flatnonzero(~kept[part])
        atoms = Prepared.checked(np.stack(list(means[part].values())))
        table = engine.encode(Prepared.checked(matrices[held]), atoms, *point)
        right = np.array(list(means[part]))[table.argmin(axis=1)] == codes[held]
        for mine, left in ((one, other), (other, one)):
            rows = folds[held] == mine
            correct[left, held[rows]] = right[rows]
    return correct


def _find_means(matrices: RealArray, kept: Flags, point: Point, engine: Engine) -> RealArray:
    """Find the means of parts of a class, kept (n_parts, n_matrices), all at once."""
    shares = (kept / kept.sum(axis=1, keepdims=True)).T
    if point in _CLOSED:
        return np.stack([_CLOSED[point](matrices, part) for part in shares.T])
    data = engine.keep(Prepared.checked(matrices))
    start = mean_abld(data, *point, tol=_ROUGH, engine=engine).mean
    searches = [search_mean(*point, start, _TOLERANCE, _STEPS) for _ in kept]
    means = np.empty((len(kept), *start.shape))
    suited = engine_for(engine, kept.size, data.d)
    with np.errstate(over="ignore", invalid="ignore"):  # steps that go too far are not taken
        trials = {part: next(search) for part, search in enumerate(searches)}
        while trials:
            asked, places = list(trials), np.stack(list(trials.values()))
            weights = shares[:, asked]
            back = suited.pullback(data, places, *point, weights, parameters=False, values=True)
            values = (weights * to_host(back.values)).sum(axis=0)
            for part, value, slope in zip(asked, values, -to_host(back.whitened), strict=True):
                try:
                    trials[part] = searches[part].send((float(value), slope))
                except StopIteration as end:
                    means[part] = end.value.mean
                    del trials[part]
    return means
