"""One model: where it starts, how it is trained, and what it says of new matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, beside, to_host
from divlearn.engines import Engine, Prepared
from divlearn.fitting.interrupts import is_interrupted
from divlearn.fitting.progress import tell
from divlearn.iddl.features import FeatureMap, Features
from divlearn.iddl.losses import Head, Loss
from divlearn.iddl.objective import Coordinates, Dictionary, Memo, Objective
from divlearn.iddl.solvers import Fit, solve_bcd, solve_joint
from divlearn.iddl.stochastic import solve_stochastic
from divlearn.iddl.tangent import TangentBlock
from divlearn.iddl.variants import Variant
from divlearn.optim.problem import Trial

__all__ = ["Model", "Recipe", "Report", "Start", "Task", "run_solver", "train"]

SOLVERS: dict[str, Callable[..., Fit]] = {
    "joint": solve_joint, "bcd": solve_bcd, "stochastic": solve_stochastic,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be learned.

    Attributes
    ----------
    X : ndarray, shape (n_matrices, d, d)
    data : the same, prepared by the engine.
    targets : ndarray, shape (n_matrices, n_outputs)
    weights : ndarray, shape (n_matrices,), with sum one.
    """

    X: RealArray
    data: Prepared
    targets: RealArray
    weights: RealArray

    def part(self, engine: Engine, rows: NDArray[np.intp]) -> Task:
        """Take some of the matrices."""
        weights = self.weights[rows]
        data = engine.take(self.data, rows)
        return Task(self.X[rows], data, self.targets[rows], weights / weights.sum())


@dataclass(frozen=True, eq=False)
class Recipe:
    """How to learn it.

    Attributes
    ----------
    loss : Loss
    gamma : float, the penalty on the head.
    logarithm, standardize : bool, of the features.
    n_tangent : int, components of the tangent block; 0 for none.
    solver : str, one of `SOLVERS`
    max_iter : int
    tol : float
    learn_atoms, learn_parameters : bool
    seed : int, of minibatches.
    """

    loss: Loss
    gamma: float
    logarithm: bool = True
    standardize: bool = True
    n_tangent: int = 0
    solver: str = "joint"
    max_iter: int = 30
    tol: float = 1e-5
    learn_atoms: bool = True
    learn_parameters: bool = True
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Start:
    """Where learning starts: atoms, shape (n_atoms, d, d), and the parameters of a variant."""

    atoms: RealArray
    variant: Variant


@dataclass(frozen=True, eq=False)
class Model:
    """A dictionary, its features and its head: all that prediction needs."""

    atoms: RealArray
    alpha: RealArray
    beta: RealArray
    feature_map: FeatureMap
    features: Features
    head: Head
    tangent: TangentBlock | None

    @classmethod
    def without_head(cls, atoms: RealArray, alpha: RealArray, beta: RealArray) -> Model:
        """Make a model that encodes and does nothing else."""
        none = np.zeros((0, alpha.size))
        features = Features(none, np.zeros(alpha.size), np.ones(alpha.size))
        return cls(atoms, alpha, beta, FeatureMap(), features, Head(none, np.zeros(0)), None)

    def encode(self, engine: Engine, data: Prepared) -> RealArray:
        """Divergences to the atoms, shape (n_matrices, n_atoms * n_pairs)."""
        V = engine.encode(data, self.atoms, self.alpha, self.beta)
        return V.reshape(len(V), -1)

    def embed(
        self, engine: Engine, X: RealArray, data: Prepared, tangent: RealArray | None = None
    ) -> RealArray:
        """Compute what the head sees; `tangent` is the block of X, where it is known."""
        V = self.encode(engine, data)
        values = self.feature_map.compute(V, np.full(len(V), 1 / len(V)), self.features).values
        if self.tangent is None:
            return values
        block = self.tangent.compute(X) if tangent is None else tangent
        return np.concatenate([values, beside(block, values)], axis=1)

    def scores(
        self, engine: Engine, X: RealArray, data: Prepared, tangent: RealArray | None = None
    ) -> RealArray:
        """Compute scores, shape (n_matrices, n_outputs), on the host."""
        return to_host(self.head.scores(self.embed(engine, X, data, tangent)))


Watch = Callable[[int, Model], str | None]
Report = Callable[[int, float], None]


def train(
    engine: Engine, task: Task, start: Start, recipe: Recipe, watch: Watch | None = None, *,
    report: Report | None = None,
) -> tuple[Model, Fit]:  # fmt: skip
    """Train one model.

    Parameters
    ----------
    engine : Engine
    task : Task
    start : Start
    recipe : Recipe
    watch : callable, optional
        Called with the iteration and the model then; a sentence it returns stops the training.
    report : callable, optional
        Called with the iteration and the objective then.

    Returns
    -------
    Model, Fit
    """
    tangent = None
    if recipe.n_tangent:
        tangent = TangentBlock.fit(task.X, task.weights, recipe.n_tangent)
    alpha, beta = start.variant.expand(start.variant.start)
    V = engine.encode(task.data, start.atoms, alpha, beta).reshape(len(task.X), -1)
    feature_map = FeatureMap.for_data(
        V, task.weights, logarithm=recipe.logarithm, standardize=recipe.standardize
    )
    objective = Objective(
        engine, task.data, task.targets, task.weights, start.variant, feature_map, recipe.loss,
        recipe.gamma, learn_atoms=recipe.learn_atoms, learn_parameters=recipe.learn_parameters,
        extra=None if tangent is None else tangent.compute(task.X),
    )  # fmt: skip

    return run_solver(objective, start, recipe, feature_map, watch, report, tangent)


def run_solver(
    objective: Coordinates, start: Start, recipe: Recipe, feature_map: FeatureMap,
    watch: Watch | None, report: Report | None, tangent: TangentBlock | None = None,
    **options: Any,
) -> tuple[Model, Fit]:  # fmt: skip
    """Train a model by an objective that is set up; `options` are for the solver."""

    def model(trial: Trial) -> Model:
        point: Dictionary = trial.point
        memo: Memo = trial.memo.without_rows()
        alpha, beta = start.variant.expand(point.parameters)
        return Model(
            to_host(point.atoms), alpha, beta, feature_map, memo.features.on_host(), memo.head,
            tangent,
        )  # fmt: skip

    def note(iteration: int, trial: Trial) -> str | None:
        tell("iterations", iteration, n_iter)
        if report is not None:
            report(iteration, trial.value)
        return None if watch is None else watch(iteration, model(trial))

    first = Dictionary(np.linalg.cholesky(start.atoms), start.variant.start)
    learns = (objective.learn_atoms or objective.learn_parameters) and not is_interrupted()
    n_iter = recipe.max_iter if learns else 0
    draws = {"random_state": recipe.seed} if recipe.solver == "stochastic" else {}
    fit = SOLVERS[recipe.solver](
        objective, first, max_iter=n_iter, tol=recipe.tol, watch=note, **draws, **options
    )
    return model(fit.trial), fit
