"""Rivals from other libraries: SPDNet of spd_learn; CSP and FgMDM of pyRiemann.

Both libraries are imported where they are used, so that the benchmark runs without them.
TSMNet and TensorCSPNet of spd_learn are not here: they convolve or filter raw signals, and the data
sets of the benchmark are covariances.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import Pipeline, make_pipeline

if TYPE_CHECKING:
    from torch import Tensor, nn

SHARES = (0.8, 0.6)  # of the size of the matrices, to which the BiMap layers reduce them
EPOCHS, BATCH, RATE = 60, 64, 5e-3
FILTERS = 6  # of CSP


class SPDNet(ClassifierMixin, BaseEstimator):
    """Two BiMap layers with ReEig, LogEig and a linear head, learned by Adam in float64.

    Matrices are scaled to a mean eigenvalue of one first, so that their unit does not matter.
    """

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        import torch

        torch.manual_seed(self.random_state)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.scale_ = np.einsum("nii->ni", X).mean()
        self.network_ = _make_network(X.shape[-1], len(self.classes_))
        matrices, targets = torch.from_numpy(X / self.scale_), torch.from_numpy(codes)
        optimizer = torch.optim.Adam(self.network_.parameters(), lr=RATE)
        for rows in _minibatches(len(codes)):
            optimizer.zero_grad()
            scores = self.network_(matrices[rows])
            torch.nn.functional.cross_entropy(scores, targets[rows]).backward()
            optimizer.step()
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        import torch

        with torch.no_grad():
            return self.network_(torch.from_numpy(X / self.scale_)).softmax(dim=1).numpy()

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def _make_network(size: int, n_classes: int) -> nn.Module:
    from spd_learn.modules import BiMap, LogEig, ReEig
    from torch import nn

    first, second = (max(2, round(share * size)) for share in SHARES)
    return nn.Sequential(
        BiMap(size, first),
        ReEig(),
        BiMap(first, second),
        ReEig(),
        LogEig(),
        nn.Linear(second * (second + 1) // 2, n_classes),
    ).double()


def _minibatches(n_matrices: int) -> Iterator[Tensor]:
    import torch

    for _ in range(EPOCHS):
        yield from torch.randperm(n_matrices).split(BATCH)


def make_spdnet(seed: int) -> SPDNet:
    SPDNet().fit(np.stack([np.eye(4)] * 2), np.arange(2))  # imports are not on the clock of a fit
    return SPDNet(seed)


def make_csp() -> Pipeline:
    from pyriemann.spatialfilters import CSP

    return make_pipeline(CSP(FILTERS), LinearDiscriminantAnalysis())


def make_fgmdm() -> BaseEstimator:
    from pyriemann.classification import FgMDM

    return FgMDM()
