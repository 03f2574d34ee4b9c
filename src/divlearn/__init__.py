"""divlearn: learn which divergence on SPD matrices your data wants, together with the task."""

from divlearn.divergence import (
    DIVERGENCES,
    Divergence,
    abld,
    abld_grad,
    divergence_plane,
    get_divergence,
    pairwise_abld,
)
from divlearn.engines import available_engines, get_engine
from divlearn.means import mean_abld
from divlearn.spd import check_spd

__version__ = "0.1.0"

__all__ = [
    "DIVERGENCES", "Divergence", "abld", "abld_grad", "available_engines", "check_spd",
    "divergence_plane", "get_divergence", "get_engine", "mean_abld", "pairwise_abld",
]  # fmt: skip
