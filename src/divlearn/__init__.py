"""divlearn: learn which divergence on SPD matrices your data wants, together with the task."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from divlearn.divergence import DIVERGENCES as DIVERGENCES
    from divlearn.divergence import ABDivergence as ABDivergence
    from divlearn.divergence import Divergence as Divergence
    from divlearn.divergence import abld as abld
    from divlearn.divergence import abld_grad as abld_grad
    from divlearn.divergence import divergence_plane as divergence_plane
    from divlearn.divergence import get_divergence as get_divergence
    from divlearn.divergence import pairwise_abld as pairwise_abld
    from divlearn.engines import available_engines as available_engines
    from divlearn.engines import get_engine as get_engine
    from divlearn.means import mean_abld as mean_abld
    from divlearn.spd import check_spd as check_spd

__version__ = "0.3.0.dev0"

# Modules are imported on first use: NumPy takes a moment to import, and scikit-learn a second.
_MODULES = (
    "baselines",
    "cluster",
    "committee",
    "datasets",
    "descriptors",
    "divergence",
    "engines",
    "fitting",
    "iddl",
    "judge",
    "kernels",
    "likelihood",
    "means",
    "models",
    "nearest",
    "optim",
    "outliers",
    "report",
    "sharded",
    "spd",
    "spectral",
    "tangent",
    "torch",
    "transfer",
)
_LATE = {
    name: f"divlearn.{module}"
    for module, names in {
        "baselines": ("LEML", "RSPDL", "KernelLLC", "KernelSparseCoding", "LogEuclideanSVM"),
        "cluster": ("ABKMeans", "ABMixture", "KarcherKMeans", "LogEuclideanKMeans"),
        "committee": (
            "CalibratedClassifier",
            "CrossValidatedRegressor",
            "SPDClassifier",
            "SPDRegressor",
        ),
        "descriptors": (
            "BlockDiagonal",
            "CovarianceKernel",
            "GaussianEmbedding",
            "RBFKernelDescriptor",
            "RegionCovariance",
            "Regularize",
        ),
        "divergence": (
            "DIVERGENCES",
            "ABDivergence",
            "Divergence",
            "abld",
            "abld_grad",
            "divergence_plane",
            "get_divergence",
            "pairwise_abld",
        ),
        "engines": ("available_engines", "get_engine"),
        "fitting": ("from_rows", "resumable", "to_rows", "vectorized"),
        "iddl": ("IDDLClassifier", "IDDLRegressor", "IDDLTransformer"),
        "judge": (
            "channel_importance",
            "evaluate",
            "plane_map",
            "predict_or_reject",
            "which_divergence",
        ),
        "kernels": (
            "DivergenceKernel",
            "DivergenceKernelClassifier",
            "DivergenceKernelRegressor",
            "DivergenceProcessKernel",
        ),
        "means": ("mean_abld",),
        "models": ("load", "save"),
        "nearest": ("DivergenceKNN", "DivergenceMDM", "NearestClassifier", "NearestRegressor"),
        "outliers": ("DivergenceOutliers",),
        "spd": ("check_spd",),
        "tangent": ("TangentClassifier", "TangentRegressor"),
        "transfer": ("Recenter",),
    }.items()
    for name in names
}

__all__ = sorted(_LATE)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"divlearn.{name}")
    if name not in _LATE:
        raise AttributeError(f"module 'divlearn' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
