"""Choice among candidates by held-out data, and unbiased held-out figures of the choice.

The searches of scikit-learn need folds that hold out every sample once, which small classes and
groups do not allow: a class of one matrix is never held out.

The score of the best candidate is too high. So the held-out figures of a fold are those of a
candidate that is chosen, and calibrated, without the fold. To leave out the scores of the fold is
not enough: the models of the other folds were trained on its labels, and a candidate that profits
from chance similarities of two matrices profits twice, when either is held out. So the choice uses
models trained neither on the fold nor on the matrices that score them: those of `nest_folds`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.folds import Fold, Folds, held_out_rows
from divlearn.fitting.progress import track
from divlearn.threads import side_by_side

_T = TypeVar("_T")
# Decisions and rows of every fold to the shares of rows in a score; see `HeldOut`.
Criterion = Callable[[Sequence[RealArray], Sequence[Indices]], RealArray]
_BLOCKS = 4  # of folds; a nest has a fold for each pair of blocks


class Nest(NamedTuple):
    """Inner folds, see `nest_folds`, and for every outer fold those that choose without it."""

    folds: list[Fold]
    choosing: list[list[tuple[int, Indices]]]  # their numbers, and positions in held-out parts


def average_held_out(
    parts: Sequence[RealArray], folds: Folds, n_matrices: int
) -> tuple[Indices, RealArray]:
    """Held-out rows of all folds, ascending, and the mean over folds of their values."""
    total, count = np.zeros((n_matrices, *parts[0].shape[1:])), np.zeros(n_matrices)
    for (_, held), values in zip(folds, parts, strict=True):
        total[held] += values
        count[held] += 1
    rows = np.flatnonzero(count)
    return rows, (total[rows].T / count[rows]).T


def mean_with_error(values: RealArray) -> tuple[float, float]:
    """Mean of independent values, such as paired differences, and its standard error."""
    if len(values) < 2:
        return float(values.mean()), np.inf
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def nest_folds(folds: Folds, codes: Indices) -> Nest:
    """Make inner folds, by which a choice for an outer fold does not use its labels.

    There is one for each pair of blocks of folds; it trains on neither block, and holds out both.
    An outer fold uses those of its block, at positions outside the block. No inner fold is made
    that would not train on all classes.
    """
    blocks = [np.arange(len(folds))[start::_BLOCKS] for start in range(min(_BLOCKS, len(folds)))]
    held = [np.unique(np.concatenate([folds[k][1] for k in block])) for block in blocks]
    trains = [_intersection([folds[k][0] for k in block], len(codes)) for block in blocks]
    nest = Nest([], [[] for _ in folds])
    for b in range(len(blocks)):
        for c in range(b):
            train = np.intersect1d(trains[b], trains[c])
            if len(np.unique(codes[train])) < len(np.unique(codes)):
                continue
            test = np.union1d(held[b], held[c])
            for block in (b, c):
                outside = np.flatnonzero(~np.isin(test, held[block]))
                for k in blocks[block] if len(outside) else ():
                    nest.choosing[k].append((len(nest.folds), outside))
            nest.folds.append((train, test))
    return nest


def _intersection(trains: Sequence[Indices], n_matrices: int) -> Indices:
    counts = np.bincount(np.concatenate(trains), minlength=n_matrices)
    return np.flatnonzero(counts == len(trains))


class HeldOut(Generic[_T]):
    """Decisions of candidates on held-out data, each computed once, and the best candidate.

    Parameters
    ----------
    decide : callable, (candidate, number of a fold) to its decisions on the held-out part
        An array with one row for each matrix. Folds of the nest come after the others.
    criterion : callable, (decisions, rows) to the shares of rows in a score
        The score is the sum of shares, the higher the better. Decisions and rows are lists, with an
        item for each fold; shares are in their order.
    folds : list of Fold
    nest : Nest, from `nest_folds`
    nested : bool
        Whether the choice without a fold uses the nest, or the other folds. The latter is quicker,
        and hardly biased if candidates learn about the same from a single matrix.
    margin : float
        Standard errors by which the best candidate must exceed the first.
    n_jobs : int, threads.
    """

    def __init__(
        self,
        decide: Callable[[_T, int], RealArray],
        criterion: Criterion,
        folds: Folds,
        nest: Nest,
        *,
        nested: bool,
        margin: float = 0.0,
        n_jobs: int = 1,
    ) -> None:
        self.folds, self._decide, self._criterion = folds, decide, criterion
        self._nest, self._nested = nest, nested
        self._margin, self._n_jobs = margin, n_jobs
        self._decisions: dict[tuple[_T, int], RealArray] = {}
        self._shares: dict[_T, RealArray] = {}
        self._scores: dict[tuple[_T, int | None], float] = {}

    def compute(self, candidates: Sequence[_T], numbers: Iterable[int]) -> None:
        """Compute decisions of candidates on folds."""
        # Threads begin with different folds: the first on a fold prepares it for the others.
        keys = dict.fromkeys(product(candidates, numbers))
        missing = [key for key in keys if key not in self._decisions]
        if not missing:
            return
        results = side_by_side([partial(self._decide, *key) for key in missing], self._n_jobs)
        for key, decisions in zip(track(missing, "candidates"), results, strict=True):
            self._decisions[key] = decisions

    def decisions(self, candidates: Sequence[_T]) -> list[RealArray]:
        """Return decisions on every fold, of one candidate for each."""
        for number, candidate in enumerate(candidates):
            self.compute([candidate], [number])
        return [self._decisions[candidate, k] for k, candidate in enumerate(candidates)]

    def average(self, candidates: Sequence[_T], n_matrices: int) -> tuple[Indices, RealArray]:
        """Average decisions of one candidate for each fold; see `average_held_out`."""
        return average_held_out(self.decisions(candidates), self.folds, n_matrices)

    def shares(self, candidate: _T) -> RealArray:
        """Return the share of every held-out row in the score, fold by fold."""
        if candidate not in self._shares:
            held = [held for _, held in self.folds]
            self._shares[candidate] = self._criterion(self.decisions([candidate] * len(held)), held)
        return self._shares[candidate]

    def score(self, candidate: _T, without: int | None = None) -> float:
        """Score a candidate on all folds, or without a fold."""
        if (candidate, without) not in self._scores:
            if self._nested and without is not None:
                shares = self._criterion(*self.without(candidate, without))
            else:
                shares = self.shares(candidate)[self._outside(without)]
            # Rounded, so that equal scores tie whatever the order of summation; NaN loses.
            total = round(float(shares.sum()), 12)
            self._scores[candidate, without] = -np.inf if np.isnan(total) else total
        return self._scores[candidate, without]

    def _outside(self, fold: int | None) -> NDArray[np.bool_]:
        rows = held_out_rows(self.folds)
        return ~np.isin(rows, [] if fold is None else self.folds[fold][1])

    def without(self, candidate: _T, fold: int) -> tuple[list[RealArray], list[Indices]]:
        """Return decisions on matrices outside a fold by models of the nest, and their rows."""
        n, decisions, rows = len(self.folds), [], []
        self.compute([candidate], [n + number for number, _ in self._nest.choosing[fold]])
        for number, outside in self._nest.choosing[fold]:
            decisions.append(self._decisions[candidate, n + number][outside])
            rows.append(self._nest.folds[number][1][outside])
        return decisions, rows

    def best(
        self,
        candidates: Sequence[_T],
        refine: Callable[[_T], Sequence[_T]],
        without: int | None = None,
    ) -> _T:
        """Return the first candidate of the highest score, or the best of its refinements.

        Return the candidate in the middle if none can be scored without a fold.
        """
        numbers: Sequence[int] = range(len(self.folds))
        if without is not None and self._nested:
            numbers = [len(self.folds) + number for number, _ in self._nest.choosing[without]]
        if without is not None and len(numbers) < (1 if self._nested else 2):
            return candidates[len(candidates) // 2]

        def first_best(tried: Sequence[_T]) -> _T:
            self.compute(tried, numbers)
            return max(tried, key=lambda candidate: self.score(candidate, without))

        best = first_best(candidates)
        if self._margin:
            gains = self.shares(best) - self.shares(candidates[0])
            gain, error = mean_with_error(gains[self._outside(without)])
            if not gain > self._margin * error:
                return candidates[0]
        return first_best([best, *refine(best)])
