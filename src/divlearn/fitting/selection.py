"""Choice among candidates by held-out data, and honest figures for what was chosen.

The searches of scikit-learn need folds that hold out every sample once, which small classes and
groups do not allow: a class of one matrix is never held out.

A score that chose a candidate is too high. So held-out figures of a fold belong to the candidate
that is chosen, and calibrated, without the fold. It is not enough to leave out the scores of the
fold: the models of the other folds were trained on its labels, and a candidate that profits from
chance similarities of two matrices profits twice, when either is held out. This needs models that
have seen neither the fold nor what they are judged by: those of `nest_folds`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.folds import Fold, Folds
from divlearn.fitting.progress import track
from divlearn.threads import side_by_side

_T = TypeVar("_T")
Nest = tuple[list[Fold], list[list[tuple[int, Indices]]]]  # see `nest_folds`
_BLOCKS = 4  # of folds; a nest has a model for each pair of blocks


def average_held_out(
    parts: Sequence[RealArray], folds: Folds, n_matrices: int
) -> tuple[Indices, RealArray]:
    """Rows that some fold holds out, ascending, and the mean of what folds say of them."""
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
    """Make folds that choose for every fold without its labels.

    There is one for each pair of blocks of folds; it trains on neither block. Returned are these,
    and for every outer fold their numbers, with the positions in their held-out parts that are
    outside the block of the outer fold. Empty where no inner fold trains on all classes.
    """
    blocks = [np.arange(len(folds))[start::_BLOCKS] for start in range(min(_BLOCKS, len(folds)))]
    held = [np.unique(np.concatenate([folds[k][1] for k in block])) for block in blocks]
    seen = [_seen_by_all([folds[k][0] for k in block], codes) for block in blocks]
    inner: list[Fold] = []
    judged: list[list[tuple[int, Indices]]] = [[] for _ in folds]
    for b in range(len(blocks)):
        for c in range(b):
            train = np.intersect1d(seen[b], seen[c])
            if len(np.unique(codes[train])) < len(np.unique(codes)):
                continue
            both = np.union1d(held[b], held[c])
            for block in (b, c):
                outside = np.flatnonzero(~np.isin(both, held[block]))
                for k in blocks[block] if len(outside) else ():
                    judged[k].append((len(inner), outside))
            inner.append((train, both))
    return inner, judged


def _seen_by_all(trains: Sequence[Indices], codes: Indices) -> Indices:
    counts = np.bincount(np.concatenate(trains), minlength=len(codes))
    return np.flatnonzero(counts == len(trains))


class HeldOut(Generic[_T]):
    """Decisions of candidates on held-out data, each computed once, and the best candidate.

    Parameters
    ----------
    decide : callable, (candidate, number of a fold) to its decisions on the held-out part
        An array with one row for each matrix. Folds of the nest come after the others.
    judge : callable, (decisions, rows) to shares in a score, the higher the better, which is their
        sum. Decisions and rows are lists, with an item for each fold; shares are in their order.
    folds : list of Fold
    nest : inner folds and what they judge, from `nest_folds`
    nested : bool
        Whether the choice without a fold is made on the nest, or on the other folds. The latter is
        quicker, and as honest where candidates hardly differ in what they learn from one matrix.
    margin : float
        By how many standard errors the best must be better than the first candidate.
    n_jobs : int, threads.
    """

    def __init__(
        self,
        decide: Callable[[_T, int], RealArray],
        judge: Callable[[Sequence[RealArray], Sequence[Indices]], RealArray],
        folds: Folds,
        nest: Nest,
        *,
        nested: bool,
        margin: float = 0.0,
        n_jobs: int = 1,
    ) -> None:
        self.folds, self._decide, self._judge = folds, decide, judge
        (self._inner, self._judged), self._nested = nest, nested
        self._margin, self._n_jobs = margin, n_jobs
        self._known: dict[tuple[_T, int], RealArray] = {}
        self._shares: dict[_T, RealArray] = {}
        self._scores: dict[tuple[_T, int | None], float] = {}

    def compute(self, candidates: Sequence[_T], numbers: Iterable[int]) -> None:
        """Compute decisions of candidates on folds."""
        # Threads begin with different folds, since the first on a fold prepares it for the others.
        wanted = list(product(candidates, numbers))
        wanted = [key for key in dict.fromkeys(wanted) if key not in self._known]
        if not wanted:
            return
        found = side_by_side([partial(self._decide, *key) for key in wanted], self._n_jobs)
        for key, decisions in zip(track(wanted, "candidates"), found, strict=True):
            self._known[key] = decisions

    def decisions(self, candidates: Sequence[_T]) -> list[RealArray]:
        """Return decisions on every fold, of one candidate for each."""
        for number, one in enumerate(candidates):
            self.compute([one], [number])
        return [self._known[one, number] for number, one in enumerate(candidates)]

    def average(self, candidates: Sequence[_T], n_matrices: int) -> tuple[Indices, RealArray]:
        """Average decisions of one candidate for each fold; see `average_held_out`."""
        return average_held_out(self.decisions(candidates), self.folds, n_matrices)

    def shares(self, candidate: _T) -> RealArray:
        """Return the share of every held-out row in the score, fold by fold."""
        if candidate not in self._shares:
            held = [held for _, held in self.folds]
            self._shares[candidate] = self._judge(self.decisions([candidate] * len(held)), held)
        return self._shares[candidate]

    def score(self, candidate: _T, without: int | None = None) -> float:
        """Judge a candidate by all folds, or without a fold."""
        if (candidate, without) not in self._scores:
            if self._nested and without is not None:
                shares = self._judge(*self.without(candidate, without))
            else:
                shares = self.shares(candidate)[self._outside(without)]
            self._scores[candidate, without] = _rounded(shares)
        return self._scores[candidate, without]

    def _outside(self, fold: int | None) -> NDArray[np.bool_]:
        rows = np.concatenate([held for _, held in self.folds])
        return ~np.isin(rows, [] if fold is None else self.folds[fold][1])

    def without(self, candidate: _T, fold: int) -> tuple[list[RealArray], list[Indices]]:
        """Return decisions on matrices outside a fold by models of the nest, and their rows."""
        n, decisions, rows = len(self.folds), [], []
        self.compute([candidate], [n + number for number, _ in self._judged[fold]])
        for number, outside in self._judged[fold]:
            decisions.append(self._known[candidate, n + number][outside])
            rows.append(self._inner[number][1][outside])
        return decisions, rows

    def best(
        self,
        candidates: Sequence[_T],
        refine: Callable[[_T], Sequence[_T]],
        without: int | None = None,
    ) -> _T:
        """Return the first candidate of the highest score, then the best of its refinements.

        Where nothing can be judged without a fold, it is the candidate in the middle.
        """
        numbers: Sequence[int] = range(len(self.folds))
        if without is not None and self._nested:
            numbers = [len(self.folds) + number for number, _ in self._judged[without]]
        if without is not None and len(numbers) < (1 if self._nested else 2):
            return candidates[len(candidates) // 2]

        def first_best(tried: Sequence[_T]) -> _T:
            self.compute(tried, numbers)
            return max(tried, key=lambda one: self.score(one, without))

        best = first_best(candidates)
        if self._margin and not self._is_better(best, candidates[0], without):
            return candidates[0]
        return first_best([best, *refine(best)])

    def _is_better(self, one: _T, other: _T, without: int | None) -> bool:
        gains = (self.shares(one) - self.shares(other))[self._outside(without)]
        gain, error = mean_with_error(gains)
        return gain > self._margin * error


def _rounded(shares: RealArray) -> float:
    """Add up shares, such that equal scores are equal whatever the order of rounding errors."""
    score = round(float(shares.sum()), 12)
    return -np.inf if np.isnan(score) else score  # what cannot be judged loses
