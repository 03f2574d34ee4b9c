"""From divergences to the features a head sees: logarithms and standardisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divlearn.arrays import RealArray

__all__ = ["FeatureMap", "Features"]

_LEAST_DEVIATION = 1e-12  # relative to the mean square: columns below are constant


@dataclass(frozen=True, eq=False)
class Features:
    """Features of some samples, and how to send gradients back through them.

    Attributes
    ----------
    values : ndarray, shape (n_samples, n_features)
    mean, scale : ndarray, shape (n_features,), of the standardisation.
    """

    values: RealArray
    mean: RealArray
    scale: RealArray


@dataclass(frozen=True, eq=False)
class FeatureMap:
    r"""Features :math:`(\log(v + c) - \mu) / s` of divergences v, or parts of that.

    The mean :math:`\mu` and the deviation s are those of the data at hand, so that the strength of
    a penalty on the head means the same whatever the divergences; gradients go through them.

    Parameters
    ----------
    offset : ndarray, shape (n_features,), optional
        c > 0; no logarithm by default.
    standardize : bool, default=True
    """

    offset: RealArray | None = None
    standardize: bool = True

    @classmethod
    def for_data(
        cls, V: RealArray, weights: RealArray, *, logarithm: bool, standardize: bool
    ) -> FeatureMap:
        """Make a map with offsets a tenth of the mean divergences of the data."""
        offset = np.maximum(0.1 * (weights @ V), np.finfo(float).tiny) if logarithm else None
        return cls(offset, standardize)

    def compute(self, V: RealArray, weights: RealArray, known: Features | None = None) -> Features:
        """Features of divergences.

        Parameters
        ----------
        V : ndarray, shape (n_samples, n_features)
        weights : ndarray, shape (n_samples,)
            Non-negative, with sum one.
        known : Features, optional
            Whose standardisation to use; that of V by default.
        """
        values = V if self.offset is None else np.log(V + self.offset)
        if known is None:
            mean: RealArray = np.zeros(V.shape[1])
            scale: RealArray = np.ones(V.shape[1])
            if self.standardize:
                mean = weights @ values
                scale = self.deviation(weights @ (values - mean) ** 2, weights @ values**2)
        else:
            mean, scale = known.mean, known.scale
        return Features((values - mean) / scale, mean, scale)

    @staticmethod
    def deviation(variance: RealArray, square: RealArray) -> RealArray:
        """Deviations of columns from their variances and mean squares; one where they stay."""
        flat = variance <= _LEAST_DEVIATION**2 * square
        return np.where(flat, 1, np.sqrt(np.where(flat, 1, variance)))

    def pull(
        self, V: RealArray, features: Features, weights: RealArray, cotangent: RealArray,
        sums: tuple[RealArray, RealArray] | None = None,
    ) -> RealArray:  # fmt: skip
        """Gradient in V from that in the features computed from it.

        Where V holds but some of the samples, `sums` are those of the cotangent, and of the
        cotangent times the features, over all of them.
        """
        back = cotangent
        if self.standardize:
            z = features.values
            constant, along = sums or (cotangent.sum(axis=0), (cotangent * z).sum(axis=0))
            back = cotangent - weights[:, None] * (constant + along * z)
        back = back / features.scale
        return back if self.offset is None else back / (V + self.offset)
