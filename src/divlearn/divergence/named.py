"""Divergences by name, by point of the plane, and from functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from divlearn.arrays import RealArray, as_real
from divlearn.divergence.base import ABDivergence, Divergence
from divlearn.divergence.metrics import (
    EmbeddedMetric,
    FunctionDivergence,
    PairedDivergence,
    Wasserstein,
    cholesky_vectors,
    entries,
    from_cholesky_vectors,
    from_inverse_entries,
    from_log_cholesky_vectors,
    inverse_entries,
    log_cholesky_vectors,
    squared_thompson,
)
from divlearn.divergence.pairs import PairByPair
from divlearn.geometry import unvectorize
from divlearn.log_vectors import from_log_vectors, log_vectors

# Types that `get_divergence` takes.
DivergenceLike = str | Sequence[float] | Divergence | Callable[..., ArrayLike] | Mapping[str, Any]

MEMBERS = (
    ABDivergence(
        "airm",
        0.0,
        0.0,
        2.0,
        squared_distance=True,
        formula="||log(X^-1/2 Y X^-1/2)||_F^2",
        aliases=("riemann", "affine-invariant", "karcher"),
    ),
    ABDivergence(
        "stein",
        0.5,
        0.5,
        0.25,
        squared_distance=True,
        formula="logdet((X + Y)/2) - logdet(XY)/2",
        aliases=("logdet", "jbld", "s-divergence", "bhattacharyya"),
    ),
    ABDivergence(
        "burg",
        0.0,
        1.0,
        formula="tr(XY^-1) - logdet(XY^-1) - d",
        aliases=("stein-loss", "logdet-bregman"),
    ),
    ABDivergence(
        "reverse-burg",
        1.0,
        0.0,
        formula="tr(YX^-1) - logdet(YX^-1) - d",
        aliases=("burg-right", "reverse-stein-loss"),
    ),
    ABDivergence(
        "kullback",
        0.0,
        1.0,
        0.5,
        formula="KL(N(0, X) || N(0, Y))",
        aliases=("kl", "kullback-leibler"),
    ),
    ABDivergence(
        "kullback-right",
        1.0,
        0.0,
        0.5,
        formula="KL(N(0, Y) || N(0, X))",
        aliases=("reverse-kl", "reverse-kullback"),
    ),
    ABDivergence(
        "jeffreys",
        0.0,
        1.0,
        symmetrized=True,
        formula="tr(XY^-1 + YX^-1)/2 - d",
        aliases=("kullback-sym", "symmetric-kl", "j-divergence"),
    ),
    ABDivergence(
        "log-cosh",
        1.0,
        1.0,
        formula="logdet((XY^-1 + YX^-1)/2)",
        aliases=("iddl-burg", "iddl-b", "paper-burg"),
    ),
)

LOG_EUCLIDEAN = EmbeddedMetric(
    "log-euclidean",
    log_vectors,
    from_log_vectors,
    formula="||log X - log Y||_F^2",
    aliases=("logeuclid",),
)
METRICS = (
    LOG_EUCLIDEAN,
    EmbeddedMetric(
        "euclidean", entries, unvectorize, formula="||X - Y||_F^2", aliases=("euclid", "frobenius")
    ),
    EmbeddedMetric(
        "harmonic", inverse_entries, from_inverse_entries, formula="||X^-1 - Y^-1||_F^2"
    ),
    EmbeddedMetric(
        "cholesky",
        cholesky_vectors,
        from_cholesky_vectors,
        formula="||L_X - L_Y||_F^2, L L^T = X",
        aliases=("chol",),
    ),
    EmbeddedMetric(
        "log-cholesky",
        log_cholesky_vectors,
        from_log_cholesky_vectors,
        formula="cholesky, with logarithms on the diagonals of L",
        aliases=("logchol",),
    ),
    Wasserstein(
        "wasserstein",
        formula="tr(X + Y - 2 (X^1/2 Y X^1/2)^1/2)",
        aliases=("bures", "bures-wasserstein"),
    ),
    FunctionDivergence(
        "thompson",
        squared_thompson,
        squared_distance=True,
        formula="max_i log(lambda_i)^2, lambda the eigenvalues of XY^-1",
    ),
)

DIVERGENCES: dict[str, Divergence] = {entry.name: entry for entry in (*MEMBERS, *METRICS)}
_BY_NAME = {name: entry for entry in DIVERGENCES.values() for name in (entry.name, *entry.aliases)}


def plain_name(name: str) -> str:
    """Spell a name in lower case, with hyphens."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def get_divergence(divergence: DivergenceLike) -> Divergence:
    """Divergence by name, alias or point of the plane, or from functions.

    Parameters
    ----------
    divergence : str, pair of floats, Divergence, dict or callable
        Names are those of `DIVERGENCES` and their aliases, pyRiemann's among them; case, spaces,
        ``_`` and ``-`` do not matter. A pair ``(alpha, beta)`` gives that member, unscaled. A dict
        ``{"mean": ..., "distance": ...}``, as pyRiemann takes it for ``metric``, holds names,
        divergences or functions: ``distance(A, B)`` of matrices A, shape (n, d, d), and B, shape
        (d, d), and ``mean(X, sample_weight=...)``. A callable alone is a distance without a mean.

    Notes
    -----
    The point (1, 1) is called Burg in the paper that introduced learning these parameters. The
    Burg divergence of the literature is (0, 1). Here "burg" is the latter, "log-cosh" the former.

    Examples
    --------
    >>> import numpy as np
    >>> stein = get_divergence("stein")
    >>> stein.alpha, stein.beta, stein.scale
    (0.5, 0.5, 0.25)
    >>> round(float(stein(np.eye(2), 3 * np.eye(2))), 6)
    0.287682
    >>> get_divergence("riemann").name
    'airm'
    >>> get_divergence("wasserstein").mean([[[1.0]], [[9.0]]]).round(6)
    array([[4.]])
    """
    if isinstance(divergence, Divergence):
        return divergence
    if isinstance(divergence, str):
        return _look_up(divergence)
    if isinstance(divergence, Mapping):
        return _pair(divergence)
    if isinstance(divergence, PairByPair):
        return divergence.divergence
    if callable(divergence):
        return FunctionDivergence(_name_of(divergence), divergence)
    try:
        point = as_real(divergence, "divergence")
        if point.shape != (2,):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            f"divergence={divergence!r} must be a name or a pair of finite numbers (alpha, beta)"
        ) from None
    alpha, beta = (float(parameter) for parameter in point)
    return ABDivergence(f"({alpha:g}, {beta:g})", alpha, beta)


def _look_up(name: str) -> Divergence:
    divergence = _BY_NAME.get(plain_name(name))
    if divergence is None:
        raise ValueError(
            f"divergence={name!r} must be one of {_list_names(DIVERGENCES.values())}, or a pair "
            "(alpha, beta)"
        )
    return divergence


def get_member(divergence: DivergenceLike) -> ABDivergence:
    """Return a member of the alpha-beta family; raise for other divergences."""
    member = get_divergence(divergence)
    if not isinstance(member, ABDivergence):
        raise ValueError(
            f"divergence={member.name!r} is not in the alpha-beta family, must be one of "
            f"{_list_names(MEMBERS)}, or a pair (alpha, beta); DivergenceKNN, DivergenceMDM, "
            "DivergenceKernel and Recenter take all divergences, and ABKMeans those of vectors, "
            "such as log-euclidean and euclidean"
        )
    return member


def for_pyriemann(divergence: DivergenceLike) -> dict[str, Callable[..., RealArray]]:
    r"""Mean and distance of a divergence, as pyRiemann's estimators take them for ``metric``.

    Returns
    -------
    dict
        "mean", a function of matrices and ``sample_weight`` that returns the centroid
        :math:`\arg\min_C \sum_i w_i D(X_i \,\|\, C)`, and "distance", a function of matrices.

    Notes
    -----
    pyRiemann's ``pairwise_distance`` asks for one pair of matrices at a time. The function notices
    that, and computes many rows of the table at once.

    Examples
    --------
    >>> import numpy as np
    >>> metric = for_pyriemann("kullback")  # for MDM(metric=metric) and others
    >>> X = np.array([np.eye(2), 3 * np.eye(2)])
    >>> metric["mean"](X, sample_weight=[3, 1])
    array([[1.5, 0. ],
           [0. , 1.5]])
    """
    chosen = get_divergence(divergence)
    return {"mean": chosen.mean, "distance": PairByPair(chosen)}


def _list_names(divergences: Iterable[Divergence]) -> str:
    return ", ".join(name for entry in divergences for name in (entry.name, *entry.aliases))


def _pair(metric: Mapping[str, Any]) -> Divergence:
    if metric.keys() != {"mean", "distance"}:
        raise ValueError(
            f'divergence={dict(metric)!r} must have the keys "mean" and "distance", and no others'
        )
    distance, mean = get_divergence(metric["distance"]), metric["mean"]
    if is_mean(mean) and mean.__self__ == distance:  # as for_pyriemann returns it
        return distance
    if isinstance(mean, Divergence) or not callable(mean):
        mean = get_divergence(mean)
    name = f"{distance.name} with the mean of {_name_of(mean)}"
    return PairedDivergence(name, distance, mean, squared_distance=distance.squared_distance)


def is_mean(function: object) -> bool:
    """Whether a function is the method `mean` of a divergence."""
    owner = getattr(function, "__self__", None)
    return isinstance(owner, Divergence) and function == owner.mean


def _name_of(function: Any) -> str:
    return str(getattr(function, "name", getattr(function, "__name__", type(function).__name__)))
