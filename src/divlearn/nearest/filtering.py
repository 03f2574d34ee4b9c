"""Projection of SPD matrices onto discriminant directions at their mean: FgMDM of pyRiemann."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.engines import Engine
from divlearn.fitting.labelled import Labelled
from divlearn.geometry import invsqrtm, sqrtm
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.means import mean_abld
from divlearn.tangent.discriminants import fit_lda

_TOLERANCE = 1e-9  # of the gradient at the mean of all matrices, which has no unit
_LEAST_DIRECTION = 1e-6  # relative to the largest


@dataclass(frozen=True, eq=False)
class Filter:
    """The AIRM mean of some matrices, and orthonormal discriminant directions there."""

    center: Annotated[RealArray, "d d"]
    directions: Annotated[RealArray, "n_entries n_directions"]

    def apply(self, matrices: RealArray) -> RealArray:
        """Project matrices onto the directions."""
        vectors, root = log_vectors(matrices, invsqrtm(self.center)), sqrtm(self.center)
        projected = vectors @ self.directions @ self.directions.T
        filtered = root @ from_log_vectors(projected) @ root
        return 0.5 * (filtered + filtered.mT)


def learn_filter(data: Labelled, rows: Indices, engine: Engine) -> Filter:
    """Learn a filter from some of the matrices."""
    matrices, weights = data.matrices[rows], data.weights[rows]
    center = mean_abld(matrices, 0, 0, weights, tol=_TOLERANCE, engine=engine).mean
    vectors = log_vectors(matrices, invsqrtm(center))
    codes = data.codes[rows]
    found = fit_lda(vectors, codes, np.bincount(codes) / len(codes)).coefficients
    found = found[1:] - found[:1] if len(found) == 2 else found  # as scikit-learn has them
    directions, sizes, _ = np.linalg.svd(found.T, full_matrices=False)
    # Vectors at the mean add up to zero, so that one direction of classes is rounding.
    return Filter(center, directions[:, sizes > _LEAST_DIRECTION * sizes[0]])
