"""The factor gamma of a Gaussian kernel: given, or learned from distances."""

from __future__ import annotations

import numpy as np

from divlearn.arrays import RealArray

__all__ = ["check_gamma", "median_gamma"]


def check_gamma(gamma: float | str) -> None:
    """Raise unless gamma is "median" or a finite number > 0.

    Examples
    --------
    >>> check_gamma(0)
    Traceback (most recent call last):
    ValueError: gamma=0 must be "median" or a finite number > 0
    """
    if isinstance(gamma, str) and gamma == "median":
        return
    number = isinstance(gamma, float | int | np.number) and not isinstance(gamma, bool)
    if not number or not 0 < float(gamma) < np.inf:
        raise ValueError(f'gamma={gamma!r} must be "median" or a finite number > 0')


def median_gamma(squared_distances: RealArray, variables: str) -> float:
    """One over the median of the squared distances between variables that differ.

    Parameters
    ----------
    squared_distances : ndarray, shape (n_samples, d, d)
    variables : str
        What messages call the variables.

    Examples
    --------
    >>> median_gamma(np.array([[[0.0, 4.0], [4.0, 0.0]]]), "tracks")
    0.25
    """
    d = squared_distances.shape[-1]
    if d == 1:
        raise ValueError(
            f'gamma="median" needs at least two {variables}, but X has 1; pass a number for gamma'
        )
    pairs = squared_distances[:, *np.triu_indices(d, 1)]
    # One over anything smaller would overflow.
    differing = pairs[pairs >= np.finfo(np.float64).tiny]
    if not differing.size:
        raise ValueError(
            f'gamma="median" has no scale to learn: all {variables} of each sample of X are equal; '
            "pass a number for gamma or samples that vary"
        )
    return 1 / float(np.median(differing))
