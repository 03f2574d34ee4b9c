"""The objective of IDDL on shards: statistics travel, matrices and divergences stay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divlearn.arrays import RealArray
from divlearn.engines import Pullback
from divlearn.iddl.features import FeatureMap, Features
from divlearn.iddl.losses import Head, Loss, NewtonLoss
from divlearn.iddl.objective import Coordinates, Dictionary
from divlearn.iddl.spread import Spread
from divlearn.iddl.training import Recipe, Start
from divlearn.optim.frames import usable
from divlearn.optim.problem import Trial
from divlearn.sharded.blocks import Block
from divlearn.sharded.encoding import encode_block
from divlearn.sharded.heads import SolvedHead, Targets, known_features, solve_newton, solve_ridge
from divlearn.sharded.shards import Parts, Shards
from divlearn.sharded.statistics import Moments, merge_moments
from divlearn.threads import limit_blas

__all__ = ["ShardedMemo", "ShardedObjective", "encode_rows", "start_features"]


@dataclass(frozen=True, eq=False)
class ShardedMemo:
    """What the objective computed at a dictionary.

    Attributes
    ----------
    V : divergences of the blocks, where these are.
    features : Features, the standardisation alone.
    solved : SolvedHead
    moments : Moments, of the features.
    """

    V: Parts
    features: Features
    solved: SolvedHead
    moments: Moments

    @property
    def head(self) -> Head:
        """The best head."""
        return self.solved.head

    def without_rows(self) -> ShardedMemo:
        """Keep what prediction needs."""
        return ShardedMemo((), self.features, self.solved, self.moments)


class ShardedObjective(Coordinates):
    """The loss of the best head, on shards; see `divlearn.iddl.objective.Objective`.

    A trial takes one pass over the data, and ridge one sum of n x n numbers for n divergences;
    softmax and hinge take sums of L x n numbers, at every step of Newton's method, for L outputs.
    A gradient takes a pass, and a sum of numbers of the size of the atoms.

    Parameters
    ----------
    shards : Shards
    targets : parts, `Targets` of every block.
    start : Start
    recipe : Recipe
    feature_map : FeatureMap
    """

    def __init__(
        self, shards: Shards, targets: Parts, start: Start, recipe: Recipe, feature_map: FeatureMap
    ) -> None:
        super().__init__(shards.d, start.variant, recipe.learn_atoms, recipe.learn_parameters)
        self.shards = shards
        self.targets = targets
        self.feature_map = feature_map
        self.loss: Loss = recipe.loss
        self.gamma = recipe.gamma

    @property
    def n_matrices(self) -> int:
        """Matrices of the data."""
        return self.shards.n_matrices

    def trial(self, point: Dictionary) -> Trial:
        """Compute the objective. See `Problem.trial`."""
        atoms = point.atoms
        if not usable(atoms):
            return Trial(point, np.inf)
        alpha, beta = self.variant.expand(point.parameters)
        V = self.shards.hold(encode_rows, atoms, alpha, beta)
        self.eigenproblems += self.shards.n_matrices * len(atoms)
        moments = self.shards.reduce(
            _moments_block, self.feature_map, beside=[self.targets, V], merge=merge_moments
        )
        features, moments = known_features(moments, alpha.size, self.feature_map)
        with limit_blas(1):
            solved = self._solve(V, features, moments, alpha.size)
        self._warm = solved.head
        return Trial(point, solved.value, ShardedMemo(V, features, solved, moments))

    def gradient(self, trial: Trial) -> RealArray:
        """Compute the gradient. See `Problem.gradient`."""
        point, memo = trial.point, trial.memo
        alpha, beta = self.variant.expand(point.parameters)
        atoms = point.atoms
        found = self.shards.reduce(
            _pullback_block, self.feature_map, memo.features, self.loss, memo.head,
            memo.solved.sums, (atoms, alpha, beta), self.learn_parameters,
            beside=[self.targets, memo.V],
        )  # fmt: skip
        self.eigenproblems += self.shards.n_matrices * len(atoms)
        whitened, in_alpha, in_beta = found
        return self.collect(point, atoms, Pullback(whitened, whitened, in_alpha, in_beta))

    def spread(self, memo: ShardedMemo) -> Spread:
        """Spread of what the head sees."""
        size = len(memo.features.mean)
        if not self.loss.bias:
            return Spread.around(np.zeros(size), memo.moments.second()[:size, :size])
        covariance = memo.moments.scatter[:size, :size] / memo.moments.weight
        return Spread.around(memo.moments.mean[:size], covariance)

    def _solve(self, V: Parts, features: Features, moments: Moments, size: int) -> SolvedHead:
        if not isinstance(self.loss, NewtonLoss):
            return solve_ridge(self.loss, moments, size, self.gamma)
        n_outputs = len(moments.mean) - size
        return solve_newton(
            self.loss, self.shards, (self.targets, V), (n_outputs, size), moments,
            (self.feature_map, features), self.gamma, self._warm,
        )  # fmt: skip


def start_features(shards: Shards, targets: Parts, start: Start, recipe: Recipe) -> FeatureMap:
    """Make the map from divergences to features; see `FeatureMap.for_data`."""
    if not recipe.logarithm:
        return FeatureMap(None, recipe.standardize)
    alpha, beta = start.variant.expand(start.variant.start)
    mean = shards.reduce(_mean_block, start.atoms, alpha, beta, beside=[targets])
    return FeatureMap.for_data(
        mean[None], np.ones(1), logarithm=True, standardize=recipe.standardize
    )


def encode_rows(block: Block, atoms: RealArray, alpha: RealArray, beta: RealArray) -> RealArray:
    """Divergences of a block, shape (n_matrices, n_atoms * n_pairs)."""
    return encode_block(block, atoms, alpha, beta).reshape(len(block), -1)


def _mean_block(
    block: Block, targets: Targets, atoms: RealArray, alpha: RealArray, beta: RealArray
) -> RealArray:
    mean: RealArray = targets[1] @ encode_rows(block, atoms, alpha, beta)
    return mean


def _moments_block(
    block: Block, targets: Targets, V: RealArray, feature_map: FeatureMap
) -> Moments:
    wanted, weights = targets
    plain = FeatureMap(feature_map.offset, False).compute(V, weights).values
    return Moments.of(np.concatenate([plain, wanted], axis=1), weights)


def _pullback_block(
    block: Block, targets: Targets, V: RealArray, feature_map: FeatureMap, known: Features,
    loss: Loss, head: Head, sums: tuple[RealArray, RealArray],
    dictionary: tuple[RealArray, RealArray, RealArray], parameters: bool,
) -> tuple[RealArray, RealArray | None, RealArray | None]:  # fmt: skip
    wanted, weights = targets
    features = feature_map.compute(V, weights, known)
    slopes = weights[:, None] * loss.slopes(head.scores(features.values), wanted)
    cotangent = feature_map.pull(V, features, weights, slopes @ head.weights, sums)
    atoms, alpha, beta = dictionary
    back = block.engine.pullback(
        block.data, atoms, alpha, beta, cotangent.reshape(-1, *alpha.shape), parameters=parameters
    )
    return back.whitened, back.alpha, back.beta
