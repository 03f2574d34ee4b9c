"""IDDL as an encoder: divergences to atoms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.base import TransformerMixin

from divlearn.arrays import Labels, RealArray, to_host
from divlearn.checks import RandomState
from divlearn.engines import Engine, Prepared
from divlearn.fitting.checkpoint import draw_seed
from divlearn.fitting.folds import Splitter
from divlearn.fitting.labelled import check_training, fit_method, takes_metric
from divlearn.fitting.targets import check_labels, check_numbers, find_fractions
from divlearn.iddl.atoms import Divergences, make_variant
from divlearn.iddl.base import IDDLBase, Recipe, takes_loss
from divlearn.iddl.estimators import IDDLClassifier, IDDLRegressor
from divlearn.iddl.training import Model
from divlearn.sharded.blocks import Block

_LEARNED = (
    *("models_", "starts_", "held_out_losses_", "loss_", "penalty_"),
    *("n_iter_", "message_", "stop_reasons_", "history_", "n_features_in_"),
)


@takes_loss  # outermost: its warning names the line of the caller
@takes_metric
class IDDLTransformer(NamesMixin, TransformerMixin, IDDLBase):  # type: ignore[misc]
    r"""Encode SPD matrices by their divergences to atoms.

    .. math:: v_k = D^{(\alpha_k, \beta_k)}(X \,\|\, B_k)

    With y, atoms and divergences are those that an `IDDLClassifier` learns, or an `IDDLRegressor`
    if y is continuous or has several columns. Without y, atoms are centres of log-Euclidean
    k-means, and alpha and beta keep their initial values.

    Parameters
    ----------
    n_atoms : int or str, default="auto"
        As in `IDDLClassifier`; without y, as for one class.
    rank : int, "full" or "auto", default="full"
        As in `IDDLClassifier`; an int needs y, and "auto" is "full" without y. Of an atom of lower
        rank, the last value is the determinant of :math:`V^T X V` to the power 1/p.
    divergence, recipe, cv, max_iter, random_state, engine, n_jobs, verbose, regularize
        As in `IDDLClassifier`. The head is used in learning only; `transform` returns the
        divergences themselves.

    Attributes
    ----------
    atoms_, alpha_, beta_, n_iter_, message_, n_features_in_
        As in `IDDLClassifier`.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(2, 30, 3, random_state=0)
    >>> IDDLTransformer(n_atoms=4, divergence="stein", random_state=0).fit_transform(X).shape
    (60, 4)
    """

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        divergence: Divergences = "line",
        rank: int | str = "full",
        recipe: Recipe | None = None,
        cv: Splitter = 4,
        max_iter: int | str = "auto",
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_atoms, self.divergence, self.rank = n_atoms, divergence, rank
        self.recipe, self.cv, self.max_iter = recipe, cv, max_iter
        self.random_state, self.engine, self.n_jobs = random_state, engine, n_jobs
        self.verbose, self.regularize = verbose, regularize

    @fit_method
    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Learn atoms and divergences.

        As `IDDLClassifier.fit`; y holds classes or numbers. Without y groups are ignored.
        """
        matrices = check_training(self, X)
        if y is None:
            self._fit_unsupervised(matrices)
            return self
        targets = _check_targets(y, len(matrices))
        learner = _make_learner(targets, self.get_params(deep=False) | {"regularize": "raise"})
        learner.fit(Prepared.checked(matrices), targets, groups=groups)
        for name in _LEARNED:
            setattr(self, name, getattr(learner, name))
        self._n_features_out = sum(model.head[0].shape[1] for model in self.models_)
        return self

    def _fit_unsupervised(self, X: RealArray) -> None:
        self._check_parameters()
        if self.rank not in ("auto", "full"):
            raise ValueError(
                f'rank={self.rank} is learned by y, which is None; pass y, or rank="full"'
            )
        if self._searches_plane():
            raise ValueError(
                f"divergence={self.divergence!r} is chosen by y, which is None; pass y, or another "
                "divergence"
            )
        n_atoms, seed = self._count_atoms(len(X), 1), draw_seed(self.random_state)
        atoms = self._initial_atoms(X, None, n_atoms, seed)
        variant = make_variant(self.divergence, len(atoms), self._recipe.start)
        alpha, beta = variant.expand(variant.start)
        no_head = np.zeros((0, alpha.size)), np.zeros(0)
        self.starts_ = []
        self.models_ = [Model(atoms, alpha, beta, None, None, no_head, atoms.shape[2])]
        self.n_iter_, self.message_ = 0, "nothing to learn from without y"
        self.n_features_in_ = X.shape[-1]
        self._n_features_out = alpha.size

    def transform(self, X: ArrayLike) -> RealArray:
        """Divergences to the atoms, shape (n_matrices, n_atoms * n_pairs)."""
        return self._share * self._map(_encode, X, self.models_)


def _encode(block: Block, models: Sequence[Model]) -> RealArray:
    return np.concatenate([to_host(model.encode(block)) for model in models], axis=1)


def _check_targets(y: ArrayLike, n_matrices: int) -> Labels:
    """Check classes, or numbers to predict."""
    targets = np.asarray(y)
    check = check_numbers if _are_numbers(targets) else check_labels
    return check(targets, n_matrices)


def _make_learner(targets: Labels, parameters: dict[str, Any]) -> Any:
    return (IDDLRegressor if _are_numbers(targets) else IDDLClassifier)(**parameters)


def _are_numbers(targets: Labels) -> bool:
    """Whether targets are continuous, or have several columns."""
    if targets.ndim > 1 and targets.shape[1] > 1:
        return True
    return len(find_fractions(targets)) > 0
