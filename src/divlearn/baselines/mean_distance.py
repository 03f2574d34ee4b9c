"""Minimum distance to mean, in any divergence of SPD matrices whose means are unique."""

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.baselines import neighbors
from divlearn.baselines.plane import CANDIDATES, CHOICES, evaluate_plane, least_loss, log_losses
from divlearn.cluster.kmeans import given_point
from divlearn.divergence import Divergence, get_divergence
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting import labelled
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import Labelled, check_labelled
from divlearn.fitting.progress import track
from divlearn.geometry import geodesic
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.means import mean_abld
from divlearn.sharded.blocks import engine_for

_TOLERANCE = 1e-5  # of the gradient at a mean, which has no unit

# Candidates are judged with rough means, and need no digits of the smallest eigenvalues.
_ROUGH_TOLERANCE, _ROUGH_STEPS, _ROUGH_ACCURACY = 0.02, 2, 1e-3
_SLOPES = np.unique(CHOICES[:, 1] - CHOICES[:, 0])  # means depend on beta - alpha above all
_CANDIDATES: list[Divergence | None] = [*CANDIDATES, get_divergence("jeffreys"), None]
_TABLE_ENTRIES = 1 << 22  # of spectra held at a time


class DivergenceMDM(NamesMixin, TransformerMixin, labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by the nearest of the means of the classes.

    The mean of a class minimises the weighted sum of divergences from its matrices, and a matrix
    belongs to the class whose mean is nearest:

    .. math:: C_k = \arg\min_C \sum_{y_i = k} w_i D(X_i \,\|\, C) , \qquad
              \hat y(X) = \arg\min_k D(X \,\|\, C_k) .

    Parameters
    ----------
    divergence : str, pair (alpha, beta) or Divergence, default="airm"
        As in `DivergenceKNN`, of one sign. The mean in "burg" and "kullback" is the arithmetic one,
        in "reverse-burg" the harmonic one, in "jeffreys" the geometric mean of these two.
        "choose" chooses the divergence by cross-validation on the training data; see Notes.
    cv : int, splitter or iterable of pairs of indices, default=4
        Folds by which "choose" judges, as in `DivergenceKernelClassifier`.
    random_state : int, RandomState or None, default=None
        Shuffles the folds.
    engine : str or Engine, default="auto"

    Attributes
    ----------
    means_ : ndarray, shape (n_classes, d, d)
    divergence_ : Divergence or "log-euclidean", the one that was given or chosen.
    scale_ : float
        Factor of divergences in `predict_proba`: 1, or the one of the least held-out log-loss
        where the divergence is chosen.
    cv_results_ : dict of arrays, only where the divergence is chosen
        "divergence", the candidates by name, and their held-out "accuracy" and "log_loss".
    oof_proba_ : ndarray, shape (n_matrices, n_classes), only where the divergence is chosen
        Held-out probabilities. Divergence and scale are chosen without the fold they are for. NaN
        for matrices that no fold holds out or that have no weight.
    classes_ : ndarray, shape (n_classes,)
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    Candidates are "airm", "stein", "burg", "reverse-burg", "log-cosh", other pairs (alpha, beta) of
    0, 1/4, 1/2, 1 and 2 which differ by 1 at most, "jeffreys" and "log-euclidean". "choose" takes
    the one of the lowest held-out log-loss, that of `predict_proba` with the best scale, and the
    first of those within 0.001 of it. With few matrices this is steadier than the accuracy. The
    candidates are judged with approximate means, on the geodesics from the AIRM mean to the
    arithmetic (beta > alpha) or the harmonic mean; the means of the one chosen are exact.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = DivergenceMDM("kullback").fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    >>> model.transform(X[:5]).shape
    (5, 3)
    """

    means_: RealArray
    scale_: float
    cv_results_: dict[str, Any]
    oof_proba_: RealArray
    _divergence: Divergence | None

    def __init__(
        self, divergence: str | Sequence[float] | Divergence = "airm",
        engine: str | Engine = "auto", *, cv: Any = 4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:  # fmt: skip
        self.divergence, self.engine = divergence, engine
        self.cv, self.random_state = cv, random_state

    @labelled.all_or_nothing
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Find the means of the classes.

        X has the shape (n_matrices, d, d), the others (n_matrices,). Weights are those of the
        means, and of the accuracy by which a divergence is chosen. Folds do not split groups.
        """
        chosen = isinstance(self.divergence, str) and self.divergence == "choose"
        if not chosen:
            self._divergence = neighbors.known_divergence(self.divergence)
        engine = get_engine(self.engine)
        data = check_labelled(X, y, sample_weight, None, groups)
        self.scale_ = 1.0
        if chosen:
            self._choose(data)
        self.means_ = find_means(
            data.matrices, data.codes, data.weights, self._divergence, engine,
            [f"class {name!s}" for name in data.classes],
        )  # fmt: skip
        self.classes_ = data.classes
        self.n_features_in_ = data.matrices.shape[-1]
        return self

    @property
    def divergence_(self) -> Divergence | str:
        """The divergence in use."""
        return "log-euclidean" if self._divergence is None else self._divergence

    def _choose(self, data: Labelled) -> None:
        """Choose the divergence on held-out data, and the scale of probabilities."""
        folds = data.folds(self.cv, self.random_state)
        if not folds:
            raise ValueError(
                "every class has 1 matrix or group, but some must have >= 2 for "
                "divergence='choose', one to train on and one to judge by; pass more, or name a "
                "divergence"
            )
        tables = _judge(data, folds, get_engine(self.engine, accuracy=_ROUGH_ACCURACY))
        tested = np.flatnonzero(~np.isnan(tables).any(axis=(0, 2)))
        tables, codes, weights = tables[:, tested], data.codes[tested], data.weights[tested]
        scales, losses = log_losses(tables, codes)
        probabilities = np.empty(tables.shape[1:])
        for _, held in folds:
            own = np.isin(tested, held)
            best, place = least_loss(losses, weights * ~own if not own.all() else weights)
            probabilities[own] = softmax(-scales[best, place] * tables[best, own], axis=1)
        self.oof_proba_ = data.spread(tested, probabilities)
        best, place = least_loss(losses, weights)
        self._divergence = _CANDIDATES[best]
        factor = 1.0 if self._divergence is None else self._divergence.scale
        self.scale_ = float(scales[best, place]) / factor
        names = ["log-euclidean" if one is None else one.name for one in _CANDIDATES]
        self.cv_results_ = {
            "divergence": np.array(names),
            "accuracy": np.average(tables.argmin(axis=2) == codes, axis=1, weights=weights),
            "log_loss": np.average(losses, axis=2, weights=weights).min(axis=1),
        }

    def transform(self, X: ArrayLike) -> RealArray:
        """Distances of matrices to the means, shape (n_matrices, n_classes).

        The distance where the divergence is the square of one in its usual form, as that of "airm"
        and "stein"; else the divergence.
        """
        return self._distances(X, squared=False)

    def _predict_codes(self, X: ArrayLike) -> NDArray[np.intp]:
        return self._distances(X, squared=None).argmin(axis=1)

    def predict_proba(self, X: ArrayLike) -> RealArray:
        r"""Probabilities :math:`e^{-s D(X \| C_k)} / \sum_j e^{-s D(X \| C_j)}`, s = ``scale_``.

        D is the divergence in its usual form: for "airm", "stein" and "log-euclidean" the squared
        distance. The shape is (n_matrices, n_classes).
        """
        return softmax(-self.scale_ * self._distances(X, squared=None), axis=1)

    def _distances(self, X: ArrayLike, squared: bool | None) -> RealArray:
        check_is_fitted(self)
        blocks = neighbors.checked_blocks(self, X, len(self.means_))
        return np.concatenate([self._table(matrices, squared) for matrices in blocks])

    def _table(self, matrices: RealArray, squared: bool | None) -> RealArray:
        if self._divergence is None:
            gaps = log_vectors(matrices)[:, None] - log_vectors(self.means_)
            lengths: RealArray = np.linalg.norm(gaps, axis=2)
            return lengths if squared is False else lengths**2
        engine = get_engine(self.engine)
        prepared: Any = engine.prepare(Prepared.checked(matrices))
        return self._divergence.pairwise(prepared, self.means_, squared=squared, engine=engine)

    @property
    def _n_features_out(self) -> int:
        return len(self.means_)


def _judge(data: Labelled, folds: Folds, engine: Engine) -> RealArray:
    """Divergences (n_candidates, n_matrices, n_classes) to the means without the fold of each."""
    tables = np.full((len(_CANDIDATES), len(data.codes), len(data.classes)), np.nan)
    inverses, vectors = np.linalg.inv(data.matrices), log_vectors(data.matrices)
    for train, held in track(folds, "folds"):
        matrices, codes, weights = data.matrices[train], data.codes[train], data.weights[train]
        arithmetic = _average(matrices, codes, weights)
        harmonic = np.linalg.inv(_average(inverses[train], codes, weights))
        harmonic = 0.5 * (harmonic + harmonic.mT)
        middle = geodesic(arithmetic, harmonic, 0.5)
        center = _iterate(matrices, codes, weights, (0.0, 0.0), middle, engine)
        rising = _SLOPES >= 0
        means = np.concatenate([
            geodesic(center, harmonic, -_SLOPES[~rising, None]),
            geodesic(center, arithmetic, _SLOPES[rising, None]),
        ])  # fmt: skip
        step = max(1, _TABLE_ENTRIES // means[..., 0].size)
        for start in range(0, len(held), step):
            rows = held[start : start + step]
            tables[:-1, rows] = _candidate_tables(data.matrices[rows], means, engine)
        gaps = vectors[held][:, None] - _average(vectors[train], codes, weights)
        tables[-1, held] = (gaps**2).sum(axis=2)
    return tables


def _candidate_tables(matrices: RealArray, means: RealArray, engine: Engine) -> RealArray:
    """Divergences of all candidates but the last, each to the means of its slope."""
    n, n_classes, d = len(matrices), *means.shape[1:3]
    atoms = Prepared.checked(means.reshape(-1, d, d))
    t = engine.spectra(Prepared.checked(matrices), atoms)
    t = t.reshape(n, len(_SLOPES), n_classes, d).transpose(1, 3, 0, 2).reshape(len(_SLOPES), d, -1)
    tables = np.empty((len(_CANDIDATES) - 1, n * n_classes))
    for slope, spectra in zip(_SLOPES, t, strict=True):
        some = np.flatnonzero(CHOICES[:, 1] - CHOICES[:, 0] == slope)
        tables[some] = evaluate_plane(np.ascontiguousarray(spectra), CHOICES[some])
        if slope == 0:
            burgs = np.array([(0.0, 1.0), (1.0, 0.0)])
            tables[len(CHOICES)] = evaluate_plane(np.ascontiguousarray(spectra), burgs).mean(axis=0)
    return tables.reshape(-1, n, n_classes)


def find_means(
    matrices: RealArray, codes: NDArray[np.intp], weights: RealArray,
    divergence: Divergence | None, engine: Engine, names: Sequence[str],
) -> RealArray:  # fmt: skip
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


def _average(values: RealArray, codes: NDArray[np.intp], weights: RealArray) -> RealArray:
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
    matrices: RealArray, codes: NDArray[np.intp], weights: RealArray, point: tuple[float, float],
    starts: RealArray, engine: Engine, names: Sequence[str] | None = None,
) -> RealArray:  # fmt: skip
    """Means by iteration, without `names` rough ones."""
    tol, steps = (_TOLERANCE, 200) if names else (_ROUGH_TOLERANCE, _ROUGH_STEPS)
    means = []
    for code, start in enumerate(starts):
        rows = np.flatnonzero(codes == code)
        own = engine.keep(Prepared.checked(matrices[rows]))
        found = mean_abld(
            own, *point, weights[rows], start, tol=tol, max_iter=steps,
            engine=engine_for(engine, len(rows), own.d),
        )  # fmt: skip
        if names and not found.converged:
            warnings.warn(
                f"the mean of {names[code]} is not exact: {found.message}",
                ConvergenceWarning, stacklevel=3,
            )  # fmt: skip
        means.append(found.mean)
    return np.stack(means)
