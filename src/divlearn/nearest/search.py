"""Choice of the divergence of class means by held-out data."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import softmax

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import check_finite
from divlearn.divergence import LOG_EUCLIDEAN, ABDivergence, Divergence
from divlearn.engines import Engine, Prepared
from divlearn.fitting.calibration import SCORES, fit_temperature
from divlearn.fitting.folds import Fold
from divlearn.fitting.held_out import Judge, shares_of
from divlearn.fitting.selection import HeldOut
from divlearn.fitting.training import Chosen, Grid, Training, choose, judge_accuracy
from divlearn.geometry import geodesic
from divlearn.nearest.class_means import View, average, find_means, learn_filter
from divlearn.nearest.plane import CANDIDATES as MEMBERS
from divlearn.nearest.plane import evaluate_plane
from divlearn.threads import map_rows

CANDIDATES: list[Divergence] = [*MEMBERS, LOG_EUCLIDEAN]
_CERTAIN = 2.0  # standard errors of a gain over the first candidate that counts
_TABLE_ENTRIES = 1 << 22  # of spectra held at a time
_CACHE_ENTRIES = 1 << 17  # of spectra that a thread evaluates at a time


def choose_divergence(
    training: Training, rough: Engine, everything: View | None
) -> tuple[Chosen[int], float, dict[str, RealArray | Labels]]:
    """Choose a candidate by held-out distances to class means.

    Returned are the choice, by its number, the unit of its divergences, and a table of all. Without
    a view of everything, matrices are filtered: the filter of a part is learned without what the
    part holds out.
    """
    data, folds, everyone = training.data, training.folds, range(len(CANDIDATES))

    @cache
    def filtered(number: int) -> View:
        known = learn_filter(data, training.parts[number][0], training.engine)
        return View(replace(data, matrices=known.apply(data.matrices)))

    def tables(candidates: Sequence[int], number: int) -> list[RealArray]:
        view = everything or filtered(number)
        return _held_out_tables(view, training.parts[number], candidates, rough)

    on_folds = [tables(everyone, number) for number in range(len(folds))]
    # Typical divergences to the nearest class, in which temperatures are near one.
    units = [typical(np.concatenate(some)) for some in zip(*on_folds, strict=True)]

    def decide(candidate: int, number: int) -> RealArray:
        inner = number >= len(folds)  # where few candidates are needed
        table = tables([candidate], number)[0] if inner else on_folds[number][candidate]
        return -table / units[candidate]

    def decide_exactly(candidate: int, number: int) -> RealArray:
        """Decide by exact means, for what is chosen."""
        if not is_approximate(CANDIDATES[candidate]):
            return decide(candidate, number)
        view = everything or filtered(number)
        return (
            -_exact_table(view, training.parts[number], MEMBERS[candidate], rough)
            / (units[candidate])
        )

    judge = judge_brier(training)
    held_out = HeldOut(decide, judge, folds, training.nest, nested=False, margin=_CERTAIN)
    exact = HeldOut(decide_exactly, judge, folds, training.nest, nested=False)
    grid = Grid(everyone)
    chosen = choose(training, exact, grid, grid, SCORES, held_out)
    return chosen, units[chosen.best], _tabulate(training, held_out)


def _tabulate(training: Training, held_out: HeldOut[int]) -> dict[str, RealArray | Labels]:
    """Tabulate held-out figures of all candidates."""
    everyone, folds = range(len(CANDIDATES)), training.folds
    right, rows = judge_accuracy(training, SCORES), [held for _, held in folds]
    accuracies = [right(held_out.decisions([one] * len(folds)), rows).sum() for one in everyone]
    return {
        "divergence": np.array([one.name for one in CANDIDATES]),
        "accuracy": np.array(accuracies),
        "brier_score": np.array([-held_out.score(one) for one in everyone]),
    }


def judge_brier(training: Training) -> Judge:
    """Make a function to shares in the mean over folds of the negative Brier score."""
    # Brier scores are bounded, so that a few matrices far from all means do not decide.
    codes, weights = training.data.codes, training.data.weights

    def judge(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        where, scores = np.concatenate(rows), np.concatenate(parts)
        shares = shares_of(rows, weights)
        temperature, _ = fit_temperature(scores, codes[where], shares)
        errors = softmax(scores / temperature, axis=1)
        errors[np.arange(len(where)), codes[where]] -= 1
        return -shares * (errors**2).sum(axis=1)

    return judge


def typical(table: RealArray) -> float:
    """Typical divergence to the nearest class; if that is zero, to any."""
    near, any_class = float(np.median(table.min(axis=1))), float(np.median(table))
    return max(near if near > 0 else any_class, 1e-100)


def _held_out_tables(
    view: View, fold: Fold, candidates: Sequence[int], engine: Engine
) -> list[RealArray]:
    """Divergences (n_held, n_classes) to the means of the training part, for each candidate."""
    data, (train, held) = view.data, fold
    slopes = {one: find_slope(CANDIDATES[one]) for one in candidates}
    means = _part_means(view, train, sorted({one for one in slopes.values() if one is not None}))
    tables = np.empty((len(candidates), len(held), len(data.classes)))
    step = max(1, _TABLE_ENTRIES // data.matrices[0, :1].size // len(data.classes))
    for start in range(0, len(held), step):
        some = slice(start, start + step)
        prepared = engine.prepare(Prepared.checked(data.matrices[held[some]]))
        for slope, centers in means.items():
            places = [place for place, one in enumerate(candidates) if slopes[one] == slope]
            members = [MEMBERS[candidates[place]] for place in places]
            tables[places, some] = _tables(prepared, centers, members, engine)
    for place, one in enumerate(candidates):
        if slopes[one] is None:
            means_of_vectors = average(view.vectors, data, train)
            tables[place] = cdist(view.vectors[held], means_of_vectors, "sqeuclidean")
    largest = float(tables.max())
    check_finite(largest, "a divergence", "to the mean of a class", or_infinite=True)
    return list(np.minimum(tables, 1e100))


def _exact_table(view: View, fold: Fold, divergence: ABDivergence, engine: Engine) -> RealArray:
    """Divergences (n_held, n_classes) to exact means of the training part."""
    data, (train, held) = view.data, fold
    slope = divergence.beta - divergence.alpha
    means = find_means(
        data.matrices[train],
        data.codes[train],
        data.weights[train],
        divergence,
        engine,
        [f"class {name!s}" for name in data.classes],
        _part_means(view, train, [slope])[slope],
    )
    prepared = engine.prepare(Prepared.checked(data.matrices[held]))
    return np.minimum(_tables(prepared, means, [divergence], engine)[0], 1e100)


def is_approximate(divergence: Divergence) -> bool:
    """Whether candidates are compared by approximate means of this divergence."""
    slope = find_slope(divergence)
    return slope is not None and abs(slope) < 1 and divergence.name != "airm"


def find_slope(divergence: Divergence) -> float | None:
    """Return beta - alpha, which tells the mean; None for what is not in the family."""
    return divergence.beta - divergence.alpha if isinstance(divergence, ABDivergence) else None


def _part_means(view: View, train: Indices, slopes: Sequence[float]) -> dict[float, RealArray]:
    """Approximate class means of a part, for values of beta - alpha."""
    means = {}
    between = [one for one in slopes if abs(one) < 1]
    if between:
        found = geodesic(view.recenter(train), view.arithmetic(train), np.array(between)[:, None])
        means = dict(zip(between, found, strict=True))
    if 1.0 in slopes:
        means[1.0] = view.arithmetic(train)
    if -1.0 in slopes:
        means[-1.0] = view.harmonic(train)
    return means


def _tables(
    data: Prepared, means: RealArray, members: Sequence[ABDivergence], engine: Engine
) -> RealArray:
    """Divergences (n_members, n_matrices, n_classes) to the means; one alone needs no spectra."""
    points = np.array([(one.alpha, one.beta) for one in members])
    scales = np.array([one.scale for one in members])[:, None, None]
    if len(points) == 1:
        return scales * engine.encode(data, Prepared.checked(means), *points[0])
    t = engine.spectra(data, Prepared.checked(means))

    def evaluate(part: slice) -> RealArray:
        table = evaluate_plane(t[part].reshape(-1, t.shape[2]), points)
        return np.moveaxis(table.reshape(-1, t.shape[1], len(points)), 2, 0)

    tables = map_rows(evaluate, len(t), max(1, _CACHE_ENTRIES // t[0].size))
    return scales * np.concatenate(tables, axis=1)
