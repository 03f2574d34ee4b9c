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
from divlearn.engines.plane import evaluate_plane
from divlearn.fitting.calibration import fit_temperature
from divlearn.fitting.folds import Fold
from divlearn.fitting.held_out import shares_of
from divlearn.fitting.selection import Criterion, HeldOut
from divlearn.fitting.training import Chosen, Grid, Training, accuracy_criterion, choose
from divlearn.geometry import geodesic
from divlearn.nearest.class_means import View, average, find_means, learn_filter, project, typical
from divlearn.nearest.plane import CANDIDATES as MEMBERS
from divlearn.threads import map_rows

CANDIDATES: list[Divergence] = [*MEMBERS, LOG_EUCLIDEAN]
_MARGIN = 2.0  # standard errors by which a candidate must exceed the first
_TABLE_ENTRIES = 1 << 22  # of spectra held at a time
_CACHE_ENTRIES = 1 << 17  # of spectra that a thread evaluates at a time


def choose_divergence(
    training: Training, rough: Engine, unfiltered: View | None
) -> tuple[Chosen[int], float, dict[str, RealArray | Labels]]:
    """Choose a candidate by held-out distances to class means.

    Return the choice, by its number, the unit of its divergences, and a table of all candidates.
    `unfiltered` is the view of all data; None filters matrices, by a filter that is learned without
    the held-out matrices of each part.
    """
    data, folds, candidates = training.data, training.folds, range(len(CANDIDATES))

    @cache
    def view(number: int) -> View:
        if unfiltered is not None:
            return unfiltered
        filter_ = learn_filter(data, training.parts[number][0], training.engine)
        return View(replace(data, matrices=project(data.matrices, filter_)))

    def tables(candidates: Sequence[int], number: int) -> list[RealArray]:
        return _held_out_tables(view(number), training.parts[number], candidates, rough)

    on_folds = [tables(candidates, number) for number in range(len(folds))]
    # Typical divergences to the nearest class; temperatures in these units are near one.
    units = [typical(np.concatenate(parts)) for parts in zip(*on_folds, strict=True)]

    def decide(candidate: int, number: int) -> RealArray:
        is_inner = number >= len(folds)  # few candidates are needed there
        table = tables([candidate], number)[0] if is_inner else on_folds[number][candidate]
        return -table / units[candidate]

    def decide_exactly(candidate: int, number: int) -> RealArray:
        """Decide by exact means, for chosen candidates."""
        if not is_approximate(CANDIDATES[candidate]):
            return decide(candidate, number)
        part, member = training.parts[number], MEMBERS[candidate]
        return -_exact_table(view(number), part, member, rough) / units[candidate]

    criterion = brier_criterion(training)
    held_out = HeldOut(decide, criterion, folds, training.nest, nested=False, margin=_MARGIN)
    exact = HeldOut(decide_exactly, criterion, folds, training.nest, nested=False)
    grid = Grid(candidates)
    chosen = choose(training, exact, grid, grid, held_out)
    return chosen, units[chosen.best], _tabulate(training, held_out)


def _tabulate(training: Training, held_out: HeldOut[int]) -> dict[str, RealArray | Labels]:
    """Tabulate held-out figures of all candidates."""
    candidates, folds = range(len(CANDIDATES)), training.folds
    criterion, rows = accuracy_criterion(training), [held for _, held in folds]
    accuracies = [criterion(held_out.decisions([c] * len(folds)), rows).sum() for c in candidates]
    return {
        "divergence": np.array([divergence.name for divergence in CANDIDATES]),
        "accuracy": np.array(accuracies),
        "brier_score": np.array([-held_out.score(c) for c in candidates]),
    }


def brier_criterion(training: Training) -> Criterion:
    """Return a function to the shares of rows in the mean negative Brier score of folds."""
    # Brier scores are bounded, so that a few matrices far from all means do not decide.
    codes, weights = training.data.codes, training.data.weights

    def criterion(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        targets, scores = codes[np.concatenate(rows)], np.concatenate(parts)
        shares = shares_of(rows, weights)
        temperature, _ = fit_temperature(scores, targets, shares)
        errors = softmax(scores / temperature, axis=1)
        errors[np.arange(len(targets)), targets] -= 1
        return -shares * (errors**2).sum(axis=1)

    return criterion


def _held_out_tables(
    view: View, fold: Fold, candidates: Sequence[int], engine: Engine
) -> list[RealArray]:
    """Divergences (n_held, n_classes) to the means of the training part, for each candidate."""
    data, (train, held) = view.data, fold
    slopes = [find_slope(CANDIDATES[candidate]) for candidate in candidates]
    means = _part_means(view, train, sorted({slope for slope in slopes if slope is not None}))
    tables = np.empty((len(candidates), len(held), len(data.classes)))
    step = max(1, _TABLE_ENTRIES // data.matrices[0, :1].size // len(data.classes))
    for start in range(0, len(held), step):
        block = slice(start, start + step)
        prepared = engine.prepare(Prepared.checked(data.matrices[held[block]]))
        for slope, centers in means.items():
            same = [i for i in range(len(candidates)) if slopes[i] == slope]
            members = [MEMBERS[candidates[i]] for i in same]
            tables[same, block] = _tables(prepared, centers, members, engine)
    for i, slope_or_none in enumerate(slopes):
        if slope_or_none is None:  # log-Euclidean
            means_of_vectors = average(view.vectors, data, train)
            tables[i] = cdist(view.vectors[held], means_of_vectors, "sqeuclidean")
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
    """Return beta - alpha, which determines the mean; None outside the family."""
    return divergence.beta - divergence.alpha if isinstance(divergence, ABDivergence) else None


def _part_means(view: View, train: Indices, slopes: Sequence[float]) -> dict[float, RealArray]:
    """Approximate class means of a part, by the values `slopes` of beta - alpha."""
    means = {}
    inner = [slope for slope in slopes if abs(slope) < 1]
    if inner:
        points = geodesic(view.recenter(train), view.arithmetic(train), np.array(inner)[:, None])
        means = dict(zip(inner, points, strict=True))
    if 1.0 in slopes:
        means[1.0] = view.arithmetic(train)
    if -1.0 in slopes:
        means[-1.0] = view.harmonic(train)
    return means


def _tables(
    data: Prepared, means: RealArray, members: Sequence[ABDivergence], engine: Engine
) -> RealArray:
    """Divergences (n_members, n_matrices, n_classes) to means; a single member needs no spectra."""
    points = np.array([(member.alpha, member.beta) for member in members])
    scales = np.array([member.scale for member in members])[:, None, None]
    if len(points) == 1:
        return scales * engine.encode(data, Prepared.checked(means), *points[0])
    t = engine.spectra(data, Prepared.checked(means))

    def evaluate(part: slice) -> RealArray:
        table = evaluate_plane(t[part].reshape(-1, t.shape[2]), points)
        return np.moveaxis(table.reshape(-1, t.shape[1], len(points)), 2, 0)

    tables = map_rows(evaluate, len(t), max(1, _CACHE_ENTRIES // t[0].size))
    return scales * np.concatenate(tables, axis=1)
