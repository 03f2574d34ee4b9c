"""Divergences of SPD matrices: the alpha-beta family, metrics outside it, and users' own."""

from divlearn.alpha_beta import (
    DivergenceGradient,
    abld,
    abld_grad,
    divergence_plane,
    pairwise_abld,
)
from divlearn.divergence.base import ABDivergence, Divergence
from divlearn.divergence.metrics import (
    EmbeddedMetric,
    FunctionDivergence,
    PairedDivergence,
    Wasserstein,
)
from divlearn.divergence.named import (
    DIVERGENCES,
    LOG_EUCLIDEAN,
    DivergenceLike,
    for_pyriemann,
    get_divergence,
    get_member,
)

__all__ = [
    "DIVERGENCES",
    "LOG_EUCLIDEAN",
    "ABDivergence",
    "Divergence",
    "DivergenceGradient",
    "DivergenceLike",
    "EmbeddedMetric",
    "FunctionDivergence",
    "PairedDivergence",
    "Wasserstein",
    "abld",
    "abld_grad",
    "divergence_plane",
    "for_pyriemann",
    "get_divergence",
    "get_member",
    "pairwise_abld",
]
