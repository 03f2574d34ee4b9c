"""A mixture from several starts, and what to say about it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.cluster.mixture.em import (
    FEWEST_MEMBERS,
    FIRST_POINT,
    LARGEST_KAPPA,
    EMRun,
    EMSettings,
    fit_start,
    run_em,
)
from divlearn.cluster.mixture.expectation import unit_of
from divlearn.cluster.mixture.moves import relocate
from divlearn.cluster.starts import Starts, best_of
from divlearn.fitting.checkpoint import stage
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Shards

__all__ = ["fit_mixture"]

_ALMOST = 0.999  # of a limit


def fit_mixture(
    shards: Shards, n_components: int, init: str | RealArray, n_init: int, settings: EMSettings,
    random_state: np.random.RandomState,
) -> EMRun:  # fmt: skip
    """Return the best of several runs.

    Parameters
    ----------
    shards : Shards
    n_components : int
    init : str or ndarray, shape (n_components, d, d)
        Runs from given centres make no moves, and are all the same.
    n_init : int
    settings : EMSettings
    random_state : RandomState

    Returns
    -------
    EMRun
    """
    drawn = shards.draw(3 * n_components)
    block = replace(drawn, weights=drawn.weights / unit_of(shards))
    run_from = partial(_run, shards, block, Starts(block, n_components), init, settings)

    def run_once() -> EMRun:
        return stage("run", partial(run_from, random_state), random_state)

    def tell_of(start: str, run: EMRun) -> None:
        settings.say(
            f"{n_components} components, {start}: log-likelihood {run.lower_bound:.6g} per matrix "
            f"after {run.n_iter} iterations; {run.message}"
        )

    n_init = n_init if isinstance(init, str) else 1
    best = best_of(n_init, run_once, lambda run: -run.lower_bound, tell_of)
    return replace(best, message="; ".join([best.message, *_remarks(shards, best, settings)]))


def _run(
    shards: Shards, block: Block, starts: Starts, init: str | RealArray, settings: EMSettings,
    random_state: np.random.RandomState,
) -> EMRun:  # fmt: skip
    draw = partial(starts.draw, init, *FIRST_POINT, random_state)
    centers = stage("centers", draw, random_state)
    first = stage("start", partial(fit_start, shards, centers, settings))
    run = stage("em", partial(run_em, shards, first, settings))
    if isinstance(init, str) and len(centers) > 1:
        run = relocate(shards, block, run, settings, random_state)
    return run


def _remarks(shards: Shards, run: EMRun, settings: EMSettings) -> list[str]:
    """Say what to know about the components."""
    mixture, family = run.mixture, run.mixture.parameters
    own_kappa, own_point = settings.share != "all", settings.share == "none"
    remarks = []
    few = mixture.weights * shards.n_seen < FEWEST_MEMBERS
    if few.any():
        kept = " and the kappa of the start" * own_kappa
        remarks.append(f"{_name(few, True)} fewer than {FEWEST_MEMBERS:g} matrices{kept}")
    narrow = family.kappa >= _ALMOST * LARGEST_KAPPA
    if narrow.any():
        remarks.append(
            f"{_name(narrow, own_kappa)} kappa at its limit {LARGEST_KAPPA:g}: matrices are equal "
            "up to rounding, and the likelihood is unbounded"
        )
    if settings.members.n_free == 2:
        (_, difference), (_, product) = settings.members.bounds
        beyond = np.abs(family.beta - family.alpha) >= _ALMOST * difference
        beyond |= family.alpha * family.beta >= _ALMOST * product
        if beyond.any():
            remarks.append(
                f"{_name(beyond, own_point)} alpha and beta at the end of the search: tails are "
                "heavier than any member's"
            )
    return remarks


def _name(which: NDArray[np.bool_], own: bool) -> str:
    """Subject of a sentence: some components, or all where they have it in common."""
    if not own:
        return "all components have"
    found = np.flatnonzero(which)
    return f"component{'s' * (len(found) > 1)} {', '.join(map(str, found))} with"
