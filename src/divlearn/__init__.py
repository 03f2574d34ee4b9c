"""divlearn: learn which divergence on SPD matrices your data wants, together with the task."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from divlearn.divergence import (
        DIVERGENCES,
        ABDivergence,
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

__all__ = [
    "DIVERGENCES",
    "LEML",
    "RSPDL",
    "ABDivergence",
    "ABKMeans",
    "ABMixture",
    "BlockDiagonal",
    "CalibratedClassifier",
    "CovarianceKernel",
    "CrossValidatedRegressor",
    "Divergence",
    "DivergenceKNN",
    "DivergenceKernel",
    "DivergenceKernelClassifier",
    "DivergenceKernelRegressor",
    "DivergenceMDM",
    "DivergenceOutliers",
    "DivergenceProcessKernel",
    "GaussianEmbedding",
    "IDDLClassifier",
    "IDDLRegressor",
    "IDDLTransformer",
    "KarcherKMeans",
    "KernelLLC",
    "KernelSparseCoding",
    "LogEuclideanKMeans",
    "LogEuclideanSVM",
    "NearestClassifier",
    "NearestRegressor",
    "RBFKernelDescriptor",
    "Recenter",
    "RegionCovariance",
    "Regularize",
    "SPDClassifier",
    "SPDRegressor",
    "TangentClassifier",
    "TangentRegressor",
    "abld",
    "abld_grad",
    "available_engines",
    "channel_importance",
    "check_spd",
    "divergence_plane",
    "evaluate",
    "from_rows",
    "get_divergence",
    "get_engine",
    "load",
    "mean_abld",
    "pairwise_abld",
    "plane_map",
    "predict_or_reject",
    "resumable",
    "save",
    "to_rows",
    "vectorized",
    "which_divergence",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"divlearn.{name}")
    if name not in _LATE:
        raise AttributeError(f"module 'divlearn' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
