"""The classifier to reach for: several kinds, weighed by what they said of data held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.committee.tangent import TangentClassifier
from divlearn.committee.weights import fit_weights, floored
from divlearn.engines import Engine
from divlearn.fitting.checkpoint import checkpointed, draw_seed, stage
from divlearn.fitting.folds import Folds
from divlearn.fitting.interrupts import Interrupts, see_through
from divlearn.fitting.labelled import Labelled, MatricesMixin, all_or_nothing, check_labelled
from divlearn.fitting.progress import track
from divlearn.iddl import IDDLClassifier
from divlearn.kernels import DivergenceKernelClassifier
from divlearn.spd import check_spd
from divlearn.threads import limit_blas

__all__ = ["MEMBERS", "SPDClassifier"]

# Names of members, and of what they are among those that `IDDLClassifier` fits.
_IDDL = {
    "iddl softmax": "learned softmax", "iddl ridge": "learned ridge",
    "start softmax": "start softmax",
}  # fmt: skip
MEMBERS = (*_IDDL, "kernel", "tangent logistic", "tangent rbf", "tangent lda", "log rbf")


class SPDClassifier(ClassifierMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by a weighted average of quite different classifiers.

    .. math:: p(y \,|\, X) = \sum_m w_m \, p_m(y \,|\, X)

    All members are judged on the same folds by what they say of matrices they have not seen, and
    the weights make that mixture likely (`divlearn.committee.weights.fit_weights`). No kind wins on
    all data; the average is about as good as the best of them, and often better. Where the user
    interrupts, the members fitted by then make the committee.

    Parameters
    ----------
    members : sequence of str, default=MEMBERS
        "iddl softmax" and "iddl ridge" (learned atoms and divergences), "start softmax" (atoms from
        k-means, only the head learned), "kernel" (divergence-kernel SVM), and on tangent vectors at
        the mean "tangent logistic", "tangent rbf" (SVM) and "tangent lda" (with shrinkage; weights
        change the shares of its classes alone; left out where a training part has no more matrices
        than classes); "log rbf" is an SVM on logarithms, the vectors of the log-Euclidean metric.
    cv : int or splitter, default=4
        Folds. Where matrices come in groups that resemble each other, ``groups`` in `fit` keep them
        together, and only then are weights honest.
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
    message_ : str, how many members there are: fewer where the user interrupted.
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

    @all_or_nothing
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
            What belongs together, as patches of one image do, and must not be split by a fold.

        Returns
        -------
        self
        """
        self._check_members()
        data = check_labelled(X, y, sample_weight, self.class_weight, groups)
        self.classes_ = data.classes
        self.n_features_in_ = data.matrices.shape[-1]
        # Members see the matrices of weight > 0 alone, and so do their out-of-fold probabilities.
        kept = replace(
            data, kept=np.arange(len(data.codes)), y=data.y[data.kept], groups=data.kept_groups
        )
        given = {
            "X": kept.matrices, "y": kept.codes, "weights": kept.weights, "groups": kept.groups,
        }  # fmt: skip
        with checkpointed(self, **given):
            folds = self._folds(data)
            found = self._fit_members(kept, folds, draw_seed(self.random_state))
            self.members_ = {name: found[name] for name in self.members if name in found}
            see_through(partial(self._weigh, data))
        return self

    def _fit_members(self, data: Labelled, folds: Folds, seed: int) -> dict[str, Any]:
        """Fit the members, those that take longest last; an interrupt keeps what there is."""
        kinds = self._kinds(data, folds)
        found: dict[str, Any] = {}
        stopped = ""
        with Interrupts() as interrupts:
            try:
                for kind in track(kinds, "kinds of classifiers"):
                    if kind == "iddl":
                        found |= stage(kind, partial(self._fit_iddl, data, folds, seed))
                    else:
                        found[kind] = stage(kind, partial(self._fit_other, kind, data, folds))
                    if interrupts.seen:  # inside, where the best so far was kept
                        raise KeyboardInterrupt
            except KeyboardInterrupt:
                if not found:
                    raise KeyboardInterrupt("no member of the committee was fitted yet") from None
                stopped = "; interrupted by the user"
        self.message_ = f"{len(found)} of {len(self.members)} members were fitted{stopped}"
        return found

    def _kinds(self, data: Labelled, folds: Folds) -> list[str]:
        """Members that can be fitted, all that are IDDL as one, and last."""
        kinds = [name for name in self.members if name not in _IDDL]
        if min(len(rows) for rows, _ in folds) <= len(data.classes):
            # Discriminants need matrices that differ from the means of their classes.
            kinds = [name for name in kinds if name != "tangent lda"]
        if any(name in _IDDL for name in self.members):
            kinds.append("iddl")
        if not kinds:
            raise ValueError(
                f"members={self.members!r} must be trained on more matrices than there are "
                f"classes, {len(data.classes)}; pass more data, or name other members"
            )
        return kinds

    def _check_members(self) -> None:
        if isinstance(self.members, str) or not len(self.members):
            raise ValueError(f"members={self.members!r} must be a sequence of names")
        for name in self.members:
            if name not in MEMBERS:
                raise ValueError(f"member {name!r} must be one of {', '.join(MEMBERS)}")

    def _folds(self, data: Labelled) -> Folds:
        data.require_two("drop it or use IDDLClassifier")
        return data.folds(self.cv, draw_seed(self.random_state))

    def _fit_iddl(self, data: Labelled, folds: Folds, seed: int) -> dict[str, Any]:
        """Fit all members that are IDDL together: they share folds, atoms and what is screened."""
        wanted = [name for name in self.members if name in _IDDL]
        losses = {_IDDL[name].partition(" ")[2] for name in wanted}
        learns = any(not _IDDL[name].startswith("start") for name in wanted)
        family = IDDLClassifier(
            loss="auto" if len(losses) > 1 else losses.pop(), cv=list(folds),
            random_state=seed, engine=self.engine, verbose=max(self.verbose - 1, 0),
        )  # fmt: skip
        if not learns:
            family.set_params(max_iter=0)
        members = family.fit_members(data)
        # An interrupt leaves out those that were not reached.
        return {name: members[_IDDL[name]] for name in wanted if _IDDL[name] in members}

    def _fit_other(self, name: str, data: Labelled, folds: Folds) -> Any:
        X, codes, weights = data.matrices, data.codes, data.weights
        if name == "kernel":
            member = DivergenceKernelClassifier(cv=list(folds), engine=self.engine)
            return member.fit(X, codes, sample_weight=weights)
        with limit_blas(1):
            space, _, model = name.partition(" ")
            at = "mean" if space == "tangent" else "identity"
            return TangentClassifier(model, folds, at).fit(X, codes, weights)

    def _weigh(self, data: Labelled) -> None:
        said = np.stack([member.oof_proba_ for member in self.members_.values()])
        tested = np.flatnonzero(np.isfinite(said).all(axis=(0, 2)))
        said, codes = floored(said[:, tested]), data.codes[tested]
        shares = data.weights[tested] * len(tested) / data.weights[tested].sum()
        found = fit_weights(said, codes, shares)
        self.weights_ = dict(zip(self.members_, found.tolist(), strict=True))
        average = np.tensordot(found, said, axes=1)
        self.oof_proba_ = data.spread(tested, average)
        self.oof_accuracy_ = {
            name: float(np.average(p.argmax(axis=1) == codes, weights=shares))
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
