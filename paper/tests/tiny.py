"""Data and sizes on which all experiments together take seconds."""

from dataclasses import replace

from divlearn.datasets import Dataset, make_wishart_clusters
from paper.methods import RIDGE, STRUCTURED
from paper.protocol import QUICK, Limits

TINY = replace(
    QUICK,
    limits={"": Limits(3, 14, 4)},
    cluster_limits={"": Limits(3, 8)},
    atoms_per_class=1,
    sweep=(1,),
    joint_atoms=(15,),
    solvers=("joint", "bcd"),
    iterations=1,
    descent_iterations=1,
    plane_step=1.0,
    convergence_iterations=1,
    trajectory_iterations=1,
    gradient_dimensions=(2, 3),
    gradient_atoms=(2, 4),
    rounds=1,
    runs=1,
    dimensions=(2, 3),
    n_per_dimension=3,
    numbers=(2, 3),
    n_per_number=3,
    mixture_dimension=1,
    parameters={
        "RSPDL": {"max_iter": 1, "penalty": 0.1},
        "LEML": {"eta": 1.0},
        "kLLC": {"bandwidth": 1.0, "n_neighbors": 2},
        **{name: {"bandwidth": 1.0, "penalty": 0.1} for name in ("kSP_LE", "kSP_JBLD")},
        **{
            name: {"gamma": 0.1, "iterations": 1} | start
            for names, start in ((RIDGE, {}), (STRUCTURED, {"start": [1.0, 1.0]}))
            for name in names
        },
        "SPDClassifier": {"members": ["tangent logistic", "tangent lda"], "cv": 2},
        "IDDLClassifier": {"max_iter": 1, "cv": 2},
        "DivergenceKernelClassifier": {"alphas": [1.0], "betas": [1.0], "C": [1.0], "cv": 2},
    },
)


def make_data(seed: int, n_splits: int = 2) -> Dataset:
    X, y = make_wishart_clusters(3, 24, 3, separation=4, random_state=seed)
    return Dataset("tiny", y, "nobody", "none", stored=X, n_splits=n_splits, train_share=0.6)


DATA = {"virus": make_data(0), "kth": make_data(1, 1)}  # one of every kind
