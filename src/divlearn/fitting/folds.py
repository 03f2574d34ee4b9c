"""Folds: the one place that decides what is held out."""

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
from sklearn.utils.validation import column_or_1d, has_fit_parameter

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import RandomState, check_sortable

Fold = tuple[Indices, Indices]
Folds = Sequence[Fold]


class _Splits(Protocol):
    """A splitter, as scikit-learn has them."""

    def split(self, X: ArrayLike, y: Labels | None, groups: Labels | None) -> Iterator[Fold]: ...


Splitter = int | _Splits | Iterable[Fold] | None
_DRAWS = 10  # of folds of groups, until every class is in every training part


def make_folds(
    cv: Splitter,
    n_matrices: int,
    y: Labels | None = None,
    groups: ArrayLike | None = None,
    *,
    kept: Indices | None = None,
    random_state: RandomState = None,
    classes: bool = True,
) -> list[Fold]:
    """Split matrices into training and held-out parts, of positions within ``kept``."""
    # A number of folds is an upper bound: there are no more than groups, or than matrices in the
    # largest class. Folds are shuffled, stratified by class, and keep groups together. Every class
    # is in every training part: a class with one matrix or group is never held out, and each group
    # is a fold where every draw holds out a whole class. A splitter or pairs of indices refer to
    # all matrices. ``classes`` says whether y holds labels. Empty where nothing can be held out.
    known = check_groups(groups, n_matrices)
    rows = np.arange(n_matrices) if kept is None else kept
    labels = None if y is None or not classes else y[rows]
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        if cv >= 2:
            together = None if known is None else known[rows]
            return _draw(int(cv), len(rows), labels, together, check_random_state(random_state))
        cv = int(cv)
    if cv is None or isinstance(cv, int | float | str):
        raise ValueError(f"cv={cv!r} must be an integer >= 2, a splitter or pairs of indices")
    splitter = selection.check_cv(cv)
    # Folds that are given fold by fold need no groups, and PredefinedSplit warns of them.
    is_given = isinstance(splitter, selection.PredefinedSplit)
    splits = splitter.split(np.zeros(n_matrices), y, None if is_given else known)
    folds = _translate(splits, n_matrices, rows)
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
    classes = None if y is None else y[rows]
    together = None if groups is None else groups[rows]
    most = len(rows)
    if classes is not None:
        most = int(np.unique(classes, return_counts=True)[1].max(initial=0))
    if together is not None:
        most = min(most, len(np.unique(together)))
    n_splits = min(n_splits, most)
    if n_splits < 2:
        return []
    kinds = selection.KFold, selection.GroupKFold
    if y is not None:
        kinds = selection.StratifiedKFold, selection.StratifiedGroupKFold
    splitter = kinds[groups is not None](n_splits, shuffle=True, random_state=rng)
    for _ in range(_DRAWS):
        with warnings.catch_warnings():
            # A class with fewer members than folds is missing from some held-out parts only.
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            held = [rows[test] for _, test in splitter.split(rows, classes, together)]
        folds = _hold_out(held, n_matrices)
        if _find_missing(folds, y) is None:
            return folds
    assert together is not None  # without groups the first draw is right
    return _hold_out([np.flatnonzero(groups == one) for one in np.unique(together)], n_matrices)


def _hold_out(parts: Sequence[Indices], n_matrices: int) -> list[Fold]:
    everything = np.arange(n_matrices)
    return [(np.setdiff1d(everything, held), held) for held in parts if len(held)]


def _can_be_held_out(n_matrices: int, y: Labels | None, groups: Labels | None) -> NDArray[np.bool_]:
    """Tell which matrices leave every class with others: not the only ones, nor the only group."""
    if y is None:
        return np.ones(n_matrices, dtype=bool)
    codes = np.unique(y, return_inverse=True)[1]
    alone = count_groups(codes, groups)[codes] == 1
    return ~alone if groups is None else ~np.isin(groups, groups[alone])


def _translate(splits: Iterable[Fold], n_matrices: int, rows: Indices) -> list[Fold]:
    """Turn indices of all matrices into positions within rows."""
    place = np.full(n_matrices, -1)
    place[rows] = np.arange(len(rows))
    try:
        found = [[place[np.asarray(part)] for part in pair] for pair in splits]
        folds = [(train[train >= 0], held[held >= 0]) for train, held in found]
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"cv must give pairs of indices, (train, test), of {n_matrices} matrices: {error}"
        ) from error
    folds = [(train, held) for train, held in folds if len(held)]
    if not folds:
        raise ValueError("cv holds out no matrix of weight > 0; pass another splitter")
    return folds


def _find_missing(folds: Folds, y: Labels | None) -> object:
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
        known: Labels = column_or_1d(groups)
    except ValueError as error:
        raise ValueError(str(error).replace("y should", "groups should")) from error
    check_sortable(known, "groups")
    unknown = known != known  # true for NaN, also among objects, and for NaT
    if unknown.any():
        i = int(unknown.argmax())
        raise ValueError(
            f"groups[{i}] is {known[i]!s}, must be a number or text; drop the samples where it is "
            "not known"
        )
    if len(known) != n_matrices:
        raise ValueError(
            f"groups has {len(known)} entries, must have one for each of the {n_matrices} matrices"
        )
    return known


def number_units(rows: Indices, groups: Labels | None) -> Indices:
    """Return numbers of what is independent: the groups of rows, or their matrices."""
    return np.unique(rows if groups is None else groups[rows], return_inverse=True)[1]


def find_dependent(rows: Indices, groups: Labels | None) -> Indices | None:
    """Return numbers of what is independent, or None where every row is."""
    # Splitters that repeat hold out a matrix several times, which tells no more than once does.
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
    given = {"groups": groups, "sample_weight": sample_weight}
    named = {_fit_parameter(estimator, name): one for name, one in given.items() if one is not None}
    return estimator.fit(X, y, **{name: one for name, one in named.items() if name})


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
