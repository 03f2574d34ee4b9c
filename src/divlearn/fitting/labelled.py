"""Matrices with labels or numbers, checked once, and mixins of estimators of SPD matrices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import ClassWeight, RandomState
from divlearn.divergence import Divergence
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.folds import Fold, Splitter, check_groups, count_groups, make_folds
from divlearn.fitting.progress import print_progress, user_call
from divlearn.fitting.targets import check_labels, check_numbers, class_factors, keep_classes
from divlearn.hermitian import from_real_form, is_complex, real_form
from divlearn.spd import Shrinkage, check_and_learn, check_spd
from divlearn.threads import count_jobs
from divlearn.weights import check_weights, normalize_weights

_Fit = TypeVar("_Fit", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)

ROUNDING = 1e-14  # of a standard deviation, relative to the largest number


def fit_method(fit: _Fit) -> _Fit:
    """Let a method that fits forget earlier fits, print progress, and restore all if it fails.

    `partial_fit` continues an earlier fit instead.
    """

    @wraps(fit)
    def restoring(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        if fit.__name__ != "partial_fit":
            _forget(self)
        try:
            with user_call(), print_progress(type(self).__name__, getattr(self, "verbose", 0)):
                return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(_Fit, restoring)


def _forget(estimator: Any) -> None:
    """Remove learned attributes: a fit with other parameters may not set all of them."""
    annotated = {name for base in type(estimator).__mro__ for name in get_annotations(base)}
    for name in list(vars(estimator)):
        is_private = name.startswith("_") and name in annotated
        if is_private or (name.endswith("_") and name != "feature_names_in_"):
            delattr(estimator, name)


def takes_metric(estimator: _Class) -> _Class:
    """Let a class accept ``metric``, as in pyRiemann, for its parameter ``divergence``."""

    # The alias is not a parameter: `get_params` and `clone` use ``divergence`` only.
    def rename(instance: Any, keywords: dict[str, Any]) -> dict[str, Any]:
        if "metric" not in keywords:
            return keywords
        if "divergence" in keywords:
            raise TypeError(
                f"{type(instance).__name__} got divergence={keywords['divergence']!r} and "
                f"metric={keywords['metric']!r}, two names of one parameter; pass one of them"
            )
        return dict(divergence=keywords.pop("metric"), **keywords)

    def assign(self: Any, metric: Any) -> None:
        self.divergence = metric

    alias = property(lambda self: self.divergence, assign, doc="Alias of ``divergence``.")
    estimator.metric = alias  # type: ignore[attr-defined]
    return rewrite_keywords(estimator, rename)


def rewrite_keywords(
    estimator: _Class, rewrite: Callable[[Any, dict[str, Any]], dict[str, Any]]
) -> _Class:
    """Let a function of the instance and the keywords rewrite those that set parameters."""

    def rewriting(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def rewritten(self: Any, *args: Any, **keywords: Any) -> Any:
            return method(self, *args, **rewrite(self, keywords))

        return rewritten

    for name in ("__init__", "set_params"):
        setattr(estimator, name, rewriting(getattr(estimator, name)))
    return estimator


def engine_of(estimator: BaseEstimator, accuracy: str | float = "auto") -> Engine:
    """Return the engine of an estimator, with ``n_jobs`` threads if it is given by name."""
    n_jobs = getattr(estimator, "n_jobs", None)
    n_threads = None if n_jobs is None else count_jobs(n_jobs, 1)
    return get_engine(estimator.engine, n_threads, accuracy)


class MatricesMixin:
    """Tags of estimators whose input are matrices, shape (n_matrices, d, d)."""

    shrinkage_: Shrinkage | None = None  # learned by `check_training`, used by `check_new`
    hermitian_: bool = False  # whether it was fitted to the real form of complex matrices
    feature_names_in_: Annotated[Labels, "d"]  # of channels, set by users
    _takes_complex = True

    @property
    def _share(self) -> float:
        """Factor of divergences: those of real forms are twice those of complex matrices."""
        return 0.5 if self.hermitian_ else 1.0

    def _for_checked(self, divergence: Divergence) -> Divergence:
        """Return a divergence for checked matrices, which may be real forms of complex ones."""
        return divergence.for_forms(self._share)

    def _as_given(self, matrices: RealArray) -> RealArray:
        """Return matrices as complex ones if the estimator was fitted to complex ones."""
        return from_real_form(matrices) if self.hermitian_ else matrices

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


class MatrixClassifierMixin(ClassifierMixin, MatricesMixin):  # type: ignore[misc]
    """Classifiers of matrices, with `predict_proba`, `decision_function` or `_predict_codes`."""

    classes_: Annotated[Labels, "n_classes"]
    n_features_in_: Annotated[int, "d"]

    def predict(self, X: ArrayLike) -> Labels:
        """Most probable classes, shape (n_matrices,); the first of ``classes_`` if some tie."""
        codes = self._predict_codes(X)  # before classes_, to report a model that is not fitted
        return self.classes_[codes]

    def _predict_codes(self, X: ArrayLike) -> Indices:
        """Return indices of classes, shape (n_matrices,)."""
        model: Any = self
        # Probabilities come first: scores that differ by rounding may tie as probabilities.
        probabilistic = hasattr(model, "predict_proba")
        scores = model.predict_proba(X) if probabilistic else model.decision_function(X)
        best = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        return best.astype(np.intp)


@dataclass(frozen=True, eq=False)
class Checked:
    """Checked matrices, without those of weight zero."""

    _classes: ClassVar[bool]  # whether y holds labels

    matrices: RealArray
    weights: RealArray
    positions: Indices  # positions among the matrices passed to `fit`
    y: Labels  # of all matrices passed to `fit`
    groups: Labels | None  # likewise

    @property
    @abstractmethod
    def strata(self) -> Indices:
        """Classes, all of which every training part must have."""

    @property
    def matrix_groups(self) -> Labels | None:
        return None if self.groups is None else self.groups[self.positions]

    def folds(self, cv: Splitter, random_state: RandomState) -> list[Fold]:
        return make_folds(
            cv,
            len(self.y),
            self.y,
            self.groups,
            positions=self.positions,
            random_state=random_state,
            classes=self._classes,
        )

    def scatter(self, rows: Indices, values: RealArray) -> RealArray:
        """Scatter values of rows to all matrices passed to `fit`; NaN for the others."""
        result = np.full((len(self.y), *values.shape[1:]), np.nan)
        result[self.positions[rows]] = values
        return result


@dataclass(frozen=True, eq=False)
class Labelled(Checked):
    """Matrices of two classes at least, without those of weight zero."""

    _classes = True

    codes: Indices  # indices of classes
    classes: Labels
    sample_weights: RealArray  # without class weights, for held-out figures

    @property
    def strata(self) -> Indices:
        return self.codes

    def require_two(self, fix: str) -> None:
        """Raise unless every class has two matrices, or groups: to train on and to test on."""
        counts = count_groups(self.codes, self.matrix_groups)
        if counts.min() < 2:
            unit = "matrix" if self.groups is None else "group"
            raise ValueError(
                f"class {self.classes[counts.argmin()]!s} has 1 {unit}, must have >= 2, one to "
                f"train on and one to test on; {fix}"
            )


@dataclass(frozen=True, eq=False)
class Numbered(Checked):
    """Matrices and numbers to predict, without those of weight zero."""

    _classes = False

    numbers: RealArray  # standardised, shape (n_matrices,) or (n_matrices, n_outputs)
    mean: RealArray
    scale: RealArray

    @property
    def strata(self) -> Indices:
        return np.zeros(len(self.matrices), dtype=np.intp)

    def standardize(self, values: RealArray) -> RealArray:
        return (values - self.mean) / self.scale

    def restore(self, values: RealArray) -> RealArray:
        return values * self.scale + self.mean


def check_labelled(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    groups: ArrayLike | None = None,
) -> Labelled:
    """Check the data to learn from, and set ``classes_``; `class_weight` multiplies the weights.

    Weights are then divided by their mean: their scale does not matter.
    """
    matrices = check_training(estimator, X, sample_weight)
    weights = check_weights(sample_weight, len(matrices))
    data = label(matrices, y, weights, class_weight, groups)
    estimator.classes_, estimator.n_features_in_ = data.classes, matrices.shape[-1]
    return data


def label(
    matrices: RealArray,
    y: ArrayLike | None,
    weights: RealArray,
    class_weight: ClassWeight,
    groups: ArrayLike | None = None,
) -> Labelled:
    """Check labels and groups of matrices and weights that were checked before."""
    labels = check_labels(y, len(matrices))
    kept = np.flatnonzero(weights)  # "balanced" counts these
    classes, codes, counts = np.unique(labels[kept], return_inverse=True, return_counts=True)
    factors = class_factors(class_weight, classes, counts)
    with np.errstate(over="ignore"):
        products: RealArray = weights[kept] * factors[codes]
    positive = keep_classes(classes, counts, np.bincount(codes, products))
    rows = np.flatnonzero(products)
    kept, codes, classes = kept[rows], (np.cumsum(positive) - 1)[codes[rows]], classes[positive]
    products, weights = normalize_weights(products[rows]), normalize_weights(weights[kept])
    groups = check_groups(groups, len(labels))
    return Labelled(matrices[kept], products, kept, labels, groups, codes, classes, weights)


def check_numbered(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Numbered:
    """Check the data to learn from, with one number for every matrix."""
    matrices = check_training(estimator, X, sample_weight)
    numbers = column_or_1d(check_numbers(y, len(matrices)), warn=True)
    data = number(matrices, numbers, check_weights(sample_weight, len(matrices)), groups)
    if len(data.matrices) < 2:
        raise ValueError(
            f"n_samples={len(data.matrices)} of weight > 0 must be >= 2, one to train on and one "
            "to test on; pass more matrices"
        )
    return data


def number(
    matrices: RealArray, y: RealArray, weights: RealArray, groups: ArrayLike | None = None
) -> Numbered:
    """Standardise numbers of matrices and weights that were checked before."""
    kept = np.flatnonzero(weights)  # a weight of zero leaves a matrix out
    weights, values = weights[kept], y[kept]
    _, power = np.frexp(np.abs(values).max(axis=0))
    values = np.ldexp(values, -power)  # exactly; squares neither overflow nor underflow
    mean = np.asarray(np.average(values, axis=0, weights=weights))
    deviation = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    constant = deviation <= ROUNDING
    scale = np.where(constant, 1.0, deviation)
    numbers = np.where(constant, 0.0, (values - mean) / scale)
    mean, scale = np.ldexp(mean, power), np.ldexp(scale, power)
    groups = check_groups(groups, len(y))
    return Numbered(matrices[kept], weights, kept, y, groups, numbers, mean, scale)


def real_training(estimator: BaseEstimator, X: ArrayLike) -> ArrayLike:
    """Return the real form of complex training matrices, and set ``hermitian_``."""
    estimator.hermitian_ = is_complex(X)
    if estimator.hermitian_ and not estimator._takes_complex:
        raise TypeError(
            f"X has dtype complex, but {type(estimator).__name__} knows densities of real matrices "
            "only; use k-means"
        )
    return real_form(X)


def real_new(estimator: BaseEstimator, X: ArrayLike, name: str = "X") -> ArrayLike:
    """Return the real form of matrices if those in `fit` were complex."""
    if is_complex(X) and not estimator.hermitian_:
        raise ValueError(
            f"{name} is complex, but {type(estimator).__name__} was fitted to real matrices; fit "
            "it to complex ones"
        )
    return real_form(X, name, always=estimator.hermitian_)


def check_training(
    estimator: BaseEstimator,
    X: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    dtype: DTypeLike | None = np.float64,
) -> RealArray:
    """Check training matrices, and learn how to regularize these and new ones."""
    vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
    matrices, estimator.shrinkage_ = check_and_learn(
        real_training(estimator, X), estimator.regularize, sample_weight, ndim=3, dtype=dtype
    )
    return matrices


def check_new(
    estimator: BaseEstimator, X: ArrayLike | Prepared, *, dtype: DTypeLike | None = np.float64
) -> RealArray:
    """Check new matrices, unless they are `Prepared`; the estimator is fitted to their size."""
    if isinstance(X, Prepared):
        matrices = X.matrices
    else:
        check_is_fitted(estimator)
        X = real_new(estimator, X)
        matrices = check_spd(X, regularize=estimator.shrinkage_, ndim=3, dtype=dtype)
    check_size(estimator, matrices.shape[-1])
    return matrices


def prepare_new(estimator: BaseEstimator, X: ArrayLike | Prepared) -> Prepared:
    """Check new matrices, and wrap them with features that models compute once."""
    matrices = check_new(estimator, X)
    return X if isinstance(X, Prepared) else Prepared.checked(matrices)


def check_size(estimator: BaseEstimator, d: int) -> None:
    expected = estimator.n_features_in_
    if d != expected:
        raise ValueError(
            f"X has matrices of size {d}, but {type(estimator).__name__} is expecting {expected}; "
            "pass matrices of the same size as in fit"
        )
