"""Minimum distance to mean, in any divergence of SPD matrices with unique means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import ClassWeight, RandomState, check_flag
from divlearn.divergence import Divergence, DivergenceLike
from divlearn.engines import Engine
from divlearn.fitting import labelled
from divlearn.fitting.calibration import log_softmax
from divlearn.fitting.folds import Splitter
from divlearn.fitting.labelled import Labelled, check_labelled, check_new
from divlearn.fitting.targets import check_labels, find_classes
from divlearn.fitting.training import Training
from divlearn.hermitian import real_form
from divlearn.nearest import neighbors
from divlearn.nearest.class_means import (
    Filter,
    View,
    balance,
    check_field,
    check_forgetting,
    class_means,
    continue_means,
    decay_totals,
    find_codes,
    is_sequence,
    learn_filter,
    measure_field,
    project,
)
from divlearn.nearest.search import CANDIDATES, choose_divergence, find_slope
from divlearn.threads import limit_blas
from divlearn.weights import normalize_weights

_ROUGH_ACCURACY = 1e-3  # of engines that compare candidates, whose differences are larger
_RESOLVED = 1e-8  # differences of divergences that change half of the digits of probabilities


@labelled.takes_metric
class DivergenceMDM(TransformerMixin, labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by the nearest class mean.

    The mean of a class minimises the weighted sum of divergences from its matrices, and a matrix
    belongs to the class whose mean is nearest:

    .. math:: C_k = \arg\min_C \sum_{y_i = k} w_i D(X_i \,\|\, C) , \qquad
              \hat y(X) = \arg\min_k D(X \,\|\, C_k) .

    Parameters
    ----------
    divergence : str, pair (alpha, beta), dict, Divergence or sequence of these, default="airm"
        Any argument of `divlearn.get_divergence` with a mean: a name, a pair with
        alpha, beta >= 0 or both <= 0, or ``{"mean": ..., "distance": ...}``, two functions of
        yours; ``metric`` is an alias. The mean in "burg" and "kullback" is the arithmetic mean, in
        "reverse-burg" the harmonic mean, in "jeffreys" the geometric mean of both. "choose" chooses
        the divergence by cross-validation on the training data. In a sequence such as
        ``["airm", "burg"]``, a field of metrics, every class has a mean in each. See Notes.
    filtering : bool, default=False
        Whether to project matrices first, as pyRiemann's FgMDM does: in the tangent space at their
        AIRM mean, onto the directions of a shrinkage LDA, which ignores sample weights.
    class_weight : dict or "balanced", optional
        Weights :math:`\pi_k` of classes in `predict_proba` and `predict`, as prior probabilities up
        to a factor; one for classes that a dict leaves out. "balanced" gives all classes the same,
        as by default, since means do not depend on class frequencies. Class weights also multiply
        sample weights, which matters to "choose", to ``filtering`` and to sequences.
    cv : int, splitter or iterable of pairs of indices, default=4
        Folds of "choose", as in `DivergenceKernelClassifier`.
    random_state : int, RandomState or None, default=None
        Shuffles the folds.
    engine : str or Engine, default="auto"
    n_jobs : int, optional
        Threads of an engine given by name; all by default, as with -1.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    means_ : ndarray, shape (n_classes, d, d), of filtered matrices if there is a filter
        For a sequence, (n_divergences, n_classes, d, d). ``covmeans_`` is pyRiemann's name for it.
    divergence_ : Divergence, the one given or chosen; a list of them for a sequence.
    weights_ : ndarray, shape (n_divergences,), of the divergences of a sequence; else [1].
    totals_ : ndarray, shape (n_classes,)
        Weights of the classes, after forgetting; zero for classes without matrices, and so without
        a mean, in `partial_fit` so far.
    scale_ : float
        Factor of divergences in `predict_proba`: 1, or for "choose" that of the lowest held-out
        log-loss.
    cv_results_ : dict of arrays, only where the divergence is chosen
        "divergence", the candidates by name, and their held-out "accuracy" and "brier_score".
    oof_proba_ : ndarray, shape (n_matrices, n_classes), only where the divergence is chosen
        Held-out probabilities; divergence and scale are chosen on the other folds. NaN for matrices
        that no fold holds out or that have no weight.
    classes_ : ndarray, shape (n_classes,)
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    Candidates for "choose" are "airm", "stein", "burg", "reverse-burg", "log-cosh", (0, 1/4),
    (1/4, 1/2), (0, 1/2), (1/4, 3/4) and "log-euclidean". The one with the lowest held-out Brier
    score is chosen if its gain over "airm" exceeds two standard errors, else "airm". To be
    fast, candidates are compared by approximate means: the point beta - alpha of the geodesic from
    the AIRM mean (0), which is found by a Newton step, to the arithmetic mean (1); the harmonic
    mean for "reverse-burg". The chosen model has exact means. Held-out probabilities are those of
    exact means, unless one of these three means is chosen.

    M divergences of a sequence make one: :math:`D(X \,\|\, C_k) = \sum_m w_m D_m(X \,\|\, C_{mk})`.
    :math:`M w_m` is the scale of :math:`D_m` with the lowest log-loss on the training data, so that
    divergences of different size have about the same influence.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = DivergenceMDM("kullback").fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    >>> model.transform(X[:5]).shape
    (5, 3)
    >>> DivergenceMDM(["airm", "kullback"]).fit(X, y).means_.shape
    (2, 3, 4, 4)
    """

    means_: Annotated[RealArray, "... n_classes d d"]
    scale_: float
    weights_: Annotated[RealArray, "n_divergences"]
    totals_: Annotated[RealArray, "n_classes"] = np.ones(1)  # files of version 0.2 have none
    cv_results_: dict[str, RealArray | Labels]
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]
    _optimistic_proba: Annotated[RealArray, "n_matrices n_classes"]
    _field: list[Divergence]
    _filter: Filter | None

    def __init__(
        self,
        divergence: DivergenceLike | Sequence[DivergenceLike] = "airm",
        engine: str | Engine = "auto",
        *,
        filtering: bool = False,
        class_weight: ClassWeight = None,
        cv: Splitter = 4,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.divergence, self.engine, self.filtering = divergence, engine, filtering
        self.class_weight, self.cv, self.random_state = class_weight, cv, random_state
        self.n_jobs, self.regularize = n_jobs, regularize

    @labelled.fit_method
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Find the means of the classes.

        X has the shape (n_matrices, d, d); y, sample_weight and groups have (n_matrices,). Weights
        apply to the means and to the choice of the divergence. Inner folds keep groups together.
        """
        is_field = is_sequence(self.divergence)
        if not self._chooses:
            self._field = check_field(self.divergence if is_field else [self.divergence])
        engine = labelled.engine_of(self)
        data = check_labelled(self, X, y, sample_weight, self.class_weight, groups)
        if self._chooses:
            return self.fit_training(Training(data, data.folds(self.cv, self.random_state), engine))
        self.scale_, self.weights_ = 1.0, np.ones(1)
        data = self._learn_filter(data, engine)
        field = map(self._for_checked, self._field)
        means = np.stack([class_means(data, divergence, engine) for divergence in field])
        means = self._as_given(means)
        if len(means) > 1:
            self.weights_ = balance(data, self._field, means, engine)
        self.means_ = means if is_field else means[0]
        self.totals_ = np.bincount(data.codes, data.sample_weights).astype(float)
        return self

    @labelled.fit_method
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        *,
        forgetting: float = 0.0,
    ) -> Self:
        """Continue the means of the classes with new matrices, in their order.

        Every matrix has the weight one, and removes the share ``forgetting`` of the weight of all
        matrices of its class before it: 0.05 remembers about 20 matrices of each class. The running
        mean is that of the old mean and the new matrices, as in `Recenter.partial_fit`: exact for
        "burg", "reverse-burg" and metrics that embed matrices, such as "log-euclidean"; in "airm"
        the mean moves along the geodesic to each matrix. Filter, weights, scale and a chosen
        divergence do not change.

        The first call is `fit`, and needs matrices of all classes. With ``classes`` it may have
        matrices of some of them, and `predict` returns only classes that had matrices so far.
        "choose", a filter and several divergences are learned from all classes at the first call.
        """
        forgetting = check_forgetting(forgetting)
        started, learns = hasattr(self, "means_"), self._chooses or self.filtering
        if not started and (classes is None or learns or is_sequence(self.divergence)):
            self.fit(X, y)
            find_codes(self.classes_ if classes is None else np.asarray(classes), self.classes_)
            return self
        matrices = check_new(self, X) if started else self._start(X, classes)
        engine = labelled.engine_of(self)
        codes = find_codes(check_labels(y, len(matrices)), self.classes_)
        if self._filter is not None:
            matrices = project(matrices, self._filter)
        before, weights = decay_totals(self.totals_, codes, forgetting)
        names = [f"class {name!s}" for name in self.classes_]
        means = self.means_.reshape(len(self._field), -1, *self.means_.shape[-2:])
        new, updated = (matrices, weights, codes), []
        for old, divergence in zip(means, self._field, strict=True):
            real, divergence = np.asarray(real_form(old)), self._for_checked(divergence)
            moved, totals = continue_means((real, before), new, divergence, engine, names)
            updated.append(moved)
        self.means_ = self._as_given(np.stack(updated)).reshape(self.means_.shape)
        self.totals_ = totals
        return self

    def _start(self, X: ArrayLike, classes: ArrayLike | None) -> RealArray:
        """Set attributes of classes without means, and return checked matrices."""
        self._field, self._filter = check_field([self.divergence]), None
        matrices = labelled.check_training(self, X)
        self.classes_ = find_classes(check_labels(classes, len(np.asarray(classes))))
        n_classes, self.n_features_in_ = len(self.classes_), matrices.shape[-1]
        if n_classes < 2:
            raise ValueError(f"classes={self.classes_.tolist()} must hold >= 2 classes; name all")
        self.scale_, self.weights_, self.totals_ = 1.0, np.ones(1), np.zeros(n_classes)
        self.means_ = self._as_given(np.tile(np.eye(self.n_features_in_), (n_classes, 1, 1)))
        return matrices

    @property
    def _chooses(self) -> bool:
        return isinstance(self.divergence, str) and self.divergence == "choose"

    def _learn_filter(self, data: Labelled, engine: Engine) -> Labelled:
        """Learn the filter, if any, and return filtered data."""
        self._filter = None
        check_flag(self.filtering, "filtering")
        if not self.filtering:
            return data
        self._filter = learn_filter(data, np.arange(len(data.codes)), engine)
        return replace(data, matrices=project(data.matrices, self._filter))

    @property
    def covmeans_(self) -> RealArray:
        """Means of classes, by pyRiemann's name."""
        return self.means_

    @property
    def divergence_(self) -> Divergence | list[Divergence]:
        """The divergence in use, or a list of them for a sequence."""
        return self._field[0] if self.means_.ndim == 3 else self._field

    @limit_blas(1)  # several threads work on matrices: more of them inside LAPACK gain nothing
    def fit_training(self, training: Training) -> Self:
        """Choose the divergence on folds of checked data."""
        data, engine = training.data, training.engine
        self.classes_, self.n_features_in_ = data.classes, data.matrices.shape[-1]
        if not training.folds:
            raise ValueError(
                "every class has 1 matrix or group, but some must have >= 2 for divergence='choose'"
                ", one to train on and one to judge by; pass more, or name a divergence"
            )
        rough = labelled.engine_of(self, _ROUGH_ACCURACY)
        view = View(self._learn_filter(data, engine))
        chosen, unit, self.cv_results_ = choose_divergence(
            training, rough, None if self.filtering else view
        )
        self.oof_proba_, self._optimistic_proba = (
            data.scatter(chosen.rows, _normalize(self._priors() * probabilities))
            for probabilities in (chosen.probabilities, chosen.optimistic)
        )
        divergence = CANDIDATES[chosen.best]
        self._field, self.weights_ = [divergence], np.ones(1)
        _, temperature = chosen.calibration
        self.scale_ = 1 / (self._share * unit * temperature)
        data = view.data
        slope, starts = find_slope(divergence), None
        if slope is not None and abs(slope) < 1:  # other means have closed forms
            starts = view.recenter(np.arange(len(data.codes)))
        self.means_ = self._as_given(class_means(data, divergence, engine, starts))
        self.totals_ = np.bincount(data.codes, data.sample_weights).astype(float)
        return self

    def transform(self, X: ArrayLike) -> RealArray:
        """Distances of matrices to the means, shape (n_matrices, n_classes).

        Distances are square roots if the divergence is the square of a distance, as "airm" and
        "stein" are; otherwise they are divergences. They are infinite for classes without a mean.
        """
        distances = self._distances(X)
        are_squares = all(divergence.squared_distance for divergence in self._field)
        return np.sqrt(np.maximum(distances, 0)) if are_squares else distances

    def predict_proba(self, X: ArrayLike) -> RealArray:
        r"""Probabilities :math:`\pi_k e^{-s D(X \| C_k)} / \sum_j \pi_j e^{-s D(X \| C_j)}`.

        Weights of classes are :math:`\pi`, equal by default, and s is ``scale_``. D is the
        divergence in its usual form: for "airm", "stein" and "log-euclidean" the squared distance.
        The shape is (n_matrices, n_classes).

        In "euclidean", "wasserstein" and other metrics with a unit, probabilities depend on the
        unit of the matrices: for EEG in volts they are all equal, up to rounding. `predict`,
        `decision_function` and `CalibratedClassifier` are right for any unit.
        """
        return np.exp(log_softmax(self._log_weights(X)))

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, whose softmax is `predict_proba`.

        Their shape is (n_matrices, n_classes). For two classes, the result is the score of the
        second minus that of the first, shape (n_matrices,).
        """
        scores = self._log_weights(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _log_weights(self, X: ArrayLike) -> RealArray:
        """Logarithms of probabilities up to a term of each matrix."""
        distances = self._distances(X)  # first, to report a model that is not fitted
        return np.log(self._priors()) - self.scale_ * distances

    def _predict_codes(self, X: ArrayLike) -> Indices:
        scores = self._log_weights(X)
        gaps = scores - scores.max(axis=1, keepdims=True)
        spread, size = (
            np.abs(np.where(scores > -np.inf, Z, 0)).max(axis=1) for Z in (gaps, scores)
        )
        # Tiny divergences differ, but their probabilities tie by rounding; so other units decide.
        tiny = (spread < _RESOLVED) & (spread > _RESOLVED * size)
        gaps[tiny] /= spread[tiny, None]
        return np.exp(log_softmax(gaps)).argmax(axis=1)

    def _priors(self) -> RealArray:
        weights = self.class_weight
        if not isinstance(weights, Mapping):
            return np.ones(len(self.classes_))
        return normalize_weights(np.array([float(weights.get(name, 1)) for name in self.classes_]))

    def _distances(self, X: ArrayLike) -> RealArray:
        checked, engine = check_new(self, X), labelled.engine_of(self)
        means = self.means_.reshape(len(self._field), -1, *self.means_.shape[-2:])
        parts = []
        for matrices in neighbors.blocks(checked, means[..., 0, 0].size):
            filtered = matrices if self._filter is None else project(matrices, self._filter)
            tables = measure_field(filtered, self._field, means, engine)
            parts.append(np.einsum("f,fik->ik", self.weights_, tables))
        distances = np.concatenate(parts)
        distances[:, np.flatnonzero(self.totals_ == 0)] = np.inf  # of classes without a mean yet
        return distances

    def get_feature_names_out(self, input_features: object = None) -> Labels:
        """Names of the columns of `transform`: "divergencemdm_" and the name of the class."""
        check_is_fitted(self)
        prefix = type(self).__name__.lower()
        return np.array([f"{prefix}_{name!s}" for name in self.classes_], dtype=object)


def _normalize(weights: RealArray) -> RealArray:
    return weights / weights.sum(axis=1, keepdims=True)
