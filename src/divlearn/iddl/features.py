"""From divergences to the features a head sees: logarithms and standardisation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from divlearn.arrays import RealArray, beside, to_host

__all__ = ["FeatureMap", "Features"]

_LARGEST = 1e120  # divergence that may be squared and summed up
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

    def without_rows(self) -> Features:
        """Keep the standardisation alone; a copy, for a view would hold the whole."""
        return replace(self, values=self.values[:0].copy())

    def on_host(self) -> Features:
        """Bring the standardisation alone to the host."""
        rows = np.empty((0, self.values.shape[1]), self.values.dtype)
        return Features(rows, to_host(self.mean), to_host(self.scale))


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
        if not logarithm:
            largest = float(V.max()) if V.size else 0.0
            if largest > _LARGEST:
                raise ValueError(
                    f"divergences reach {largest:.3g}, must be <= {_LARGEST:g} to be features; set "
                    'features="log", or divide each matrix by its size'
                )
            return cls(None, standardize)
        mean = to_host(beside(weights, V) @ V)
        return cls(np.maximum(0.1 * mean, np.finfo(float).tiny), standardize)

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
        values = V if self.offset is None else np.log(V + beside(self.offset, V))
        if known is None:
            mean: RealArray = np.zeros(V.shape[1], like=V)
            scale: RealArray = np.ones_like(mean)
            if self.standardize:
                weights = beside(weights, V)
                mean = weights @ values
                scale = self.deviation(weights @ (values - mean) ** 2, weights @ values**2)
        else:
            mean, scale = beside(known.mean, V), beside(known.scale, V)
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
            back = cotangent - beside(weights, V)[:, None] * (constant + along * z)
        back = back / beside(features.scale, V)
        if self.offset is not None:
            back = back / (V + beside(self.offset, V))
        return back
