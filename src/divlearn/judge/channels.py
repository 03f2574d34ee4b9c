"""Importance of channels: the held-out accuracy that a classifier loses without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from divlearn.arrays import Indices, RealArray
from divlearn.checks import RandomState, check_count, check_name
from divlearn.fitting.folds import Fold, Splitter, find_dependent
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.progress import is_interrupted, print_progress, stoppable, track, user_call
from divlearn.judge import significance
from divlearn.judge.answer import Summarised, say_how_many
from divlearn.judge.evaluation import check_classifier, check_folded, fit_fold, regularize_fold
from divlearn.judge.significance import SIGNIFICANT

Channels = Sequence[str] | Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class ChannelRow:
    """Importance of one set of channels.

    Attributes
    ----------
    name : str
    channels : tuple of int
    importance : float, held-out accuracy with all channels minus accuracy without the set.
    standard_error : float, of this paired difference.
    p_value : float, of no difference: sign-flip test over matrices (groups), adjusted for the
        comparison of all sets (max-T).
    """

    name: str
    channels: tuple[int, ...]
    importance: float
    standard_error: float
    p_value: float


@dataclass(frozen=True, eq=False)
class ChannelImportance(Summarised):
    r"""Result of `channel_importance`; `summary` says which channels matter.

    Attributes
    ----------
    channels : dict of tuples of int, the channels of every set by its name.
    correct : ndarray of bool, shape (n_matrices,), whether held-out matrices are predicted right.
    correct_without : ndarray, shape (n_sets, n_matrices)
        The same without each set: 0 or 1, or for "permute" a share of the repetitions.
    rows, codes : ndarray of int, shape (n_matrices,)
        Indices of these matrices in the given data, and their classes.
    method : {"permute", "drop"}
    message : str, how many folds were completed.
    groups : ndarray of int, shape (n_matrices,), or None
        Only different groups are independent; standard errors and p-values account for it. A matrix
        that ``cv`` holds out several times is a group.

    Notes
    -----
    With the channels S of a set and the others R, a covariance matrix consists of the covariance of
    R, of the regression W of S on R, and of the covariance E of its residuals:

    .. math:: X = \begin{pmatrix} C & C W^T \\ W C & W C W^T + E \end{pmatrix} , \qquad
              C \succ 0 , \quad E \succ 0 .

    Every such triple (C, W, E) gives an SPD matrix, and every SPD matrix is given by one triple.
    "permute" gives each held-out matrix the pair (W, E) of another. The covariance C of the other
    channels is unchanged, and the result is positive definite. Neither would hold if rows and
    columns themselves were permuted.

    Both methods measure how much a set adds to the other channels. Two copies of one channel add
    nothing to each other, so pass such channels as a set. A permuted matrix may be unusual if
    (W, E) depends on C within a class, for instance through the amplitude of the trial. The model
    then loses accuracy for that reason too, and "drop" is the fairer method. With "permute" every
    fold must hold out several classes.
    """

    channels: dict[str, tuple[int, ...]]
    correct: NDArray[np.bool_]
    correct_without: RealArray
    rows: Indices
    codes: Indices
    method: Literal["permute", "drop"]
    message: str
    groups: Indices | None = None

    @property
    def n_matrices(self) -> int:
        """Number of matrices that were held out, each counted once."""
        return len(np.unique(self.rows))

    @property
    def accuracy(self) -> float:
        """Held-out accuracy with all channels."""
        return float(self.correct.mean())

    @property
    def losses(self) -> RealArray:
        """Loss of each matrix without each set, shape (n_sets, n_matrices)."""
        return self.correct - self.correct_without

    @property
    def importances(self) -> RealArray:
        """Accuracy lost without each set, shape (n_sets,)."""
        return self.losses.mean(axis=1)

    @property
    def standard_errors(self) -> RealArray:
        """Standard errors of the importances, shape (n_sets,)."""
        return np.array([significance.standard_error(row, self.groups) for row in self.losses])

    @cached_property
    def p_values(self) -> RealArray:
        """P-values of no importance, adjusted for all sets, shape (n_sets,).

        None is below the p-value of the accuracy being that of chance: predictions without signal
        share labels, so that differences between them are not independent.
        """
        p_chance = significance.p_above_chance(self.correct, self.codes, self.groups)
        return np.maximum(significance.compare_jointly(self.losses, self.groups), p_chance)

    def table(self) -> list[ChannelRow]:
        """Rows of all sets of channels, the most important first."""
        columns = self.importances, self.standard_errors, self.p_values
        numbers = zip(*(column.tolist() for column in columns), strict=True)
        rows = [
            ChannelRow(name, channels, *figures)
            for (name, channels), figures in zip(self.channels.items(), numbers, strict=True)
        ]
        return sorted(rows, key=lambda row: -row.importance)

    def summary(self) -> str:
        """Say which channels matter and how sure that is."""
        without = "permuted" if self.method == "permute" else "dropped"
        text = (
            f"The accuracy is {self.accuracy:.1%} on {self.n_matrices} held-out matrices with "
            "all channels."
        )
        rows = [row for row in self.table() if row.importance > 0 and row.p_value < SIGNIFICANT]
        if not rows:
            few = significance.say_too_few_flips(self.groups, self.rows)
            return f"{text} It is not significantly lower with any of the channels {without}.{few}"
        named = ", ".join(
            f"{row.name} ({100 * row.importance:.1f} +- {100 * row.standard_error:.1f} points)"
            for row in rows
        )
        return f"{text} It is significantly lower with these channels {without}: {named}."


def channel_importance(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    channels: Channels | None = None,
    *,
    method: Literal["permute", "drop"] = "permute",
    n_repeats: int = 5,
    cv: Splitter = 5,
    groups: ArrayLike | None = None,
    random_state: RandomState = 0,
    regularize: str | float = "raise",
    verbose: int = 0,
) -> ChannelImportance:
    """Measure the held-out accuracy that a classifier of SPD matrices loses without channels.

    Parameters
    ----------
    estimator : classifier of matrices, shape (n_matrices, d, d); it is cloned for every fit.
    X, y : array-like, shape (n_matrices, d, d) and (n_matrices,)
    channels : sequence of d names, or dict of sequences of indices by name, optional
        Channels, or sets such as ``{"left": [0, 2]}``; by default each channel by its number.
    method : {"permute", "drop"}, default="permute"
        "permute" fits once per fold, and permutes the part of held-out matrices that the other
        channels do not determine; see `ChannelImportance`. "drop" fits a model for every set, to
        matrices without its rows and columns.
    n_repeats : int, default=5, number of permutations.
    cv, groups, random_state, regularize, verbose : as in `evaluate`

    Returns
    -------
    ChannelImportance
        After an interrupt, of the folds completed. KeyboardInterrupt is raised if there are none.

    Examples
    --------
    >>> X = np.tile(np.eye(3), (40, 1, 1))
    >>> X[:, 0, 0] = np.random.default_rng(0).uniform(1, 2, 40)
    >>> y = np.repeat(["rest", "move"], 20)
    >>> X[y == "move", 0, 0] *= 3
    >>> from divlearn import DivergenceMDM
    >>> importance = channel_importance(DivergenceMDM(), X, y, ["C3", "Cz", "C4"])
    >>> [row.name for row in importance.table() if row.p_value < 0.05]
    ['C3']
    """
    check_name(method, "method", ("permute", "drop"))
    n_repeats = check_count(n_repeats, "n_repeats")
    if method == "drop":
        n_repeats = 0
    check_classifier(estimator, "estimator")
    data = check_folded(X, y, groups, regularize)
    sets = _check_channels(channels, data.matrices.shape[-1])
    with user_call(), print_progress("channel_importance", verbose):
        return _measure(estimator, data, sets, n_repeats, cv, random_state, regularize)


def _measure(
    estimator: BaseEstimator,
    data: Labelled,
    sets: dict[str, tuple[int, ...]],
    n_repeats: int,
    cv: Splitter,
    random_state: RandomState,
    regularize: str | float,
) -> ChannelImportance:
    rng = check_random_state(random_state)
    folds = data.folds(cv, rng)
    # A number of folds is an upper bound: fewer of them hold out matrices of more classes.
    while (
        n_repeats
        and isinstance(cv, int | np.integer)
        and cv > 2
        and not all(_mixes(data, f) for f in folds)
    ):
        cv -= 1
        folds = data.folds(cv, rng)
    for number, fold in enumerate(folds):
        if n_repeats and not _mixes(data, fold):
            raise ValueError(
                f"fold {number} holds out 1 class, must hold out >= 2 to permute channels between "
                'classes; pass another cv, or method="drop"'
            )
    flags: list[RealArray] = []
    with stoppable(lambda: flags):
        for fold in track(folds, "folds"):
            right = _judge_fold(
                estimator, data, fold, regularize, list(sets.values()), n_repeats, rng
            )
            if is_interrupted():  # comparing with an unfinished fit would be unfair
                raise KeyboardInterrupt
            flags.append(right)
    rows = np.concatenate([held_out for _, held_out in folds[: len(flags)]])
    with_all, *without = np.concatenate(flags, axis=1)
    return ChannelImportance(
        channels=sets,
        correct=with_all > 0,
        correct_without=np.stack(without),
        rows=rows,
        codes=data.codes[rows],
        method="permute" if n_repeats else "drop",
        message=say_how_many(len(flags), len(folds), "folds", "completed"),
        groups=find_dependent(rows, data.groups),
    )


def _mixes(data: Labelled, fold: Fold) -> bool:
    """Whether a fold holds out several classes."""
    return len(np.unique(data.codes[fold[1]])) > 1


def _check_channels(channels: Channels | None, d: int) -> dict[str, tuple[int, ...]]:
    if d < 2:
        raise ValueError(
            f"X has matrices of size {d}, must have >= 2 channels, so that some are left without "
            "one; pass matrices of more channels"
        )
    if channels is None:
        channels = [str(channel) for channel in range(d)]
    if not isinstance(channels, Mapping):
        names = [str(name) for name in channels]
        if len(names) != d or len(set(names)) != d:
            raise ValueError(
                f"channels={names} must hold {d} different names, one for each row of the matrices"
            )
        channels = {name: [channel] for channel, name in enumerate(names)}
    try:
        sets = {str(name): tuple(map(index, indices)) for name, indices in channels.items()}
    except TypeError as error:
        raise TypeError(
            f"channels={dict(channels)!r} must hold indices of rows for each name, such as "
            '{"frontal": [0, 1]}'
        ) from error
    if not sets:
        raise ValueError("channels is empty, must hold >= 1 set of channels")
    for name, indices in sets.items():
        if not set(indices) <= set(range(d)) or not 0 < len(set(indices)) == len(indices) < d:
            raise ValueError(
                f"channels[{name!r}]={list(indices)} must hold different indices from 0 to "
                f"{d - 1}, at least 1 and at most {d - 1} of them"
            )
    return sets


def _judge_fold(
    estimator: BaseEstimator,
    data: Labelled,
    fold: Fold,
    regularize: str | float,
    sets: Sequence[Sequence[int]],
    n_repeats: int,
    rng: np.random.RandomState,
) -> RealArray:
    """Whether held-out matrices are right with all channels, then without each set of rows."""
    # The rows are permuted ``n_repeats`` times, or dropped if this is zero.
    train, test = regularize_fold(data, fold, regularize)
    truth, model = data.y[fold[1]], fit_fold(estimator, data, fold, train)
    right = [model.predict(test) == truth]
    for rows in track(sets, "sets of channels"):
        if n_repeats:
            orders = [rng.permutation(len(test)) for _ in range(n_repeats)]
            permuted = [permute_channels(test, rows, order) for order in orders]
            flags = [model.predict(matrices) == truth for matrices in permuted]
            right.append(np.mean(flags, axis=0))
        else:
            remaining = np.delete(np.arange(test.shape[-1]), rows)
            without = fit_fold(estimator, data, fold, train[:, remaining[:, None], remaining])
            right.append(without.predict(test[:, remaining[:, None], remaining]) == truth)
    return np.stack(right).astype(float)


def permute_channels(matrices: RealArray, channels: Sequence[int], order: Indices) -> RealArray:
    """Replace the regression of channels on the others, and its residuals, by those of `order`."""
    d, n_others = matrices.shape[-1], matrices.shape[-1] - len(channels)
    last = np.concatenate([np.delete(np.arange(d), channels), np.asarray(channels)])
    # With the channels last, the last rows of the Cholesky factor are W L_C and the factor of E.
    factors = np.linalg.cholesky(matrices[:, last[:, None], last])
    others = factors[:, :n_others, :n_others]
    weights = np.linalg.solve(others.mT, factors[:, n_others:, :n_others].mT).mT
    factors[:, n_others:, n_others:] = factors[order, n_others:, n_others:]
    factors[:, n_others:, :n_others] = weights[order] @ others
    back = np.argsort(last)
    permuted: RealArray = (factors @ factors.mT.conj())[:, back[:, None], back]
    return permuted
