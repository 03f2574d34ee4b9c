"""The divergence to use: by held-out accuracy with labels, by likelihood without."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from divlearn.alpha_beta import Point
from divlearn.arrays import Indices, RealArray, to_host
from divlearn.checks import RandomState, check_count
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.progress import print_progress, stoppable, track
from divlearn.fitting.selection import mean_with_error
from divlearn.hermitian import real_form
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
from divlearn.judge.evaluation import warn_of_copies
from divlearn.judge.significance import (
    SIGNIFICANT,
    balanced_weights,
    compare_all,
    compare_jointly,
    least_above_chance,
    p_above_chance,
    standard_error,
)
from divlearn.likelihood import fit_likelihood, fit_member
from divlearn.likelihood.normalizer import solve_kappa
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
from divlearn.spd import check_spd
from divlearn.threads import limit_blas
from divlearn.tolerances import LEARNING_ACCURACY

_LIKELIHOOD_GRID = np.arange(9) / 4  # coarser than for 1-NN: a centre is computed at each point
_CONFIDENCE = 0.975  # one-sided, that the learned point is likelier
_MAP_TOLERANCE = 1e-5  # of centres and divergences; the error of the likelihood is its square


def which_divergence(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    cv: int = 5,
    alphas: ArrayLike | None = None,
    betas: ArrayLike | None = None,
    engine: str | Engine = "auto",
    random_state: RandomState = None,
    regularize: str | float = "raise",
    verbose: int = 0,
) -> WhichDivergence:
    """Find the divergence of the (alpha, beta) plane that suits these matrices.

    By held-out accuracy with labels, by likelihood without; see `WhichDivergence`.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
    y : array-like, shape (n_matrices,), optional, labels of >= 2 classes of >= 2 matrices or groups
    groups : array-like, shape (n_matrices,), optional
        Matrices of one group, such as the trials of a person, are held out together and are not
        neighbours of each other. Must be None without labels, where nothing is held out.
    cv : int, default=5, largest number of folds, as in `evaluate`; not used without labels.
    alphas, betas : array-like, shape (n_alphas,) and (n_betas,), optional
        The grid, ascending and >= 0. From 0 to 2 by default, in steps of 1/8 with labels and of 1/4
        without. Named divergences are always compared, even if they are not on the grid.
    engine : str or Engine, default="auto"
    random_state, regularize, verbose : as in `evaluate`

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    >>> print(which_divergence(X, y, random_state=0).summary())
    Use the nearest mean in airm, stein, burg or log-cosh: ...
    """
    with print_progress("which_divergence", verbose):
        default = _LIKELIHOOD_GRID if y is None else None
        axes = _check_axis(alphas, "alphas", default), _check_axis(betas, "betas", default)
        if y is None:
            if groups is not None:
                raise ValueError(
                    "groups must be None without labels: the likelihood holds nothing out; leave "
                    "out groups, or pass y"
                )
            matrices = check_spd(X, regularize=regularize, ndim=3)
            return _by_likelihood(matrices, *axes, get_engine(engine))
        matrices = check_spd(real_form(X), regularize=regularize, ndim=3)
        data, units = maps.label_units(matrices, y, groups)
        warn_of_copies(data)
        folds = _draw_folds(data, check_count(cv, "cv", least=2), random_state)
        engine = get_engine(engine, accuracy=LEARNING_ACCURACY)
        return judge_by_accuracy(matrices, data.codes, folds, units, *axes, engine)


def _draw_folds(data: Labelled, cv: int, random_state: RandomState) -> Indices:
    """Return the fold that holds out each matrix."""
    data.require_two("drop the class, or pass more of it")
    folds = np.empty(len(data.codes), dtype=np.intp)
    for fold, (_, held_out) in enumerate(data.folds(cv, random_state)):
        folds[held_out] = fold
    return folds


def _check_axis(values: ArrayLike | None, name: str, default: RealArray | None) -> RealArray:
    axis = maps.check_axis(default if values is None else values, name)
    if axis[0] < 0:
        raise ValueError(
            f"{name} starts at {axis[0]:g}, must be >= 0; D^(-a,-b) = D^(b,a), so the positive "
            "quadrant contains every divergence of the negative one"
        )
    return axis


def _by_likelihood(
    matrices: RealArray, alphas: RealArray, betas: RealArray, engine: Engine
) -> WhichDivergence:
    fit = fit_likelihood(matrices, engine=engine)
    data = engine.prepare(matrices.astype(np.float64, copy=False))
    fitted, n = fit.log_density(data, engine=engine), len(matrices)
    named, densities = {}, {}
    margin = float(stdtrit(n - 2, _CONFIDENCE)) if n > 2 else math.inf
    for name, (alpha, beta) in zip(NAMED, NAMED_POINTS.tolist(), strict=True):
        member = fit_member(data, alpha, beta, init=fit.center, engine=engine)
        densities[name] = member.log_density(data, engine=engine)
        gain, error = mean_with_error(fitted - densities[name])
        p_value = math.exp(-n * max(gain, 0.0))  # 2 n gain is chi-squared with two degrees
        bic = 2 * n * gain - 2 * math.log(n)
        named[name] = NamedScore(
            alpha, beta, member.log_likelihood, gain, error, p_value, bic, margin=margin
        )
    top = max(row.score for row in named.values())
    first = next(name for name in named if math.isclose(named[name].score, top))  # `best_named`
    second = max((name for name in named if name != first), key=lambda name: named[name].score)
    surface = np.full((len(alphas), len(betas)), np.nan)
    # A rough centre is accurate enough, because it maximizes the likelihood. Every second row
    # runs backwards, so that each point starts from the centre of an adjacent one.
    center, volume = fit.center, 0.5 * (data.d + 1) * np.linalg.slogdet(data.matrices)[1].mean()
    with stoppable():  # an interrupt leaves NaN in the map, and the answer as it is
        for row, step in track(list(np.ndindex(surface.shape)), "points of the map"):
            column = -1 - step if row % 2 else step
            point = float(alphas[row]), float(betas[column])
            fit_mean = mean_abld(data, *point, init=center, tol=_MAP_TOLERANCE, engine=engine)
            center, spread = fit_mean.mean, fit_mean.objective
            kappa, (log_z, _) = solve_kappa(*point, spread, data.d, rtol=_MAP_TOLERANCE)
            surface[row, column] = -kappa * spread - log_z - volume
    n_computed = int(np.isfinite(surface).sum())
    return WhichDivergence(
        criterion="likelihood",
        best=(fit.alpha, fit.beta),
        score=fit.log_likelihood,
        named=named,
        runner_up=(second, *mean_with_error(densities[first] - densities[second])),
        alphas=alphas,
        betas=betas,
        map=surface,
        n_matrices=n,
        message=say_how_many(n_computed, surface.size, "points", "of the map computed"),
    )


# --- by accuracy: nearest means and nearest neighbours --------------------------------------------


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
    choose = partial(_best_point, grid)
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
    p_chance, p_pairs = _p_values(rules, codes, groups)
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


def _best_point(grid: RealArray, scores: RealArray) -> int:
    return int(plane.rank_best(grid, np.round(scores, _DECIMALS))[0])


def _p_values(
    rules: dict[str, Flags], codes: Indices, groups: Indices | None
) -> tuple[float, dict[frozenset[str], float]]:
    """Return the p-value of no rule above chance, and those of pairs, no smaller than that."""
    p_values = [p_above_chance(flags, codes, groups) for flags in rules.values()]
    p_chance = min(1.0, len(rules) * min(p_values))
    pairs = compare_all(rules, groups, balanced_weights(codes))
    return p_chance, {pair: max(p, p_chance) for pair, p in pairs.items()}


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
