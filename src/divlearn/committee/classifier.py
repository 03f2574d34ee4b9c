"""Committee of classifiers, weighted by the likelihood of held-out labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, RealArray
from divlearn.checks import ClassWeight, RandomState
from divlearn.committee.base import Committee, MemberNames
from divlearn.committee.weights import Average, find_simple, fit_average, floored, sharpened
from divlearn.committee.wrapped import CalibratedClassifier
from divlearn.engines import Engine
from divlearn.fitting.folds import Splitter
from divlearn.fitting.labelled import MatrixClassifierMixin, check_labelled, fit_method, prepare_new
from divlearn.fitting.progress import say
from divlearn.fitting.training import Training
from divlearn.iddl import IDDLClassifier
from divlearn.kernels import DivergenceKernelClassifier
from divlearn.nearest import DivergenceMDM, NearestClassifier
from divlearn.tangent import TangentClassifier

# In the order of their fits: the slowest come last.
_QUICK: dict[str, Callable[..., BaseEstimator]] = {
    "tangent lda": partial(TangentClassifier, "lda"),
    "tangent logistic": partial(TangentClassifier, "logistic"),
    "tangent rda": partial(TangentClassifier, "rda"),
    "log rda": partial(TangentClassifier, "rda", at="identity"),
    "tangent rbf": partial(TangentClassifier, "rbf"),
    "log rbf": partial(TangentClassifier, "rbf", at="identity"),
    "nearest mean": partial(DivergenceMDM, "choose"),
    # A coarse grid: the average makes up for it.
    "kernel": partial(DivergenceKernelClassifier, scales=(0.3, 1, 3), C=(3, 30)),
    "nearest neighbour": NearestClassifier,
}
# Other discriminants and the other RBF SVM add nothing to these, see docs/accuracy.md.
MEMBERS = (
    "tangent logistic",
    "tangent rda",
    "log rbf",
    "nearest mean",
    "kernel",
    "nearest neighbour",
    "iddl",
)

_LEARNED_SHARE = 4.0  # of "iddl" in the prior of the weights, where another member has 1


class SPDClassifier(MatrixClassifierMixin, Committee[Training]):
    r"""Classify SPD matrices by a weighted average of different classifiers.

    .. math:: p(y \,|\, X) \propto \Bigl(\sum_m w_m \, p_m(y \,|\, X)\Bigr)^{1/T}

    The weights maximise the likelihood of held-out labels. Their prior is worth 5 samples, and
    gives "iddl", the best member on most data, four times the weight of another. The temperature T
    calibrates the average, likewise. No member is best on all data. The average is about as good as
    the best member, and often better. `fit` leaves out members that cannot be fitted, and
    ``message_`` says why. After an interrupt, the committee consists of the members fitted so far.

    Parameters
    ----------
    members : sequence of str and (str, classifier), default=MEMBERS
        "tangent logistic" and "tangent rda" (regularised QDA) use tangent vectors at the mean,
        "log rbf" (SVM) logarithms. "kernel" is a divergence-kernel SVM. "nearest mean" and
        "nearest neighbour" choose their divergences. "iddl" is `IDDLClassifier`. Not among the
        default members are "tangent lda" (shrinkage LDA), "tangent rbf", and "log rda", which
        "iddl" contains. A pair of a name and any classifier of matrices, such as a pipeline, adds
        a member of your own; see `CalibratedClassifier`.
    time_limit : float, optional
        Seconds for the members. Fast ones come first. The kernel and IDDL are skipped if they would
        probably exceed the limit, and a member that does exceed it is left out. At least one member
        is fitted.
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
    verbose : int, default=0, 1 prints progress and the accuracy so far.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray
    weights_ : dict, of the members.
    temperature_ : float, T of the average.
    oof_accuracy_ : dict, held-out accuracy of the members and of "average"
        For every fold, the choices of the members and the weights are made without the fold.
    oof_proba_ : ndarray, shape (n_matrices, n_classes), held-out average, in the same way.
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

    _kind = "classifier"
    _quick = _QUICK
    _learned = IDDLClassifier
    _wrapper = CalibratedClassifier

    temperature_: float = 1.0  # files of version 0.2 have none
    oof_accuracy_: dict[str, float]
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]

    def __init__(
        self,
        members: MemberNames = MEMBERS,
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
        users = self._check_parameters()
        data = check_labelled(self, X, y, sample_weight, self.class_weight, groups)
        data.require_two("drop it or use IDDLClassifier")
        self._fit(Training, data, data.codes, users)
        return self

    def _held_out(self, member: BaseEstimator) -> RealArray:
        return member.oof_proba_

    def _figure(self, name: str, member: BaseEstimator, training: Training) -> str:
        data, tested = training.data, training.tested
        is_right = member.oof_proba_[data.positions[tested]].argmax(axis=1) == data.codes[tested]
        return f"accuracy: {name} {np.average(is_right, weights=data.sample_weights[tested]):.1%}"

    def _weigh(self, training: Training) -> None:
        data, tested = training.data, training.tested
        rows, members = data.positions[tested], self.members_.values()
        held_out = floored(np.stack([member.oof_proba_[rows] for member in members]))
        optimistic = np.stack([member._optimistic_proba[rows] for member in members])
        prior = np.array([_LEARNED_SHARE if name == "iddl" else 1.0 for name in self.members_])

        def fit(probabilities: RealArray, rows: Indices, counts: RealArray) -> Average:
            return fit_average(probabilities, data.codes[rows], counts, prior)

        counts, units = self._count(training)
        self.temperature_, average = self._average(training, held_out, optimistic, counts, fit)
        self.oof_proba_ = data.scatter(tested, average)
        is_right = {
            name: p.argmax(axis=1) == data.codes[tested]
            for name, p in zip([*self.members_, "average"], [*held_out, average], strict=True)
        }
        shares = data.sample_weights[tested]
        self.oof_accuracy_ = {n: float(np.average(r, weights=shares)) for n, r in is_right.items()}
        simple = {name: is_right[name] for name in self.members_ if name != "iddl"}
        self.simple_ = find_simple(simple, is_right["average"], counts, units)
        say(self, self.summary())

    def summary(self) -> str:
        """List the weights of the members, and say whether a single member would do as well."""
        check_is_fitted(self)
        figures = {name: f"accuracy {share:.1%}" for name, share in self.oof_accuracy_.items()}
        result = f"The average has a held-out accuracy of {self.oof_accuracy_['average']:.1%}."
        return self._summarize("labels", figures, result)

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes)."""
        checked = prepare_new(self, X)
        mixture = np.zeros((checked.n_matrices, len(self.classes_)))
        for name, member in self.members_.items():
            mixture += self.weights_[name] * floored(member.predict_proba(checked))
        return sharpened(mixture, self.temperature_)
