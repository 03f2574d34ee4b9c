"""All experiments by name, in the order of the paper."""

from paper.experiment import Experiment
from paper.experiments.atoms import ATOMS
from paper.experiments.cluster_convergence import CLUSTER_CONVERGENCE
from paper.experiments.cluster_sizes import CLUSTER_DIMENSION, CLUSTER_NUMBER
from paper.experiments.cluster_table import CLUSTER_TABLE
from paper.experiments.convergence import CONVERGENCE
from paper.experiments.gradient_time import GRADIENT_TIME
from paper.experiments.heat_map import HEAT_MAP
from paper.experiments.joint_learning import JOINT_LEARNING
from paper.experiments.losses import LOSSES
from paper.experiments.set_up import SET_UP
from paper.experiments.solvers import SOLVERS
from paper.experiments.standard_measures import STANDARD_MEASURES
from paper.experiments.state_of_the_art import STATE_OF_THE_ART
from paper.experiments.trajectories import TRAJECTORIES

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        SET_UP,
        SOLVERS,
        HEAT_MAP,
        ATOMS,
        CONVERGENCE,
        GRADIENT_TIME,
        JOINT_LEARNING,
        TRAJECTORIES,
        STANDARD_MEASURES,
        STATE_OF_THE_ART,
        LOSSES,
        CLUSTER_DIMENSION,
        CLUSTER_NUMBER,
        CLUSTER_CONVERGENCE,
        CLUSTER_TABLE,
    )
}
