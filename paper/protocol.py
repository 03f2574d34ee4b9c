"""How much is computed: the paper's protocol, or a small part of it that takes minutes."""

from dataclasses import dataclass
from typing import Any, NamedTuple


class Limits(NamedTuple):
    """How much of a data set is used: classes, and matrices per class to train and to test on."""

    classes: int | None = None
    train: int | None = None
    test: int | None = None

    def __str__(self) -> str:
        words = ("{} classes", "{} matrices per class", "{} to test on")
        pairs = zip(words, self, strict=True)
        return ", ".join(text.format(size) for text, size in pairs if size is not None)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Sizes of all experiments; by default those of the paper."""

    name: str = "full"
    splits: int = 5  # of a data set, at most
    repeats: int = 5  # fits with other seeds on data that has a single split
    limits: dict[str, Limits]  # by the key of the data; "" for all other data
    cluster_limits: dict[str, Limits]  # the same for clustering
    atoms_per_class: int = 5
    iterations: int = 30  # of the joint solver
    sweep: tuple[int, ...] = (1, 3, 5)  # atoms per class in the figure about them
    joint_atoms: tuple[int, ...] = (15, 45, 75)  # atoms in the table on joint learning
    joint_seeds: int = 5  # and splits there
    solvers: tuple[str, ...] = ("joint", "bcd")  # in tables that compare them
    descent_iterations: int | None = None  # of block-coordinate descent; None for the preset's
    plane_step: float = 0.125  # of the grid of (alpha, beta), from 0 to 2
    convergence_iterations: int = 15
    trajectory_iterations: int = 20
    starts: tuple[tuple[float, float], ...] = (
        (1.0, 1.0),
        (0.1, 0.1),
        (0.5, 0.5),
        (2.0, 2.0),
        (0.5, 1.5),
        (1.5, 0.5),
    )
    gradient_dimensions: tuple[int, ...] = (5, 10, 20, 40, 60, 80, 100)
    gradient_atoms: tuple[int, ...] = (10, 20, 50, 100, 200)
    rounds: int = 20  # of timings, of which the fastest counts
    runs: int = 10  # of clusterings
    dimensions: tuple[int, ...] = (5, 15, 30, 50, 75, 100)  # of synthetic clusters
    n_per_dimension: int = 50
    mixture_dimension: int = 15  # the largest that mixtures are fitted to
    numbers: tuple[int, ...] = (2, 5, 10, 20, 50, 100)  # of synthetic clusters
    n_per_number: int = 25
    parameters: dict[str, dict[str, Any]]  # of methods, by their names
    whole: bool = True  # whether some methods also classify all patches of Brodatz
    skipped: dict[str, tuple[str, ...]]  # methods that are too slow, by data

    def steps(self, solver: str) -> int | None:
        """Iterations of "joint" or "bcd"."""
        return {"joint": self.iterations, "bcd": self.descent_iterations}[solver]

    def limit(self, key: str) -> Limits:
        return self.limits.get(key, self.limits[""])

    def cluster_limit(self, key: str) -> Limits:
        return self.cluster_limits.get(key, self.cluster_limits[""])


_STRUCTURED = ("IDDL-V, structured SVM", "IDDL-N, structured SVM")
# With the structured SVM a grid search takes hours, and so does learning models to choose gamma by:
# the paper's other start, and gamma chosen with the first atoms.
_FIRST = {"start": [1.0, 1.0], "gamma": "auto"}

FULL = Protocol(
    # All patches of Brodatz make fits of 32,000 matrices and 500 atoms.
    limits={"": Limits(), "brodatz": Limits(train=20, test=10), "brodatz-20": Limits(20, 20, 10)},
    cluster_limits={"": Limits(), "brodatz": Limits(train=20)},
    parameters=dict.fromkeys(_STRUCTURED, _FIRST),
    skipped={"brodatz": _STRUCTURED},
)
QUICK = Protocol(
    name="quick",
    splits=1,
    repeats=1,
    atoms_per_class=2,
    iterations=10,
    sweep=(1, 2),
    joint_atoms=(15, 30),
    joint_seeds=2,
    solvers=("joint",),
    descent_iterations=2,
    plane_step=0.5,
    convergence_iterations=3,
    trajectory_iterations=4,
    starts=((1.0, 1.0), (0.5, 1.5)),
    gradient_dimensions=(5, 10, 20, 40),
    gradient_atoms=(10, 20, 50),
    rounds=5,
    runs=2,
    dimensions=(5, 15, 30),
    n_per_dimension=15,
    mixture_dimension=10,
    numbers=(2, 5, 10, 20),
    n_per_number=15,
    whole=False,
    skipped={},
    limits={"": Limits(train=10, test=10), "brodatz": Limits(20, 10, 10)},
    cluster_limits={"": Limits(train=20), "brodatz": Limits(20, 20)},
    parameters={
        "RSPDL": {"max_iter": 2},
        **{f"IDDL-{letter}": {"gamma": 0.1} for letter in "SVNAB"},
        **{method: _FIRST | {"gamma": 0.1, "iterations": 3} for method in _STRUCTURED},
        "IDDLClassifier": {"max_iter": 5, "cv": 2},
        "SPDClassifier": {
            "members": ["iddl", "kernel", "tangent rbf", "tangent lda"],
            "cv": 2,
        },
    },
)
