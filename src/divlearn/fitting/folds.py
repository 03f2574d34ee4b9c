"""Folds: training and held-out parts of data, by number, splitter, classes and groups."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn import model_selection as selection
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import RandomState, as_column, check_sortable
from divlearn.text import counted

Fold = tuple[Indices, Indices]
Folds = Sequence[Fold]


class _Splits(Protocol):
    """A splitter, as in scikit-learn."""

    def split(self, X: ArrayLike, y: Labels | None, groups: Labels | None) -> Iterator[Fold]: ...


Splitter = int | _Splits | Iterable[Fold] | None
_DRAWS = 10  # at most, of folds of groups, until every class is in every training part


def make_folds(
    cv: Splitter,
    n_matrices: int,
    y: Labels | None = None,
    groups: ArrayLike | None = None,
    *,
    positions: Indices | None = None,
    random_state: RandomState = None,
    classes: bool = True,
) -> list[Fold]:
    """Split matrices into training and held-out parts, as indices into ``positions``."""
    # An integer ``cv`` is an upper bound: there are no more folds than groups, or than matrices in
    # the largest class. Folds are shuffled, stratified by class, and keep groups together. Every
    # training part has every class: a class with one matrix or group is never held out, and if
    # every draw holds out a whole class, each group becomes a fold. Splitters and pairs of indices
    # refer to all matrices. ``classes``: y holds labels. The result is empty if nothing can be held
    # out.
    groups = check_groups(groups, n_matrices)
    rows = np.arange(n_matrices) if positions is None else positions
    labels = None if y is None or not classes else y[rows]
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        if cv >= 2:
            row_groups = None if groups is None else groups[rows]
            return _draw(int(cv), len(rows), labels, row_groups, check_random_state(random_state))
        cv = int(cv)
    if cv is None or isinstance(cv, int | float | str):
        raise ValueError(f"cv={cv!r} must be an integer >= 2, a splitter or pairs of indices")
    splitter = selection.check_cv(cv)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
        folds = _translate(splitter.split(np.zeros(n_matrices), y, groups), n_matrices, rows)
    _check_separate(folds, None if groups is None else groups[rows])
    missing = _find_missing(folds, labels)
    if missing is not None:
        raise ValueError(
            f"cv makes a fold that trains without class {missing!s}, but every class must be "
            "in every training part; pass another splitter"
        )
    return folds


def _draw(
    n_splits: int,
    n_matrices: int,
    y: Labels | None,
    groups: Labels | None,
    rng: np.random.RandomState,
) -> list[Fold]:
    if groups is not None and len(np.unique(groups)) < 2:
        raise ValueError("groups has 1 group, must have >= 2 to hold one out; leave out groups")
    rows = np.flatnonzero(_can_be_held_out(n_matrices, y, groups))
    labels = None if y is None else y[rows]
    row_groups = None if groups is None else groups[rows]
    largest = len(rows)
    if labels is not None:
        largest = int(np.unique(labels, return_counts=True)[1].max(initial=0))
    if row_groups is not None:
        largest = min(largest, len(np.unique(row_groups)))
    n_splits = min(n_splits, largest)
    if n_splits < 2:
        return []
    splitters = selection.KFold, selection.GroupKFold
    if y is not None:
        splitters = selection.StratifiedKFold, selection.StratifiedGroupKFold
    splitter = splitters[groups is not None](n_splits, shuffle=True, random_state=rng)
    for _ in range(_DRAWS):
        with warnings.catch_warnings():
            # A class with fewer members than folds is missing from some held-out parts only.
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            held = [rows[test] for _, test in splitter.split(rows, labels, row_groups)]
        folds = _hold_out(held, n_matrices)
        if _find_missing(folds, y) is None:
            return folds
    assert row_groups is not None  # without groups the first draw is right
    return _hold_out([np.flatnonzero(groups == g) for g in np.unique(row_groups)], n_matrices)


def _hold_out(parts: Sequence[Indices], n_matrices: int) -> list[Fold]:
    all_rows = np.arange(n_matrices)
    return [(np.setdiff1d(all_rows, held), held) for held in parts if len(held)]


def _can_be_held_out(n_matrices: int, y: Labels | None, groups: Labels | None) -> NDArray[np.bool_]:
    """Mask of the matrices that are not the only matrix, or in the only group, of a class."""
    if y is None:
        return np.ones(n_matrices, dtype=bool)
    codes = np.unique(y, return_inverse=True)[1]
    single = count_groups(codes, groups)[codes] == 1
    return ~single if groups is None else ~np.isin(groups, groups[single])


def _translate(splits: Iterable[Fold], n_matrices: int, rows: Indices) -> list[Fold]:
    """Turn indices of all matrices into positions within rows."""
    positions = np.full(n_matrices, -1)
    positions[rows] = np.arange(len(rows))
    try:
        pairs = [[positions[np.asarray(part)] for part in pair] for pair in splits]
        folds = [(train[train >= 0], held[held >= 0]) for train, held in pairs]
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"cv must give pairs of indices, (train, test), of n_matrices={n_matrices}: {error}"
        ) from error
    folds = [(train, held) for train, held in folds if len(held)]
    if not folds:
        raise ValueError("cv holds out no matrix of weight > 0; pass another splitter")
    return folds


def _check_separate(folds: Folds, groups: Labels | None) -> None:
    """Raise if a fold trains on matrices that it holds out; warn if it trains on their groups."""
    for train, held in folds:
        if np.intersect1d(train, held).size:
            raise ValueError("cv makes a fold that trains on matrices that it holds out")
        if groups is None:
            continue
        shared = np.intersect1d(groups[train], groups[held])
        if len(shared):
            warnings.warn(
                f"cv holds out a part of group {shared[0]!s} and trains on the rest: held-out "
                "figures may be too high; pass a splitter that keeps groups together, such as "
                "GroupKFold()",
                UserWarning,
                stacklevel=4,
            )
            return


def _find_missing(folds: Folds, y: Labels | None) -> object:
    """Return a class that the training part of some fold lacks, or None."""
    if y is None:
        return None
    for train, _ in folds:
        missing = np.setdiff1d(y, y[train])
        if missing.size:
            return missing[0]
    return None


def check_groups(groups: ArrayLike | None, n_matrices: int) -> Labels | None:
    if groups is None:
        return None
    try:
        values = as_column(groups)
    except ValueError as error:
        raise ValueError(str(error).replace("y should", "groups should")) from error
    check_sortable(values, "groups")
    if len(values) != n_matrices:
        raise ValueError(
            f"groups has {counted(len(values), 'entries')}, must have one for each of "
            f"{counted(n_matrices, 'matrices')}"
        )
    return values


def held_out_rows(folds: Folds) -> Indices:
    """Rows that folds hold out, fold by fold."""
    return np.concatenate([held for _, held in folds])


def split_by_fold(values: RealArray, folds: Folds) -> list[RealArray]:
    """Split values of held-out rows, which come fold by fold."""
    return np.split(values, np.cumsum([len(held) for _, held in folds])[:-1])


def number_units(rows: Indices, groups: Labels | None) -> Indices:
    """Return numbers of the independent units of rows: their groups, or the matrices."""
    return np.unique(rows if groups is None else groups[rows], return_inverse=True)[1]


def find_dependent(rows: Indices, groups: Labels | None) -> Indices | None:
    """Return numbers of the independent units of rows, or None if all rows are independent."""
    # Repeated splitters hold out a matrix several times; its rows are not independent.
    if groups is None and len(np.unique(rows)) == len(rows):
        return None
    return number_units(rows, groups)


def count_groups(codes: Indices, groups: Labels | None) -> Indices:
    """Count the groups of every class, or its matrices where there are none."""
    if groups is None:
        return np.bincount(codes)
    numbers = np.unique(groups, return_inverse=True)[1]
    return np.bincount(np.unique(np.column_stack([codes, numbers]), axis=0)[:, 0])


def fit_grouped(
    estimator: BaseEstimator,
    X: RealArray,
    y: Labels,
    groups: Labels | None,
    sample_weight: RealArray | None = None,
) -> BaseEstimator:
    """Fit an estimator, with groups and weights if it, its search or its last step takes them."""
    values = {"groups": groups, "sample_weight": sample_weight}
    keywords = {_fit_parameter(estimator, k): v for k, v in values.items() if v is not None}
    return estimator.fit(X, y, **{k: v for k, v in keywords.items() if k})


def _fit_parameter(estimator: BaseEstimator, name: str) -> str | None:
    """Name under which `fit` of an estimator takes groups or weights; None if it does not."""
    if has_fit_parameter(estimator, name):
        return name
    if get_config()["enable_metadata_routing"]:
        routed = get_routing_for_object(estimator).consumes("fit", [name])
        return name if routed else None
    if hasattr(estimator, "refit") and hasattr(estimator, "estimator"):  # a search
        return name if name == "groups" else _fit_parameter(estimator.estimator, name)
    if isinstance(estimator, Pipeline) and has_fit_parameter(estimator[-1], name):
        return f"{estimator.steps[-1][0]}__{name}"
    return None
