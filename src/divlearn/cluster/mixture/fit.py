"""A mixture from several starts, and what to say about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.checkpoint import stage
from divlearn.cluster.mixture.data import MixtureData
from divlearn.cluster.mixture.em import (
    FEWEST_MEMBERS,
    FIRST_POINT,
    LARGEST_KAPPA,
    EMRun,
    EMSettings,
    fit_start,
    run_em,
)
from divlearn.cluster.mixture.moves import relocate
from divlearn.cluster.samples import Samples
from divlearn.cluster.starts import Starts
from divlearn.progress import tell
from divlearn.threads import limit_blas

__all__ = ["Search", "fit_mixture"]

_ALMOST = 0.999  # of a limit


@dataclass(frozen=True, eq=False)
class Search:
    """How to look for the highest likelihood.

    Attributes
    ----------
    init : str or ndarray, shape (n_components, d, d)
    n_init : int
    relocate : bool
    settings : EMSettings
    say : callable, told of every start in a sentence.
    """

    init: str | RealArray
    n_init: int
    relocate: bool
    settings: EMSettings
    say: Callable[[str], None]


def fit_mixture(
    data: MixtureData, samples: Samples, n_components: int, search: Search,
    random_state: np.random.RandomState,
) -> EMRun:  # fmt: skip
    """Return the best of several runs.

    Parameters
    ----------
    data : MixtureData
    samples : Samples
        Those of the data, or some of them: what starts and moves are made of.
    n_components : int
    search : Search
    random_state : RandomState

    Returns
    -------
    EMRun
    """
    starts = Starts(samples, n_components)
    n_init = search.n_init if isinstance(search.init, str) else 1  # the same start, the same end
    best: EMRun | None = None
    for number in range(1, n_init + 1):
        try:
            tell("starts", number - 1, n_init)
            with limit_blas(1):  # threads would cost more than these matrices
                run = stage(
                    "run", partial(_run, data, samples, starts, search, random_state), random_state
                )
        except KeyboardInterrupt:
            if best is None:
                raise
            best = replace(best, interrupted=True, message="interrupted by the user in a start")
            break
        search.say(
            f"{n_components} components, start {number} of {n_init}: log-likelihood "
            f"{run.lower_bound:.6g} per matrix after {run.n_iter} iterations; {run.message}"
        )
        if best is None or run.lower_bound > best.lower_bound:
            best = run
        if run.interrupted:
            best = replace(best, interrupted=True, message=run.message)
            break
    assert best is not None
    remarks = [best.message, *_remarks(data, best, search.settings)]
    return replace(best, message="; ".join(remarks))


def _run(
    data: MixtureData, samples: Samples, starts: Starts, search: Search,
    random_state: np.random.RandomState,
) -> EMRun:  # fmt: skip
    draw = partial(starts.draw, search.init, *FIRST_POINT, random_state)
    centers = stage("centers", draw, random_state)
    first = stage("start", partial(fit_start, data, centers, search.settings))
    run = stage("em", partial(run_em, data, first, search.settings))
    if search.relocate and len(centers) > 1:
        run = relocate(data, samples, run, search.settings, random_state)
    return run


def _remarks(data: MixtureData, run: EMRun, settings: EMSettings) -> list[str]:
    """Say what to know about the components."""
    mixture, family = run.mixture, run.mixture.parameters
    own_kappa, own_point = settings.share != "all", settings.share == "none"
    remarks = []
    few = mixture.weights * data.total_weight < FEWEST_MEMBERS
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
