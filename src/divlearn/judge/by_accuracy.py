"""The divergence that suits labelled matrices: held-out accuracies of means and of neighbours."""

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations_with_replacement
from typing import Any

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
from divlearn.likelihood.members import Point
from divlearn.means import (
    Slope,
    arithmetic_mean,
    harmonic_mean,
    mean_abld,
    run_searches,
    search_mean,
)
from divlearn.nearest import plane
from divlearn.nearest.plane import NAMED, NAMED_POINTS, Flags
from divlearn.sharded.blocks import engine_for
from divlearn.threads import limit_blas

_TOLERANCE, _ROUGH = 1e-5, 1e-3  # of gradients at means, and at that of all, where searches start
_STEPS = 200
_CLOSED = {(0.0, 1.0): arithmetic_mean, (1.0, 0.0): harmonic_mean}
_DECIMALS = 12  # of scores that are compared; sums in another order tie


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
    points = np.vstack([NAMED_POINTS, maps.make_grid(alphas, betas)])
    wanted = plane.draw_judged(codes)
    given = matrices, codes, folds, groups, points, wanted
    by_neighbours, judged = plane.judge_neighbors(*given, engine)
    # Means are first: they win ties with neighbours, which take longer to find.
    correct = np.concatenate([by_means[:, :, judged], by_neighbours[:-1]], axis=1)
    groups = None if groups is None else groups[judged]
    message = _say_judged(len(judged), len(wanted), len(codes))
    return _answer(correct, codes[judged], folds[judged], groups, alphas, betas, message)


def _say_judged(n_judged: int, n_wanted: int, n_given: int) -> str:
    message = say_how_many(n_judged, n_wanted, "matrices were judged")
    if n_wanted == n_given:
        return message
    return f"{message}, drawn from {n_given:,}, by neighbours and means of all"


def _answer(
    correct: Flags,
    codes: Indices,
    folds: Indices,
    groups: Indices | None,
    alphas: RealArray,
    betas: RealArray,
    message: str,
) -> WhichDivergence:
    """Answer from flags of means and neighbours in named divergences, and on the grid."""
    grid, n_named = maps.make_grid(alphas, betas), len(NAMED)
    held_out = correct[folds, :, np.arange(len(folds))].T  # without the own fold
    scores = _score(held_out, codes)

    def choose(scores: RealArray) -> int:
        return int(plane.rank_best(grid, np.round(scores, _DECIMALS))[0])

    learned, choices = _cross_fit(correct[:, 2 * n_named :], codes, folds, choose)
    rules = {
        MEAN: _cross_fit(correct[:, :n_named], codes, folds, _first_best)[0],
        NEIGHBOUR: _cross_fit(correct[:, n_named : 2 * n_named], codes, folds, _first_best)[0],
        LEARNED: learned,
    }
    # The recommendation is chosen from the named divergences without each fold, too.
    chosen = _cross_fit(correct[:, : 2 * n_named], codes, folds, _first_best)[0]
    best = MEAN if _first_best(scores[: 2 * n_named]) < n_named else NEIGHBOUR
    surface, places = scores[2 * n_named :], [(alpha, beta) for alpha, beta in grid.tolist()]
    counts = np.unique(codes, return_counts=True)[1]
    p_values = [p_above_chance(one, codes, groups) for one in rules.values()]
    p_chance = min(1.0, len(rules) * min(p_values))
    return WhichDivergence(
        criterion="accuracy",
        measure="accuracy" if counts.min() == counts.max() else "balanced accuracy",
        best=places[choose(surface)],
        score=float(_score(learned, codes)),
        named=_compare_named(held_out[: 2 * n_named], learned, codes, groups, p_chance),
        alphas=alphas,
        betas=betas,
        map=surface.reshape(len(alphas), len(betas)),
        n_matrices=len(codes),
        message=message,
        chosen=tuple(places[choice] for choice in choices),
        chance=1 / len(counts),
        p_chance=p_chance,
        p_least=len(rules) * least_above_chance(codes, groups),
        n_groups=None if groups is None else len(np.unique(groups)),
        **_recommend(rules, best, chosen, codes, groups, p_chance),
    )


def _cross_fit(
    correct: Flags, codes: Indices, folds: Indices, choose: Callable[[RealArray], int]
) -> tuple[Flags, list[int]]:
    """Choose a contender without each fold: whether it is right there, and which it is."""
    # Flags (n_folds, n_contenders, n_matrices) are those without each fold and without the own one.
    choices = []
    for fold, flags in enumerate(correct):
        others = folds != fold
        choices.append(choose(_score(flags[:, others], codes[others])))
    places = np.array(choices)[folds]
    return correct[folds, places, np.arange(len(folds))], choices


def _compare(
    one: Flags, other: Flags, codes: Indices, groups: Indices | None
) -> tuple[float, float]:
    """Difference of two balanced accuracies, and its standard error."""
    difference = float(_score(one, codes) - _score(other, codes))
    return difference, standard_error(one.astype(float) - other, groups, codes)


def _compare_named(
    held_out: Flags, learned: Flags, codes: Indices, groups: Indices | None, p_chance: float
) -> dict[str, NamedScore]:
    """Compare the learned point with every named one, and score means."""
    means, neighbours = np.split(held_out, 2)
    gains = balanced_weights(codes) * (learned.astype(float) - neighbours)
    p_values = np.maximum(compare_jointly(gains, groups), p_chance)
    named = {}
    for place, (name, divergence) in enumerate(NAMED.items()):
        difference, error = _compare(learned, neighbours[place], codes, groups)
        named[name] = NamedScore(
            alpha=divergence.alpha,
            beta=divergence.beta,
            score=float(_score(neighbours[place], codes)),
            difference=difference,
            standard_error=error,
            p_value=float(p_values[place]),
            mean_score=float(_score(means[place], codes)),
        )
    return named


def _recommend(
    rules: Mapping[str, Flags],
    rule: str,
    flags: Flags,
    codes: Indices,
    groups: Indices | None,
    p_chance: float,
) -> dict[str, Any]:
    """Judge the best rule of named divergences, or the learned one if that is clearly better."""
    found = compare_all(rules, groups, balanced_weights(codes))
    p_values = {pair: max(p, p_chance) for pair, p in found.items()}
    gain, _ = _compare(rules[LEARNED], rules[rule], codes, groups)
    if gain > 0 and p_values[frozenset((LEARNED, rule))] < SIGNIFICANT:
        rule, flags = LEARNED, rules[LEARNED]
    return {
        "rule": rule,
        "rule_score": float(_score(flags, codes)),
        "rule_error": standard_error(flags, groups, codes),
        "rules": {
            name: RuleScore(
                float(_score(one, codes)),
                *_compare(rules[rule], one, codes, groups),
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
    suited = engine_for(engine, kept.size, data.d)

    def evaluate(asked: list[int], trials: RealArray) -> Iterable[Slope]:
        weights = shares[:, asked]
        back = suited.pullback(data, trials, *point, weights, parameters=False, values=True)
        values = (weights * to_host(back.values)).sum(axis=0)
        return zip(values.tolist(), -to_host(back.whitened), strict=True)

    return np.stack([found.mean for found in run_searches(searches, evaluate)])
