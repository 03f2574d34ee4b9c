"""All experiments by name, in the order of the paper."""

from __future__ import annotations

from divlearn.experiments.atoms import Atoms
from divlearn.experiments.cluster_convergence import ClusterConvergence
from divlearn.experiments.cluster_sizes import ClusterDimension, ClusterNumber
from divlearn.experiments.cluster_table import ClusterTable
from divlearn.experiments.convergence import Convergence
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.gradient_time import GradientTime
from divlearn.experiments.heat_map import HeatMap
from divlearn.experiments.joint_learning import JointLearning
from divlearn.experiments.losses import Losses
from divlearn.experiments.standard_measures import StandardMeasures
from divlearn.experiments.state_of_the_art import StateOfTheArt
from divlearn.experiments.trajectories import Trajectories

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        HeatMap(), Atoms(), Convergence(), GradientTime(), JointLearning(), Trajectories(),
        StandardMeasures(), StateOfTheArt(), Losses(), ClusterDimension(), ClusterNumber(),
        ClusterConvergence(), ClusterTable(),
    )
}  # fmt: skip
