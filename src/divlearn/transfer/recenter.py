"""Re-centring: the mean of every group of SPD matrices becomes the identity."""

from __future__ import annotations

from copy import copy
from datetime import date
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import check_flag, check_same_kind, check_sortable
from divlearn.descriptors.matrices import MatrixTransformer
from divlearn.divergence import Divergence, DivergenceLike, get_divergence
from divlearn.engines import Engine, get_engine
from divlearn.fitting.folds import check_groups, count_groups
from divlearn.fitting.labelled import check_new, check_training, fit_method, label, takes_metric
from divlearn.fitting.targets import check_rows
from divlearn.geometry import geodesic, invsqrtm
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.nearest.class_means import check_forgetting, continue_means, decay_totals, find_means
from divlearn.text import counted
from divlearn.transfer.choice import choose_alignment

_ALL = np.array([None])  # name of the group of all matrices
_LEAST_KEPT = 1e-6  # of squared distances to a mean: it is the matrix itself up to rounding
_EQUAL = 1e-10  # dispersions up to this are errors of the mean: the matrices are equal


@takes_metric
class Recenter(MatrixTransformer):
    r"""Map the mean of every group of SPD matrices to the identity.

    Groups are subjects, sessions or devices whose matrices differ by a shift. With the mean
    :math:`M_g` of group g, and :math:`\sigma_g = 1` unless ``stretch``,

    .. math:: M_g = \arg\min_M \sum_{i \in g} D(X_i \,\|\, M) , \qquad
              X \mapsto \bigl( M_g^{-1/2} X M_g^{-1/2} \bigr)^{1 / \sigma_g} .

    This removes a shift :math:`X \mapsto A X A^T` between groups up to a rotation. It uses no
    labels, and assumes that classes are about equally frequent in every group. "choose" learns from
    labels and groups in `fit` whether it helps, and leaves matrices as they are if it does not.

    Parameters
    ----------
    divergence : str, pair (alpha, beta), dict or Divergence, default="airm"
        D, any value that `DivergenceMDM` takes; ``metric`` is an alias. The mean in D of every
        training group becomes the identity, outside the alpha-beta family only approximately.
        "choose" learns by held-out groups whether to leave matrices as they are, to re-centre them
        in "airm", or to stretch them as well; see Notes.
    stretch : bool, default=False
        Whether to scale dispersions to one as well: :math:`\sigma_g^2` is the mean squared
        affine-invariant distance of the matrices of a group to its mean. "choose" ignores it.
    engine : str or Engine, default="auto"
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    groups_ : ndarray, shape (n_groups,), names of the groups in `fit`; empty without groups.
        `partial_fit` appends others, None for matrices without groups.
    means_ : ndarray, shape (n_groups, d, d), a single one without groups.
    dispersions_ : ndarray, shape (n_groups,), the squares of sigma, with ``stretch``.
    chosen_ : {"none", "center", "stretch"}, only with "choose".
    cv_results_ : dict of arrays, only with "choose"
        "alignment", its held-out "log_loss", its "gain" over "none" and "standard_error" of that;
        empty if "none" is chosen because every group lies inside one class, which re-centring
        would remove, or because no group can be held out.
    totals_ : ndarray, shape (n_groups,), number of matrices, less those that were forgotten.
    mean_ : ndarray, shape (d, d), the mean of ``means_`` in `fit`.
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    For the groups of `fit`, `transform` uses their mean and dispersion from `fit`. Give a new
    session a new name. Groups are text or numbers or dates, the same in all calls: 1 and "1" would
    be two groups, so that text after numbers, or numbers after text, is an error.

    For a new group, C is the mean of its n matrices in `transform`. The mean of few matrices is
    inaccurate, and a single matrix would become the identity. So ``mean_``, called M, counts as one
    of the n matrices, and the mean of ``dispersions_``, :math:`\bar\sigma^2`, as one dispersion:

    .. math:: M_g = M^{1/2} (M^{-1/2} C M^{-1/2})^{1 - 1/n} M^{1/2} , \qquad
              \sigma_g^2 = (1 - 1/n) \, \sigma_C^2 + \bar\sigma^2 / n .

    A single matrix, whose shift is unknown, is thus treated like the average training group. Of
    many matrices, the mean and the dispersion are nearly unchanged.

    Without groups, all matrices of a call are one group, which is new in `transform` unless
    `partial_fit` continues it. Pipelines pass on ``groups`` with
    ``sklearn.set_config(enable_metadata_routing=True)``.

    For "choose", at most 10 folds hold out whole groups, which are aligned as new groups are in
    `transform`. Linear discriminants in the tangent space predict their classes. An alignment is
    chosen over a simpler one if it lowers the log-loss by more than one standard error of the
    paired difference over groups; with fewer than five groups, whose standard error is uncertain,
    if it lowers the log-loss at all. A rotation of class means, as in pyRiemann's TLRotate, is not
    among the candidates, since it needs labels of new groups.

    Examples
    --------
    >>> from divlearn.nearest import DivergenceMDM
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 40, 4, separation=4, random_state=0)
    >>> gains = np.diag([1.0, 10.0, 0.2, 3.0])  # of the amplifiers in the second session
    >>> first, second = X[::2], gains @ X[1::2] @ gains
    >>> round(DivergenceMDM().fit(first, y[::2]).score(second, y[1::2]), 2)
    0.5
    >>> recenter = Recenter()
    >>> model = DivergenceMDM().fit(recenter.fit_transform(first), y[::2])
    >>> round(model.score(recenter.transform(second), y[1::2]), 2)
    0.88
    """

    __metadata_request__fit = {"groups": True}  # noqa: RUF012
    __metadata_request__partial_fit = {"groups": True}  # noqa: RUF012
    __metadata_request__transform = {"groups": True}  # noqa: RUF012

    groups_: Labels
    means_: Annotated[RealArray, "n_groups d d"]
    dispersions_: Annotated[RealArray, "n_groups"]
    totals_: Annotated[RealArray, "n_groups"]
    _squares: Annotated[RealArray, "n_groups"]  # sums of the squared weights of matrices
    _starts: Annotated[RealArray, "n_groups"]  # weights of the matrix at which means started
    mean_: Annotated[RealArray, "d d"]
    chosen_: str
    cv_results_: dict[str, Labels | RealArray]

    def __init__(
        self,
        divergence: DivergenceLike = "airm",
        *,
        stretch: bool = False,
        engine: str | Engine = "auto",
        regularize: str | float = "raise",
    ) -> None:
        self.divergence, self.stretch, self.engine = divergence, stretch, engine
        self.regularize = regularize

    @fit_method
    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Find the means of the groups.

        X has the shape (n_matrices, d, d), y and groups (n_matrices,). "choose" needs all three.
        Otherwise labels y serve only to raise an error if every group has a single class:
        re-centring would remove the classes.
        """
        self.fit_transform(X, y, groups)
        return self

    @fit_method
    def fit_transform(
        self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> RealArray:
        """Fit, and re-centre the same matrices; see `fit` and `transform`."""
        check_flag(self.stretch, "stretch")
        matrices = check_training(self, X, dtype=None)
        self.n_features_in_ = matrices.shape[-1]
        if self._chooses:
            self._choose(matrices, y, groups)
        else:
            _check_classes(y, groups, len(matrices))
        return self._as_given(self._fit_checked(matrices, groups))

    @property
    def _chooses(self) -> bool:
        return isinstance(self.divergence, str) and self.divergence == "choose"

    @property
    def _alignment(self) -> str:
        """The alignment of matrices: "none", "center" or "stretch"."""
        if self._chooses:
            return self.chosen_
        return "stretch" if self.stretch else "center"

    def _choose(self, matrices: RealArray, y: ArrayLike | None, groups: ArrayLike | None) -> None:
        """Choose an alignment; the mean of a group is the same for all folds, and computed once."""
        names, codes = _find_groups(groups, len(matrices))
        if len(names) < 2:
            raise ValueError(
                f'divergence="choose" got {counted(int(groups is not None), "groups")}, must have '
                ">= 2 to hold one out; pass groups of several subjects or sessions, or name a "
                "divergence"
            )
        data = label(matrices, y, np.ones(len(matrices)), None, groups)
        all_groups = Recenter(stretch=True, engine=self.engine)
        all_groups._fit_checked(matrices, groups)

        def align(alignment: str, train: Indices) -> RealArray:
            model = all_groups._restrict(np.unique(codes[train]))
            if alignment == "none":
                return log_vectors(matrices, invsqrtm(model.mean_))
            model.stretch = alignment == "stretch"
            return log_vectors(model._align(matrices, groups))

        self.chosen_, self.cv_results_ = choose_alignment(data, align)

    def _restrict(self, indices: Indices) -> Self:
        """Return a copy as if it were fitted to some of the groups only."""
        model = copy(self)
        model.groups_, model.totals_ = self.groups_[indices], self.totals_[indices]
        model.means_, model.dispersions_ = self.means_[indices], self.dispersions_[indices]
        model.mean_ = model._compute_means(model.means_, np.zeros(len(indices), np.intp), _ALL)[0]
        return model

    def _fit_checked(self, matrices: RealArray, groups: ArrayLike | None) -> RealArray:
        """Fit to checked matrices, and return them aligned."""
        names, codes = _find_groups(groups, len(matrices))
        _check_sizes(names, codes)
        self.groups_ = names[:0] if groups is None else names
        self.totals_ = np.bincount(codes).astype(float)
        self._squares, self._starts = self.totals_, np.zeros(len(names))
        self.means_ = self._compute_means(matrices, codes, names)
        self.mean_ = self._compute_means(self.means_, np.zeros(len(names), np.intp), _ALL)[0]
        if self._alignment == "none":
            return matrices
        aligned = _center(matrices, codes, self.means_)
        if self._alignment == "stretch":
            vectors = log_vectors(aligned)
            self.dispersions_ = self._compute_dispersions(vectors, codes)
            aligned = _stretch(vectors, codes, self.dispersions_)
        return aligned.astype(matrices.dtype, copy=False)

    @fit_method
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        forgetting: float = 0.0,
    ) -> Self:
        """Update the means of groups with new matrices, in their order.

        `transform` then uses these means, also for a single matrix. A group that was not in `fit`
        starts at ``mean_``, which counts as one matrix; so do matrices without groups, which are
        one session. Every new matrix has the weight one, and reduces the weights of the earlier
        matrices of its group by the share ``forgetting``: 0.05 remembers about 20 matrices. The new
        mean is that of the old mean and the new matrices, which is the mean of all matrices for
        "burg", "reverse-burg" and metrics that embed matrices, such as "log-euclidean". In "airm"
        the mean moves along the geodesic to each matrix. With ``stretch``, each matrix adds its
        squared distance to the mean of the matrices of its group without ``mean_``, over the
        expectation of that distance where the dispersion is one. The first call is `fit`.
        """
        forgetting = check_forgetting(forgetting)
        if not hasattr(self, "mean_"):
            self.fit(X, y, groups)
            self.groups_ = _ALL if groups is None else self.groups_
            return self
        matrices = check_new(self, X)
        names, codes = self._find_groups(groups, len(matrices))
        codes = self._add_groups(names)[codes]
        old_totals, weights = decay_totals(self.totals_, codes, forgetting)
        decays = old_totals / self.totals_
        self.means_, self.totals_ = continue_means(
            (self.means_, old_totals),
            (matrices, weights, codes),
            self._resolved_divergence,
            get_engine(self.engine),
            [_describe(name) for name in self.groups_],
        )
        self._starts = decays * self._starts
        self._squares = decays**2 * self._squares + np.bincount(codes, weights**2, len(decays))
        if self._alignment == "stretch":
            self._continue_dispersions(matrices, weights, codes, old_totals)
        return self

    def _continue_dispersions(
        self, matrices: RealArray, weights: RealArray, codes: Indices, old_totals: RealArray
    ) -> None:
        """Update dispersions with new matrices and the means that these have moved."""
        # Distances to the mean of the matrices alone, without the share of its start, from which a
        # group may be shifted.
        totals, squares = self.totals_ - self._starts, self._squares - self._starts**2
        means = geodesic(self.mean_, self.means_, self.totals_ / totals)
        distances = self._squared_distances(log_vectors(_center(matrices, codes, means)))
        # They are too small, because each matrix moves the mean towards it: where the dispersion is
        # one, their expectation is `kept`. A matrix that is alone says nothing.
        kept = 1 - 2 * weights / totals[codes] + (squares / totals**2)[codes]
        alone = kept <= _LEAST_KEPT
        news = np.where(alone, self.dispersions_[codes], distances / np.where(alone, 1, kept))
        sums = np.bincount(codes, weights * news, len(old_totals))
        self.dispersions_ = (old_totals * self.dispersions_ + sums) / self.totals_

    def _add_groups(self, names: Labels) -> Indices:
        """Return the indices of groups; new ones start as the average training group."""
        old = self.groups_.tolist()
        new, n_old = [name for name in names.tolist() if name not in old], len(old)
        if new:
            self.groups_ = np.array(old + new, dtype=object)
            starts = np.repeat(self.mean_[None], len(new), axis=0)
            self.means_ = np.concatenate([self.means_[:n_old], starts])
            self.totals_, self._squares, self._starts = (
                np.append(values[:n_old], np.ones(len(new)))
                for values in (self.totals_, self._squares, self._starts)
            )
        if new and self._alignment == "stretch":
            average = np.full(len(new), self.dispersions_.mean())
            self.dispersions_ = np.append(self.dispersions_[:n_old], average)
        return np.array([self.groups_.tolist().index(name) for name in names.tolist()])

    def transform(self, X: ArrayLike, groups: ArrayLike | None = None) -> RealArray:
        """Re-centre matrices; new groups are re-centred by their own mean; see Notes.

        The result has the shape of X, and is float32 if X is, else float64.
        """
        return self._as_given(self._align(check_new(self, X, dtype=None), groups))

    def _align(self, matrices: RealArray, groups: ArrayLike | None) -> RealArray:
        """Align checked matrices; see Notes for groups that were not in `fit`."""
        names, codes = self._find_groups(groups, len(matrices))
        if self._alignment == "none":
            return matrices
        index_by_name = {name: index for index, name in enumerate(self.groups_.tolist())}
        indices = np.array([index_by_name.get(name, -1) for name in names.tolist()])
        new, share = indices < 0, 1 / np.bincount(codes)  # share of the training average
        means = self.means_[indices]
        if new.any():
            rows = np.flatnonzero(new[codes])
            new_codes = (np.cumsum(new) - 1)[codes[rows]]
            new_means = self._compute_means(matrices[rows], new_codes, names[new])
            means[new] = geodesic(self.mean_, new_means, 1 - share[new])
        aligned = _center(matrices, codes, means)
        if self._alignment == "stretch":
            vectors = log_vectors(aligned)
            dispersions = self._compute_dispersions(vectors, codes)
            shrunk = (1 - share) * dispersions + share * self.dispersions_.mean()
            aligned = _stretch(vectors, codes, np.where(new, shrunk, self.dispersions_[indices]))
        return aligned.astype(matrices.dtype, copy=False)

    def _find_groups(self, groups: ArrayLike | None, n_matrices: int) -> tuple[Labels, Indices]:
        """As the function, for groups after `fit`."""
        names, codes = _find_groups(groups, n_matrices)
        if groups is not None:
            check_same_kind(names, self.groups_.tolist(), "groups")
        return names, codes

    @property
    def _resolved_divergence(self) -> Divergence:
        return self._for_checked(get_divergence("airm" if self._chooses else self.divergence))

    def _compute_dispersions(self, vectors: RealArray, codes: Indices) -> RealArray:
        return np.bincount(codes, self._squared_distances(vectors)) / np.bincount(codes)

    def _squared_distances(self, vectors: RealArray) -> RealArray:
        """Squared distances to the identity of matrices, of which these are the logarithms."""
        return self._share * (vectors**2).sum(axis=1)

    def _compute_means(self, matrices: RealArray, codes: Indices, names: Labels) -> RealArray:
        return find_means(
            matrices.astype(np.float64, copy=False),
            codes,
            np.ones(len(codes)),
            self._resolved_divergence,
            get_engine(self.engine),
            [_describe(name) for name in names],
        )


def _describe(name: object) -> str:
    return "all matrices" if name is None else f"group {name!s}"


def _find_groups(groups: ArrayLike | None, n_matrices: int) -> tuple[Labels, Indices]:
    """Return the names of groups, and the index of the group of each matrix."""
    checked = check_groups(groups, n_matrices)
    if checked is None:
        return _ALL, np.zeros(n_matrices, np.intp)
    if isinstance(checked[0], date):  # also of pandas
        checked = checked.astype("datetime64[ns]")
    if checked.dtype.kind == "M":  # text is the same for dates in all units
        checked = np.datetime_as_string(checked.astype("datetime64[ns]"))
    return np.unique(checked, return_inverse=True)


def _check_sizes(names: Labels, codes: Indices) -> None:
    """Raise if a group has one matrix, which re-centring would map to the identity."""
    counts = np.bincount(codes)
    if counts.min() < 2:
        where = "X" if names[0] is None else f"group {names[counts.argmin()]!s}"
        raise ValueError(
            f"{where} has 1 matrix (n_samples=1), must have >= 2 in fit, as one would become the "
            "identity; pass more, join groups or leave it out"
        )


def _check_classes(y: ArrayLike | None, groups: ArrayLike | None, n_matrices: int) -> None:
    """Raise if re-centring would remove the classes."""
    labels = np.asarray(y)
    if groups is None or labels.ndim != 1:  # several targets are no classes
        return
    check_rows(labels, n_matrices, "y")
    check_sortable(labels, "y")
    names, codes = _find_groups(groups, n_matrices)
    classes, labels = np.unique(labels, return_inverse=True)
    if len(classes) > 1 and count_groups(labels, codes).sum() == len(names):
        raise ValueError(
            f"each of the {len(names)} groups lies inside one of the {len(classes)} classes, must "
            "have several: re-centring would remove the classes with the shift; leave out groups"
        )


def _center(matrices: RealArray, codes: Indices, means: RealArray) -> RealArray:
    whiteners = invsqrtm(means)[codes]
    centered = whiteners @ matrices @ whiteners
    return 0.5 * (centered + centered.mT)


def _stretch(vectors: RealArray, codes: Indices, dispersions: RealArray) -> RealArray:
    """Scale logarithms to dispersions of one; return the matrices of these logarithms."""
    sigmas = np.sqrt(np.where(dispersions > _EQUAL, dispersions, 1.0))
    return from_log_vectors(vectors / sigmas[codes, None])
