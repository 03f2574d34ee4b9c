"""The classifier to reach for: several kinds, weighed by what they said of data held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_random_state, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from divlearn.arrays import RealArray
from divlearn.committee.tangent import TangentClassifier
from divlearn.committee.weights import fit_weights, floored
from divlearn.engines import Engine
from divlearn.engines.blas import limit_blas
from divlearn.iddl import IDDLClassifier
from divlearn.iddl.ensemble import Folds
from divlearn.iddl.goals import make_folds
from divlearn.kernels import DivergenceKernelClassifier
from divlearn.spd import check_spd

__all__ = ["MEMBERS", "SPDClassifier"]

MEMBERS = (
    "iddl softmax", "iddl ridge", "start softmax", "kernel", "tangent logistic", "tangent rbf",
    "tangent lda",
)  # fmt: skip


class _Given:
    """Folds that are given, in the form of a splitter."""

    def __init__(self, folds: Folds) -> None:
        self.folds = folds

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Folds:
        return self.folds


class SPDClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by a weighted average of quite different classifiers.

    .. math:: p(y \,|\, X) = \sum_m w_m \, p_m(y \,|\, X)

    All members are judged on the same folds by what they say of matrices they have not seen, and
    the weights make that mixture likely (`divlearn.committee.weights.fit_weights`). No kind wins on
    all data; the average is about as good as the best of them, and often better.

    Parameters
    ----------
    members : sequence of str, default=MEMBERS
        "iddl softmax" and "iddl ridge" (learned atoms and divergences), "start softmax" (atoms from
        k-means, only the head learned), "kernel" (divergence-kernel SVM), and on tangent vectors at
        the mean "tangent logistic", "tangent rbf" (SVM) and "tangent lda" (with shrinkage).
    cv : int or splitter, default=4
        Folds. Where matrices come in groups that resemble each other, a splitter that keeps groups
        together gives honest weights.
    class_weight : dict, "balanced" or None
    random_state : int, RandomState or None
    engine : str or Engine, default="auto"
    verbose : int, default=0

    Attributes
    ----------
    classes_ : ndarray
    weights_ : dict, of the members.
    oof_accuracy_ : dict, of the members and of "average", on data held out.
    oof_proba_ : ndarray, shape (n_matrices, n_classes), the average for data held out.
    members_ : dict of fitted classifiers
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 40, 3, separation=4, random_state=0)
    >>> members = ("start softmax", "kernel", "tangent lda")
    >>> classifier = SPDClassifier(members, random_state=0).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.8)
    True
    """

    def __init__(
        self,
        members: Sequence[str] = MEMBERS,
        *,
        cv: Any = 4,
        class_weight: Any = None,
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
    ) -> None:
        self.members = members
        self.cv = cv
        self.class_weight = class_weight
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Fit and weigh the members.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
        y : array-like, shape (n_matrices,)
        sample_weight : array-like, shape (n_matrices,), optional
        groups : array-like, shape (n_matrices,), optional
            For a splitter that needs them.

        Returns
        -------
        self
        """
        self._check_members()
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        labels: NDArray[Any] = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_consistent_length(matrices, labels)
        check_classification_targets(labels)
        weights = _check_sample_weight(sample_weight, matrices, ensure_non_negative=True)
        kept = np.flatnonzero(weights)  # a weight of zero is no sample at all
        n_given, matrices, labels = len(matrices), matrices[kept], labels[kept]
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds the one class {self.classes_[0]!s}, must hold >= 2; pass data of more"
            )
        weights = weights[kept] * compute_sample_weight(self.class_weight, labels)
        folds = self._folds(codes, None if groups is None else np.asarray(groups)[kept])
        self.n_features_in_ = matrices.shape[-1]
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        self.members_ = {
            name: self._fit_member(name, matrices, codes, weights, folds, seed)
            for name in self.members
        }
        self._weigh(codes, weights, kept, n_given)
        return self

    def _check_members(self) -> None:
        if isinstance(self.members, str) or not len(self.members):
            raise ValueError(f"members={self.members!r} must be a sequence of names")
        for name in self.members:
            if name not in MEMBERS:
                raise ValueError(f"member {name!r} must be one of {', '.join(MEMBERS)}")

    def _folds(self, codes: NDArray[np.intp], groups: NDArray[Any] | None) -> Folds:
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        fewest, rarest = np.bincount(codes).min(), np.bincount(codes).argmin()
        if fewest < 2:
            raise ValueError(
                f"class {self.classes_[rarest]!s} has 1 matrix, must have >= 2, one to train on "
                "and one to judge by; drop it or use IDDLClassifier"
            )
        folds = make_folds(self.cv, len(codes), codes, groups, seed)
        assert folds is not None
        for rows, _ in folds:
            if len(np.unique(codes[rows])) < len(self.classes_):
                raise ValueError(
                    "a fold trains on data without some class; use fewer folds or another splitter"
                )
        return folds

    def _fit_member(
        self, name: str, X: RealArray, codes: NDArray[np.intp], weights: RealArray, folds: Folds,
        seed: int,
    ) -> Any:  # fmt: skip
        kind, _, what = name.partition(" ")
        if kind == "tangent":
            with limit_blas(1):
                return TangentClassifier(what, folds).fit(X, codes, weights)
        if kind == "kernel":
            member: Any = DivergenceKernelClassifier(cv=list(folds), engine=self.engine)
        else:
            learns = kind == "iddl"
            member = IDDLClassifier(
                loss=what, learn_atoms=learns, learn_parameters=learns, ensemble=_Given(folds),
                random_state=seed, engine=self.engine,
            )  # fmt: skip
        return member.fit(X, codes, sample_weight=weights)

    def _weigh(
        self, codes: NDArray[np.intp], weights: RealArray, kept: NDArray[np.intp], n_given: int
    ) -> None:
        said = np.stack([member.oof_proba_ for member in self.members_.values()])
        tested = np.flatnonzero(np.isfinite(said).all(axis=(0, 2)))
        said = floored(said[:, tested])
        shares = weights[tested] * len(tested) / weights[tested].sum()
        found = fit_weights(said, codes[tested], shares)
        self.weights_ = dict(zip(self.members_, found.tolist(), strict=True))
        average = np.tensordot(found, said, axes=1)
        self.oof_proba_ = np.full((n_given, len(self.classes_)), np.nan)
        self.oof_proba_[kept[tested]] = average
        self.oof_accuracy_ = {
            name: float(np.average(p.argmax(axis=1) == codes[tested], weights=shares))
            for name, p in zip([*self.members_, "average"], [*said, average], strict=True)
        }
        if self.verbose:
            print(f"[SPDClassifier] {self.summary()}")

    def summary(self) -> str:
        """Say what weighs how much, and why."""
        check_is_fitted(self)
        ranked = sorted(self.weights_, key=lambda name: -self.weights_[name])
        parts = [
            f"{name} {self.weights_[name]:.2f} (right on {self.oof_accuracy_[name]:.1%})"
            for name in ranked
        ]
        return (
            f"Weights by the likelihood of data held out: {', '.join(parts)}. The average is right "
            f"on {self.oof_accuracy_['average']:.1%} of it."
        )

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes)."""
        check_is_fitted(self)
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        if matrices.shape[-1] != self.n_features_in_:
            raise ValueError(
                f"X has matrices of size {matrices.shape[-1]}, but SPDClassifier is expecting "
                f"{self.n_features_in_}"
            )
        mixture = np.zeros((len(matrices), len(self.classes_)))
        for name, member in self.members_.items():
            mixture += self.weights_[name] * floored(member.predict_proba(matrices))
        return mixture

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable classes, shape (n_matrices,)."""
        probabilities = self.predict_proba(X)
        chosen: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return chosen

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags
