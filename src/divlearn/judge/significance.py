"""Significance of accuracies: of classifiers against chance, and against each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import convolve
from scipy.special import stdtr
from scipy.stats import binom, entropy

from divlearn.arrays import Indices, RealArray

SIGNIFICANT = 0.05  # p-values below it count as significant in summaries

_N_FLIPS = 9999  # random flips of the signs of all units
_FLIPS_PER_BLOCK = 1000
_ROUNDING = 1e-9  # sums that differ by less tie
# Held-out predictions are not independent: matrix i is predicted from the label of j, and j from
# that of i. Two matrices that are nearest to each other are both right or both wrong. Without
# signal this at most doubles the variance of an accuracy, to first order in the labels.
_SHARED_LABELS = 2.0

_Groups = Indices | None


def balanced_weights(codes: Indices) -> RealArray:
    """Weights of matrices that give every class the same total weight; their mean is 1."""
    counts = np.bincount(codes)
    weights: RealArray = len(codes) / (np.count_nonzero(counts) * counts[codes])
    return weights


def p_above_chance(flags: NDArray[np.bool_], codes: Indices, groups: _Groups = None) -> float:
    """One-sided p-value of a balanced accuracy above that of predictions without signal."""
    # Predictions that are independent of the classes have the balanced accuracy 1 / n_classes,
    # however often they name each class. Their accuracy is not fixed: where one class has 80 % of
    # the matrices, it is 80 % for one rule and 50 % for another.
    classes, codes = np.unique(codes, return_inverse=True)
    units = np.arange(len(codes)) if groups is None else groups
    excess = float(np.mean(balanced_weights(codes) * flags)) - 1 / len(classes)
    error = np.sqrt(_SHARED_LABELS) * standard_error(flags, units, codes)
    # Groups of unequal size count as fewer: one over the mean share of a matrix's group (Kish).
    n_effective = np.bincount(codes) / np.bincount(codes, _shares(codes, units))
    degrees = max(float(n_effective.min()) - 1, 1)
    is_constant, is_above = error <= _ROUNDING, excess > _ROUNDING
    p = float(not is_above) if is_constant else float(stdtr(degrees, -excess / error))
    return max(p, least_above_chance(codes, groups)) if is_above else p


def least_above_chance(codes: Indices, groups: _Groups = None) -> float:
    """Probability of guessing the classes of all groups, which a t-test of few groups undercuts."""
    n_units = len(codes) if groups is None else len(np.unique(groups))
    return float(np.exp(-n_units * entropy(np.unique(codes, return_counts=True)[1])))


def least_of_flips(n_units: int) -> float:
    """Return the smallest p-value of sign-flip tests, in which all units agree."""
    return 2 * 0.5**n_units


def name_units(groups: _Groups, rows: Indices) -> str:
    """Name the independent units; a matrix that is held out several times is a group of its own."""
    single = groups is None or len(np.unique(groups)) == len(np.unique(rows))
    return "matrices" if single else "groups"


def say_too_few(least: float, units: str) -> str:
    """Say that no accuracy can be significant, if the least possible p-value is not."""
    if least < SIGNIFICANT:
        return ""
    return f" With so few {units} p is {min(least, 1.0):.2g} or more; pass more of them."


def say_too_few_flips(groups: _Groups, rows: Indices) -> str:
    """Say that no difference can be significant by sign-flip tests, if units are too few."""
    n_units = len(np.unique(rows if groups is None else groups))
    return say_too_few(least_of_flips(n_units), name_units(groups, rows))


def standard_error(
    values: RealArray | NDArray[np.bool_], groups: _Groups = None, codes: Indices | None = None
) -> float:
    """Of a mean over matrices, or over classes; values of one group may be dependent."""
    codes = np.zeros(len(values), dtype=np.intp) if codes is None else codes
    centered = values - (np.bincount(codes, values) / np.maximum(np.bincount(codes), 1))[codes]
    if groups is not None:
        # A group draws the mean towards itself by its share (Bell and McCaffrey 2002).
        shares = _shares(codes, groups)
        centered = centered / np.sqrt(np.where(shares < 1, 1 - shares, 1))
    sums = _sum_groups(balanced_weights(codes) * centered, groups)
    return float(np.sqrt(sums @ sums)) / len(values)


def _shares(codes: Indices, groups: Indices) -> RealArray:
    """Share of the group of every matrix in its class."""
    pairs = np.unique(codes * (int(groups.max()) + 1) + groups, return_inverse=True)[1]
    shares: RealArray = np.bincount(pairs)[pairs] / np.bincount(codes)[codes]
    return shares


def _sum_groups(values: RealArray, groups: _Groups) -> RealArray:
    return values if groups is None else np.bincount(groups, values).astype(float)


@dataclass(frozen=True)
class PairedComparison:
    """Paired comparison of two classifiers on the same matrices.

    Attributes
    ----------
    first_only, second_only : int, matrices that only the first (the second) one gets right.
    difference : float, accuracy of the first minus accuracy of the second.
    standard_error : float, of the paired difference.
    p_value : float, of the exact two-sided sign-flip test over matrices (McNemar's test), or over
        groups. `Evaluation.table` adjusts it for the comparison of all pairs.
    """

    first_only: int
    second_only: int
    difference: float
    standard_error: float
    p_value: float


def compare_paired(
    first: NDArray[np.bool_], second: NDArray[np.bool_], groups: _Groups = None
) -> PairedComparison:
    """Compare two classifiers, named in advance, by flags of right predictions, (n_matrices,)."""
    gains = first.astype(float) - second
    return PairedComparison(
        int((first & ~second).sum()),
        int((second & ~first).sum()),
        float(gains.mean()),
        standard_error(gains, groups),
        _flip_signs(_sum_groups(gains, groups).astype(int)),
    )


def compare_all(
    correct: Mapping[str, NDArray[np.bool_]],
    groups: _Groups = None,
    weights: RealArray | float = 1.0,
) -> dict[frozenset[str], float]:
    """Compute adjusted p-values of no difference between each two classifiers, by their names."""
    pairs = list(combinations(correct, 2))
    gains = [weights * (correct[first].astype(float) - correct[second]) for first, second in pairs]
    p_values = compare_jointly(np.array(gains), groups) if pairs else np.empty(0)
    return {frozenset(pair): float(p) for pair, p in zip(pairs, p_values, strict=True)}


def compare_jointly(gains: RealArray, groups: _Groups = None) -> RealArray:
    """Compute p-values of no gain on average, adjusted for all rows (n_rows, n_matrices) of gains.

    The max-T method of Westfall and Young. The p-value of a row is the share of all flips of the
    signs of matrices (groups) in which the gain of some row is as far from zero as the gain of this
    row, each in units of the norm of its row. If no row has a gain, the probability that any is
    significant is then at most the level.
    """
    sums = np.stack([_sum_groups(row, groups) for row in gains], axis=1)
    if len(gains) == 1 and (sums == np.rint(sums)).all():
        return np.array([_flip_signs(sums[:, 0].astype(int))])
    sums = sums[sums.any(axis=1)]
    sizes = np.sqrt((sums**2).sum(axis=0))
    sums /= np.where(sizes > 0, sizes, 1.0)
    observed, as_far = np.abs(sums.sum(axis=0)), np.ones(len(gains))
    random = np.random.RandomState(0)
    for start in range(0, _N_FLIPS, _FLIPS_PER_BLOCK):
        shape = min(_FLIPS_PER_BLOCK, _N_FLIPS - start), len(sums)
        farthest = np.abs((2.0 * random.randint(0, 2, shape) - 1) @ sums).max(axis=1)
        as_far += (farthest[:, None] >= observed - _ROUNDING).sum(axis=0)
    return as_far / (_N_FLIPS + 1)


def _flip_signs(gains: Indices) -> float:
    """Probability of a sum at least as far from zero as that of the gains, under random signs."""
    # The sum is its positive minus its negative part; either part is a sum of binomial variables,
    # one for each distinct size of a gain, times this size.
    sizes, counts = np.unique(np.abs(gains[gains != 0]), return_counts=True)
    total = int(sizes @ counts)
    probabilities = np.ones(1)  # of each value of the positive part
    for size, count in zip(sizes, counts, strict=True):
        term = np.zeros(size * count + 1)
        term[::size] = binom.pmf(np.arange(count + 1), count, 0.5)
        probabilities = convolve(probabilities, term)
    positive_part = np.arange(total + 1)
    as_far = np.abs(2 * positive_part - total) >= abs(int(gains.sum()))
    # Fourier transforms have errors of rounding, which may be negative.
    least = least_of_flips(int(counts.sum()))
    return min(1.0, max(least, float(probabilities[as_far].sum())))
