"""Which classes a file of a model may name.

Names in files are those of the classes, not of the modules they live in: modules may move. A class
that is renamed keeps its old name here.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["get_class", "get_name"]

_MODULES: dict[str, tuple[str, ...]] = {
    "divlearn.baselines": (
        "LEML", "RSPDL", "DivergenceKNN", "DivergenceMDM", "KernelLLC", "KernelSparseCoding",
        "LogEuclideanSVM",
    ),
    "divlearn.baselines.kernel_coders": ("LocalCoder", "SparseCoder"),
    "divlearn.baselines.rspdl": ("ConicCoder",),
    "divlearn.baselines.spd_kernels": ("LogEuclideanKernel", "SteinKernel"),
    "divlearn.baselines.tuning": ("Choice", "QuietSVC", "VectorMachine"),
    "divlearn.cluster": ("ABKMeans", "ABMixture", "KarcherKMeans", "LogEuclideanKMeans"),
    "divlearn.committee.classifier": ("SPDClassifier",),
    "divlearn.committee.tangent": ("TangentClassifier", "TangentVectors"),
    "divlearn.descriptors": (
        "BlockDiagonal", "CovarianceKernel", "GaborBank", "GaussianEmbedding", "Preset",
        "RBFKernelDescriptor", "RegionCovariance",
    ),
    "divlearn.divergence": ("Divergence",),
    "divlearn.iddl": ("IDDLClassifier", "IDDLRegressor", "IDDLTransformer"),
    "divlearn.iddl.features": ("FeatureMap", "Features"),
    "divlearn.iddl.learning": ("Learned",),
    "divlearn.iddl.losses": ("Head", "HingeLoss", "RidgeLoss", "SoftmaxLoss", "Solved"),
    "divlearn.iddl.objective": ("Dictionary", "Memo"),
    "divlearn.iddl.selection": ("Screened",),
    "divlearn.iddl.solvers": ("Known",),
    "divlearn.iddl.stochastic": ("Epoch", "Learner", "Spread"),
    "divlearn.iddl.tangent": ("TangentBlock",),
    "divlearn.iddl.training": ("Model", "Recipe", "Start"),
    "divlearn.iddl.variants": ("Variant",),
    "divlearn.kernels": ("DivergenceKernel", "DivergenceKernelClassifier"),
    "divlearn.kernels.coupling": ("Coupling",),
    "divlearn.likelihood": ("FamilyParameters",),
    "divlearn.optim": ("Moments", "Trial"),
    "sklearn.discriminant_analysis": ("LinearDiscriminantAnalysis",),
    "sklearn.linear_model": ("LogisticRegression", "Ridge"),
    "sklearn.model_selection": (
        "GroupKFold", "GroupShuffleSplit", "KFold", "LeaveOneGroupOut", "ShuffleSplit",
        "StratifiedGroupKFold", "StratifiedKFold", "StratifiedShuffleSplit",
    ),
    "sklearn.neighbors": ("KNeighborsClassifier", "NearestNeighbors"),
    "sklearn.pipeline": ("Pipeline",),
    "sklearn.preprocessing": ("MinMaxScaler", "Normalizer", "RobustScaler", "StandardScaler"),
    "sklearn.svm": ("SVC", "LinearSVC"),
}  # fmt: skip


@cache
def _modules_by_name() -> dict[str, str]:
    return {name: module for module, names in _MODULES.items() for name in names}


def get_class(name: str) -> type[Any] | None:
    """Return the class that a name in a file stands for, None if there is none.

    Examples
    --------
    >>> get_class("SVC").__name__
    'SVC'
    >>> get_class("os.system")
    """
    module = _modules_by_name().get(name)
    return None if module is None else getattr(import_module(module), name)


def get_name(kind: type[Any]) -> str | None:
    """Return the name of a class in files, None if it has none.

    Examples
    --------
    >>> from pathlib import Path
    >>> print(get_name(Path))
    None
    """
    name = kind.__name__
    return name if get_class(name) is kind else None
