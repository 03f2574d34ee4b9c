"""A support vector machine whose divergence, scale and C are chosen by cross-validation."""

from collections.abc import Sequence
from itertools import product
from numbers import Real
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.svm import SVC

from divlearn.arrays import RealArray, as_axis
from divlearn.engines import Engine, get_engine
from divlearn.fitting import labelled
from divlearn.fitting.calibration import calibrate
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import Labelled, check_labelled, check_new
from divlearn.fitting.progress import say, track
from divlearn.fitting.selection import average_held_out, calibrated_without_each, choose
from divlearn.kernels import coupling, tables
from divlearn.kernels.kernel import DivergenceKernel
from divlearn.kernels.search import Candidate, Search, fit_svc
from divlearn.kernels.tables import Point, decay
from divlearn.tolerances import LEARNING_ACCURACY

# Tried by default: AIRM, Stein, the paper's "Burg" and what lies between and beyond; Jeffreys.
POINTS: tuple[Point, ...] = (
    (0.0, 0.0),
    (0.25, 0.25),
    (0.5, 0.5),
    (1.0, 1.0),
    (2.0, 2.0),
    (0.0, 1.0),
)
_LARGEST_TABLE = 2**31  # bytes


class DivergenceKernelClassifier(labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Support vector machine with the kernel of a divergence, all chosen by cross-validation.

    .. math:: K(X, Y) = \exp\bigl(-s\, \tilde D^{(\alpha,\beta)}(X, Y)\bigr)

    with :math:`\tilde D` the mean of both directions; see `DivergenceKernel`. One pass of spectra
    between all training matrices serves every alpha, beta, s and C and every fold.

    Parameters
    ----------
    alphas, betas : array-like, optional
        The grid is their product; signs must not differ. Pairs that are equal after symmetrisation
        are tried once. By default `divlearn.kernels.POINTS`, the named divergences among them.
    scales : array-like, default=(0.25, 0.5, 1, 2, 4)
        Values of s > 0, in units of one over the median of :math:`\tilde D` over all pairs of
        training matrices that differ.
    C : float or array-like, default=(1, 10, 100)
        Penalty of the support vector machine, > 0. Divergence and scale are chosen with the middle
        value, then the best value is chosen for these.
    cv : int, splitter or iterable of pairs of indices, default=4
        For an int, folds are stratified and shuffled, and keep ``groups`` together. Every class
        must be in every training part.
    class_weight : dict, "balanced" or None, default=None, multiplies sample weights.
    random_state : int, RandomState or None, default=None
    engine : str or Engine, default="auto"
        Its threads also fit the machines.
    verbose : int, default=0, 1 prints progress.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray
    best_params_ : dict
        "alpha", "beta", "scale" (s itself) and "C" of the highest mean accuracy over the folds.
    best_score_ : float, that accuracy; optimistic, being the highest of many.
    cv_results_ : dict of arrays, all that was tried, as in `sklearn.model_selection.GridSearchCV`.
    oof_decision_ : ndarray, shape (n_matrices,) or (n_matrices, n_classes)
        Held-out `decision_function`; NaN for matrices that no fold tests or that have no weight.
        For every fold the parameters are chosen anew, on data without the fold, so that these
        figures are not optimistic.
    oof_proba_ : ndarray, shape (n_matrices, n_classes), the same for `predict_proba`.
    kernel_ : DivergenceKernel, the one chosen, with the training matrices.
    svc_ : SVC, the machine, fitted on all training matrices.
    coupling_ : (float, float), sharpness A and temperature T of probabilities; see Notes.
    message_ : str, what was tried and chosen, in a sentence.
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    The machine decides between pairs of classes. With :math:`d_{kl} = -d_{lk}` the decision for
    class k against l, the score of a class is
    :math:`s_k = -\log\bigl(1 + \frac{5}{A} \sum_{l \ne k} \log(1 + e^{-A d_{kl}})\bigr)`, and the
    probabilities are the softmax of :math:`s / T`; A and T are chosen on held-out decisions. For
    two classes the score is the decision itself. `predict` returns the class with the highest
    probability. The accuracies in ``cv_results_`` count the votes of the decisions, as
    `sklearn.svm.SVC` does.

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

    best_params_: dict[str, float]
    best_score_: float
    cv_results_: dict[str, Any]
    oof_decision_: RealArray
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]
    kernel_: DivergenceKernel
    svc_: SVC
    coupling_: tuple[float, float]
    message_: str

    def __init__(
        self,
        alphas: ArrayLike | None = None,
        betas: ArrayLike | None = None,
        scales: ArrayLike = (0.25, 0.5, 1.0, 2.0, 4.0),
        C: ArrayLike = (1.0, 10.0, 100.0),
        *,
        cv: Any = 4,
        class_weight: dict[Any, float] | str | None = None,
        random_state: Any = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.alphas, self.betas, self.scales = alphas, betas, scales
        self.C, self.cv, self.class_weight, self.regularize = C, cv, class_weight, regularize
        self.random_state, self.engine, self.verbose = random_state, engine, verbose

    @labelled.fit_method
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose divergence, scale and C, and fit the machine.

        X has the shape (n_matrices, d, d), the others (n_matrices,). A class with one matrix is
        never held out. Weights, divided by their mean, multiply C and apply to the accuracy, so
        that only their ratios matter; zero leaves a matrix out.
        Folds do not split groups.
        """
        engine = get_engine(self.engine, accuracy=LEARNING_ACCURACY)
        points = _check_points(self.alphas, self.betas)
        self._check_grid()
        data = check_labelled(self, X, y, sample_weight, self.class_weight, groups)
        folds = data.folds(self.cv, self.random_state)
        if not folds:
            raise ValueError(
                "every class has 1 matrix or group, but some must have >= 2, one to train on and "
                "one to test on; pass more matrices"
            )
        return self.fit_tables(data, folds, make_tables(engine, data.matrices, points))

    def fit_tables(self, data: Labelled, folds: Folds, known: dict[Point, RealArray]) -> Self:
        """Fit to tables of divergences between matrices that were checked."""
        self.classes_, self.n_features_in_ = data.classes, data.matrices.shape[-1]
        search = self._choose(data, folds, known)
        best = self._keep(search, data)
        point = best.alpha, best.beta
        whole = decay(known[point], best.scale)
        self.svc_ = fit_svc(whole, best.C, data.codes, data.weights)
        engine = get_engine(self.engine, accuracy=LEARNING_ACCURACY)
        kernel = DivergenceKernel(point, best.scale, engine=engine)
        self.kernel_ = kernel.fit(data.matrices)
        return self

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, shape (n_matrices, n_classes), or (n_matrices,) with two."""
        matrices = check_new(self, X)
        decisions = self.svc_.decision_function(self.kernel_.transform(matrices))
        return coupling.couple(decisions, len(self.classes_), self.coupling_[0])

    def predict_log_proba(self, X: ArrayLike) -> RealArray:
        """Logarithms of `predict_proba`, exact where probabilities underflow."""
        return coupling.log_probabilities(self.decision_function(X), self.coupling_[1])

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes), by held-out calibration."""
        return np.exp(self.predict_log_proba(X))

    def _check_grid(self) -> tuple[list[float], list[float]]:
        return _check_positive(self.scales, "scales"), _check_positive(self.C, "C")

    def _choose(self, data: Labelled, folds: Folds, known: dict[Point, RealArray]) -> Search:
        """Try divergences and scales, then C; an interruption keeps the best so far."""
        multiples, Cs = self._check_grid()
        copies = tables.find_copies(data.matrices)
        search = Search(known, Cs, data, folds, get_engine(self.engine).n_threads)

        def score(point: Point) -> float:
            unit = tables.median_scale(known[point], copies, data.weights)
            best = search.try_scales(point, [unit * multiple for multiple in multiples])
            say(self, f"(alpha, beta) = ({point[0]:g}, {point[1]:g}): accuracy {best:.3f}")
            return best

        _, scores = choose(track(list(known), "divergences"), score)
        self.message_ = ""
        if len(scores) < len(known):
            reached = f"{len(scores)} of {len(known)} divergences"
            self.message_ = f"; interrupted by the user after {reached}"
        return search

    def _keep(self, search: Search, data: Labelled) -> Candidate:
        """Keep the best, and what machines chosen without each fold say of the fold."""
        best = search.best()
        self.best_params_, self.cv_results_ = best._asdict(), search.results()
        self.best_score_ = float(self.cv_results_["mean_test_score"].max())
        n, folds = len(data.codes), search.folds
        parts = search.scores.parts([best] * len(folds))
        tested, scores = average_held_out(parts, folds, n)
        calibration = calibrate(scores, data.codes[tested], data.weights[tested])
        self.coupling_ = coupling.sharpness_of(calibration)
        chosen = search.best_without_each()
        known = data.codes, data.weights
        tested, probabilities = calibrated_without_each(search.scores, chosen, *known)
        decisions = average_held_out(search.scores.parts(chosen), folds, n)[1]
        decisions = decisions[..., calibration.form]
        if len(data.classes) == 2:
            decisions = decisions[:, 1] - decisions[:, 0]
        self.oof_decision_ = data.spread(tested, decisions)
        self.oof_proba_ = data.spread(tested, probabilities)
        right = probabilities.argmax(axis=1) == data.codes[tested]
        accuracy = float(np.average(right, weights=data.weights[tested]))
        named = ", ".join(f"{name} = {value:.4g}" for name, value in self.best_params_.items())
        self.message_ = (
            f"{named}: held-out accuracy {accuracy:.3f} over {len(folds)} folds, with the "
            f"best of {len(self.cv_results_['params'])} combinations chosen without each"
            f"{self.message_}"
        )
        return best


def _check_positive(values: ArrayLike, name: str) -> list[float]:
    axis: list[float] = as_axis([values] if isinstance(values, Real) else values, name).tolist()
    if min(axis) <= 0:
        raise ValueError(f"{name}={axis} must be > 0")
    return axis


def _check_points(alphas: ArrayLike | None, betas: ArrayLike | None) -> list[Point]:
    """Return the points of the grid, each once: symmetrised, (alpha, beta) is (beta, alpha)."""
    if alphas is None and betas is None:
        return list(POINTS)
    if alphas is None or betas is None:
        given, missing = ("alphas", "betas") if betas is None else ("betas", "alphas")
        raise ValueError(f"{given} is given, but {missing} is not; pass both, or neither")
    pairs = product(as_axis(alphas, "alphas").tolist(), as_axis(betas, "betas").tolist())
    return list(dict.fromkeys(tables.symmetric_point(*pair) for pair in pairs))


def make_tables(
    engine: Engine, matrices: RealArray, points: Sequence[Point]
) -> dict[Point, RealArray]:
    """Compute symmetrised divergences of all matrices, by point, if memory allows."""
    n_matrices, n_points = len(matrices), len(points)
    needed = 8 * n_matrices**2 * n_points
    if needed > _LARGEST_TABLE:
        raise ValueError(
            f"n_matrices={n_matrices} with {n_points} divergences (alpha, beta) need "
            f"{needed / 2**30:.1f} GiB for a table of all pairs, but must need <= "
            f"{_LARGEST_TABLE / 2**30:g} GiB; fit on a random subset, or pass fewer alphas and "
            "betas"
        )
    return dict(zip(points, tables.square_tables(engine, matrices, points), strict=True))
