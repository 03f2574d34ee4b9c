"""Classifiers by the names that options give them."""

from __future__ import annotations

from typing import Any

__all__ = ["CLASSIFIERS", "make_classifier"]

CLASSIFIERS = ("spd", "iddl", "kernel", "rbf", "mdm", "knn")


def make_classifier(name: str, seed: int, engine: str) -> Any:
    """Make a classifier that is not fitted."""
    if name == "spd":
        from divlearn.committee import SPDClassifier

        return SPDClassifier(random_state=seed, engine=engine)
    if name == "iddl":
        from divlearn.iddl import IDDLClassifier

        return IDDLClassifier(random_state=seed, engine=engine)
    if name == "kernel":
        from divlearn.kernels import DivergenceKernelClassifier

        return DivergenceKernelClassifier(random_state=seed, engine=engine)
    from divlearn.baselines import DivergenceKNN, DivergenceMDM, LogEuclideanSVM

    if name == "rbf":
        return LogEuclideanSVM("rbf", random_state=seed)
    if name == "mdm":
        return DivergenceMDM("airm", engine=engine)
    if name == "knn":
        return DivergenceKNN(1, "airm", engine=engine)
    raise ValueError(f"--model {name} must be one of {', '.join(CLASSIFIERS)}")
