"""What several runs say together: a mean, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from divlearn.experiments.cells import Outcomes
from divlearn.judge.significance import share_error

__all__ = ["Estimate", "accuracy_of", "mean_of"]


class Estimate(NamedTuple):
    """A mean and its standard error, which is None where there is a single run."""

    value: float
    error: float | None


def mean_of(values: Sequence[Any]) -> Estimate | None:
    """Mean over runs; None where there are none.

    Examples
    --------
    >>> mean_of([0.0, 1.0]), mean_of([2.0]), mean_of([])
    (Estimate(value=0.5, error=0.5), Estimate(value=2.0, error=None), None)
    """
    known = np.array([value for value in values if value is not None], dtype=float)
    if not len(known):
        return None
    error = None if len(known) == 1 else float(known.std(ddof=1) / len(known) ** 0.5)
    return Estimate(float(known.mean()), error)


def accuracy_of(outcomes: Outcomes) -> Estimate | None:
    """Mean accuracy in percent; None where there is none.

    The error is that over test sets. Where all runs share one test set it is that of a share of
    its matrices: other matrices would have given another accuracy, however often one is fitted.

    Parameters
    ----------
    outcomes : Outcomes
        With "accuracy", "n_test" and "test", which names the test set.
    """
    found = [outcome for _, outcome in outcomes]
    if not found:
        return None
    values = np.array([outcome["accuracy"] for outcome in found])
    sets = {outcome["test"]: outcome["n_test"] for outcome in found}
    mean = float(values.mean())
    if len(sets) == 1:
        error = float(share_error(mean, next(iter(sets.values()))))
    else:
        error = float(values.std(ddof=1) / len(values) ** 0.5)
    return Estimate(100 * mean, 100 * error)
