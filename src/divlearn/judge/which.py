"""Which divergence to use: by held-out accuracy with labels, by likelihood without."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import Indices, RealArray
from divlearn.baselines import DivergenceMDM, plane
from divlearn.baselines.plane import NAMED, NAMED_POINTS, Flags
from divlearn.checks import check_count
from divlearn.drawing import Summarised
from divlearn.engines import Engine, get_engine
from divlearn.fitting.folds import count_groups, make_folds
from divlearn.fitting.interrupts import stoppable
from divlearn.fitting.progress import narrated, track
from divlearn.judge import maps
from divlearn.judge.maps import Point, format_point
from divlearn.judge.significance import SIGNIFICANT, compare_paired, p_above
from divlearn.likelihood import fit_likelihood, fit_member
from divlearn.likelihood.normalizer import solve_kappa
from divlearn.means import mean_abld
from divlearn.spd import check_spd
from divlearn.tolerances import LEARNING_ACCURACY

_LIKELIHOOD_GRID = np.arange(9) / 4  # each point needs a centre of its own: coarser than for 1-NN
_MAP_TOLERANCE = 1e-5  # of centres and divergences; the likelihood errs by its square


@dataclass(frozen=True)
class NamedScore:
    """A named divergence beside the learned one, on the same matrices.

    Attributes
    ----------
    alpha, beta : float
    score : float, held-out accuracy of the nearest neighbour, or mean log-likelihood per matrix.
    difference : float, score of the learned point minus this score.
    standard_error : float, of the paired difference.
    p_value : float, of no difference: exact sign-flip test (over groups if there are groups), or
        likelihood-ratio test of two parameters, which is conservative on the axes.
    bic_difference : float, BIC of this divergence minus BIC of the learned one, which has two more
        parameters; positive if the learned one is preferred. NaN with labels.
    mean_score : float, that of the nearest mean, as `DivergenceMDM` judges when it chooses, or NaN.
    """

    alpha: float
    beta: float
    score: float
    difference: float
    standard_error: float
    p_value: float
    bic_difference: float = math.nan
    mean_score: float = math.nan

    @property
    def beaten(self) -> bool:
        """Whether the learned point is significantly better."""
        if math.isnan(self.bic_difference):
            return self.difference > 0 and self.p_value < SIGNIFICANT
        return self.bic_difference > 0 and self.difference > 2 * self.standard_error


@dataclass(frozen=True, eq=False)
class WhichDivergence(Summarised):
    """The answer of `which_divergence`; `summary` says it in words.

    Attributes
    ----------
    criterion : {"accuracy", "likelihood"}
    best : (alpha, beta), the point learned from all matrices.
    score : float, of the learned point: held-out accuracy, where the point is chosen anew without
        each fold, or mean log-likelihood per matrix.
    named : dict of NamedScore
    alphas, betas : ndarray, shape (n_alphas,) and (n_betas,), the grid.
    map : ndarray, shape (n_alphas, n_betas), held-out accuracy or mean log-likelihood.
    n_matrices : int, the matrices that were judged.
    message : str, whether the search is complete or was interrupted.
    chosen : tuple of (alpha, beta), the point chosen without each fold; empty without labels.
    chance : float, share of the largest class; NaN without labels.
    p_chance : float, p-value of no divergence being better than predicting the largest class
        (Bonferroni over the compared divergences). NaN without labels.
    n_groups : int or None, number of groups.
    mean_score : float, of the nearest mean; `DivergenceMDM` chooses without each fold. Or NaN.
    p_mean : float, of no difference between ``mean_score`` and ``score``.
    mean_divergence : str, the divergence that `DivergenceMDM` chooses.
    """

    criterion: Literal["accuracy", "likelihood"]
    best: Point
    score: float
    named: dict[str, NamedScore]
    alphas: RealArray
    betas: RealArray
    map: RealArray
    n_matrices: int
    message: str = ""
    chosen: tuple[Point, ...] = ()
    chance: float = math.nan
    p_chance: float = math.nan
    n_groups: int | None = None
    mean_score: float = math.nan
    p_mean: float = math.nan
    mean_divergence: str = ""

    @property
    def best_named(self) -> str:
        """Name of the named divergence of the highest score, the first of those that tie."""
        return max(self.named, key=lambda name: self.named[name].score)

    def table(self) -> list[dict[str, str | float]]:
        """Rows for the learned point and every named one, the highest score first."""
        alpha, beta = self.best
        learned = {"alpha": alpha, "beta": beta, "score": self.score, "mean_score": self.mean_score}
        rows: list[dict[str, Any]] = [{"name": "learned", **learned}]
        rows += [{"name": name, **vars(row)} for name, row in self.named.items()]
        return sorted(rows, key=lambda row: -float(row["score"]))

    def summary(self) -> str:
        """Recommend a divergence, and say how sure that is."""
        if self.criterion == "likelihood":
            return _say_likelihood(self)
        better = "mean" if self.mean_score > self.score else "neighbour"
        told = f"use the {better}" if self.p_mean < SIGNIFICANT else "no significant difference"
        return (
            f"{_say_accuracy(self)} The accuracy of the nearest mean, in "
            f"{self.mean_divergence}, is {self.mean_score:.1%}, of the nearest neighbour "
            f"{self.score:.1%}: {told}."
        )


def which_divergence(
    X: ArrayLike, y: ArrayLike | None = None, *, groups: ArrayLike | None = None, cv: int = 5,
    alphas: ArrayLike | None = None, betas: ArrayLike | None = None, engine: str | Engine = "auto",
    random_state: int | np.random.RandomState | None = None, regularize: str | float = "raise",
    verbose: int = 0,
) -> WhichDivergence:  # fmt: skip
    r"""Find the divergence of the (alpha, beta) plane that suits these matrices.

    With labels, the criterion is the cross-validated accuracy of the nearest neighbour. The score
    of the learned point comes from nested cross-validation: for every fold the point is chosen by
    leave-one-out accuracy on the other folds, and evaluated on the fold. Nearest class means, with
    the approximate means of `DivergenceMDM`, are judged on the same folds. Without labels, the
    criterion is the likelihood of :math:`p(X) = e^{-\kappa D^{(\alpha,\beta)}(X \| C)} / Z`, see
    `fit_likelihood`.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
    y : array-like, shape (n_matrices,), optional
        Labels of at least two classes, each with at least two matrices, or with ``groups`` matrices
        of at least two groups.
    groups : array-like, shape (n_matrices,), optional
        Matrices of one group (patches of an image, trials of a person) are held out together and
        are not neighbours of each other. Otherwise a divergence that recognises groups would seem
        to separate classes. Must be None without labels, where nothing is held out.
    cv : int, default=5
        Largest number of folds, as in `evaluate`; not used without labels.
    alphas, betas : array-like, shape (n_alphas,) and (n_betas,), optional
        The grid, ascending and >= 0. From 0 to 2 by default, in steps of 1/8 with labels and of 1/4
        without. Named divergences are always compared, on the grid or not.
    engine : str or Engine, default="auto"
    random_state : int, RandomState or None, default=None
    regularize : {"raise", "shrink"} or float, default="raise", as in `divlearn.check_spd`
    verbose : int, default=0, 1 prints progress.

    Returns
    -------
    WhichDivergence
        After an interrupt it covers the matrices judged so far, a random sample of all, or its map
        contains NaN. KeyboardInterrupt is raised if no matrix was judged.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    >>> answer = which_divergence(X, y, random_state=0)
    >>> answer.map.shape, answer.criterion, list(answer.named)[:2]
    ((17, 17), 'accuracy', ['airm', 'stein'])
    >>> print(answer.summary())
    No difference found between airm, stein and log-cosh (98.3%): ...
    """
    chosen = get_engine(engine) if y is None else get_engine(engine, accuracy=LEARNING_ACCURACY)
    matrices = check_spd(X, regularize=regularize, ndim=3)
    default = _LIKELIHOOD_GRID if y is None else None
    axes = []
    for given, name in ((alphas, "alphas"), (betas, "betas")):
        axes.append(maps.check_axis(default if given is None else given, name))
        if axes[-1][0] < 0:
            raise ValueError(
                f"{name} starts at {axes[-1][0]:g}, must be >= 0; D^(-a,-b) = D^(b,a), so the "
                "positive quadrant contains every divergence of the negative one"
            )
    if y is None:
        if groups is not None:
            raise ValueError(
                "groups must be None without labels: the likelihood holds nothing out; leave out "
                "groups, or pass y"
            )
        with narrated("which_divergence", verbose):
            return _by_likelihood(matrices, axes[0], axes[1], chosen)
    codes = maps.check_codes(y, len(matrices))
    known = maps.check_group_codes(groups, len(matrices))
    folds = _assign_folds(codes, known, check_count(cv, "cv", least=2), random_state)
    with narrated("which_divergence", verbose):
        return _by_accuracy(matrices, codes, folds, known, axes[0], axes[1], chosen)


def _assign_folds(
    codes: Indices, groups: Indices | None, cv: int,
    random_state: int | np.random.RandomState | None,
) -> Indices:  # fmt: skip
    if groups is not None and count_groups(codes, groups).min() < 2:
        raise ValueError(
            "the smallest class has 1 group, must have >= 2; leave out groups, or drop the class"
        )
    assigned = np.empty(len(codes), dtype=np.intp)
    folds = make_folds(cv, len(codes), codes, groups, random_state=random_state)
    for fold, (_, held_out) in enumerate(folds):
        assigned[held_out] = fold
    return assigned


def _by_accuracy(
    matrices: RealArray, codes: Indices, folds: Indices, groups: Indices | None, alphas: RealArray,
    betas: RealArray, engine: Engine,
) -> WhichDivergence:  # fmt: skip
    n_given, n_folds = len(matrices), int(folds.max()) + 1
    parts = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(n_folds)]
    means = DivergenceMDM("choose", engine, cv=parts).fit(matrices, codes)
    grid = maps.make_grid(alphas, betas)
    correct, judged = plane.judge_neighbors(
        matrices, codes, folds, groups, np.vstack([grid, NAMED_POINTS]), engine
    )
    codes, folds, by_mean = codes[judged], folds[judged], means.oof_proba_[judged].argmax(axis=1)
    groups = None if groups is None else groups[judged]

    def choose(flags: Flags) -> int:
        return int(plane.rank_best(grid, flags[: len(grid)].mean(axis=1))[0])

    held_out = correct[folds, :, np.arange(len(folds))].T  # neighbours are of the other folds
    learned = np.empty(len(folds), dtype=np.bool_)
    choices = [choose(correct[fold][:, folds != fold]) for fold in range(n_folds)]
    for fold, choice in enumerate(choices):
        learned[folds == fold] = held_out[choice, folds == fold]
    known, by_mean = held_out[len(grid) :], by_mean == codes
    chance = float(np.bincount(codes).max() / len(codes))
    compared = learned, by_mean, *known
    p_chance = len(compared) * min(p_above(one, chance, groups) for one in compared)
    named, of_means = {}, means.cv_results_["accuracy"][: len(NAMED)]  # the first candidates
    for (name, divergence), flags, mean in zip(NAMED.items(), known, of_means, strict=True):
        paired = compare_paired(learned, flags, groups)
        named[name] = NamedScore(
            divergence.alpha, divergence.beta, float(flags.mean()), paired.difference,
            paired.standard_error, paired.p_value, mean_score=float(mean),
        )  # fmt: skip
    points: list[Point] = [(alpha, beta) for alpha, beta in grid.tolist()]
    return WhichDivergence(
        "accuracy", points[choose(correct[-1])], float(learned.mean()), named, alphas, betas,
        held_out[: len(grid)].mean(axis=1).reshape(len(alphas), len(betas)), len(codes),
        _say_how_many(len(codes), n_given, "matrices were judged"),
        tuple(points[choice] for choice in choices), chance, min(1.0, p_chance),
        None if groups is None else len(np.unique(groups)), float(by_mean.mean()),
        compare_paired(by_mean, learned, groups).p_value,
        getattr(means.divergence_, "name", "log-euclidean"),
    )  # fmt: skip


def _say_accuracy(answer: WhichDivergence) -> str:
    name, n = answer.best_named, answer.n_matrices
    top = answer.named[name]
    of_groups = "" if answer.n_groups is None else f" of {answer.n_groups} groups"
    if answer.p_chance >= SIGNIFICANT:
        return (
            f"No divergence separates these classes significantly better than chance: held-out "
            f"accuracy is {top.score:.1%} for {name}, the best named divergence, and "
            f"{answer.score:.1%} for the learned one; the largest class holds {answer.chance:.1%} "
            f"of {n} matrices{of_groups} (p = {answer.p_chance:.2g})."
        )
    test = "McNemar's test" if answer.n_groups is None else f"sign-flip test over{of_groups[3:]}"
    versus = (
        f"its held-out accuracy is {answer.score:.1%} against {top.score:.1%} (difference "
        f"{100 * top.difference:+.1f} +- {100 * top.standard_error:.1f} points, "
        f"p = {top.p_value:.2g} by {test})"
    )
    if top.beaten:
        chosen = "; ".join(dict.fromkeys(map(format_point, answer.chosen)))
        return (
            f"Use {format_point(answer.best)}: the learned point beats {name}, the best named "
            f"divergence, significantly; {versus}. The points chosen without each fold: {chosen}."
        )
    if answer.map.min() == answer.map.max() == top.score:
        return (
            f"Use any: all divergences of the grid have the accuracy {top.score:.1%} on these {n} "
            "matrices."
        )
    verdict = maps.say_best({name: row.score for name, row in answer.named.items()})
    return (
        f"{verdict}: the learned point is not significantly better; {versus}. "
        f"{maps.say_range(answer.map)}"
    )


def _by_likelihood(
    matrices: RealArray, alphas: RealArray, betas: RealArray, engine: Engine
) -> WhichDivergence:
    fit = fit_likelihood(matrices, engine=engine)
    data = engine.prepare(matrices.astype(np.float64, copy=False))
    per_matrix, n = fit.log_density(data, engine=engine), len(matrices)
    named = {}
    for name, (alpha, beta) in zip(NAMED, NAMED_POINTS.tolist(), strict=True):
        member = fit_member(data, alpha, beta, init=fit.center, engine=engine)
        gains = per_matrix - member.log_density(data, engine=engine)
        gain = float(gains.mean())
        named[name] = NamedScore(
            alpha, beta, member.log_likelihood, gain, float(gains.std(ddof=1) / math.sqrt(n)),
            math.exp(-n * max(gain, 0.0)),  # 2 n gain is chi-squared with two degrees of freedom
            2 * n * gain - 2 * math.log(n),
        )  # fmt: skip
    surface = np.full((len(alphas), len(betas)), np.nan)
    # The likelihood is flat at its maximum in the centre: a rough centre serves a map. Every
    # second row runs backwards, so that each point starts from the centre of a neighbour.
    center, volume = fit.center, 0.5 * (data.d + 1) * np.linalg.slogdet(data.matrices)[1].mean()
    with stoppable(lambda: True):  # the answer is known; the map has holes
        for row, step in track(list(np.ndindex(surface.shape)), "points of the map"):
            column = -1 - step if row % 2 else step
            point = float(alphas[row]), float(betas[column])
            found = mean_abld(data, *point, init=center, tol=_MAP_TOLERANCE, engine=engine)
            kappa, constant = solve_kappa(*point, found.objective, data.d, rtol=_MAP_TOLERANCE)
            surface[row, column] = -kappa * found.objective - constant.log_z - volume
            center = found.mean
    n_known = int(np.isfinite(surface).sum())
    return WhichDivergence(
        "likelihood", (fit.alpha, fit.beta), fit.log_likelihood, named, alphas, betas, surface, n,
        _say_how_many(n_known, surface.size, "points of the map were computed"),
    )  # fmt: skip


def _say_how_many(done: int, total: int, what: str) -> str:
    if done == total:
        return f"all {total:,} {what}"
    return f"interrupted by the user: {done:,} of {total:,} {what}"


def _say_likelihood(answer: WhichDivergence) -> str:
    name = answer.best_named
    top = answer.named[name]
    gain = (
        f"it gains {top.difference:.2g} +- {top.standard_error:.1g} in log-likelihood per matrix "
        f"over {answer.n_matrices} matrices (BIC {top.bic_difference:+.1f}, likelihood-ratio "
        f"p = {top.p_value:.2g})"
    )
    fitted = format_point([round(value, 3) for value in answer.best])
    if top.beaten:
        return (
            f"Use {fitted}, the maximum of the likelihood: it beats {name}, the best named "
            f"divergence, by BIC; {gain}."
        )
    second, other = max((row.score, one) for one, row in answer.named.items() if one != name)
    return (
        f"Use {name}: the maximum of the likelihood, {fitted}, is not better by BIC; "
        f"{gain}. The next named divergence, {other}, loses {top.score - second:.2g} per matrix."
    )
