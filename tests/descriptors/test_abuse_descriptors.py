"""Descriptors of hostile series and images: SPD matrices, or a sentence that says why not."""

from __future__ import annotations

import numpy as np
import pytest
from hostile_arrays import Refused, attempt, read_only

from divlearn import check_spd
from divlearn.descriptors import GaussianEmbedding, RBFKernelDescriptor, RegionCovariance

RANDOM = np.random.default_rng(0)
SERIES, IMAGES = RANDOM.standard_normal((4, 3, 50)), RANDOM.uniform(size=(3, 24, 24))
DESCRIPTORS = {
    "GaussianEmbedding": (GaussianEmbedding(), SERIES),
    "RBFKernelDescriptor": (RBFKernelDescriptor(), SERIES),
    "RegionCovariance": (RegionCovariance(), IMAGES),
}


STRANGE = {
    "read-only": read_only,
    "backwards": lambda X: X[::-1, ::-1, ::-1],
    "lists": np.ndarray.tolist,
    "fortran": np.asfortranarray,
    "single precision": lambda X: X.astype(np.float32),
    "integers": lambda X: np.rint(50 * X).astype(int),
    "huge": lambda X: 1e150 * X,
    "tiny": lambda X: 1e-150 * X,
    "flat": lambda X: 0 * X,
    "one column": lambda X: X[..., :1],
    "truth": lambda X: X > 0.5,
}
ANSWERED = ("read-only", "backwards", "lists", "fortran", "single precision", "integers")


@pytest.mark.parametrize("how", STRANGE)
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_strange_input(name, how):
    descriptor, X = DESCRIPTORS[name]
    found = attempt(lambda: descriptor.fit_transform(STRANGE[how](X)))
    if isinstance(found, Refused):
        assert how not in ANSWERED, found
    else:
        check_spd(found, ndim=3)
