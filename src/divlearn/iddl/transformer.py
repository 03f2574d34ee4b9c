"""IDDL as an encoder: divergences to atoms."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.base import TransformerMixin
from sklearn.utils.multiclass import type_of_target

from divlearn.arrays import RealArray
from divlearn.iddl.base import IDDLBase
from divlearn.iddl.classifier import IDDLClassifier
from divlearn.iddl.regressor import IDDLRegressor
from divlearn.iddl.training import Model
from divlearn.labelled import all_or_nothing
from divlearn.targets import check_labels, check_numbers, require_targets

__all__ = ["IDDLTransformer"]

_Learner = IDDLClassifier | IDDLRegressor


class IDDLTransformer(NamesMixin, TransformerMixin, IDDLBase):  # type: ignore[misc]
    r"""Encode SPD matrices by their divergences to atoms.

    .. math:: v_k = D^{(\alpha_k, \beta_k)}(X \,\|\, B_k)

    With y, atoms and divergences are those an `IDDLClassifier` or, for continuous y, an
    `IDDLRegressor` learns; without, atoms are centres of log-Euclidean k-means and the parameters
    stay where they start.

    Parameters
    ----------
    n_atoms : int or str, default="auto"
        As in `IDDLClassifier`; 5 without y.
    variant, pairs, loss, gamma, logarithm, standardize, tangent, bias, margin, solver, init,
    learn_atoms, learn_parameters, max_iter, tol, ensemble, head, warm_start, random_state, engine,
    verbose, checkpoint
        As in `IDDLClassifier`. Features and head are there to learn by; what is returned are the
        divergences themselves.

    Attributes
    ----------
    atoms_, alpha_, beta_, n_iter_, message_, n_features_in_, n_samples_seen_
        As in `IDDLClassifier`.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(2, 30, 3, random_state=0)
    >>> IDDLTransformer(n_atoms=4, variant="stein", random_state=0).fit_transform(X).shape
    (60, 4)
    """

    _learner: _Learner | None = None  # what has learned from y, to go on with

    @all_or_nothing
    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Learn atoms and divergences.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
        y : array-like, shape (n_matrices,), optional
            Classes or numbers.
        groups : array-like, shape (n_matrices,), optional
            Matrices of one group are held out together. Ignored without y.

        Returns
        -------
        self
        """
        if y is None:
            self._fit_unsupervised(self._check_matrices(X, reset=True))
            return self
        matrices, targets = self._check_targets(X, y, reset=True)
        learner = self._make_learner(_kind(targets), go_on=self.warm_start)
        self._adopt(learner.fit(matrices, targets, groups=groups))
        return self

    @all_or_nothing
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None, classes: ArrayLike | None = None
    ) -> Self:
        """Learn atoms and divergences from a batch of a stream.

        As `IDDLClassifier.partial_fit` does or, if y of the first batch is continuous,
        `IDDLRegressor.partial_fit`.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
        y : array-like, shape (n_matrices,)
            Classes or numbers.
        classes : array-like, shape (n_classes,), optional
            All there will be; those of the first batch by default.

        Returns
        -------
        self

        Examples
        --------
        >>> from divlearn.datasets import make_wishart_clusters
        >>> X, y = make_wishart_clusters(2, 60, 3, random_state=0)
        >>> encoder = IDDLTransformer(n_atoms=4, random_state=0).partial_fit(X[:60], y[:60])
        >>> encoder.partial_fit(X[60:], y[60:]).transform(X).shape
        (120, 12)
        """
        if y is None:
            raise ValueError("y is None, must be classes or numbers; without, use fit")
        matrices, targets = self._check_targets(X, y, reset=not hasattr(self, "models_"))
        kind = _kind(targets) if self._learner is None else type(self._learner)
        learner = self._make_learner(kind, go_on=True)
        if isinstance(learner, IDDLClassifier):
            if classes is None and not hasattr(learner, "classes_"):
                classes = np.unique(targets)
            learner.partial_fit(matrices, targets, classes)
        else:
            learner.partial_fit(matrices, targets)
        self._adopt(learner)
        return self

    def _check_targets(
        self, X: ArrayLike, y: ArrayLike, *, reset: bool
    ) -> tuple[RealArray, NDArray[Any]]:
        matrices = self._check_matrices(X, reset=reset)
        given = np.asarray(require_targets(y))
        numbers = given.dtype.kind == "f" and _kind(given) is IDDLRegressor
        check = check_numbers if numbers or given.ndim > 1 else check_labels
        return matrices, check(given, len(matrices))

    def _make_learner(self, kind: type[_Learner], *, go_on: bool) -> _Learner:
        """Make an estimator of a kind, or go on with the last one or with its models."""
        learner = self._learner
        if go_on and isinstance(learner, kind):
            learner.set_params(**self.get_params())
            return learner
        learner = kind(**self.get_params())
        if go_on and hasattr(self, "models_"):
            learner.models_, learner.n_features_in_ = self.models_, self.n_features_in_
        return learner

    def _adopt(self, learner: _Learner) -> None:
        """Take over what an estimator has learned, and keep it to go on with."""
        names = ("models_", "recipe_", "n_iter_", "message_", "history_", "n_features_in_")
        for name in (*names, "n_samples_seen_"):
            setattr(self, name, getattr(learner, name))
        self._learner = learner
        self._n_features_out = len(self.atoms_) * self.alpha_.shape[1]

    def _fit_unsupervised(self, X: RealArray) -> None:
        self._check_parameters()
        if self._searches_plane():
            raise ValueError('pairs="grid" judges by y, which is None; pass y, or pairs themselves')
        start = self._start(X, None, self._count_atoms(len(X), 1), self._seed())
        alpha, beta = start.variant.expand(start.variant.start)
        self.models_ = [Model.without_head(start.atoms, alpha, beta)]
        self.n_iter_, self.message_ = 0, "nothing to learn from without y"
        self.n_features_in_, self.n_samples_seen_ = X.shape[-1], len(X)
        self._n_features_out = alpha.size
        self._learner = None

    def transform(self, X: ArrayLike) -> RealArray:
        """Compute divergences to the atoms.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices, n_atoms * n_pairs)
        """
        engine, _, data = self._prepare(X)
        return np.concatenate([model.encode(engine, data) for model in self.models_], axis=1)


def _kind(targets: NDArray[Any]) -> type[_Learner]:
    """Which estimator learns from targets."""
    return IDDLRegressor if type_of_target(targets).startswith("continuous") else IDDLClassifier
