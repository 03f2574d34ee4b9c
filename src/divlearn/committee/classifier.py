"""The classifier to reach for: several kinds, weighted by the likelihood of held-out labels."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.checks import ClassWeight, RandomState, is_number
from divlearn.committee.calibrated import CalibratedClassifier
from divlearn.committee.weights import count_samples, find_simple, fit_weights, floored
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.checkpoint import checkpointed, draw_seed, stage
from divlearn.fitting.folds import Splitter
from divlearn.fitting.interrupts import is_interrupted, stoppable
from divlearn.fitting.labelled import (
    MatrixClassifierMixin,
    check_labelled,
    check_new,
    fit_method,
)
from divlearn.fitting.progress import overheard, say, tell
from divlearn.fitting.training import Training
from divlearn.iddl import IDDLClassifier
from divlearn.kernels import POINTS, DivergenceKernelClassifier
from divlearn.kernels.shared import make_tables, shared_columns
from divlearn.nearest import DivergenceMDM, NearestClassifier
from divlearn.tangent.classifier import TangentClassifier
from divlearn.tolerances import LEARNING_ACCURACY

Members = dict[str, BaseEstimator]
# In the order in which they are fitted: the later, the longer it takes.
_QUICK: dict[str, Callable[..., BaseEstimator]] = {
    "tangent lda": partial(TangentClassifier, "lda"),
    "tangent logistic": partial(TangentClassifier, "logistic"),
    "tangent rda": partial(TangentClassifier, "rda"),
    "tangent rbf": partial(TangentClassifier, "rbf"),
    "log rbf": partial(TangentClassifier, "rbf", at="identity"),
    "nearest mean": partial(DivergenceMDM, "choose"),
    # A coarse grid: the average makes up for it.
    "kernel": partial(DivergenceKernelClassifier, scales=(0.3, 1, 3), C=(3, 30)),
    "nearest neighbour": NearestClassifier,
}
MEMBERS = (*_QUICK, "iddl")
# Over pairs of matrices and atoms of a fold; as much work as learning was measured to be.
_PASSES = 6
_PROBED = 32  # matrices, to see how long a divergence takes

clock = time.monotonic  # tests have their own


class SPDClassifier(MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by a weighted average of different classifiers.

    .. math:: p(y \,|\, X) = \sum_m w_m \, p_m(y \,|\, X)

    The weights maximise the likelihood of held-out labels, with a prior for equal weights that is
    worth 50 samples. No member is best on all data. The average is about as good as the best
    member, and often better. `fit` leaves out members that cannot be fitted, and ``message_`` says
    why. After an interrupt, the committee consists of the members fitted so far.

    Parameters
    ----------
    members : sequence of str and (str, classifier), default=MEMBERS
        "tangent lda" (shrinkage LDA), "tangent rda" (regularised QDA), "tangent logistic" and
        "tangent rbf" (SVM) use tangent vectors at the mean. "log rbf" is an SVM on logarithms,
        "kernel" a divergence-kernel SVM. "nearest mean" and "nearest neighbour" choose their
        divergences. "iddl" is `IDDLClassifier`. A pair of a name and any classifier of matrices,
        such as a pipeline, adds a member of your own; see `CalibratedClassifier`.
    time_limit : float, optional
        Seconds for the members. Cheap ones come first. The kernel and IDDL are skipped if they
        would probably take longer than what is left. A member that has not finished by then is left
        out. At least one member is fitted.
    cv : int or splitter, default=4
        Folds. If matrices of one group resemble each other, pass ``groups`` to `fit`: folds then
        keep groups together. Otherwise held-out accuracies are too high, and weights favour members
        that overfit.
    class_weight : dict, "balanced" or None
    random_state : int, RandomState or None
    engine : str or Engine, default="auto"
    n_jobs : int or None, default=None
        Threads that fit candidates of a member to folds, as in scikit-learn; None for those of
        the engine. The result is the same for any number.
    verbose : int, default=0, 1 prints what is being fitted and the accuracy so far.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray
    weights_ : dict, of the members.
    oof_accuracy_ : dict, of the members and of "average", held-out accuracy
        What a member chooses, and the weights, are chosen for every fold without the fold.
    oof_proba_ : ndarray, shape (n_matrices, n_classes), held-out average, likewise.
    members_ : dict of fitted classifiers, each of which predicts by itself.
    message_ : str, how many members there are, and why the others were left out.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 40, 3, separation=4, random_state=0)
    >>> members = ("tangent rda", "kernel", "tangent lda")
    >>> classifier = SPDClassifier(members, random_state=0).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.8)
    True
    """

    members_: Members
    weights_: dict[str, float]
    oof_accuracy_: dict[str, float]
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]
    simple_: str | None
    message_: str

    def __init__(
        self,
        members: Sequence[str | tuple[str, BaseEstimator]] = MEMBERS,
        *,
        time_limit: float | None = None,
        cv: Splitter = 4,
        class_weight: ClassWeight = None,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.members, self.time_limit, self.cv = members, time_limit, cv
        self.class_weight, self.random_state, self.engine = class_weight, random_state, engine
        self.n_jobs, self.verbose, self.regularize = n_jobs, verbose, regularize

    @fit_method
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit and weight the members; parameters are those of `IDDLClassifier.fit`."""
        own = self._check_members()
        if not (self.time_limit is None or (is_number(self.time_limit) and self.time_limit > 0)):
            raise ValueError(f"time_limit={self.time_limit!r} must be > 0, in seconds, or None")
        data = check_labelled(self, X, y, sample_weight, self.class_weight, groups)
        given = {"y": data.codes, "weights": data.weights, "groups": data.kept_groups}
        with checkpointed(self, X=data.matrices, **given):
            data.require_two("drop it or use IDDLClassifier")
            folds = data.folds(self.cv, draw_seed(self.random_state))
            training = Training(data, folds, get_engine(self.engine, accuracy=LEARNING_ACCURACY))
            found = self._fit_members(training, own, draw_seed(self.random_state))
            self.members_ = {name: found[name] for name in self._names() if name in found}
            self._weigh(training)
        return self

    def _names(self) -> list[str]:
        return [one if isinstance(one, str) else one[0] for one in self.members]

    def _check_members(self) -> Members:
        """Return members of the user's own, by name."""
        if isinstance(self.members, str) or not len(self.members):
            raise ValueError(f"members={self.members!r} must be a sequence of names")
        own = {}
        for one in self.members:
            if isinstance(one, str) and one not in MEMBERS:
                raise ValueError(
                    f"member {one!r} must be one of {', '.join(MEMBERS)}, or (name, classifier)"
                )
            if not isinstance(one, str):
                if len(one) != 2 or not isinstance(one[0], str) or one[0] in MEMBERS:
                    raise ValueError(
                        f"member {one!r} must be a new name and a classifier, such as "
                        "('mine', classifier)"
                    )
                own[one[0]] = CalibratedClassifier(one[1])
                own[one[0]]._check_parameters()
        names = self._names()
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"member {twice[0]!r} is named twice; name it once")
        return own

    def _fit_members(self, training: Training, own: Members, seed: int) -> Members:
        """Fit the members, those that take longest last; an interrupt keeps what there is."""
        names = self._names()
        kinds = [name for name in (*_QUICK, *own, "iddl") if name in names]
        found: Members = {}
        notes: list[str] = []
        reached, limit, began = "", self.time_limit, clock()
        with stoppable(lambda: found):
            for done, kind in enumerate(kinds):
                left = np.inf if limit is None else limit - (clock() - began)
                if found and limit and self._estimate(kind, found, training) > left:
                    notes.append(f"{kind} was skipped: it would exceed time_limit={limit:g}")
                    continue
                tell("kinds of classifiers", done, len(kinds), f"fitting {kind}{reached}")
                say(self, f"{clock() - began:.1f} s: fitting {kind}{reached}")
                fit = partial(self._fit_member, kind, training, own, seed)
                # One member is needed, however long it takes.
                end = began + limit if found and limit else np.inf
                try:
                    with overheard(partial(_check_time, end)):
                        found[kind] = stage(kind, fit)
                except _TimeUp:
                    notes.append(f"{kind} was left out: it did not finish in time_limit={limit:g}")
                    continue
                # No reason to do without the others.
                except (ValueError, FloatingPointError) as error:
                    notes.append(f"{kind} was left out: {error}")
                    continue
                reached = f"; held-out accuracy: {kind} {_accuracy(found[kind], training):.1%}"
                if is_interrupted():  # inside, where the best so far was kept
                    break
            else:
                tell("kinds of classifiers", len(kinds), len(kinds), reached.removeprefix("; "))
        if is_interrupted():
            notes.append("interrupted by the user")
        if not found:
            raise ValueError(f"no member could be fitted: {'; '.join(notes)}; pass more data")
        count = f"{len(found)} of {len(self.members)} members were fitted"
        self.message_ = "; ".join([count, *notes])
        return found

    def _fit_member(self, name: str, training: Training, own: Members, seed: int) -> BaseEstimator:
        if name == "iddl":
            verbose = max(self.verbose - 1, 0)
            member = IDDLClassifier(random_state=seed, engine=self.engine, verbose=verbose)
        else:
            member = own[name] if name in own else _QUICK[name](engine=self.engine)
            if self.n_jobs is not None and hasattr(member, "n_jobs"):
                member.set_params(n_jobs=self.n_jobs)
        member.fit_training(training)
        if not np.isfinite(member.oof_proba_[training.data.kept[training.tested]]).all():
            raise FloatingPointError(f"held-out probabilities of {name} are not all numbers")
        return member

    def _estimate(self, kind: str, found: Members, training: Training) -> float:
        """Guess the seconds that a kind of member takes, from a few pairs of matrices."""
        data = training.data
        n, n_folds = len(data.codes), len(training.folds)
        n_columns = len(shared_columns(training))
        pairs = {
            "kernel": n * n_columns / (2 if n_columns == n else 1),
            "iddl": _PASSES * n * 3 * len(data.classes) * n_folds,
        }
        if kind == "nearest neighbour" and "kernel" not in found and n_columns == n:
            kind = "kernel"  # which computes the same tables
        if kind not in pairs:
            return 0.0
        some = data.matrices[:: max(n // _PROBED, 1)]
        began = clock()
        make_tables(training.engine, some, POINTS)
        return pairs[kind] * (clock() - began) / (len(some) ** 2 / 2)

    def _weigh(self, training: Training) -> None:
        """Weight the members; held-out averages have weights from the other folds."""
        data, tested = training.data, training.tested
        members, codes = self.members_.values(), data.codes[tested]
        said = floored(np.stack([one.oof_proba_[data.kept[tested]] for one in members]))
        # Members are weighed as they will predict, with all folds for their choice.
        final = np.stack([one._optimistic_proba[data.kept[tested]] for one in members])
        groups = data.kept_groups
        units = np.unique(tested if groups is None else groups[tested], return_inverse=True)[1]
        counts = count_samples(data.weights[tested], units)
        found = fit_weights(final, codes, counts)
        self.weights_ = dict(zip(self.members_, found.tolist(), strict=True))
        average = np.empty(said.shape[1:])
        for _, held in training.folds:
            own = np.isin(tested, held)
            others = ~own if not own.all() else own
            without = fit_weights(said[:, others], codes[others], counts[others])
            average[own] = np.tensordot(without, said[:, own], axes=1)
        self.oof_proba_ = data.spread(tested, average)
        right = {
            name: p.argmax(axis=1) == codes
            for name, p in zip([*self.members_, "average"], [*said, average], strict=True)
        }
        self.oof_accuracy_ = {n: float(np.average(r, weights=counts)) for n, r in right.items()}
        simple = {name: right[name] for name in self.members_ if name != "iddl"}
        self.simple_ = find_simple(simple, right["average"], counts, units)
        say(self, self.summary())

    def summary(self) -> str:
        """List the weights of the members, and say whether a single member would do as well."""
        check_is_fitted(self)
        parts = [
            f"{name} {weight:.2f} (accuracy {self.oof_accuracy_[name]:.1%})"
            for name, weight in sorted(self.weights_.items(), key=lambda item: -item[1])
        ]
        text = (
            f"Weights by the likelihood of held-out labels: {', '.join(parts)}. The average has a "
            f"held-out accuracy of {self.oof_accuracy_['average']:.1%}."
        )
        if self.simple_ is not None and len(self.members_) > 1:
            text += (
                f" {self.simple_} alone is as good within one standard error; "
                f"SPDClassifier(({self.simple_!r},)) is simpler."
            )
        return text

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes)."""
        checked = Prepared.checked(check_new(self, X))
        mixture = np.zeros((checked.n_matrices, len(self.classes_)))
        for name, member in self.members_.items():
            mixture += self.weights_[name] * floored(member.predict_proba(checked))
        return mixture


class _TimeUp(Exception):
    """The time of the members is over."""


def _check_time(end: float) -> None:
    if end < np.inf and clock() > end:
        raise _TimeUp


def _accuracy(member: BaseEstimator, training: Training) -> float:
    data, tested = training.data, training.tested
    right = member.oof_proba_[data.kept[tested]].argmax(axis=1) == data.codes[tested]
    return float(np.average(right, weights=data.weights[tested]))
