"""Which classes a file of a model may name.

Names in files are those of the classes, not of the modules they live in: modules may move. A class
that is renamed keeps its old name here.
"""

from importlib import import_module
from typing import Any

_MODULES: dict[str, tuple[str, ...]] = {
    "divlearn.baselines": (
        "LEML", "RSPDL", "DivergenceKNN", "DivergenceMDM", "KernelLLC", "KernelSparseCoding",
        "LogEuclideanSVM",
    ),
    "divlearn.cluster": ("ABKMeans", "ABMixture", "KarcherKMeans", "LogEuclideanKMeans"),
    "divlearn.committee": ("SPDClassifier",),
    "divlearn.committee.nearest": ("NearestClassifier",),
    "divlearn.committee.tangent": ("TangentClassifier",),
    "divlearn.descriptors": (
        "BlockDiagonal", "CovarianceKernel", "GaborBank", "GaussianEmbedding", "Preset",
        "RBFKernelDescriptor", "RegionCovariance",
    ),
    "divlearn.divergence": ("Divergence",),
    "divlearn.iddl": (
        "HingeLoss", "IDDLClassifier", "IDDLRegressor", "IDDLTransformer", "Model", "RidgeLoss",
        "SoftmaxLoss",
    ),
    "divlearn.kernels": ("DivergenceKernel", "DivergenceKernelClassifier"),
    "divlearn.cluster.parameters": ("FamilyParameters",),
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
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def get_class(name: str) -> type[Any] | None:
    """Return the class that a name in a file stands for, None if there is none."""
    module = _MODULE_OF.get(name)
    return None if module is None else getattr(import_module(module), name)


def get_name(kind: type[Any]) -> str | None:
    """Return the name of a class in files, None if it has none."""
    name = kind.__name__
    return name if get_class(name) is kind else None
