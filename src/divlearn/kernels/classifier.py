"""Support vector machines whose parameters are chosen by cross-validation; divergence kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from numbers import Real
from typing import TypeAlias

from numpy.typing import ArrayLike
from sklearn.svm import SVC

from divlearn.alpha_beta import Point
from divlearn.arrays import Indices, RealArray, as_axis, to_host
from divlearn.checks import ClassWeight, RandomState
from divlearn.engines import Engine, Prepared
from divlearn.fitting.folds import Splitter
from divlearn.fitting.held_out import Memo
from divlearn.fitting.labelled import prepare_new
from divlearn.fitting.selection import HeldOut
from divlearn.fitting.training import Chosen, Grid, HeldOutClassifier, Training
from divlearn.kernels import tables
from divlearn.kernels.kernel import DivergenceKernel
from divlearn.kernels.machines import (
    SHARPNESSES,
    LeastSquares,
    PairMachine,
    couple,
    decide_pairs,
    fit_pairs,
    fit_svc,
    indicate,
    on_landmarks,
)
from divlearn.kernels.tables import (
    are_many,
    by_class,
    cut,
    decay,
    shared_columns,
    shared_kernel,
    shared_matrices,
    shared_tables,
)
from divlearn.threads import side_by_side

# The default grid: AIRM, Stein, the paper's "Burg", points between and beyond, and Jeffreys.
POINTS: tuple[Point, ...] = (
    (0.0, 0.0),
    (0.25, 0.25),
    (0.5, 0.5),
    (1.0, 1.0),
    (2.0, 2.0),
    (0.0, 1.0),
)

Candidate = tuple[tuple[str, float], ...]  # names of parameters, and values
Machine: TypeAlias = SVC | PairMachine | LeastSquares


def other_penalties(best: Candidate, penalties: Sequence[float]) -> list[Candidate]:
    """Candidates that differ from the best in C, the last parameter."""
    return [(*best[:-1], ("C", C)) for C in penalties if best[-1] != ("C", C)]


class MachineClassifier(HeldOutClassifier[Candidate]):
    """Base of classifiers with a machine that decides between pairs of classes; see `couple`."""

    _criterion = "accuracy"

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, shape (n_matrices, n_classes), or (n_matrices,) with two."""
        return self._class_scores(self._decide_new(prepare_new(self, X)))

    def _class_scores(self, decisions: RealArray) -> RealArray:
        scores = decisions[..., self.calibration_[0]]
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


class DivergenceKernelClassifier(MachineClassifier):
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
        Penalty of the support vector machine, > 0. The divergence is chosen with the middle scale
        and penalty; then other scales and penalties are tried, one at a time.
    cv : int, splitter or iterable of pairs of indices, default=4
        For an int, folds are stratified and shuffled, and keep ``groups`` together. Every class
        must be in every training part.
    class_weight : dict, "balanced" or None, default=None, multiplies sample weights.
    random_state : int, RandomState or None, default=None
    engine : str or Engine, default="auto"
    n_jobs : int or None, default=None
        Threads that fit candidates and folds, as in scikit-learn; None for those of the engine. The
        result is the same for any number.
    verbose : int, default=0, 1 prints progress.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray
    best_params_ : dict
        "alpha", "beta", "scale" (s itself) and "C" of the highest mean accuracy over the folds.
    best_score_ : float, that accuracy; optimistic, being the highest of many.
    cv_results_ : dict of arrays, all candidates, as in `sklearn.model_selection.GridSearchCV`.
    oof_decision_ : ndarray, shape (n_matrices,) or (n_matrices, n_classes)
        Held-out `decision_function`; NaN for matrices that no fold tests or that have no weight.
        For every fold the parameters are chosen anew, on data without the fold, so that these
        figures are not optimistic.
    oof_proba_ : ndarray, shape (n_matrices, n_classes), the same for `predict_proba`.
    held_out_accuracy_ : float, of these probabilities.
    kernel_ : DivergenceKernel, the one chosen, with the training matrices or landmarks.
    svc_ : SVC fitted to all training matrices, or a least-squares machine, see Notes.
    message_ : str, the choice and its held-out accuracy, in a sentence.
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    The machine decides between pairs of classes. With :math:`d_{kl} = -d_{lk}` the decision for
    class k against l, the score of a class is
    :math:`s_k = -\log\bigl(1 + \frac{5}{A} \sum_{l \ne k} \log(1 + e^{-A d_{kl}})\bigr)`, and the
    probabilities are the softmax of :math:`s / T`; A and T are chosen on held-out decisions. For
    two classes the score is the decision itself. `predict` returns the class with the highest
    probability. The accuracies in ``cv_results_`` are those of the scores with A = 10.

    Time and memory grow with the square of the number of matrices up to 4,000, and linearly beyond:
    a least-squares machine then has the kernels of landmarks as features, a stratified part of the
    data: 500, or 10 per class if that is more. Tables of divergences may have 4 GiB; with more than
    178,000 matrices there are fewer landmarks.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> samples = rng.standard_normal((40, 3, 30))
    >>> samples[20:, 1] += samples[20:, 0]
    >>> X = samples @ samples.mT
    >>> y = ["independent"] * 20 + ["related"] * 20
    >>> model = DivergenceKernelClassifier(random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    >>> model.predict_proba(X[1:2]).round(1)
    array([[1., 0.]])
    """

    _nested = True

    oof_decision_: RealArray
    kernel_: DivergenceKernel
    svc_: SVC | LeastSquares

    def __init__(
        self,
        alphas: ArrayLike | None = None,
        betas: ArrayLike | None = None,
        scales: ArrayLike = (0.25, 0.5, 1.0, 2.0, 4.0),
        C: ArrayLike = (1.0, 10.0, 100.0),
        *,
        cv: Splitter = 4,
        class_weight: ClassWeight = None,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.alphas, self.betas, self.scales = alphas, betas, scales
        self.C, self.cv, self.class_weight, self.regularize = C, cv, class_weight, regularize
        self.random_state, self.engine, self.n_jobs = random_state, engine, n_jobs
        self.verbose = verbose

    def _check_parameters(self) -> None:
        _check_points(self.alphas, self.betas)
        self._check_grid()

    def _check_grid(self) -> tuple[list[float], list[float]]:
        return check_positive(self.scales, "scales"), check_positive(self.C, "C")

    def _grid(self, training: Training) -> Grid[Candidate]:
        """Divergences with the middle scale and C, then other scales and values of C."""
        data, (multiples, penalties) = training.data, self._check_grid()
        rows = shared_columns(training)
        by_point = shared_tables(training, _check_points(self.alphas, self.betas), rows)
        copies, weights = tables.find_copies(data.matrices[rows]), data.weights[rows]
        message = {}
        if len(rows) < len(data.codes):
            message["of"] = f"the set of landmarks, drawn from {len(data.codes)} matrices,"
            message["fix"] = "leave out copies of matrices, or shuffle them"

        def unit_scale(table: RealArray) -> float:
            return tables.median_scale(to_host(table[rows]), copies, weights, **message)

        calls = [partial(unit_scale, table) for table in by_point.values()]
        scales = side_by_side(calls, training.engine.n_threads)
        units: dict[Candidate, float] = {
            (("alpha", alpha), ("beta", beta)): scale
            for (alpha, beta), scale in zip(by_point, scales, strict=True)
        }
        middle, C = multiples[len(multiples) // 2], penalties[len(penalties) // 2]

        def candidate(point: Candidate, multiple: float) -> Candidate:
            return (*point, ("scale", units[point] * multiple), ("C", C))

        def refine(best: Candidate) -> list[Candidate]:
            point = best[:2]
            others = [candidate(point, multiple) for multiple in multiples if multiple != middle]
            return [*others, *other_penalties(candidate(point, middle), penalties)]

        return Grid([candidate(point, middle) for point in units], refine)

    def _table(self, training: Training, candidate: Candidate) -> RealArray:
        (_, alpha), (_, beta), *_ = candidate
        points = _check_points(self.alphas, self.betas)
        return shared_tables(training, points, shared_columns(training))[alpha, beta]

    def _learner(
        self, training: Training, number: int
    ) -> Callable[[Candidate], tuple[Machine, Candidate]]:
        if are_many(training):
            return self._on_landmarks(training, number)
        rows, data = _learned_rows(training, number), training.data

        def learn(candidate: Candidate) -> tuple[Machine, Candidate]:
            table, values = self._table(training, candidate), dict(candidate)
            problem = values["C"], data.codes[rows], data.weights[rows]
            if number == training.whole:
                return fit_svc(decay(table, values["scale"]), *problem), candidate
            kernel = shared_kernel(training, table, values["scale"], candidate[:2])
            return fit_pairs(kernel, *problem, rows), candidate

        return learn

    def _on_landmarks(
        self, training: Training, number: int
    ) -> Callable[[Candidate], tuple[Machine, Candidate]]:
        targets, problems = indicate(training.data.codes), Memo()
        part = training, number, shared_columns(training)

        def learn(candidate: Candidate) -> tuple[Machine, Candidate]:
            point, values = candidate[:2], dict(candidate)
            table = self._table(training, candidate)
            prepare = lambda: on_landmarks(*part, table, targets, point)  # noqa: E731
            problem = problems.cached(point, prepare)
            return LeastSquares(*problem.learn(values["C"], values["scale"])), candidate

        return learn

    def _decide(
        self, model: tuple[Machine, Candidate], training: Training, number: int
    ) -> RealArray:
        (machine, candidate), (_, held) = model, training.parts[number]
        table, scale = self._table(training, candidate), dict(candidate)["scale"]
        if isinstance(machine, LeastSquares):
            return machine.decide(decay(table[held], scale))
        support = _learned_rows(training, number)[machine.support_]
        kernel = cut(shared_kernel(training, table, scale, candidate[:2]), held, support)
        return couple(decide_pairs(machine, kernel))

    def _decide_new(self, new: Prepared) -> RealArray:
        kernel = self.kernel_.transform_prepared(new)
        if isinstance(self.svc_, LeastSquares):
            return self.svc_.decide(kernel)
        return couple(decide_pairs(self.svc_, kernel[:, self.svc_.support_]))

    def _keep(
        self,
        training: Training,
        held_out: HeldOut[Candidate],
        grid: Grid[Candidate],
        chosen: Chosen[Candidate],
    ) -> None:
        super()._keep(training, held_out, grid, chosen)
        scores = self._class_scores(chosen.decisions)
        self.oof_decision_ = training.data.scatter(chosen.rows, scores)

    def _fit_model(self, training: Training, best: Candidate) -> None:
        self.svc_, _ = self._learner(training, training.whole)(best)
        alpha, beta, scale, _ = dict(best).values()
        self.kernel_ = DivergenceKernel((alpha, beta), scale, engine=training.engine)
        self.kernel_.fit_checked(shared_matrices(training))

    @property
    def coupling_(self) -> tuple[float, float]:
        """Sharpness A and temperature T of probabilities; see Notes."""
        form, temperature = self.calibration_
        return SHARPNESSES[form], temperature


def _learned_rows(training: Training, number: int) -> Indices:
    """Training rows of a part; those of folds are sorted by class, for `fit_pairs`."""
    rows = training.parts[number][0]
    return rows if number == training.whole else rows[by_class(training.data.codes[rows])]


def check_positive(values: ArrayLike, name: str) -> list[float]:
    axis: list[float] = as_axis([values] if isinstance(values, Real) else values, name).tolist()
    if min(axis) <= 0:
        raise ValueError(f"{name}={axis} must be > 0")
    return axis


def _check_points(alphas: ArrayLike | None, betas: ArrayLike | None) -> list[Point]:
    """Return the points of the grid, without pairs that are equal after symmetrisation."""
    if alphas is None and betas is None:
        return list(POINTS)
    if alphas is None or betas is None:
        given, missing = ("alphas", "betas") if betas is None else ("betas", "alphas")
        raise ValueError(f"{given} is given, but {missing} is not; pass both, or neither")
    pairs = product(as_axis(alphas, "alphas").tolist(), as_axis(betas, "betas").tolist())
    return list(dict.fromkeys(tables.symmetric_point(*pair) for pair in pairs))
