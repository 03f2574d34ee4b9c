"""How much is done: the paper's protocol, or a small part of it that takes minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FULL", "QUICK", "Limits", "Protocol"]


@dataclass(frozen=True)
class Limits:
    """How much of a data set is used: classes, and of each matrices to train and to test on."""

    classes: int | None = None
    train: int | None = None
    test: int | None = None

    def __str__(self) -> str:
        parts = []
        if self.classes is not None:
            parts.append(f"{self.classes} classes")
        if self.train is not None:
            parts.append(f"{self.train} matrices per class")
        if self.test is not None:
            parts.append(f"{self.test} to test on")
        return ", ".join(parts)


@dataclass(frozen=True)
class Protocol:
    """Sizes of all experiments.

    Attributes
    ----------
    name : str
    splits : int
        Of a data set, at most.
    repeats : int
        Fits with other seeds on data that has a single split.
    limits : mapping of str to Limits
        How much of data is used, by its key; "" for all others.
    atoms_per_class : int
        Of all methods with a dictionary.
    sweep : tuple of int
        Atoms per class where accuracy is shown against them.
    joint_atoms : tuple of int
        Atoms where joint learning is evaluated.
    solver : str
        Of the paper's IDDL in tables.
    iterations : int
        Of that solver.
    plane_step : float
        Of the grid of the (alpha, beta) plane, from 0 to 2.
    convergence_iterations, trajectory_iterations : int
        Of block-coordinate descent, where that is what is shown.
    starts : tuple of (alpha, beta)
        Where trajectories start.
    gradient_dimensions, gradient_atoms : tuple of int
        Sizes for which gradients are timed.
    rounds : int
        Of timings, of which the fastest counts.
    runs : int
        Of clusterings.
    cluster_limits : mapping of str to Limits
        How much of data is clustered, as in ``limits``; "train" is all there is.
    dimensions : tuple of int
        Of synthetic clusters, with ``n_per_dimension`` matrices each.
    mixture_dimension : int
        Of the largest synthetic matrices that mixtures are fitted to.
    numbers : tuple of int
        Of synthetic clusters, with ``n_per_number`` matrices each.
    parameters : mapping of str to mapping
        Of methods, by their names, that are not their defaults.
    whole : bool
        Whether 1-NN also classifies sets that are too large for all else.
    skipped : mapping of str to sequence of str
        Methods that take too long on data, by its key.
    minutes : mapping of str to float
        Of processor time that experiments take, by their names, on Virus, Brodatz, joints of JHMDB
        and the authors' matrices of KTH-TIPS2, once those before them are done. Measured where that
        was a matter of minutes, extrapolated from single fits where it was not.
    """

    name: str
    splits: int
    repeats: int
    limits: Mapping[str, Limits]
    atoms_per_class: int
    sweep: tuple[int, ...]
    joint_atoms: tuple[int, ...]
    solver: str
    iterations: int
    plane_step: float
    convergence_iterations: int
    trajectory_iterations: int
    starts: tuple[tuple[float, float], ...]
    gradient_dimensions: tuple[int, ...]
    gradient_atoms: tuple[int, ...]
    rounds: int
    runs: int
    cluster_limits: Mapping[str, Limits]
    dimensions: tuple[int, ...]
    n_per_dimension: int
    mixture_dimension: int
    numbers: tuple[int, ...]
    n_per_number: int
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    whole: bool = False
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    minutes: Mapping[str, float] = field(default_factory=dict)

    def limit(self, key: str) -> Limits:
        """Return how much of a data set is used."""
        return self.limits.get(key, self.limits[""])

    def cluster_limit(self, key: str) -> Limits:
        """Return how much of a data set is clustered."""
        return self.cluster_limits.get(key, self.cluster_limits[""])


STRUCTURED = ("IDDL-V, structured SVM", "IDDL-N, structured SVM")  # names of methods
# Where the paper recommends to start in place of a grid search. IDDL-V needs it: with alpha = beta
# the origin is a stationary point, for f(t; a, a) is even in a, and what starts there stays.
_FIRST = {"pairs": [[1.0, 1.0]]}
FULL = Protocol(
    name="full",
    splits=5,
    repeats=5,
    # All patches of Brodatz would make fits of 32,000 matrices and 500 atoms, for days.
    limits={"": Limits(), "brodatz": Limits(train=20, test=10)},
    atoms_per_class=5,
    sweep=(1, 3, 5),
    joint_atoms=(15, 45, 75),
    # The paper's objective and start; its own descent takes more than ten times as long.
    solver="joint",
    iterations=30,
    plane_step=0.125,
    convergence_iterations=15,
    trajectory_iterations=20,
    starts=((1.0, 1.0), (0.1, 0.1), (0.5, 0.5), (2.0, 2.0), (0.5, 1.5), (1.5, 0.5)),
    gradient_dimensions=(5, 10, 20, 40, 60, 80, 100),
    gradient_atoms=(10, 20, 50, 100, 200),
    rounds=20,
    runs=10,
    cluster_limits={"": Limits(), "brodatz": Limits(train=20)},
    dimensions=(5, 15, 30, 50, 75, 100),
    n_per_dimension=50,
    mixture_dimension=15,
    numbers=(2, 5, 10, 20, 50, 100),
    n_per_number=25,
    # With the structured SVM a grid search takes hours.
    parameters=dict.fromkeys(("IDDL-V", *STRUCTURED), _FIRST),
    whole=True,
    skipped={"brodatz": STRUCTURED},
    minutes={
        "heat-map": 0.2, "atoms": 40, "convergence": 9, "gradient-time": 1.5, "joint-learning": 3,
        "trajectories": 13, "standard-measures": 300, "state-of-the-art": 170, "losses": 150,
        "cluster-dimension": 16, "cluster-number": 20, "cluster-convergence": 0.2,
        "cluster-table": 30,
    },
)  # fmt: skip
QUICK = Protocol(
    name="quick",
    splits=1,
    repeats=1,
    limits={"": Limits(train=10, test=10), "brodatz": Limits(20, 10, 10)},
    atoms_per_class=2,
    sweep=(1, 2),
    joint_atoms=(15, 30),
    solver="joint",
    iterations=10,
    plane_step=0.5,
    convergence_iterations=3,
    trajectory_iterations=4,
    starts=((1.0, 1.0), (0.5, 1.5)),
    gradient_dimensions=(5, 10, 20, 40),
    gradient_atoms=(10, 20, 50),
    rounds=5,
    runs=2,
    cluster_limits={"": Limits(train=20), "brodatz": Limits(20, 20)},
    dimensions=(5, 15, 30),
    n_per_dimension=15,
    mixture_dimension=10,
    numbers=(2, 5, 10, 20),
    n_per_number=15,
    parameters={
        "RSPDL": {"max_iter": 2},
        "IDDL-V": _FIRST,
        **{method: _FIRST | {"gamma": 0.1, "iterations": 3} for method in STRUCTURED},
        "IDDLClassifier": {"n_atoms": "2 per class", "max_iter": 5, "ensemble": 2},
        "SPDClassifier": {
            "members": ["start softmax", "kernel", "tangent rbf", "tangent lda"], "cv": 2,
        },
    },
    minutes={
        "heat-map": 0.1, "atoms": 0.6, "convergence": 0.4, "gradient-time": 0.1,
        "joint-learning": 0.2, "trajectories": 0.4, "standard-measures": 0.8,
        "state-of-the-art": 1.3, "losses": 0.7, "cluster-dimension": 0.4, "cluster-number": 0.6,
        "cluster-convergence": 0.1, "cluster-table": 1.1,
    },
)  # fmt: skip
