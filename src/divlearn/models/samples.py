"""A guard in front of pipelines of recordings, which refuses covariances.

Transformers of recordings, shape (n_channels, n_times), take square matrices too, and say nothing.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from divlearn.arrays import array_or_list
from divlearn.spd import are_covariances

_T = TypeVar("_T")
# Of pyRiemann; all others in its module `estimation` take recordings.
_OF_MATRICES = {"Shrinkage"}


class Recordings(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Pass recordings on as they are, and refuse covariances.

    Attributes
    ----------
    shape_ : tuple of int or None, shape of one recording in `fit`, None where nobody knows.
    """

    shape_: tuple[int, ...] | None = None

    def fit(self, X: Sequence[ArrayLike], y: object = None) -> Self:
        """Note the shape of the first recording."""
        self.shape_ = np.shape(X[0])
        return self

    def transform(self, X: _T) -> _T:
        """Return X, unless all of it are covariances."""
        given = array_or_list(X)
        if isinstance(given, np.ndarray) and are_covariances(given):
            d = given.shape[-1]
            known = "" if self.shape_ is None else f" of shape {self.shape_}"
            raise ValueError(
                f"X holds symmetric {d} x {d} matrices, as covariances are, but the model was "
                f"fitted to recordings{known}, n_channels x n_times; pass recordings, or fit a "
                "model to covariances"
            )
        return X

    def set_output(self, *, transform: str | None = None) -> Self:
        """Do nothing: recordings stay what they are."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


def guarded(model: BaseEstimator, X: Any = None) -> BaseEstimator:
    """Let a fitted pipeline of recordings begin with `Recordings`, if its first step takes all."""
    # X are some of the samples it was fitted to; without them the class of the step tells.
    if hasattr(model, "best_estimator_"):
        changed = copy(model)
        changed.best_estimator_ = guarded(model.best_estimator_, X)
        return changed
    if not (isinstance(model, Pipeline) and model.__sklearn_is_fitted__()):
        return model
    first = model
    while isinstance(first, Pipeline):
        first = first.steps[0][1]
    if type(first).__module__.startswith("divlearn."):  # it looks for itself
        return model
    given = None if X is None else np.asarray(X[0])
    of_recordings = given is not None and given.ndim == 2 and not are_covariances(given[None])
    if not (of_recordings or (given is None and _takes_recordings(first))):
        return model
    changed = copy(model)
    step = Recordings() if X is None else Recordings().fit(X)
    changed.steps = [("recordings", step), *model.steps]
    return changed


def _takes_recordings(step: object) -> bool:
    homes = {kind.__module__ for kind in type(step).__mro__}
    return "pyriemann.estimation" in homes and type(step).__name__ not in _OF_MATRICES
