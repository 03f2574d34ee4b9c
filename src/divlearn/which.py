"""Which divergence should I use? One call, with labels or without, and how sure the answer is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray
from divlearn.engines import Engine, get_engine
from divlearn.folds import check_groups, count_groups, make_folds
from divlearn.judging import judge_neighbors
from divlearn.likelihood import LikelihoodFit, fit_likelihood, fit_member
from divlearn.maps import NAMED, PlaneMap, check_axis, check_codes
from divlearn.paired import compare_paired, p_above
from divlearn.progress import track
from divlearn.showing import Shown
from divlearn.spd import check_spd

__all__ = ["NamedScore", "WhichDivergence", "which_divergence"]

Point = tuple[float, float]
Flags = NDArray[np.bool_]

_LIKELIHOOD_GRID = np.arange(9) / 4  # each point needs a centre of its own: coarser than for 1-NN
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class NamedScore:
    """A named divergence beside the learned one, on the same matrices.

    Attributes
    ----------
    alpha, beta : float
    score : float, out-of-fold accuracy, or mean log-likelihood per matrix.
    difference : float, score of the learned point minus this score.
    standard_error : float, of the difference; it knows that the matrices are the same.
    p_value : float, that of no difference: exact sign-flip test, over groups where there are some,
        or likelihood-ratio test of two parameters (conservative on the axes; it trusts the family,
        the standard error does not).
    bic_difference : float, BIC of this divergence minus BIC of the learned one, which has two
        parameters more; positive if the learned one is preferred. NaN with labels.
    """

    alpha: float
    beta: float
    score: float
    difference: float
    standard_error: float
    p_value: float
    bic_difference: float = math.nan

    @property
    def beaten(self) -> bool:
        """Whether the learned point is better by more than noise."""
        if math.isnan(self.bic_difference):
            return self.difference > 0 and self.p_value < _SIGNIFICANT
        return self.bic_difference > 0 and self.difference > 2 * self.standard_error


@dataclass(frozen=True, eq=False)
class WhichDivergence(Shown):
    """The answer of `which_divergence`; `summary` says it in words.

    Attributes
    ----------
    criterion : {"accuracy", "likelihood"}
    best : (alpha, beta), the point learned from all matrices.
    score : float, of the learned point: out-of-fold accuracy, where every fold is judged at the
        point chosen without it, or mean log-likelihood per matrix.
    named : dict of NamedScore
    alphas, betas : ndarray, shape (n_alphas,) and (n_betas,), the grid.
    map : ndarray, shape (n_alphas, n_betas), out-of-fold accuracy or mean log-likelihood.
    chosen : tuple of (alpha, beta), the point chosen without each fold; empty without labels.
    chance : float, share of the largest class; NaN without labels.
    n_matrices : int, that were judged.
    correct : ndarray of bool, shape (n_alphas, n_betas, n_matrices), or None without labels.
    message : str, whether all was looked at: less where the user interrupted.
    n_groups : int or None, groups that the matrices came in.
    p_chance : float, that of no divergence being better than the largest class: the smallest of all
        divergences that are compared, times their number. NaN without labels.
    """

    criterion: Literal["accuracy", "likelihood"]
    best: Point
    score: float
    named: dict[str, NamedScore]
    alphas: RealArray
    betas: RealArray
    map: RealArray
    chosen: tuple[Point, ...]
    chance: float
    n_matrices: int
    correct: Flags | None = None
    message: str = ""
    n_groups: int | None = None
    p_chance: float = math.nan

    @property
    def best_named(self) -> str:
        """Name of the named divergence of the highest score, the first of those that tie."""
        return max(self.named, key=lambda name: self.named[name].score)

    def table(self) -> list[dict[str, str | float]]:
        """Rows for the learned point and every named one, the highest score first."""
        learned: dict[str, str | float] = {
            "name": "learned", "alpha": self.best[0], "beta": self.best[1], "score": self.score,
        }  # fmt: skip
        rows = [{"name": name, **vars(row)} for name, row in self.named.items()]
        return sorted([learned, *rows], key=lambda row: -float(row["score"]))

    def summary(self) -> str:
        """Say what to use and how sure that is, in a few sentences."""
        return _say_accuracy(self) if self.criterion == "accuracy" else _say_likelihood(self)


def which_divergence(
    X: ArrayLike, y: ArrayLike | None = None, *, groups: ArrayLike | None = None, cv: int = 5,
    alphas: ArrayLike | None = None, betas: ArrayLike | None = None, engine: str | Engine = "auto",
    random_state: int | np.random.RandomState | None = None,
) -> WhichDivergence:  # fmt: skip
    r"""Which divergence of the (alpha, beta) plane these matrices want.

    With labels, by cross-validated accuracy of the nearest neighbour. The score of the learned
    point is honest: for every fold the point is chosen by leave-one-out accuracy on the other
    folds, and judged on the fold. One pass of spectra serves all points, choices and judgements.

    Without labels, by the likelihood of
    :math:`p(X) = e^{-\kappa D^{(\alpha,\beta)}(X \| C)} / Z`, see `fit_likelihood`: the matrices
    are taken to lie around one centre.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
        SPD matrices.
    y : array-like, shape (n_matrices,), optional
        Labels, at least two classes of at least two matrices each, or of two groups.
    groups : array-like, shape (n_matrices,), optional
        Matrices of one group (patches of an image, trials of a person) come into one fold, and
        are no neighbours of each other: otherwise a divergence that recognises the group looks as
        if it told classes apart. Refused without labels, where nothing is held out.
    cv : int, default=5
        The most folds there can be, stratified and shuffled: no more than there are groups, or
        matrices in the largest class. Not used without labels.
    alphas, betas : array-like, shape (n_alphas,) and (n_betas,), optional
        The grid, ascending and >= 0. From 0 to 2 by default, in steps of 1/8 with labels and of
        1/4 without. Named divergences are looked at whether they lie on it or not.
    engine : str or Engine, default="auto"
    random_state : int, RandomState or None, default=None
        Of the folds.

    Returns
    -------
    WhichDivergence
        Stopped by the user it answers from the matrices judged by then, which are drawn at random,
        or has holes in its map; with nothing to answer from it raises KeyboardInterrupt.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    >>> answer = which_divergence(X, y, random_state=0)
    >>> answer.map.shape, answer.criterion, list(answer.named)[:2]
    ((17, 17), 'accuracy', ['airm', 'stein'])
    >>> print(answer.summary())
    Use ...
    """
    chosen = get_engine(engine)
    matrices = check_spd(X, ndim=3)
    default = _LIKELIHOOD_GRID if y is None else None
    grid = tuple(
        check_axis(default if axis is None else axis, name)
        for axis, name in ((alphas, "alphas"), (betas, "betas"))
    )
    for axis, name in zip(grid, ("alphas", "betas"), strict=True):
        if axis[0] < 0:
            raise ValueError(
                f"{name} starts at {axis[0]:g}, must be >= 0; D^(-a,-b) = D^(b,a), so that the "
                "positive quadrant holds every divergence of the other"
            )
    if y is None:
        if groups is not None:
            raise ValueError(
                "groups must be None without labels: the likelihood holds nothing out; leave out "
                "groups, or pass y"
            )
        return _by_likelihood(matrices, grid[0], grid[1], chosen)
    codes = check_codes(y, len(matrices))
    known = check_groups(groups, len(matrices))
    together = None if known is None else np.unique(known, return_inverse=True)[1]
    folds = _assign_folds(codes, together, cv, random_state)
    return _by_accuracy(matrices, codes, folds, together, grid[0], grid[1], chosen)


# ------------------------------------------------------------------ with labels


def _assign_folds(
    codes: NDArray[np.intp], groups: NDArray[np.intp] | None, cv: int,
    random_state: int | np.random.RandomState | None,
) -> NDArray[np.intp]:  # fmt: skip
    """Draw the fold of every matrix."""
    if isinstance(cv, bool) or not isinstance(cv, int | np.integer):
        raise ValueError(f"cv={cv!r} must be an integer >= 2")
    if groups is not None and count_groups(codes, groups).min() < 2:
        raise ValueError(
            "the smallest class has 1 group, must have >= 2; leave out groups, or drop the class"
        )
    assigned = np.empty(len(codes), dtype=np.intp)
    folds = make_folds(cv, len(codes), codes, groups, random_state=random_state)
    for fold, (_, held) in enumerate(folds):
        assigned[held] = fold
    return assigned


def _by_accuracy(
    matrices: RealArray, codes: NDArray[np.intp], folds: NDArray[np.intp],
    groups: NDArray[np.intp] | None, alphas: RealArray, betas: RealArray, engine: Engine,
) -> WhichDivergence:  # fmt: skip
    grid = [(alpha, beta) for alpha in alphas for beta in betas]
    names = [(known.alpha, known.beta) for known in NAMED.values()]
    n_given, n_folds = len(matrices), int(folds.max()) + 1
    alone = np.arange(n_given) if groups is None else groups
    correct, judged_rows = judge_neighbors(
        matrices, codes, folds, alone, np.array(grid + names), engine
    )
    codes, folds = codes[judged_rows], folds[judged_rows]
    groups = None if groups is None else groups[judged_rows]
    shape = (len(alphas), len(betas))

    def plane(flags: Flags) -> PlaneMap:
        return PlaneMap(alphas, betas, flags[: len(grid)].reshape(*shape, -1))

    out_of_fold = correct[folds, :, np.arange(len(folds))].T  # each judged by the other folds
    learned, points = np.empty(len(folds), dtype=bool), []
    for fold in range(n_folds):
        choice = plane(correct[fold][:, folds != fold])
        points.append(choice.best)
        row, column = choice.index(*choice.best)
        test = folds == fold
        learned[test] = plane(out_of_fold).correct[row, column, test]
    named = {
        name: _compare(NAMED[name].alpha, NAMED[name].beta, learned, flags, groups)
        for name, flags in zip(NAMED, out_of_fold[len(grid) :], strict=True)
    }
    judged = plane(out_of_fold)
    chance = float(np.bincount(codes).max() / len(codes))
    compared = [learned, *out_of_fold[len(grid) :]]
    p_chance = len(compared) * min(p_above(flags, chance, groups) for flags in compared)
    return WhichDivergence(
        "accuracy", plane(correct[-1]).best, float(learned.mean()), named, alphas, betas,
        judged.accuracy, tuple(points), chance, len(codes), judged.correct,
        _say_how_many(len(codes), n_given, "matrices were judged"),
        None if groups is None else len(np.unique(groups)), min(1.0, p_chance),
    )  # fmt: skip


def _compare(
    alpha: float, beta: float, learned: Flags, known: Flags, groups: NDArray[np.intp] | None
) -> NamedScore:
    paired = compare_paired(learned, known, groups)
    return NamedScore(
        alpha, beta, float(known.mean()), paired.difference, paired.standard_error, paired.p_value
    )


def _say_accuracy(answer: WhichDivergence) -> str:
    name = answer.best_named
    top, n = answer.named[name], answer.n_matrices
    if answer.p_chance >= _SIGNIFICANT:
        return (
            f"No divergence tells these classes apart by more than noise: the best named one, "
            f"{name}, is right on {top.score:.1%}, the learned one on {answer.score:.1%} and the "
            f"largest class makes up {answer.chance:.1%} of {n} matrices{_of_groups(answer)} "
            f"(p = {answer.p_chance:.2g})."
        )
    test = "McNemar" if answer.n_groups is None else "sign-flip"
    versus = (
        f"{answer.score:.1%} out of fold against {top.score:.1%} (difference "
        f"{100 * top.difference:+.1f} +- {100 * top.standard_error:.1f} points, {test} "
        f"p = {top.p_value:.2g}{_of_groups(answer)})"
    )
    if top.beaten:
        return (
            f"Use {_format(answer.best)}: points learned inside the training folds beat {name}, "
            f"the best named divergence, by more than noise, {versus}. "
            f"Without each fold the choice was {_list(answer.chosen)}."
        )
    if answer.map.min() == answer.map.max() == top.score:
        return (
            f"Use any: all divergences of the grid have the accuracy {top.score:.1%} on these {n} "
            "matrices, which do not tell them apart."
        )
    others = [other for other, row in answer.named.items() if row.score == top.score]
    return (
        f"Use {' or '.join(others)} ({top.score:.1%}): learning the point of the plane is not "
        f"better by more than noise, {versus}. The whole grid lies between "
        f"{answer.map.min():.1%} and {answer.map.max():.1%}."
    )


def _of_groups(answer: WhichDivergence) -> str:
    return "" if answer.n_groups is None else f" of {answer.n_groups} groups"


# ------------------------------------------------------------------ without labels


def _by_likelihood(
    matrices: RealArray, alphas: RealArray, betas: RealArray, engine: Engine
) -> WhichDivergence:
    fit = fit_likelihood(matrices, engine=engine)
    data = engine.prepare(matrices.astype(np.float64, copy=False))
    per_matrix = fit.log_density(data, engine=engine)
    named = {}
    for name, known in NAMED.items():
        member = fit_member(data, known.alpha, known.beta, init=fit.center, engine=engine)
        gains = per_matrix - member.log_density(data, engine=engine)
        named[name] = _compare_likelihood(member, gains)
    surface = np.full((len(alphas), len(betas)), np.nan)
    center, n_known = fit.center, 0
    try:
        for row, column in track(list(np.ndindex(*surface.shape)), "points of the map"):
            alpha, beta = float(alphas[row]), float(betas[column])
            member = fit_member(data, alpha, beta, init=center, engine=engine)
            surface[row, column], center = member.log_likelihood, member.center
            n_known += 1
    except KeyboardInterrupt:
        pass  # the answer is known; the map has holes
    return WhichDivergence(
        "likelihood", (fit.alpha, fit.beta), fit.log_likelihood, named, alphas, betas, surface,
        (), math.nan, len(matrices),
        message=_say_how_many(n_known, surface.size, "points of the map are known"),
    )  # fmt: skip


def _say_how_many(done: int, total: int, what: str) -> str:
    if done == total:
        return f"all {total:,} {what}"
    return f"interrupted by the user: {done:,} of {total:,} {what}"


def _compare_likelihood(member: LikelihoodFit, gains: RealArray) -> NamedScore:
    n, difference = len(gains), float(gains.mean())
    return NamedScore(
        member.alpha, member.beta, member.log_likelihood, difference,
        float(gains.std(ddof=1) / math.sqrt(n)),
        math.exp(-n * max(difference, 0.0)),  # twice n difference is chi-squared, two parameters
        2 * n * difference - 2 * math.log(n),
    )  # fmt: skip


def _say_likelihood(answer: WhichDivergence) -> str:
    name = answer.best_named
    top = answer.named[name]
    gain = (
        f"{top.difference:.2g} +- {top.standard_error:.1g} in log-likelihood per matrix over "
        f"{answer.n_matrices} matrices (BIC {top.bic_difference:+.1f}, likelihood-ratio "
        f"p = {top.p_value:.2g})"
    )
    fitted = _format([round(value, 3) for value in answer.best])
    if top.beaten:
        return (
            f"Use {fitted}, the maximum of the likelihood: it beats {name}, the best named "
            f"divergence, by more than noise, {gain}."
        )
    rest = sorted((row.score, other) for other, row in answer.named.items() if other != name)
    return (
        f"Use {name}: the maximum of the likelihood, {fitted}, is not better by more than noise, "
        f"{gain}. The next named divergence, {rest[-1][1]}, loses "
        f"{top.score - rest[-1][0]:.2g} per matrix."
    )


def _format(point: Sequence[float]) -> str:
    return "({:g}, {:g})".format(*point)


def _list(points: Sequence[Point]) -> str:
    return ", ".join(dict.fromkeys(_format(point) for point in points))
