"""scikit-learn's estimator checks for estimators whose samples are not rows of numbers.

scikit-learn skips all but one check of an estimator whose tags say ``two_d_array=False``. So its
checks are run on a stand-in, an estimator of rows that lifts them, one to one, to what the
estimator takes (SPD matrices, series, images) and hands everything on; see test_scikit_learn.py.

Rows are validated here, since what is wrong with them cannot be lifted; targets, weights and
parameters are left to the estimator. It should have a fixed ``random_state`` if it takes one, and
its lift must be a function of a module, so that it can be pickled.

scikit-learn itself skips checks that need pandas where it is not installed, and the one of array
libraries unless SCIPY_ARRAY_API=1 was set before scipy was imported.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClusterMixin,
    DensityMixin,
    OutlierMixin,
    RegressorMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils import InputTags, get_tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

MIXINS = (
    ClassifierMixin,
    RegressorMixin,
    ClusterMixin,
    OutlierMixin,
    DensityMixin,
    TransformerMixin,
)
ANSWERS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "score_samples",
    "transform",
)


def lift_spd(rows):
    """Well-conditioned SPD matrices, shape (n, k, k), smooth in the rows (n, k)."""
    return _as_spd(1.5 * np.tanh(rows / 4))


def lift_far(rows):
    """SPD matrices that differ wherever rows do, also for those around 100 of some checks."""
    return _as_spd(np.arcsinh(rows) / 4)


def _as_spd(z):
    matrices = np.einsum("ni,nj->nij", z, z) / z.shape[1]
    diagonal = np.arange(z.shape[1])
    matrices[:, diagonal, diagonal] += np.exp(z)
    return matrices


def lift_streams(rows):
    """Two streams of SPD matrices, shape (n, 2, k, k)."""
    return np.stack([lift_spd(rows), lift_spd(-rows)], axis=1)


def lift_image(rows):
    """Images in which every number of a row scales a wave of its own."""
    z = 1.5 * np.tanh(rows / 4)
    y, x = np.mgrid[:12, :16]
    waves = [np.sin((k + 1) * x / 5 + (k % 3) * y / 3 + k) for k in range(rows.shape[1])]
    ground = np.cos(x * y / 7) + np.sin(x**2 / 9 + y)
    return (ground + np.einsum("nk,kyx->nyx", z, np.array(waves))).astype(rows.dtype)


def lift_series(rows):
    """Series of full rank, shape (n, k + 1, 2 k + 4): a wave, and one more for each feature.

    Features shift their channel, scale it and mix it with the first.
    """
    z = 1.5 * np.tanh(rows / 4)[:, :, None]
    k = rows.shape[1]
    angles = 2 * np.pi * np.arange(2 * k + 4) / (2 * k + 4)
    waves = np.cos(np.arange(1, k + 2)[:, None] * angles).astype(rows.dtype)
    channels = z * (1 + waves[0]) + np.exp(z) * waves[1:]
    return np.concatenate([np.broadcast_to(waves[:1], (len(rows), 1, waves.shape[1])), channels], 1)


def lifted(estimator, lift):
    """Return an estimator of rows that behaves as ``estimator`` does on ``lift(rows)``.

    It is of the same kinds (mixins, tags), has the same methods and takes ``sample_weight`` if the
    estimator does. Answers of more than two dimensions are flattened to rows.
    """
    methods = {name: _answer(name) for name in ANSWERS if hasattr(estimator, name)}
    methods |= {
        name: _fit(name, weighted=has_fit_parameter(estimator, "sample_weight"))
        for name in ("fit", "fit_predict", "fit_transform")
        if hasattr(estimator, name)
    }
    if hasattr(estimator, "score"):
        methods["score"] = _score
    if hasattr(estimator, "partial_fit"):
        methods["partial_fit"] = _partial_fit
    kinds = [mixin for mixin in MIXINS if isinstance(estimator, mixin)]
    stand_in = type(f"Lifted{type(estimator).__name__}", (_Methods, *kinds, BaseEstimator), methods)
    return stand_in(estimator, lift)


class _Methods:
    """What every stand-in has."""

    def __init__(self, estimator, lift):
        self.estimator = estimator
        self.lift = lift

    def __repr__(self):
        # Names tests, which must not hold the address of a function: workers would disagree.
        return f"{type(self).__name__}({self.estimator!r})"

    def __reduce__(self):
        # A class made on the fly cannot be found by its name.
        return lifted, (self.estimator, self.lift), self.__dict__

    def __sklearn_tags__(self):
        tags = get_tags(self.estimator)
        tags.input_tags = InputTags()
        tags.array_api_support = False
        return tags

    def _lift(self, X, *, reset):
        return self.lift(validate_data(self, X, reset=reset, dtype=[np.float64, np.float32]))


def _fit(name, *, weighted):
    def call(self, X, y, parameters):
        samples = self._lift(X, reset=True)
        self._fitted = clone(self.estimator)
        result = getattr(self._fitted, name)(samples, y, **parameters)
        _show_attributes(self)
        return self if result is self._fitted else _rows(result)

    # Checks look at the signature to see whether weights are taken.
    if weighted:
        return lambda self, X, y=None, sample_weight=None: call(
            self, X, y, {} if sample_weight is None else {"sample_weight": sample_weight}
        )
    return lambda self, X, y=None: call(self, X, y, {})


def _partial_fit(self, X, y=None, **parameters):
    first = not hasattr(self, "_fitted")
    samples = self._lift(X, reset=first)
    if first:
        self._fitted = clone(self.estimator)
    self._fitted.partial_fit(samples, y, **parameters)
    _show_attributes(self)
    return self


def _show_attributes(stand_in):
    """Give a stand-in what its estimator learned."""
    for attribute, value in vars(stand_in._fitted).items():
        if attribute.endswith("_") and attribute != "n_features_in_":
            setattr(stand_in, attribute, value)


def _answer(name):
    def method(self, X):
        check_is_fitted(self)
        return _rows(getattr(self._fitted, name)(self._lift(X, reset=False)))

    return method


def _score(self, X, y=None):
    check_is_fitted(self)
    return self._fitted.score(self._lift(X, reset=False), y)


def _rows(result):
    return result.reshape(len(result), -1) if np.ndim(result) > 2 else result
