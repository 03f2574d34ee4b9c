"""Heads and objectives of IDDL from plain arrays, which are one block."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from divlearn.heads.heads import slopes_of, solve_head
from divlearn.heads.samples import FeatureMap, Samples
from divlearn.sharded.opening import open_data


def here(n, engine="auto"):
    """A block of so many matrices, for what does not look at them."""
    return open_data(np.ones((n, 1, 1)), engine=engine)


def solve(loss, features, targets, weights, gamma, warm=None, engine="auto"):
    """The best head, its objective, and the gradient in the features."""
    samples = Samples(here(len(features), engine), [(targets, weights)], [features], loss.bias)
    head, value = solve_head(loss, samples, gamma, warm)
    cotangent = slopes_of((targets, weights), features, loss, head) @ head[0]
    return SimpleNamespace(head=head, value=value, cotangent=cotangent)


def start_features(V, weights, *, plain):
    """A map to features that are standardised by the data it was made for."""
    known = here(len(V)), [(None, weights)], [V]
    return FeatureMap.start(*known, plain=plain).standardize(*known)
