"""The classifier to reach for: several kinds, weighted by the likelihood of held-out labels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.committee.tangent import Features, TangentClassifier, tangent_features
from divlearn.engines import Engine
from divlearn.fitting import labelled
from divlearn.fitting.checkpoint import checkpointed, draw_seed, stage
from divlearn.fitting.folds import Folds
from divlearn.fitting.interrupts import Interrupts, note_interrupt, see_through
from divlearn.fitting.labelled import Labelled, check_labelled, check_new
from divlearn.fitting.progress import say, track
from divlearn.iddl import IDDLClassifier
from divlearn.kernels import DivergenceKernelClassifier
from divlearn.threads import limit_blas

_PULL = 5.0  # of weights towards equal ones, in units of samples
_FLOOR = 1e-3  # of probabilities: nobody is that sure

# Names of members, and of what they are among those that `IDDLClassifier` fits.
_IDDL = {
    "iddl softmax": "learned softmax", "iddl ridge": "learned ridge",
    "start softmax": "start softmax",
}  # fmt: skip
MEMBERS = (*_IDDL, "kernel", "tangent logistic", "tangent rbf", "tangent lda", "log rbf")


class SPDClassifier(labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by a weighted average of quite different classifiers.

    .. math:: p(y \,|\, X) = \sum_m w_m \, p_m(y \,|\, X)

    The weights maximise the likelihood of held-out labels, with a pull towards equal weights. No
    kind wins on all data; the average is about as good as the best of them, and often better. Where
    the user interrupts, the members fitted by then make the committee.

    Parameters
    ----------
    members : sequence of str, default=MEMBERS
        "iddl softmax" and "iddl ridge" (learned atoms and divergences), "start softmax" (atoms from
        k-means, only the head learned), "kernel" (divergence-kernel SVM), and on tangent vectors at
        the mean "tangent logistic", "tangent rbf" (SVM) and "tangent lda" (left out where folds
        train on no more matrices than classes); "log rbf" is an SVM on logarithms.
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
    oof_accuracy_ : dict, of the members and of "average", held-out accuracy.
    oof_proba_ : ndarray, shape (n_matrices, n_classes), held-out average.
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
        self, members: Sequence[str] = MEMBERS, *, cv: Any = 4, class_weight: Any = None,
        random_state: int | np.random.RandomState | None = None, engine: str | Engine = "auto",
        verbose: int = 0,
    ) -> None:  # fmt: skip
        self.members = members
        self.cv = cv
        self.class_weight = class_weight
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose

    @labelled.all_or_nothing
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Fit and weigh the members; parameters are those of `IDDLClassifier.fit`."""
        if isinstance(self.members, str) or not len(self.members):
            raise ValueError(f"members={self.members!r} must be a sequence of names")
        for name in self.members:
            if name not in MEMBERS:
                raise ValueError(f"member {name!r} must be one of {', '.join(MEMBERS)}")
        data = check_labelled(X, y, sample_weight, self.class_weight, groups)
        self.classes_, self.n_features_in_ = data.classes, data.matrices.shape[-1]
        # Members see the matrices of weight > 0 alone, and so do their held-out probabilities.
        kept = replace(
            data, kept=np.arange(len(data.codes)), y=data.y[data.kept], groups=data.kept_groups
        )
        given = {
            "X": kept.matrices, "y": kept.codes, "weights": kept.weights, "groups": kept.groups,
        }  # fmt: skip
        with checkpointed(self, **given):
            data.require_two("drop it or use IDDLClassifier")
            folds = data.folds(self.cv, draw_seed(self.random_state))
            found = self._fit_members(kept, folds, draw_seed(self.random_state))
            self.members_ = {name: found[name] for name in self.members if name in found}
            see_through(partial(self._weigh, data))
        return self

    def _fit_members(self, data: Labelled, folds: Folds, seed: int) -> dict[str, Any]:
        """Fit the members, those that take longest last; an interrupt keeps what there is."""
        kernel = DivergenceKernelClassifier(cv=list(folds), engine=self.engine)
        found: dict[str, Any] = {}
        stopped = ""

        @lru_cache(1)  # members that share a tangent space follow each other
        def features(at: str) -> Features:
            return tangent_features(data.matrices, folds, at)

        with Interrupts() as interrupts:
            try:
                for kind in track(self._kinds(data, folds), "kinds of classifiers"):
                    if kind == "iddl":
                        found |= stage(kind, partial(self._fit_iddl, data, folds, seed))
                    elif kind == "kernel":
                        fit = partial(kernel.fit, data.matrices, data.codes, data.weights)
                        found[kind] = stage(kind, fit)
                    else:
                        fit = partial(_fit_tangent, kind, features, data, folds)
                        found[kind] = stage(kind, fit)
                    if interrupts.seen:  # inside, where the best so far was kept
                        raise KeyboardInterrupt
            except KeyboardInterrupt:
                note_interrupt()
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
        say(self, self.summary())

    def summary(self) -> str:
        """Say what weighs how much, and why."""
        check_is_fitted(self)
        parts = [
            f"{name} {weight:.2f} (right on {self.oof_accuracy_[name]:.1%})"
            for name, weight in sorted(self.weights_.items(), key=lambda item: -item[1])
        ]
        return (
            f"Weights by the likelihood of held-out labels: {', '.join(parts)}. The average is "
            f"right on {self.oof_accuracy_['average']:.1%} of it."
        )

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes)."""
        matrices = check_new(self, X)
        mixture = np.zeros((len(matrices), len(self.classes_)))
        for name, member in self.members_.items():
            mixture += self.weights_[name] * floored(member.predict_proba(matrices))
        return mixture

    def _predict_codes(self, X: ArrayLike) -> NDArray[np.intp]:
        return self.predict_proba(X).argmax(axis=1)


def _fit_tangent(
    name: str, features: Callable[[str], Features], data: Labelled, folds: Folds
) -> TangentClassifier:
    space, _, model = name.partition(" ")
    with limit_blas(1):
        known = features("mean" if space == "tangent" else "identity")
        return TangentClassifier(model).fit(known, data.codes, data.weights, folds)


def floored(probabilities: RealArray) -> RealArray:
    """Mix probabilities with a little of every class, so that no logarithm is infinite."""
    return (1 - _FLOOR) * probabilities + _FLOOR / probabilities.shape[-1]


def fit_weights(
    probabilities: RealArray, codes: NDArray[np.intp], sample_weight: RealArray
) -> RealArray:
    r"""Weights of members that maximise the likelihood of held-out labels.

    .. math:: \min_w \; -\sum_i s_i \log \sum_m w_m p_m(y_i \,|\, X_i)
              - 5 \cdot \frac1M \sum_m \log w_m , \qquad w \ge 0, \; \sum_m w_m = 1

    The second term holds the weights together where the data does not tell members apart.
    """
    true = floored(probabilities)[:, np.arange(len(codes)), codes]
    n_members = len(true)

    def objective(z: RealArray) -> tuple[float, RealArray]:
        w = softmax(z)
        mixture = w @ true
        value = -float(sample_weight @ np.log(mixture)) - _PULL * float(np.log(w).mean())
        slope = -(true @ (sample_weight / mixture)) - _PULL / n_members / w
        return value, w * (slope - w @ slope)

    found = minimize(objective, np.zeros(n_members), jac=True, method="BFGS")
    return softmax(found.x)
