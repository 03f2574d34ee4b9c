"""The classifiers of the paper's tables, and ours beside them."""

from __future__ import annotations

from typing import Any

from divlearn.experiments.protocol import STRUCTURED as _STRUCTURED
from divlearn.experiments.protocol import Protocol

__all__ = [
    "CODED", "LOSSES", "NEIGHBOURS", "OURS", "RIDGE", "STRUCTURED", "WHY", "make_classifier",
    "settings_of",
]  # fmt: skip

# By the names of the paper.
NEIGHBOURS = {"LE 1-NN": "log-euclidean", "AIRM 1-NN": "airm", "JBLD 1-NN": "stein"}
CODED = ("kSP_LE", "kSP_JBLD", "kLLC", "RSPDL")
RIDGE = {f"IDDL-{letter}": letter for letter in "SVNAB"}
STRUCTURED = dict(zip(_STRUCTURED, "VN", strict=True))
LOSSES = {**dict.fromkeys(RIDGE, "ridge"), **dict.fromkeys(STRUCTURED, "hinge")}
# Of the code that was published with the paper of 2017, at which these results began.
WHY = dict.fromkeys(
    (*LOSSES, "IDDL, best variant"),
    "IDDL is set up by the paper's text here, where the authors' code has samples of every class "
    "for atoms, a penalty of 10 and no grid search",
)
# By the names of our classes.
OURS = ("IDDLClassifier", "SPDClassifier", "DivergenceKernelClassifier")


def settings_of(method: str, protocol: Protocol) -> dict[str, Any]:
    """Return all that the outcome of a method under a protocol depends on, but the seed.

    Examples
    --------
    >>> from divlearn.experiments.protocol import FULL
    >>> settings_of("IDDL-N", FULL)
    {'atoms_per_class': 5, 'solver': 'joint', 'iterations': 30}
    >>> settings_of("LE 1-NN", FULL)
    {}
    """
    settings: dict[str, Any] = {}
    if method in CODED or method in LOSSES:
        settings["atoms_per_class"] = protocol.atoms_per_class
    if method in LOSSES:
        settings |= {"solver": protocol.solver, "iterations": protocol.iterations}
    return settings | dict(protocol.parameters.get(method, {}))


def make_classifier(method: str, settings: dict[str, Any], seed: int, n_classes: int) -> Any:
    """Make the classifier that a method is.

    Parameters
    ----------
    method : str
    settings : dict, of `settings_of`; "atoms" goes before "atoms_per_class".
    seed : int
    n_classes : int
    """
    from divlearn import baselines

    rest = dict(settings)
    each = rest.pop("atoms_per_class", None)
    atoms = rest.pop("atoms", None if each is None else each * n_classes)
    if method in NEIGHBOURS:
        return baselines.DivergenceKNN(1, NEIGHBOURS[method], **rest)
    if method in LOSSES:
        return _paper(method, atoms, seed, **rest)
    if method in OURS:
        return _ours(method, seed, rest)
    if method == "SVM-LE":
        return baselines.LogEuclideanSVM(random_state=seed, **rest)
    if method == "LEML":
        return baselines.LEML(random_state=seed, **rest)
    if method in ("kSP_LE", "kSP_JBLD"):
        kernel = "log-euclidean" if method == "kSP_LE" else "stein"
        return baselines.KernelSparseCoding(atoms, kernel=kernel, random_state=seed, **rest)
    if method == "kLLC":
        return baselines.KernelLLC(atoms, random_state=seed, **rest)
    if method == "RSPDL":
        return baselines.RSPDL(atoms, random_state=seed, **rest)
    raise ValueError(f"method={method!r} is none of the paper's and none of ours")


def _paper(method: str, atoms: int, seed: int, *, solver: str, iterations: int, **rest: Any) -> Any:
    from divlearn.iddl import IDDLClassifier

    letter = (RIDGE | STRUCTURED)[method]
    return IDDLClassifier.paper(letter, LOSSES[method]).set_params(
        n_atoms=atoms, solver=solver, max_iter=iterations, random_state=seed, **rest
    )


def _ours(method: str, seed: int, settings: dict[str, Any]) -> Any:
    import divlearn

    return getattr(divlearn, method)(random_state=seed, **settings)
