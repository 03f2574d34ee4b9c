"""The methods of the paper's tables by their names there, and divlearn's by their class names."""

from collections.abc import Callable
from functools import partial
from typing import Any

import divlearn
from divlearn.iddl import IDDLClassifier
from paper.protocol import Protocol

NEIGHBOURS = {"LE 1-NN": "log-euclidean", "AIRM 1-NN": "airm", "JBLD 1-NN": "stein"}
CODED: dict[str, Callable[..., Any]] = {
    "kSP_LE": partial(divlearn.KernelSparseCoding, kernel="log-euclidean"),
    "kSP_JBLD": partial(divlearn.KernelSparseCoding, kernel="stein"),
    "kLLC": divlearn.KernelLLC,
    "RSPDL": divlearn.RSPDL,
}
RIDGE = {f"IDDL-{letter}": letter for letter in "SVNAB"}
STRUCTURED = {f"IDDL-{letter}, structured SVM": letter for letter in "VN"}
OURS = ("IDDLClassifier", "SPDClassifier", "DivergenceKernelClassifier")


def settings_of(method: str, protocol: Protocol) -> dict[str, Any]:
    """Return all that the outcome of a method depends on, but data and seed.

    Examples
    --------
    >>> from paper.protocol import FULL
    >>> settings_of("IDDL-N", FULL), settings_of("LE 1-NN", FULL)
    ({'atoms_per_class': 5, 'solver': 'joint', 'iterations': 30}, {})
    """
    settings: dict[str, Any] = {}
    if method in CODED or method in RIDGE or method in STRUCTURED:
        settings["atoms_per_class"] = protocol.atoms_per_class
    if method in RIDGE or method in STRUCTURED:
        settings |= {"solver": "joint", "iterations": protocol.iterations}
    return settings | protocol.parameters.get(method, {})


def make_classifier(
    method: str, settings: dict[str, Any], seed: int, n_classes: int, engine: str = "auto"
) -> Any:
    """Make a classifier; of `settings`, "atoms" overrides "atoms_per_class"."""
    rest = dict(settings)
    each = rest.pop("atoms_per_class", 0)
    atoms = rest.pop("atoms", each * n_classes)
    if method in RIDGE or method in STRUCTURED:
        variant, loss = (RIDGE | STRUCTURED)[method], "ridge" if method in RIDGE else "hinge"
        return make_iddl(variant, loss, engine, n_atoms=atoms, random_state=seed, **rest)
    if method in NEIGHBOURS:
        return divlearn.DivergenceKNN(1, NEIGHBOURS[method], engine=engine, **rest)
    if method in CODED:
        return CODED[method](atoms, random_state=seed, **rest)
    if method in OURS:
        on_device = {"engine": engine} if method == "IDDLClassifier" else {}
        return getattr(divlearn, method)(random_state=seed, **on_device, **rest)
    others = {"SVM-LE": divlearn.LogEuclideanSVM, "LEML": divlearn.LEML}
    return others[method](random_state=seed, **rest)


def make_iddl(
    variant: str,
    loss: str,
    engine: str,
    *,
    code: bool = False,
    start: tuple[float, float] | None = None,
    iterations: int | None = None,
    **rest: Any,
) -> IDDLClassifier:
    """Make IDDL by the paper's text or by its code; `start` replaces the grid search.

    Of the rest, "solver" may be followed by what it moves, and "gamma" is the penalty on the head.

    Examples
    --------
    >>> make_iddl("S", "ridge", "auto", start=(0.5, 1.5), n_atoms=15).recipe.start
    (0.5, 1.5)
    """
    changes = {one: rest.pop(one) for one in ("init",) if one in rest}
    if (gamma := rest.pop("gamma", "10/n")) != "10/n":  # what the code has
        changes["penalty"] = gamma
    if "solver" in rest:
        changes["solver"], _, moved = rest.pop("solver").partition(" ")
        changes["learn"] = moved or "both"
    if start is not None:
        changes["start"] = tuple(start)
    classifier = IDDLClassifier.paper(variant, loss, code=code, **changes)
    classifier.set_params(engine=engine, **rest)
    return classifier if iterations is None else classifier.set_params(max_iter=iterations)


# Log-Euclidean and Karcher k-means, alpha = beta, alpha != beta; then ours. All of the paper's
# have one start, from log-Euclidean k-means.
CLUSTERINGS: dict[str, Callable[[int], Any]] = {
    "LE": partial(divlearn.LogEuclideanKMeans, n_init=1),
    "Karcher": partial(divlearn.KarcherKMeans, init="log-euclidean", n_init=1),
    "E": partial(divlearn.ABKMeans.paper, tied=True),
    "NE": divlearn.ABKMeans.paper,
    "ABKMeans": divlearn.ABKMeans,
    "ABMixture": divlearn.ABMixture,
}


def make_clustering(method: str, k: int, seed: int) -> Any:
    return CLUSTERINGS[method](k).set_params(random_state=seed)
