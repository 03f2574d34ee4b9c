"""Importance of channels: the held-out accuracy that a classifier loses without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from divlearn.arrays import Indices, RealArray
from divlearn.checks import RandomState, check_count
from divlearn.descriptors import Regularize
from divlearn.fitting.folds import Fold, Splitter, fit_grouped
from divlearn.fitting.interrupts import is_interrupted, stoppable, user_call
from divlearn.fitting.labelled import Labelled, label
from divlearn.fitting.progress import narrated, track
from divlearn.hermitian import is_complex, real_form
from divlearn.judge import significance
from divlearn.judge.answer import Summarised, say_how_many
from divlearn.judge.significance import SIGNIFICANT
from divlearn.spd import check_spd

Channels = Sequence[str] | Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class ChannelRow:
    """Importance of one set of channels.

    Attributes
    ----------
    name : str
    channels : tuple of int
    importance : float, held-out accuracy with all channels minus accuracy without these.
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
    r"""What `channel_importance` returns; `summary` says which channels matter.

    Attributes
    ----------
    channels : dict of tuples of int, the channels of every set by its name.
    correct : ndarray of bool, shape (n_matrices,), whether held-out matrices are predicted right.
    correct_without : ndarray, shape (n_sets, n_matrices)
        Likewise without each set: 0 or 1, or for "permute" a share of the repetitions.
    method : {"permute", "drop"}
    message : str, how many folds were completed.
    groups : ndarray of int, shape (n_matrices,), or None
        Only different groups are independent; standard errors and p-values account for it.

    Notes
    -----
    With the channels S of a set and the others R, a covariance matrix consists of the covariance of
    R, of the regression W of S on R, and of the covariance E of its residuals:

    .. math:: X = \begin{pmatrix} C & C W^T \\ W C & W C W^T + E \end{pmatrix} , \qquad
              C \succ 0 , \quad E \succ 0 .

    C, W and E vary freely: every such triple is an SPD matrix, and every SPD matrix is one such
    triple. "permute" gives each held-out matrix the pair (W, E) of another. All that the
    other channels say, C, stays as it is, and the result is positive definite. Permuting rows and
    columns themselves would not preserve this.

    Both methods measure what channels add to the others. Two copies of one channel add nothing to
    each other, so pass such channels as a set. A permuted matrix may be unusual if (W, E) depends
    on C within a class, for instance through the amplitude of the trial. The model then loses
    accuracy for that reason too, and "drop" is the fairer method. With "permute" every fold must
    hold out several classes.
    """

    channels: dict[str, tuple[int, ...]]
    correct: NDArray[np.bool_]
    correct_without: RealArray
    method: Literal["permute", "drop"]
    message: str
    groups: Indices | None = None

    @property
    def accuracy(self) -> float:
        """Held-out accuracy with all channels."""
        return float(self.correct.mean())

    @property
    def losses(self) -> RealArray:
        """What each matrix loses without each set, shape (n_sets, n_matrices)."""
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
        """P-values of no importance, adjusted for all sets, shape (n_sets,)."""
        return significance.compare_jointly(self.losses, self.groups)

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
            f"The accuracy is {self.accuracy:.1%} on {len(self.correct)} held-out matrices with "
            "all channels."
        )
        rows = [row for row in self.table() if row.importance > 0 and row.p_value < SIGNIFICANT]
        if not rows:
            return f"{text} It is not significantly lower with any of the channels {without}."
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
        Each channel alone, or sets of channels, such as ``{"left": [0, 2], "right": [1, 3]}``. By
        default each channel alone, named by its number.
    method : {"permute", "drop"}, default="permute"
        "permute" fits once per fold, and permutes what is peculiar to the channels among held-out
        matrices; see `ChannelImportance`. "drop" fits a model for every set, to matrices without
        its rows and columns.
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
    >>> found = channel_importance(DivergenceMDM(), X, y, ["C3", "Cz", "C4"])
    >>> [row.name for row in found.table() if row.p_value < 0.05]
    ['C3']
    """
    problem = _check(X, y, channels, groups, method, n_repeats, cv, random_state, regularize)
    with user_call(), narrated("channel_importance", verbose):
        return _measure(estimator, problem)


class _Problem(NamedTuple):
    """Checked arguments of `channel_importance`."""

    data: Labelled
    sets: dict[str, tuple[int, ...]]
    rows: list[tuple[int, ...]]  # of matrices, for each set
    folds: list[Fold]
    method: Literal["permute", "drop"]
    n_repeats: int
    rng: np.random.RandomState
    regularize: str | float


def _check(
    X: ArrayLike,
    y: ArrayLike,
    channels: Channels | None,
    groups: ArrayLike | None,
    method: Literal["permute", "drop"],
    n_repeats: int,
    cv: Splitter,
    random_state: RandomState,
    regularize: str | float,
) -> _Problem:
    width = 2 if is_complex(X) else 1  # rows of a channel
    X = real_form(X)
    check_spd(X, regularize=regularize, ndim=3)  # which every fold learns from its training part
    matrices = np.asarray(X, dtype=np.float64)
    if method not in ("permute", "drop"):
        raise ValueError(f'method={method!r} must be "permute" or "drop"')
    sets = _check_channels(channels, matrices.shape[-1] // width)
    rows = [tuple(width * one + k for one in some for k in range(width)) for some in sets.values()]
    n_repeats = check_count(n_repeats, "n_repeats")
    data = label(matrices, y, np.ones(len(matrices)), None, groups)
    data.require_two("drop the class, or pass more of it")
    rng = check_random_state(random_state)
    folds = data.folds(cv, rng)
    if method == "permute":
        _check_folds(folds, data)
    return _Problem(data, sets, rows, folds, method, n_repeats, rng, regularize)


def _measure(estimator: BaseEstimator, problem: _Problem) -> ChannelImportance:
    data, folds = problem.data, problem.folds
    done: list[tuple[Indices, RealArray]] = []
    with stoppable(lambda: done):
        for fold in track(folds, "folds"):
            judged = _Judge(estimator, data, problem.regularize, fold)
            right = [judged.whole()]
            for chosen in track(problem.rows, "sets of channels"):
                if problem.method == "drop":
                    right.append(judged.drop(chosen))
                else:
                    right.append(judged.permute(chosen, problem.n_repeats, problem.rng))
            if is_interrupted():  # comparing with an unfinished fit would be unfair
                raise KeyboardInterrupt
            done.append((fold[1], np.stack(right)))
    message = say_how_many(len(done), len(folds), "folds completed")
    return _gather(done, problem.sets, problem.method, data, message)


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
    sets = {str(name): tuple(int(one) for one in some) for name, some in channels.items()}
    if not sets:
        raise ValueError("channels is empty, must hold >= 1 set of channels")
    for name, some in sets.items():
        if not set(some) <= set(range(d)) or not 0 < len(set(some)) == len(some) < d:
            raise ValueError(
                f"channels[{name!r}]={list(some)} must hold different indices from 0 to {d - 1}, "
                f"at least 1 and at most {d - 1} of them"
            )
    return sets


def _check_folds(folds: Sequence[Fold], data: Labelled) -> None:
    for number, (_, held_out) in enumerate(folds):
        if len(np.unique(data.codes[held_out])) < 2:
            raise ValueError(
                f"fold {number} holds out 1 class, must hold out >= 2 to permute channels between "
                'classes; pass another cv, or method="drop"'
            )


class _Judge:
    """Whether the matrices of one fold are classified right, with and without channels."""

    def __init__(
        self, estimator: BaseEstimator, data: Labelled, regularize: str | float, fold: Fold
    ) -> None:
        train, test = fold
        matrices = Regularize(regularize).fit(data.matrices[train]).transform(data.matrices)
        self.estimator, self.train, self.test = estimator, matrices[train], matrices[test]
        self.labels, self.truth = data.y[train], data.y[test]
        self.groups = None if data.groups is None else data.groups[train]

    def whole(self) -> RealArray:
        self.model = self._fit(self.train)
        return self._is_right(self.model, self.test)

    def drop(self, channels: tuple[int, ...]) -> RealArray:
        kept = np.delete(np.arange(self.test.shape[-1]), channels)
        model = self._fit(self.train[:, kept[:, None], kept])
        return self._is_right(model, self.test[:, kept[:, None], kept])

    def permute(
        self, channels: tuple[int, ...], n_repeats: int, rng: np.random.RandomState
    ) -> RealArray:
        orders = [rng.permutation(len(self.test)) for _ in range(n_repeats)]
        permuted = (permute_channels(self.test, channels, order) for order in orders)
        return np.mean([self._is_right(self.model, some) for some in permuted], axis=0)

    def _fit(self, matrices: RealArray) -> BaseEstimator:
        return fit_grouped(clone(self.estimator), matrices, self.labels, self.groups)

    def _is_right(self, model: BaseEstimator, matrices: RealArray) -> RealArray:
        right: RealArray = (model.predict(matrices) == self.truth).astype(float)
        return right


def permute_channels(matrices: RealArray, channels: Sequence[int], order: Indices) -> RealArray:
    """Give every matrix the regression of channels on the others, and its residuals, of another."""
    d, n_others = matrices.shape[-1], matrices.shape[-1] - len(channels)
    ranked = np.concatenate([np.delete(np.arange(d), channels), np.asarray(channels)])
    # In a Cholesky factor of the others first, the last rows are those of W L_C, and of E.
    factors = np.linalg.cholesky(matrices[:, ranked[:, None], ranked])
    others = factors[:, :n_others, :n_others]
    weights = np.linalg.solve(others.mT, factors[:, n_others:, :n_others].mT).mT
    factors[:, n_others:, n_others:] = factors[order, n_others:, n_others:]
    factors[:, n_others:, :n_others] = weights[order] @ others
    back = np.argsort(ranked)
    permuted: RealArray = (factors @ factors.mT)[:, back[:, None], back]
    return permuted


def _gather(
    done: list[tuple[Indices, RealArray]],
    sets: dict[str, tuple[int, ...]],
    method: Literal["permute", "drop"],
    data: Labelled,
    message: str,
) -> ChannelImportance:
    rows = np.concatenate([held_out for held_out, _ in done])
    whole, *without = np.concatenate([right for _, right in done], axis=1)
    groups = data.groups
    if groups is not None:
        groups = np.unique(groups[rows], return_inverse=True)[1]
    return ChannelImportance(sets, whole > 0, np.stack(without), method, message, groups)
