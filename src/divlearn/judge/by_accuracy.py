"""The divergence that suits labelled matrices: held-out accuracies of means and of neighbours."""

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations_with_replacement

import numpy as np

from divlearn.alpha_beta import Point
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

_TOLERANCE = 1e-5  # of gradients at means
_START_TOLERANCE = 1e-3  # of gradients at the mean of all matrices, where the searches start
_MAX_STEPS = 200
_CLOSED_FORMS = {(0.0, 1.0): arithmetic_mean, (1.0, 0.0): harmonic_mean}
_DECIMALS = 12  # of compared scores, so that sums in another order tie


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
    drawn = plane.draw_judged(codes)
    by_neighbours, judged = plane.judge_neighbors(
        matrices, codes, folds, groups, points, drawn, engine
    )
    # Means are first: they win ties with neighbours, which take longer to compute.
    correct = np.concatenate([by_means[:, :, judged], by_neighbours[:-1]], axis=1)
    groups = None if groups is None else groups[judged]
    message = say_how_many(len(judged), len(drawn), "matrices", "were judged")
    if len(drawn) < len(codes):
        message += f", drawn from {len(codes):,}, by neighbours and means of all"
    return _answer(correct, codes[judged], folds[judged], groups, alphas, betas, message)


def _answer(
    correct: Flags,
    codes: Indices,
    folds: Indices,
    groups: Indices | None,
    alphas: RealArray,
    betas: RealArray,
    message: str,
) -> WhichDivergence:
    """Answer from the flags of means, then of neighbours, at named points and on the grid."""
    grid, n_named = maps.make_grid(alphas, betas), len(NAMED)
    held_out = correct[folds, :, np.arange(len(folds))].T  # without the fold of the matrix
    scores = _score(held_out, codes)

    def choose(scores: RealArray) -> int:
        return int(plane.rank_best(grid, np.round(scores, _DECIMALS))[0])

    learned, choices = _cross_fit(correct[:, 2 * n_named :], codes, folds, choose)
    rules = {
        MEAN: _cross_fit(correct[:, :n_named], codes, folds, _first_best)[0],
        NEIGHBOUR: _cross_fit(correct[:, n_named : 2 * n_named], codes, folds, _first_best)[0],
        LEARNED: learned,
    }
    # The recommendation, too, is chosen from the named divergences without each fold.
    recommended = _cross_fit(correct[:, : 2 * n_named], codes, folds, _first_best)[0]
    rule = MEAN if _first_best(scores[: 2 * n_named]) < n_named else NEIGHBOUR
    surface, points = scores[2 * n_named :], [(alpha, beta) for alpha, beta in grid.tolist()]
    counts = np.unique(codes, return_counts=True)[1]
    p_values = [p_above_chance(flags, codes, groups) for flags in rules.values()]
    p_chance = min(1.0, len(rules) * min(p_values))
    p_pairs = compare_all(rules, groups, balanced_weights(codes))
    p_pairs = {pair: max(p, p_chance) for pair, p in p_pairs.items()}
    gain, _ = _compare(learned, rules[rule], codes, groups)
    if gain > 0 and p_pairs[frozenset((LEARNED, rule))] < SIGNIFICANT:
        rule, recommended = LEARNED, learned
    return WhichDivergence(
        criterion="accuracy",
        measure="accuracy" if counts.min() == counts.max() else "balanced accuracy",
        best=points[choose(surface)],
        score=float(_score(learned, codes)),
        named=_compare_named(held_out[: 2 * n_named], learned, codes, groups, p_chance),
        alphas=alphas,
        betas=betas,
        map=surface.reshape(len(alphas), len(betas)),
        n_matrices=len(codes),
        message=message,
        chosen=tuple(points[choice] for choice in choices),
        chance=1 / len(counts),
        p_chance=p_chance,
        p_least=len(rules) * least_above_chance(codes, groups),
        n_groups=None if groups is None else len(np.unique(groups)),
        rule=rule,
        rule_score=float(_score(recommended, codes)),
        rule_error=standard_error(recommended, groups, codes),
        rules=_compare_rules(rules, rule, codes, groups, p_pairs),
    )


def _cross_fit(
    correct: Flags, codes: Indices, folds: Indices, choose: Callable[[RealArray], int]
) -> tuple[Flags, list[int]]:
    """Choose a candidate without each fold; return its flags on the fold, and the choices."""
    # correct[k, c, i] is the flag of candidate c for matrix i, without fold k and the fold of i.
    choices = []
    for fold, flags in enumerate(correct):
        others = folds != fold
        choices.append(choose(_score(flags[:, others], codes[others])))
    return correct[folds, np.array(choices)[folds], np.arange(len(folds))], choices


def _compare(
    first: Flags, second: Flags, codes: Indices, groups: Indices | None
) -> tuple[float, float]:
    """Difference of two balanced accuracies, and its standard error."""
    difference = float(_score(first, codes) - _score(second, codes))
    return difference, standard_error(first.astype(float) - second, groups, codes)


def _compare_rules(
    rules: Mapping[str, Flags],
    rule: str,
    codes: Indices,
    groups: Indices | None,
    p_pairs: Mapping[frozenset[str], float],
) -> dict[str, RuleScore]:
    """Compare one of the rules with all."""
    return {
        name: RuleScore(
            float(_score(right, codes)),
            *_compare(rules[rule], right, codes, groups),
            p_pairs.get(frozenset((rule, name)), 1.0),
        )
        for name, right in rules.items()
    }


def _compare_named(
    held_out: Flags, learned: Flags, codes: Indices, groups: Indices | None, p_chance: float
) -> dict[str, NamedScore]:
    """Compare the learned point with every named one, and score means."""
    means, neighbours = np.split(held_out, 2)
    gains = balanced_weights(codes) * (learned.astype(float) - neighbours)
    p_values = np.maximum(compare_jointly(gains, groups), p_chance)
    named = {}
    for index, (name, divergence) in enumerate(NAMED.items()):
        difference, error = _compare(learned, neighbours[index], codes, groups)
        named[name] = NamedScore(
            alpha=divergence.alpha,
            beta=divergence.beta,
            score=float(_score(neighbours[index], codes)),
            difference=difference,
            standard_error=error,
            p_value=float(p_values[index]),
            mean_score=float(_score(means[index], codes)),
        )
    return named


def judge_means(
    matrices: RealArray, codes: Indices, folds: Indices, points: RealArray, engine: Engine
) -> Flags:
    """Tell whether the nearest mean has the same class, leaving out each fold in turn."""
    # The flags have shape (n_folds, n_points, n_matrices); the means for a matrix are computed
    # without the left-out fold and without the fold of the matrix.
    flags = []
    with limit_blas(1):  # starting threads would take longer than the work on these matrices
        for alpha, beta in track(points.tolist(), "divergences of means"):
            flags.append(_judge_point(matrices, codes, folds, (alpha, beta), engine))
    return np.stack(flags, axis=1)


def _judge_point(
    matrices: RealArray, codes: Indices, folds: Indices, point: Point, engine: Engine
) -> Flags:
    n_folds, n_classes = int(folds.max()) + 1, int(codes.max()) + 1
    pairs = np.array(list(combinations_with_replacement(range(n_folds), 2)))
    training = (folds != pairs[:, :, None]).all(axis=1)  # (n_pairs, n_matrices)
    # A class without training matrices has no mean, and is never the nearest.
    means: list[dict[int, RealArray]] = [{} for _ in pairs]
    for code in range(n_classes):
        members = codes == code
        parts = np.flatnonzero(training[:, members].any(axis=1))
        in_parts = training[np.ix_(parts, members)]
        class_means = _find_means(matrices[members], in_parts, point, engine)
        for part, mean in zip(parts.tolist(), class_means, strict=True):
            means[part][code] = mean
    correct = np.zeros((n_folds, len(matrices)), dtype=np.bool_)
    for part, (first, second) in enumerate(pairs.tolist()):
        if not means[part]:
            continue
        held_out = np.flatnonzero(~training[part])
        centers = Prepared.checked(np.stack(list(means[part].values())))
        divergences = engine.encode(Prepared.checked(matrices[held_out]), centers, *point)
        right = np.array(list(means[part]))[divergences.argmin(axis=1)] == codes[held_out]
        for own_fold, left_out in ((first, second), (second, first)):
            rows = folds[held_out] == own_fold
            correct[left_out, held_out[rows]] = right[rows]
    return correct


def _find_means(matrices: RealArray, training: Flags, point: Point, engine: Engine) -> RealArray:
    """Compute the means of parts of a class, flags (n_parts, n_matrices), all at once."""
    weights = (training / training.sum(axis=1, keepdims=True)).T
    if point in _CLOSED_FORMS:
        return np.stack([_CLOSED_FORMS[point](matrices, column) for column in weights.T])
    data = engine.keep(Prepared.checked(matrices))
    start = mean_abld(data, *point, tol=_START_TOLERANCE, engine=engine).mean
    searches = [search_mean(*point, start, _TOLERANCE, _MAX_STEPS) for _ in training]
    engine = engine_for(engine, training.size, data.d)

    def evaluate(parts: list[int], centers: RealArray) -> Iterable[Slope]:
        part_weights = weights[:, parts]
        back = engine.pullback(data, centers, *point, part_weights, parameters=False, values=True)
        values = (part_weights * to_host(back.values)).sum(axis=0)
        return zip(values.tolist(), -to_host(back.whitened), strict=True)

    return np.stack([result.mean for result in run_searches(searches, evaluate)])
