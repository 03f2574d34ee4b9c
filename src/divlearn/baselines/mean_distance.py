"""Minimum distance to mean, in any divergence of SPD matrices whose means are unique."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, RealArray
from divlearn.baselines import neighbors, plane
from divlearn.baselines.discriminants import fit_lda
from divlearn.baselines.plane import CHOICES
from divlearn.checks import check_finite
from divlearn.divergence import LOG_EUCLIDEAN, Divergence, get_divergence
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting import labelled
from divlearn.fitting.calibration import SCORES, fit_temperature
from divlearn.fitting.folds import Fold
from divlearn.fitting.labelled import Labelled, check_labelled
from divlearn.fitting.selection import HeldOut
from divlearn.fitting.training import Chosen, Grid, Judge, Training, choose, judge_accuracy
from divlearn.geometry import compose, expm, geodesic, graded_eigh, invsqrtm, sqrtm
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.means import given_point, mean_abld
from divlearn.sharded.blocks import engine_for

_TOLERANCE = 1e-5  # of the gradient at a mean, which has no unit
_FILTER_TOLERANCE = 1e-9  # likewise at the mean of all matrices
_LEAST_DIRECTION = 1e-6  # of a filter, relative to the largest
_ROUGH_ACCURACY = 1e-3  # candidates are told apart without digits of the smallest eigenvalues
_CERTAIN = 2.0  # standard errors of a gain over the first candidate that counts
Field = list[Divergence | None]  # None: log-Euclidean
_CANDIDATES: Field = [*plane.CANDIDATES, None]
_TABLE_ENTRIES = 1 << 22  # of spectra held at a time


@labelled.takes_metric
class DivergenceMDM(NamesMixin, TransformerMixin, labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by the nearest class mean.

    The mean of a class minimises the weighted sum of divergences from its matrices, and a matrix
    belongs to the class whose mean is nearest:

    .. math:: C_k = \arg\min_C \sum_{y_i = k} w_i D(X_i \,\|\, C) , \qquad
              \hat y(X) = \arg\min_k D(X \,\|\, C_k) .

    Parameters
    ----------
    divergence : str, pair (alpha, beta), Divergence or sequence of these, default="airm"
        A name, see `divlearn.get_divergence`, or a pair with alpha, beta >= 0 or both <= 0;
        ``metric`` is an alias. The mean in "burg" and "kullback" is the arithmetic mean, in
        "reverse-burg" the harmonic mean, in "jeffreys" the geometric mean of both. "choose" chooses
        the divergence by cross-validation on the training data. In a sequence such as
        ``["airm", "burg"]``, a field of metrics, every class has a mean in each. See Notes.
    filtering : bool, default=False
        Whether to project matrices first, as pyRiemann's FgMDM does: in the tangent space at their
        AIRM mean, onto the directions of a shrinkage LDA, which ignores sample weights.
    cv : int, splitter or iterable of pairs of indices, default=4
        Folds of "choose", as in `DivergenceKernelClassifier`.
    random_state : int, RandomState or None, default=None
        Shuffles the folds.
    engine : str or Engine, default="auto"
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    means_ : ndarray, shape (n_classes, d, d), of filtered matrices if there is a filter
        For a sequence, (n_divergences, n_classes, d, d).
    divergence_ : Divergence or "log-euclidean", the one given or chosen; a list for a sequence.
    weights_ : ndarray, shape (n_divergences,), of the divergences of a sequence; else [1].
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
    fast, means of candidates are approximate: the point beta - alpha of the geodesic from the AIRM
    mean (0) to the arithmetic mean (1), exact for "airm" and "burg"; the harmonic mean, also exact,
    for "reverse-burg".

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
    cv_results_: dict[str, Any]
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]
    _field: Field
    _filter: tuple[Annotated[RealArray, "d d"], RealArray] | None

    def __init__(
        self,
        divergence: str | Divergence | Sequence[Any] = "airm",
        engine: str | Engine = "auto",
        *,
        filtering: bool = False,
        cv: Any = 4,
        random_state: int | np.random.RandomState | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.divergence, self.engine, self.filtering = divergence, engine, filtering
        self.cv, self.random_state, self.regularize = cv, random_state, regularize

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
        chosen = isinstance(self.divergence, str) and self.divergence == "choose"
        several = _is_sequence(self.divergence)
        if not chosen:
            self._field = _known_field(self.divergence if several else [self.divergence])
        engine = get_engine(self.engine)
        data = check_labelled(self, X, y, sample_weight, None, groups)
        if chosen:
            return self.fit_training(Training(data, data.folds(self.cv, self.random_state), engine))
        self.scale_, self.weights_ = 1.0, np.ones(1)
        data = self._learn_filter(data, engine)
        means = np.stack([_class_means(data, one, engine) for one in self._field])
        if len(means) > 1:
            self.weights_ = _balance(data, self._field, means, engine)
        self.means_ = means if several else means[0]
        return self

    def _learn_filter(self, data: Labelled, engine: Engine) -> Labelled:
        """Learn the filter, if there is to be one, and return filtered data."""
        self._filter = None
        if not self.filtering:
            return data
        self._filter = _learn_filter(data, np.arange(len(data.codes)), engine)
        return replace(data, matrices=_filtered(data.matrices, *self._filter))

    @property
    def divergence_(self) -> Any:
        """The divergence in use, or a list of those in use."""
        found = [LOG_EUCLIDEAN if one is None else one for one in self._field]
        return found[0] if self.means_.ndim == 3 else found

    def fit_training(self, training: Training) -> Self:
        """Choose the divergence on folds of data that was checked."""
        data, engine = training.data, training.engine
        self.classes_, self.n_features_in_ = data.classes, data.matrices.shape[-1]
        if not training.folds:
            raise ValueError(
                "every class has 1 matrix or group, but some must have >= 2 for divergence='choose'"
                ", one to train on and one to judge by; pass more, or name a divergence"
            )
        rough = get_engine(self.engine, accuracy=_ROUGH_ACCURACY)
        search = MeanSearch(training, rough, filtering=self.filtering)
        chosen, self.cv_results_ = search.choose()
        self.oof_proba_ = data.spread(chosen.rows, chosen.probabilities)
        divergence = _CANDIDATES[chosen.best]
        self._field, self.weights_ = [divergence], np.ones(1)
        unit = search.unit(chosen.best) * chosen.calibration.temperature
        self.scale_ = 1 / (unit * (divergence.scale if divergence else 1.0))
        data = self._learn_filter(data, engine)
        if divergence is None or abs(slope := divergence.beta - divergence.alpha) == 1:
            self.means_ = _class_means(data, divergence, engine)
        else:
            recenter = _recentering(data, engine)
            starts = recenter(np.arange(len(data.codes)), data.codes, data.weights)
            centers = _class_means(data, _CANDIDATES[0], engine, starts)
            arithmetic = _average(data.matrices, data.codes, data.weights)
            self.means_ = geodesic(centers, arithmetic, slope)
        return self

    def transform(self, X: ArrayLike) -> RealArray:
        """Distances of matrices to the means, shape (n_matrices, n_classes).

        Distances are square roots if the divergence is the square of a distance, as "airm" and
        "stein" are; otherwise they are divergences.
        """
        distances = self._distances(X)
        squares = all(one is None or one.squared_distance for one in self._field)
        return np.sqrt(np.maximum(distances, 0)) if squares else distances

    def predict_proba(self, X: ArrayLike) -> RealArray:
        r"""Probabilities :math:`e^{-s D(X \| C_k)} / \sum_j e^{-s D(X \| C_j)}`, s = ``scale_``.

        D is the divergence in its usual form: for "airm", "stein" and "log-euclidean" the squared
        distance. The shape is (n_matrices, n_classes).
        """
        distances = self._distances(X)  # first, for it says if nothing is fitted
        return softmax(-self.scale_ * distances, axis=1)

    def _distances(self, X: ArrayLike) -> RealArray:
        check_is_fitted(self)
        engine = get_engine(self.engine)
        means = self.means_.reshape(len(self._field), -1, *self.means_.shape[-2:])
        found = []
        for matrices in neighbors.checked_blocks(self, X, means[..., 0, 0].size):
            kept = matrices if self._filter is None else _filtered(matrices, *self._filter)
            tables = _measure(kept, self._field, means, engine)
            found.append(np.tensordot(self.weights_, tables, 1))
        return np.concatenate(found)

    @property
    def _n_features_out(self) -> int:
        return len(self.classes_)


def _is_sequence(divergence: Any) -> bool:
    """Tell several divergences from one, such as a pair of numbers."""
    listed = isinstance(divergence, list | tuple | np.ndarray)
    return listed and not (len(divergence) and all(isinstance(one, Real) for one in divergence))


def _known_field(divergences: Any) -> Field:
    field = [neighbors.known_divergence(one) for one in divergences]
    points = [one and (one.alpha, one.beta, one.symmetrized) for one in field]
    twice = [one for one, at in zip(divergences, points, strict=True) if points.count(at) > 1]
    if twice or not field:
        raise ValueError(
            f"divergence={divergences!r} must hold one divergence, or several that differ by more "
            f"than a factor; {f'leave out all but one of {twice}' if twice else 'name one'}"
        )
    return field


def _measure(matrices: RealArray, field: Field, means: RealArray, engine: Engine) -> RealArray:
    """Divergences (n_divergences, n_matrices, n_classes) in their usual form."""
    prepared: Any = engine.prepare(Prepared.checked(matrices)) if any(field) else None
    return np.stack(
        [
            one.pairwise(prepared, some, engine=engine)
            if one
            else cdist(log_vectors(matrices), log_vectors(some), "sqeuclidean")
            for one, some in zip(field, means, strict=True)
        ]
    )


def _balance(data: Labelled, field: Field, means: RealArray, engine: Engine) -> RealArray:
    """Weights of divergences, each as if it were alone, so that none outweighs the others."""
    scales = []
    for table in _measure(data.matrices, field, means, engine):
        unit = _typical(table)
        shares = data.weights / data.weights.sum()
        scales.append(1 / (unit * fit_temperature(-table / unit, data.codes, shares)[0]))
    return np.array(scales) / len(field)


def _learn_filter(data: Labelled, rows: Indices, engine: Engine) -> tuple[RealArray, RealArray]:
    """Return the AIRM mean of some matrices, and orthonormal discriminant directions there."""
    matrices, weights = data.matrices[rows], data.weights[rows]
    center = mean_abld(matrices, 0, 0, weights, tol=_FILTER_TOLERANCE, engine=engine).mean
    vectors = log_vectors(matrices, invsqrtm(center))
    codes = data.codes[rows]
    found = fit_lda(vectors, codes, np.bincount(codes) / len(codes))["coefficients"]
    found = found[1:] - found[:1] if len(found) == 2 else found  # as scikit-learn has them
    directions, sizes, _ = np.linalg.svd(found.T, full_matrices=False)
    # Vectors at the mean add up to zero, so that one direction of classes is rounding.
    return center, directions[:, sizes > _LEAST_DIRECTION * sizes[0]]


def _filtered(matrices: RealArray, center: RealArray, directions: RealArray) -> RealArray:
    vectors, root = log_vectors(matrices, invsqrtm(center)), sqrtm(center)
    filtered = root @ from_log_vectors(vectors @ directions @ directions.T) @ root
    return 0.5 * (filtered + filtered.mT)


class MeanSearch:
    """Choose a divergence by held-out distances to class means; candidates are their numbers."""

    def __init__(self, training: Training, rough: Engine, *, filtering: bool) -> None:
        self._training, self._rough, self._filtering = training, rough, filtering
        self._known: dict[tuple[int, int], RealArray] = {}
        self._views: dict[int, _View] = {}

    def choose(self) -> tuple[Chosen[int], dict[str, Any]]:
        """Return the choice, and a table of all candidates."""
        training = self._training
        held_out = HeldOut(
            self._decide,
            judge_brier(training),
            training.folds,
            training.nest,
            nested=False,
            margin=_CERTAIN,
        )
        grid = Grid(range(len(_CANDIDATES)))
        chosen = choose(training, held_out, grid, grid, SCORES)
        n_folds, names = len(training.folds), []
        right = judge_accuracy(training, SCORES)
        rows, accuracies, scores = [held for _, held in training.folds], [], []
        for place, one in enumerate(_CANDIDATES):
            names.append(LOG_EUCLIDEAN if one is None else one.name)
            accuracies.append(right(held_out.decisions([place] * n_folds), rows).sum())
            scores.append(-held_out.score(place))
        return chosen, {
            "divergence": np.array(names),
            "accuracy": np.array(accuracies),
            "brier_score": np.array(scores),
        }

    def unit(self, candidate: int) -> float:
        """Typical divergence to the nearest class, in which temperatures are near one."""
        n_folds = len(self._training.folds)
        return _typical(np.concatenate([self._table(candidate, k) for k in range(n_folds)]))

    def _decide(self, candidate: int, number: int) -> RealArray:
        return -self._table(candidate, number) / self.unit(candidate)

    def _table(self, candidate: int, number: int) -> RealArray:
        """Divergences (n_held, n_classes) of what a part holds out to the means of the rest."""
        if (candidate, number) not in self._known:
            fold = number < len(self._training.folds)  # all candidates are needed there
            some = range(len(_CANDIDATES)) if fold else [candidate]
            view = self._view(number)
            tables = _held_out_tables(view, self._training.parts[number], list(some), self._rough)
            self._known |= {(one, number): table for one, table in zip(some, tables, strict=True)}
        return self._known[candidate, number]

    def _view(self, number: int) -> "_View":
        """Prepare matrices; where they are filtered, by a filter that was learned without each."""
        training, key = self._training, number if self._filtering else -1
        if key not in self._views:
            data = training.data
            if self._filtering:
                known = _learn_filter(data, training.parts[number][0], training.engine)
                data = replace(data, matrices=_filtered(data.matrices, *known))
            self._views[key] = _View(data, training.engine)
        return self._views[key]


class _View:
    """Matrices, and what means of parts of them are made of."""

    def __init__(self, data: Labelled, engine: Engine) -> None:
        self.data, self.recenter = data, _recentering(data, engine)
        self.inverses, self.vectors = np.linalg.inv(data.matrices), log_vectors(data.matrices)


def judge_brier(training: Training) -> Judge:
    """Make a function to shares in the mean over folds of the negative Brier score."""
    # Brier scores are bounded, so that a few matrices far from all means do not decide.
    codes, weights = training.data.codes, training.data.weights

    def judge(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        where, scores = np.concatenate(rows), np.concatenate(parts)
        shares = np.concatenate([weights[one] / weights[one].sum() / len(rows) for one in rows])
        temperature, _ = fit_temperature(scores, codes[where], shares)
        errors = softmax(scores / temperature, axis=1)
        errors[np.arange(len(where)), codes[where]] -= 1
        return -shares * (errors**2).sum(axis=1)

    return judge


def _typical(table: RealArray) -> float:
    """Typical divergence to the nearest class; if that is zero, to any."""
    near, any_class = float(np.median(table.min(axis=1))), float(np.median(table))
    return max(near if near > 0 else any_class, 1e-100)


def _held_out_tables(
    view: _View, fold: Fold, candidates: Sequence[int], engine: Engine
) -> list[RealArray]:
    """Divergences (n_held, n_classes) to the means of the training part, for each candidate."""
    data, (train, held) = view.data, fold
    codes, weights = data.codes[train], data.weights[train]
    slopes = {one: _slope(_CANDIDATES[one]) for one in candidates}
    means = _part_means(view, train, sorted({one for one in slopes.values() if one is not None}))
    tables = np.empty((len(candidates), len(held), len(data.classes)))
    step = max(1, _TABLE_ENTRIES // data.matrices[0, :1].size // len(data.classes))
    for start in range(0, len(held), step):
        some = slice(start, start + step)
        prepared = engine.prepare(Prepared.checked(data.matrices[held[some]]))
        for slope, centers in means.items():
            places = [place for place, one in enumerate(candidates) if slopes[one] == slope]
            points = CHOICES[[candidates[place] for place in places]]
            tables[places, some] = _tables(prepared, centers, points, engine)
    for place, one in enumerate(candidates):
        if slopes[one] is None:
            gaps = view.vectors[held][:, None] - _average(view.vectors[train], codes, weights)
            tables[place] = (gaps**2).sum(axis=2)
    largest = float(tables.max())
    check_finite(largest, "a divergence", "to the mean of a class", or_infinite=True)
    return list(np.minimum(tables, 1e100))


def _slope(divergence: Divergence | None) -> float | None:
    return None if divergence is None else divergence.beta - divergence.alpha


def _part_means(view: _View, train: Indices, slopes: Sequence[float]) -> dict[float, RealArray]:
    """Approximate class means of a part, for values of beta - alpha."""
    data = view.data
    codes, weights = data.codes[train], data.weights[train]
    arithmetic = _average(data.matrices[train], codes, weights)
    means = {}
    between = [one for one in slopes if abs(one) < 1]
    if between:
        centers = view.recenter(train, codes, weights)
        found = geodesic(centers, arithmetic, np.array(between)[:, None])
        means = dict(zip(between, found, strict=True))
    if 1.0 in slopes:
        means[1.0] = arithmetic
    if -1.0 in slopes:
        harmonic = np.linalg.inv(_average(view.inverses[train], codes, weights))
        means[-1.0] = 0.5 * (harmonic + harmonic.mT)
    return means


def _tables(data: Prepared, means: RealArray, points: RealArray, engine: Engine) -> RealArray:
    """Divergences (n_points, n_matrices, n_classes) to the means; one alone needs no spectra."""
    if len(points) == 1:
        return engine.encode(data, Prepared.checked(means), *points[0])[None]
    t = engine.spectra(data, Prepared.checked(means))
    spectra = np.ascontiguousarray(t.reshape(-1, t.shape[2]).T)
    return plane.evaluate_plane(spectra, points).reshape(-1, *t.shape[:2])


def _recentering(data: Labelled, engine: Engine) -> Callable[..., RealArray]:
    """Return a function that finds AIRM means of parts by a Newton step from those of all."""
    centers = _class_means(data, get_divergence("jeffreys"), engine)
    everything = np.arange(len(data.codes)), data.codes, data.weights
    return _recentering_from(data, _recentering_from(data, centers)(*everything))


def _recentering_from(data: Labelled, centers: RealArray) -> Callable[..., RealArray]:
    frames = np.linalg.cholesky(centers)
    whiteners = np.linalg.inv(frames)[data.codes]
    values, bases = graded_eigh(whiteners @ data.matrices @ whiteners.mT)
    logarithms = np.log(np.maximum(values, 1e-300))
    tangents, gaps = compose(bases, logarithms), logarithms[:, :, None] - logarithms[:, None]
    half = np.maximum(0.5 * np.abs(gaps), 1e-6)
    bends = half / np.tanh(half)  # second derivatives of half the squared distance

    def recenter(rows: Indices, codes: Indices, weights: RealArray) -> RealArray:
        steps = _average(tangents[rows], codes, weights)
        turned = bases[rows].mT @ steps[codes] @ bases[rows]
        curvature = _average((bends[rows] * turned**2).sum(axis=(1, 2)), codes, weights)
        lengths = (steps**2).sum(axis=(1, 2)) / np.maximum(curvature, 1e-300)
        return frames @ expm(lengths[:, None, None] * steps) @ frames.mT

    return recenter


def _class_means(
    data: Labelled, divergence: Divergence | None, engine: Engine, starts: RealArray | None = None
) -> RealArray:
    names = [f"class {name!s}" for name in data.classes]
    return find_means(data.matrices, data.codes, data.weights, divergence, engine, names, starts)


def find_means(
    matrices: RealArray,
    codes: Indices,
    weights: RealArray,
    divergence: Divergence | None,
    engine: Engine,
    names: Sequence[str],
    starts: RealArray | None = None,
) -> RealArray:
    """Means of the matrices of each code, in closed form if there is one; None: log-Euclidean."""
    if divergence is None:
        return from_log_vectors(_average(log_vectors(matrices), codes, weights))
    point = None if divergence.symmetrized else given_point(divergence)
    if point is None and {divergence.alpha, divergence.beta} not in ({0.0, 1.0}, {0.0, -1.0}):
        raise ValueError(
            f"divergence={divergence.name!r} is the mean of both directions, whose means have no "
            "closed form except for 'jeffreys'; pass that, 'stein', which is symmetric, or a "
            "single direction (alpha, beta)"
        )
    if starts is not None and point is not None:
        return _iterate(matrices, codes, weights, point, starts, engine, names)
    arithmetic = _average(matrices, codes, weights)
    if point == (0.0, 1.0):
        return arithmetic
    harmonic = np.linalg.inv(_average(np.linalg.inv(matrices), codes, weights))
    harmonic = 0.5 * (harmonic + harmonic.mT)
    if point == (1.0, 0.0):
        return harmonic
    middle = geodesic(arithmetic, harmonic, 0.5)
    if point is None:
        return middle
    return _iterate(matrices, codes, weights, point, middle, engine, names)


def _average(values: RealArray, codes: Indices, weights: RealArray) -> RealArray:
    """Weighted means over each code of something that each matrix has."""
    n, n_codes = len(codes), int(codes.max()) + 1
    largest = np.zeros(n_codes)
    np.maximum.at(largest, codes, weights)
    weights = weights / largest[codes]  # tiny ones must not underflow in the sum
    shares = weights / np.bincount(codes, weights)[codes]
    table = sparse.csr_array((shares, (codes, np.arange(n))), shape=(n_codes, n))
    means: RealArray = table @ values.reshape(n, -1)
    return means.reshape(n_codes, *values.shape[1:])


def _iterate(
    matrices: RealArray,
    codes: Indices,
    weights: RealArray,
    point: tuple[float, float],
    starts: RealArray,
    engine: Engine,
    names: Sequence[str],
) -> RealArray:
    means = []
    for code, start in enumerate(starts):
        rows = np.flatnonzero(codes == code)
        own = engine.keep(Prepared.checked(matrices[rows]))
        found = mean_abld(
            own,
            *point,
            weights[rows],
            start,
            tol=_TOLERANCE,
            engine=engine_for(engine, len(rows), own.d),
        )
        if not found.converged:
            message = f"the mean of {names[code]} is not exact: {found.message}"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        means.append(found.mean)
    return np.stack(means)
