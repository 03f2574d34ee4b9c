"""A support vector machine whose divergence, scale and C are chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.engines import Engine, get_engine
from divlearn.fitting.interrupts import see_through
from divlearn.fitting.labelled import Labelled, MatricesMixin, all_or_nothing, check_labelled
from divlearn.fitting.progress import track
from divlearn.kernels.checks import (
    check_axis,
    check_memory,
    check_points,
    check_size,
)
from divlearn.kernels.coupling import Coupling, fit_coupling
from divlearn.kernels.kernel import DivergenceKernel
from divlearn.kernels.selection import Machine, Search
from divlearn.kernels.tables import (
    Point,
    decay,
    find_copies,
    median_scale,
    square_tables,
)
from divlearn.spd import check_spd

__all__ = ["POINTS", "DivergenceKernelClassifier"]

# Tried by default: AIRM, Stein, the paper's "Burg" and what lies between and beyond; Jeffreys.
POINTS: tuple[Point, ...] = (
    (0.0, 0.0), (0.25, 0.25), (0.5, 0.5), (1.0, 1.0), (2.0, 2.0), (0.0, 1.0),
)  # fmt: skip


class DivergenceKernelClassifier(ClassifierMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    r"""Support vector machine with the kernel of a divergence, all chosen by cross-validation.

    .. math:: K(X, Y) = \exp\bigl(-s\, \tilde D^{(\alpha,\beta)}(X, Y)\bigr)

    with :math:`\tilde D` the mean of both directions; see `DivergenceKernel`. One pass of spectra
    between all training matrices serves every alpha, beta, s and C of the grid and every fold.

    Parameters
    ----------
    alphas, betas : array-like, optional
        The grid is their product; signs must not differ. Pairs that are the same once symmetrised
        are tried once. By default `divlearn.kernels.POINTS`: (0, 0), (1/4, 1/4), (1/2, 1/2),
        (1, 1), (2, 2) and (0, 1), the named divergences among them.
    scales : array-like, default=(0.25, 0.5, 1, 2, 4)
        Values of s > 0, in units of one over the median of :math:`\tilde D` over all pairs of
        training matrices that differ.
    Cs : array-like, default=(1, 10, 100)
        Values > 0 of the penalty of the support vector machine.
    cv : int, splitter or iterable of pairs of indices, default=4
        A number of folds is stratified and shuffled, and keeps ``groups`` together. Every class
        must be in every training part.
    class_weight : dict, "balanced" or None, default=None
        As in `sklearn.svm.SVC`.
    random_state : int, RandomState or None, default=None
        Shuffles the folds.
    engine : str or Engine, default="auto"
        See `divlearn.get_engine`. Its threads also fit the machines.
    verbose : int, default=0
        Print a line for every divergence if > 0.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    best_params_ : dict
        "alpha", "beta", "scale" (s itself) and "C" of the highest mean accuracy over the folds; the
        first one where several tie, in the order of the parameters.
    best_score_ : float
        That accuracy; optimistic, being the highest of many.
    cv_results_ : dict of arrays
        All that was tried, as in `sklearn.model_selection.GridSearchCV`.
    oof_decision_ : ndarray, shape (n_matrices,) or (n_matrices, n_classes)
        What `decision_function` says of every training matrix when it is fitted, with the best
        parameters, on the folds that do not hold it; NaN for what no fold tests or has no weight.
    oof_proba_ : ndarray, shape (n_matrices, n_classes)
        The same for `predict_proba`.
    kernel_ : DivergenceKernel
        The kernel chosen, with the training matrices; it says whether it is positive definite.
    svc_ : SVC
        The machine, fitted on all training matrices.
    coupling_ : Coupling
        How probabilities are made of its decisions.
    message_ : str
        What was tried and chosen, in a sentence.
    n_features_in_ : int
        d, the size of the matrices.

    Notes
    -----
    Classes are told apart two by two. `decision_function` and `predict_proba` couple these
    decisions as `Coupling` says, with two parameters that are chosen on the out-of-fold decisions;
    `predict` is the class of the highest probability. The accuracies in ``cv_results_`` are those
    of the votes of the decisions, which is how `sklearn.svm.SVC` predicts.

    Memory grows with the square of the number of matrices: 8 bytes for each pair and divergence, at
    most 2 GiB, which is some 6,700 matrices with the default grid.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> samples = rng.standard_normal((40, 3, 30))
    >>> samples[20:, 1] += samples[20:, 0]
    >>> X = samples @ samples.mT
    >>> y = ["independent"] * 20 + ["related"] * 20
    >>> model = DivergenceKernelClassifier(random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    >>> model.predict_proba(X[1:2]).round(1)
    array([[0.9, 0.1]])
    """

    classes_: NDArray[Any]
    best_params_: dict[str, float]
    best_score_: float
    cv_results_: dict[str, Any]
    oof_decision_: RealArray
    oof_proba_: RealArray
    kernel_: DivergenceKernel
    svc_: SVC
    coupling_: Coupling
    message_: str
    n_features_in_: int

    def __init__(
        self,
        alphas: ArrayLike | None = None,
        betas: ArrayLike | None = None,
        scales: ArrayLike = (0.25, 0.5, 1.0, 2.0, 4.0),
        Cs: ArrayLike = (1.0, 10.0, 100.0),
        *,
        cv: Any = 4,
        class_weight: dict[Any, float] | str | None = None,
        random_state: Any = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
    ) -> None:
        self.alphas = alphas
        self.betas = betas
        self.scales = scales
        self.Cs = Cs
        self.cv = cv
        self.class_weight = class_weight
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose

    @all_or_nothing
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose divergence, scale and C, and fit the machine.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
            SPD matrices.
        y : array-like, shape (n_matrices,)
            Labels of two classes at least. A class with one matrix is never held out.
        sample_weight : array-like, shape (n_matrices,), optional
            Factors of C, and weights of the accuracy. A weight of zero leaves the matrix out.
        groups : array-like, shape (n_matrices,), optional
            What belongs together and must not be split by a fold.

        Returns
        -------
        self : object
        """
        engine = get_engine(self.engine)
        points = check_points(self.alphas, self.betas, POINTS)
        multiples = check_axis(self.scales, "scales", positive=True)
        Cs = check_axis(self.Cs, "Cs", positive=True)
        data = check_labelled(X, y, sample_weight, self.class_weight, groups)
        self.classes_, matrices = data.classes, data.matrices
        folds = data.folds(self.cv, self.random_state)
        if not folds:
            raise ValueError(
                "every class has 1 matrix or group, but some must have >= 2, one to train on and "
                "one to judge by; pass more"
            )
        check_memory(len(matrices), len(points))
        self.n_features_in_ = matrices.shape[-1]
        machine = Machine(data.codes, data.weights)
        tables = square_tables(engine, matrices, points)
        copies = find_copies(matrices)
        search = Search(machine, folds, Cs, engine.n_threads)
        self._choose(search, points, tables, copies, multiples)
        best = self.best_params_
        point = best["alpha"], best["beta"]
        table = tables[points.index(point)]
        see_through(partial(self._calibrate, search, table, data))
        self.svc_ = see_through(partial(machine.fit, decay(table, best["scale"]), best["C"]))
        kernel = DivergenceKernel(point, best["scale"], engine=self.engine)
        self.kernel_ = see_through(partial(kernel.fit, matrices))
        return self

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Score classes; see `divlearn.kernels.coupling.Coupling`.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices, n_classes), or (n_matrices,) with two classes
            The class of the highest score is predicted; with two, the second if the score is > 0.
        """
        check_is_fitted(self)
        matrices = check_spd(X, ndim=3).astype(np.float64, copy=False)
        check_size(self, matrices)
        kernel = self.kernel_.transform(matrices)
        return self.coupling_.score(self.svc_.decision_function(kernel))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict labels.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices,)
        """
        scores = self.decision_function(X)
        labels: NDArray[Any] = self.classes_[self.coupling_.predict(scores)]
        return labels

    def predict_log_proba(self, X: ArrayLike) -> RealArray:
        """Logarithms of `predict_proba`, exact where probabilities underflow."""
        scores = self.decision_function(X)
        return self.coupling_.log_probabilities(scores)

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Predict probabilities of classes, calibrated on out-of-fold decisions.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices, n_classes)
        """
        return np.exp(self.predict_log_proba(X))

    def _choose(
        self, search: Search, points: Sequence[Point], tables: RealArray,
        copies: NDArray[np.intp], multiples: Sequence[float],
    ) -> None:  # fmt: skip
        """Try the grid, and keep the best; an interruption keeps the best so far."""
        interrupted = False
        try:
            for point, table in track(list(zip(points, tables, strict=True)), "divergences"):
                unit = median_scale(table, copies, search.machine.weights)
                accuracy = search.add(point, table, [unit * multiple for multiple in multiples])
                if self.verbose:
                    print(f"(alpha, beta) = ({point[0]:g}, {point[1]:g}): accuracy {accuracy:.3f}")
        except KeyboardInterrupt:
            if not search.tried:
                raise
            interrupted = True
        self.cv_results_ = search.results()
        best = int(self.cv_results_["mean_test_score"].argmax())
        self.best_score_ = float(self.cv_results_["mean_test_score"][best])
        self.best_params_ = self.cv_results_["params"][best]
        chosen = ", ".join(f"{name} = {value:.4g}" for name, value in self.best_params_.items())
        self.message_ = (
            f"{chosen}: accuracy {self.best_score_:.3f} over {len(search.folds)} folds, the "
            f"highest of {len(search.tried)} combinations"
        )
        if interrupted:
            done = len(search.tried) // (len(multiples) * len(search.Cs))
            self.message_ += f"; interrupted by the user after {done} of {len(points)} divergences"

    def _calibrate(self, search: Search, table: RealArray, data: Labelled) -> None:
        """Decide out of fold, and learn to make probabilities of decisions."""
        machine, best, n_classes = search.machine, self.best_params_, len(self.classes_)
        decisions = machine.decide(table, best["scale"], best["C"], search.folds)
        tested = np.flatnonzero(np.isfinite(decisions).reshape(len(decisions), -1).all(axis=1))
        self.coupling_ = fit_coupling(
            decisions[tested], data.codes[tested], n_classes, data.weights[tested]
        )
        scores = self.coupling_.score(decisions[tested])
        self.oof_decision_ = data.spread(tested, scores)
        self.oof_proba_ = data.spread(tested, np.exp(self.coupling_.log_probabilities(scores)))
