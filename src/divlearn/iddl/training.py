"""One model: what it is trained on, how, and what it says of new matrices."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.fitting.interrupts import is_interrupted
from divlearn.iddl.bcd import solve_bcd
from divlearn.iddl.features import FeatureMap, Units, units_on_host
from divlearn.iddl.heads import Head, scores_of
from divlearn.iddl.losses import Loss
from divlearn.iddl.objective import Dictionary, Objective, encode_rows
from divlearn.iddl.solvers import Fit, solve_joint
from divlearn.iddl.stochastic import solve_stochastic
from divlearn.iddl.variants import Variant
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards

SOLVERS: dict[str, Callable[..., Fit]] = {
    "joint": solve_joint,
    "bcd": solve_bcd,
    "stochastic": solve_stochastic,
}
_TOLERANCE = 1e-5  # of the gradient, relative to the start

History = dict[str, NDArray[np.generic]]
# Shares in the loss of held-out rows, which add up to it, from scores and rows.
Judge = Callable[[RealArray, Indices], RealArray]


@dataclass(frozen=True, eq=False)
class Settings:
    loss: Loss
    penalty: float  # on the squared norm of the head
    tether: float  # the penalty on the squared distance of the atoms to the first ones
    solver: str
    max_iter: int
    learn_atoms: bool
    learn_parameters: bool
    seed: int  # of minibatches


@dataclass(frozen=True, eq=False)
class Part:
    """What a model is trained on, the atoms it starts with, and what is held out meanwhile."""

    shards: Shards
    targets: Parts
    atoms: RealArray
    held: Block | None = None
    rows: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))  # of it in the sample


@dataclass(frozen=True, eq=False)
class Model:
    """A dictionary, the units of its features and its head: all that prediction needs.

    Attributes
    ----------
    atoms : ndarray, shape (n_atoms, d, d)
    alpha, beta : ndarray, shape (n_atoms, n_pairs)
    offset : ndarray or None
        Features are logarithms of divergences plus this, or the divergences themselves.
    units : tuple of ndarray, or None
        Mean and scale of these logarithms.
    head : tuple of ndarray, weights and bias.
    """

    atoms: Annotated[RealArray, "n_atoms d d"]
    alpha: Annotated[RealArray, "n_atoms n_pairs"]
    beta: Annotated[RealArray, "n_atoms n_pairs"]
    offset: Annotated[RealArray | None, "n_features"]
    units: Units
    head: Head

    def encode(self, block: Block) -> RealArray:
        """Divergences to the atoms, shape (n_matrices, n_atoms * n_pairs)."""
        return encode_rows(block, self.atoms, self.alpha, self.beta)

    def embed(self, block: Block) -> RealArray:
        """Compute what the head sees."""
        return FeatureMap(self.offset).compute(self.encode(block), self.units)

    def scores(self, block: Block) -> RealArray:
        """Compute scores, shape (n_matrices, n_outputs), on the host."""
        return to_host(scores_of(self.head, self.embed(block)))


Trained = tuple[Model, int, str, History]  # with the number of iterations, and why they ended


def start_model(part: Part, settings: Settings, variant: Variant) -> Model:
    """Make a model of the first atoms and divergences, without a head."""
    alpha, beta = variant.expand(variant.start)
    V, feature_map = _start_features(part, settings, variant)
    units = feature_map.units(part.shards, part.targets, V)
    none = np.zeros((0, alpha.size)), np.zeros(0)
    return _model(part.atoms, alpha, beta, feature_map, units, none)


def _model(
    atoms: RealArray,
    alpha: RealArray,
    beta: RealArray,
    feature_map: FeatureMap,
    units: Units,
    head: Head,
) -> Model:
    offset = None if feature_map.offset is None else to_host(feature_map.offset)
    return Model(to_host(atoms), alpha, beta, offset, units_on_host(units), head)


def _start_features(part: Part, settings: Settings, variant: Variant) -> tuple[Parts, FeatureMap]:
    V = part.shards.hold(encode_rows, part.atoms, *variant.expand(variant.start))
    return V, FeatureMap.start(part.shards, part.targets, V, plain=settings.loss.plain)


def train(part: Part, settings: Settings, variant: Variant) -> Trained:
    feature_map = _start_features(part, settings, variant)[1]  # the solver needs the other's room
    objective = Objective(
        part.shards,
        part.targets,
        variant,
        feature_map,
        settings.loss,
        settings.penalty,
        learn_atoms=settings.learn_atoms,
        learn_parameters=settings.learn_parameters,
        tether=settings.tether,
        anchors=part.atoms,
    )
    start = Dictionary(np.linalg.cholesky(part.atoms), variant.start)
    learns = (objective.learn_atoms or objective.learn_parameters) and not is_interrupted()
    max_iter = settings.max_iter if learns else 0
    fit = SOLVERS[settings.solver](
        objective, start, max_iter=max_iter, tol=_TOLERANCE, seed=settings.seed
    )
    point, memo = fit.trial.point, fit.trial.memo
    alpha, beta = variant.expand(point.parameters)
    model = _model(point.atoms, alpha, beta, feature_map, memo.units, memo.head)
    return model, fit.n_iter, fit.message, fit.history
