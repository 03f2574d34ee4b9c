"""Linear heads: ridge in closed form, other losses by Newton's method.

Samples lie in blocks, in memory, on a device or on workers; sums over them come here.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from divlearn.arrays import RealArray, to_device_of
from divlearn.heads.losses import Loss, Targets
from divlearn.heads.newton import Newton
from divlearn.heads.samples import Head, Samples
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards


def solve_head(
    loss: Loss, samples: Samples, gamma: float, warm: Head | None = None
) -> tuple[Head, float]:
    """Find the best head; returns it and the objective."""
    if loss.quadratic:
        head = _ridge_head(*samples.centre, *samples.products, gamma)
        return head, objective_of(loss, samples, head, gamma)
    n_features, n_outputs = map(len, samples.centre)
    if warm is not None and warm[0].shape[1] != n_features:
        warm = None
    value = np.inf
    for one in loss.stages():
        warm, value = Newton(one, samples, gamma, (n_outputs, n_features)).minimize(warm)
    assert warm is not None
    return warm, value


def solve_heads(loss: Loss, shards: Shards, targets: Parts, stack: RealArray, gamma: float) -> Head:
    """Find the best heads for a stack of features of one block; weights and biases are stacked."""
    if loss.quadratic:
        samples = Samples(shards, targets, [stack], loss.bias)
        (middles, level), (grams, crosses) = samples.centre, samples.products
        known = zip(middles, grams, crosses, strict=True)
        heads = [_ridge_head(middle, level, gram, cross, gamma) for middle, gram, cross in known]
    else:
        every = (Samples(shards, targets, [features], loss.bias) for features in stack)
        heads = [solve_head(loss, samples, gamma)[0] for samples in every]
    weights, biases = zip(*heads, strict=True)
    return np.stack(weights), np.stack(biases)


def _ridge_head(
    middle: RealArray, level: RealArray, gram: RealArray, cross: RealArray, gamma: float
) -> Head:
    penalized = gram + 2 * gamma * np.eye(len(gram))
    try:
        W = cho_solve(cho_factor(penalized), cross).T
    except LinAlgError:
        W = np.linalg.lstsq(penalized, cross, rcond=None)[0].T
    return W, level - W @ middle


def objective_of(loss: Loss, samples: Samples, head: Head, gamma: float) -> float:
    """Weighted sum of the losses of a head, and its penalty."""
    parts = [samples.targets, samples.features]
    losses = float(samples.shards.reduce(_losses, loss, head, parts=parts))
    return losses + gamma * float((head[0] ** 2).sum())


def scores_of(head: Head, features: RealArray) -> RealArray:
    """Scores of some samples, shape (n_samples, n_outputs); heads and features may be stacks."""
    weights, bias = (to_device_of(one, features) for one in head)
    return features @ weights.mT + bias[..., None, :]


def slopes_of(targets: Targets, features: RealArray, loss: Loss, head: Head) -> RealArray:
    """Weighted gradients of the losses of some samples in their scores."""
    wanted, weights = targets
    return weights[:, None] * loss.expand(scores_of(head, features), wanted).slopes


def _losses(_: Block, targets: Targets, features: RealArray, loss: Loss, head: Head) -> float:
    wanted, weights = targets
    return float(weights @ loss.expand(scores_of(head, features), wanted).losses)
