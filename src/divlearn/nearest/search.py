"""Choice of the divergence of class means by held-out data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax

from divlearn.arrays import Indices, RealArray
from divlearn.checks import check_finite
from divlearn.divergence import LOG_EUCLIDEAN, ABDivergence, Divergence
from divlearn.engines import Engine, Prepared
from divlearn.fitting.calibration import SCORES, fit_temperature
from divlearn.fitting.folds import Fold
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.selection import HeldOut
from divlearn.fitting.training import (
    Chosen,
    Grid,
    Judge,
    Training,
    choose,
    judge_accuracy,
    shares_of,
)
from divlearn.geometry import geodesic
from divlearn.nearest.class_means import average, recentering
from divlearn.nearest.filtering import learn_filter
from divlearn.nearest.plane import CANDIDATES as MEMBERS
from divlearn.nearest.plane import evaluate_plane

CANDIDATES: list[Divergence] = [*MEMBERS, LOG_EUCLIDEAN]
_CERTAIN = 2.0  # standard errors of a gain over the first candidate that counts
_TABLE_ENTRIES = 1 << 22  # of spectra held at a time


class MeanSearch:
    """Choose a divergence by held-out distances to class means; candidates are their numbers."""

    def __init__(self, training: Training, rough: Engine, *, filtering: bool) -> None:
        self._training, self._rough, self._filtering = training, rough, filtering
        self._known: dict[tuple[int, int], RealArray] = {}
        self._views: dict[int, _View] = {}
        self._units: dict[int, float] = {}

    def choose(self) -> tuple[Chosen[int], dict[str, Any]]:
        """Return the choice, and a table of all candidates."""
        training = self._training
        held_out = HeldOut(
            self._decide,
            judge_brier(training),
            training.folds,
            training.nest,
            nested=False,
            margin=_CERTAIN,
        )
        grid = Grid(range(len(CANDIDATES)))
        chosen = choose(training, held_out, grid, grid, SCORES)
        n_folds, names = len(training.folds), []
        right = judge_accuracy(training, SCORES)
        rows, accuracies, scores = [held for _, held in training.folds], [], []
        for place, one in enumerate(CANDIDATES):
            names.append(one.name)
            accuracies.append(right(held_out.decisions([place] * n_folds), rows).sum())
            scores.append(-held_out.score(place))
        return chosen, {
            "divergence": np.array(names),
            "accuracy": np.array(accuracies),
            "brier_score": np.array(scores),
        }

    def unit(self, candidate: int) -> float:
        """Typical divergence to the nearest class, in which temperatures are near one."""
        if candidate not in self._units:
            numbers = range(len(self._training.folds))
            tables = [self._table(candidate, number) for number in numbers]
            self._units[candidate] = typical(np.concatenate(tables))
        return self._units[candidate]

    def _decide(self, candidate: int, number: int) -> RealArray:
        return -self._table(candidate, number) / self.unit(candidate)

    def _table(self, candidate: int, number: int) -> RealArray:
        """Divergences (n_held, n_classes) of what a part holds out to the means of the rest."""
        if (candidate, number) not in self._known:
            fold = number < len(self._training.folds)  # all candidates are needed there
            some = range(len(CANDIDATES)) if fold else [candidate]
            view = self._view(number)
            tables = _held_out_tables(view, self._training.parts[number], list(some), self._rough)
            self._known |= {(one, number): table for one, table in zip(some, tables, strict=True)}
        return self._known[candidate, number]

    def _view(self, number: int) -> "_View":
        """Prepare matrices; where they are filtered, by a filter that was learned without each."""
        training, key = self._training, number if self._filtering else -1
        if key not in self._views:
            data = training.data
            if self._filtering:
                known = learn_filter(data, training.parts[number][0], training.engine)
                data = replace(data, matrices=known.apply(data.matrices))
            self._views[key] = _View(data, training.engine)
        return self._views[key]


class _View:
    """Matrices, and what means of parts of them are made of."""

    def __init__(self, data: Labelled, engine: Engine) -> None:
        self.data, self.recenter = data, recentering(data, engine)
        self.inverses = np.linalg.inv(data.matrices)
        self.vectors = LOG_EUCLIDEAN.embed(data.matrices)


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
    view: _View, fold: Fold, candidates: Sequence[int], engine: Engine
) -> list[RealArray]:
    """Divergences (n_held, n_classes) to the means of the training part, for each candidate."""
    data, (train, held) = view.data, fold
    codes, weights = data.codes[train], data.weights[train]
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
            gaps = view.vectors[held][:, None] - average(view.vectors[train], codes, weights)
            tables[place] = (gaps**2).sum(axis=2)
    largest = float(tables.max())
    check_finite(largest, "a divergence", "to the mean of a class", or_infinite=True)
    return list(np.minimum(tables, 1e100))


def find_slope(divergence: Divergence) -> float | None:
    """Return beta - alpha, which tells the mean; None for what is not in the family."""
    return divergence.beta - divergence.alpha if isinstance(divergence, ABDivergence) else None


def _part_means(view: _View, train: Indices, slopes: Sequence[float]) -> dict[float, RealArray]:
    """Approximate class means of a part, for values of beta - alpha."""
    data = view.data
    codes, weights = data.codes[train], data.weights[train]
    arithmetic = average(data.matrices[train], codes, weights)
    means = {}
    between = [one for one in slopes if abs(one) < 1]
    if between:
        centers = view.recenter(train, codes, weights)
        found = geodesic(centers, arithmetic, np.array(between)[:, None])
        means = dict(zip(between, found, strict=True))
    if 1.0 in slopes:
        means[1.0] = arithmetic
    if -1.0 in slopes:
        harmonic = np.linalg.inv(average(view.inverses[train], codes, weights))
        means[-1.0] = 0.5 * (harmonic + harmonic.mT)
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
    spectra = np.ascontiguousarray(t.reshape(-1, t.shape[2]).T)
    return scales * evaluate_plane(spectra, points).reshape(-1, *t.shape[:2])
