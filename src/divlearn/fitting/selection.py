"""Choice among candidates by held-out data, and honest figures for what was chosen.

The searches of scikit-learn need folds that hold out every sample once, which small classes and
groups do not allow: a class of one matrix is never held out.

A score that chose a candidate is too high. So held-out figures of a fold belong to the candidate
that is chosen without the fold. It is not enough to leave out the scores of the fold: the models of
the other folds were trained on its labels, and a candidate that profits from chance similarities of
two matrices profits twice, when either is held out. Kernel machines need models that have seen
neither the fold nor what they are judged by: those of a `Nest`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.calibration import calibrate_by
from divlearn.fitting.folds import Fold, Folds
from divlearn.fitting.interrupts import stoppable

_T = TypeVar("_T")
_BLOCKS = 4  # of folds; a nest has a model for each pair of blocks


def choose(candidates: Iterable[_T], score: Callable[[_T], float]) -> tuple[int, list[float]]:
    """Index of the first candidate of the highest score, and all scores before an interrupt."""
    scores: list[float] = []
    with stoppable(lambda: scores):
        for candidate in candidates:
            scores.append(score(candidate))
    # What cannot be judged loses, unless nothing can be.
    return int(np.argmax(np.nan_to_num(scores, nan=-np.inf))), scores


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


class Nest(NamedTuple):
    """Folds within folds.

    Attributes
    ----------
    folds : list of Fold, one for each pair of blocks of folds; it trains on neither block.
    judged : list, for every outer fold
        Numbers of inner folds, and the positions in their held-out parts that are outside the block
        of the outer fold. Empty where no inner fold trains on all classes.
    """

    folds: list[Fold]
    judged: list[list[tuple[int, Indices]]]


def nest_folds(folds: Folds, codes: Indices) -> Nest:
    """Make folds that choose for every fold without its labels."""
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
    return Nest(inner, judged)


def _seen_by_all(trains: Sequence[Indices], codes: Indices) -> Indices:
    counts = np.bincount(np.concatenate(trains), minlength=len(codes))
    return np.flatnonzero(counts == len(trains))


class HeldOut(Generic[_T]):
    """What candidates say of held-out data, each computed once, and the best of them.

    Parameters
    ----------
    decide : callable, (candidate, number of a fold) to what the candidate, trained on the fold,
        says of its held-out part, one row for each matrix. Folds of the nest come after the others.
    judge : callable, (parts, rows) to shares in a score, the higher the better, which is their sum
        Parts are such arrays, rows are what they are for; shares are in their order.
    folds : list of Fold
    nest : Nest or None
        Where the choice without a fold is made; None to make it on the other folds.
    n_jobs : int, threads.
    """

    def __init__(
        self,
        decide: Callable[[_T, int], RealArray],
        judge: Callable[[Sequence[RealArray], Sequence[Indices]], RealArray],
        folds: Folds,
        nest: Nest | None = None,
        n_jobs: int = 1,
    ) -> None:
        self.folds, self._decide, self._judge, self._nest = folds, decide, judge, nest
        self._n_jobs = n_jobs
        self._known: dict[tuple[_T, int], RealArray] = {}
        self._shares: dict[_T, RealArray] = {}
        self._inner_scores: dict[tuple[_T, int], float] = {}

    def compute(self, candidates: Sequence[_T], numbers: Iterable[int] | None = None) -> None:
        """Compute what candidates say of folds, by default of all and of the nest."""
        n_inner = 0 if self._nest is None else len(self._nest.folds)
        numbers = range(len(self.folds) + n_inner) if numbers is None else numbers
        wanted = [(one, number) for number in numbers for one in candidates]
        wanted = [key for key in dict.fromkeys(wanted) if key not in self._known]
        if self._n_jobs == 1 or len(wanted) < 2:
            found = [self._decide(*key) for key in wanted]
        else:
            found = Parallel(n_jobs=self._n_jobs, prefer="threads")(
                delayed(self._decide)(*key) for key in wanted
            )
        self._known.update(zip(wanted, found, strict=True))

    def parts(self, candidates: Sequence[_T]) -> list[RealArray]:
        """Return what a candidate says of every fold, or one for each fold of its own."""
        for number, one in enumerate(candidates):
            self.compute([one], [number])
        return [self._known[one, number] for number, one in enumerate(candidates)]

    def score(self, candidate: _T, without: int | None = None) -> float:
        """Judge a candidate by all folds, or without a fold."""
        if without is not None and self._nest is not None:
            return self._inner_score(candidate, without)
        if candidate not in self._shares:
            held = [held for _, held in self.folds]
            self._shares[candidate] = self._judge(self.parts([candidate] * len(held)), held)
        shares = self._shares[candidate]
        if without is not None:
            rows = np.concatenate([held for _, held in self.folds])
            shares = shares[~np.isin(rows, self.folds[without][1])]
        return _rounded(shares)

    def _inner_score(self, candidate: _T, without: int) -> float:
        if (candidate, without) not in self._inner_scores:
            shares = self._judge(*self.parts_without(candidate, without))
            self._inner_scores[candidate, without] = _rounded(shares)
        return self._inner_scores[candidate, without]

    def parts_without(self, candidate: _T, fold: int) -> tuple[list[RealArray], list[Indices]]:
        """Return what a candidate says of matrices outside a fold, and which these are."""
        n, parts, rows = len(self.folds), [], []
        if self._nest is None:
            for number in range(n):
                outside = np.flatnonzero(~np.isin(self.folds[number][1], self.folds[fold][1]))
                self.compute([candidate], [number])
                parts.append(self._known[candidate, number][outside])
                rows.append(self.folds[number][1][outside])
            return parts, rows
        for number, outside in self._nest.judged[fold]:
            self.compute([candidate], [n + number])
            parts.append(self._known[candidate, n + number][outside])
            rows.append(self._nest.folds[number][1][outside])
        return parts, rows

    def best(
        self,
        candidates: Sequence[_T],
        refine: Callable[[_T], Sequence[_T]],
        without: int | None = None,
    ) -> _T:
        """Return the first candidate of the highest score, then the best of its refinements.

        Where nothing can be judged without a fold, it is the candidate in the middle.
        """
        if without is not None and not self._can_judge(without):
            return candidates[len(candidates) // 2]
        best = max(candidates, key=lambda one: self.score(one, without))
        return max([best, *refine(best)], key=lambda one: self.score(one, without))

    def _can_judge(self, without: int) -> bool:
        return bool(self._nest.judged[without]) if self._nest else len(self.folds) > 1

    def best_without_each(
        self, candidates: Sequence[_T], refine: Callable[[_T], Sequence[_T]]
    ) -> list[_T]:
        """Return for every fold the candidate that is chosen without it."""
        return [self.best(candidates, refine, number) for number in range(len(self.folds))]


def _rounded(shares: RealArray) -> float:
    """Add up shares, such that equal scores are equal whatever the order of rounding errors."""
    return round(float(shares.sum()), 12)


def calibrated_without_each(
    held_out: HeldOut[_T], chosen: Sequence[_T], codes: Indices, weights: RealArray
) -> tuple[Indices, RealArray]:
    """Probabilities of every fold by a candidate of its own, calibrated outside the fold.

    What candidates say are scores, as `calibrate` takes them. Returns the rows that some fold holds
    out, and their probabilities.
    """
    found = []
    for number, (one, own) in enumerate(zip(chosen, held_out.parts(chosen), strict=True)):
        parts, rows = held_out.parts_without(one, number)
        others = np.concatenate([codes[:0], *rows])
        scores = np.concatenate([own[:0], *parts])
        found.append(calibrate_by(own, scores, codes[others], weights[others]))
    return average_held_out(found, held_out.folds, len(codes))
