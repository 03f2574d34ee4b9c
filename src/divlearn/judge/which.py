"""The divergence to use: by held-out accuracy with labels, by likelihood without."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import Indices, RealArray
from divlearn.checks import RandomState, check_count
from divlearn.engines import Engine, get_engine
from divlearn.fitting.interrupts import stoppable
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.progress import print_progress, track
from divlearn.fitting.selection import mean_with_error
from divlearn.hermitian import real_form
from divlearn.judge import maps
from divlearn.judge.answer import NamedScore, WhichDivergence, say_how_many
from divlearn.judge.by_accuracy import judge_by_accuracy
from divlearn.likelihood import fit_likelihood, fit_member
from divlearn.likelihood.normalizer import solve_kappa
from divlearn.means import mean_abld
from divlearn.nearest.plane import NAMED, NAMED_POINTS
from divlearn.spd import check_spd
from divlearn.tolerances import LEARNING_ACCURACY

_LIKELIHOOD_GRID = np.arange(9) / 4  # coarser than for 1-NN: a centre is computed at each point
_MAP_TOLERANCE = 1e-5  # of centres and divergences; the error of the likelihood is its square


def which_divergence(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    cv: int = 5,
    alphas: ArrayLike | None = None,
    betas: ArrayLike | None = None,
    engine: str | Engine = "auto",
    random_state: RandomState = None,
    regularize: str | float = "raise",
    verbose: int = 0,
) -> WhichDivergence:
    """Find the divergence of the (alpha, beta) plane that suits these matrices.

    By held-out accuracy with labels, by likelihood without; see `WhichDivergence`.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
    y : array-like, shape (n_matrices,), optional, labels of >= 2 classes of >= 2 matrices or groups
    groups : array-like, shape (n_matrices,), optional
        Matrices of one group, such as the trials of a person, are held out together and are not
        neighbours of each other. Must be None without labels, where nothing is held out.
    cv : int, default=5, largest number of folds, as in `evaluate`; not used without labels.
    alphas, betas : array-like, shape (n_alphas,) and (n_betas,), optional
        The grid, ascending and >= 0. From 0 to 2 by default, in steps of 1/8 with labels and of 1/4
        without. Named divergences are always compared, even if they are not on the grid.
    engine : str or Engine, default="auto"
    random_state, regularize, verbose : as in `evaluate`

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    >>> print(which_divergence(X, y, random_state=0).summary())
    Use the nearest mean in airm, stein, burg or log-cosh: ...
    """
    with print_progress("which_divergence", verbose):
        default = _LIKELIHOOD_GRID if y is None else None
        axes = _check_axis(alphas, "alphas", default), _check_axis(betas, "betas", default)
        if y is None:
            if groups is not None:
                raise ValueError(
                    "groups must be None without labels: the likelihood holds nothing out; leave "
                    "out groups, or pass y"
                )
            matrices = check_spd(X, regularize=regularize, ndim=3)
            return _by_likelihood(matrices, *axes, get_engine(engine))
        matrices = check_spd(real_form(X), regularize=regularize, ndim=3)
        data, units = maps.label_units(matrices, y, groups)
        folds = _draw_folds(data, check_count(cv, "cv", least=2), random_state)
        engine = get_engine(engine, accuracy=LEARNING_ACCURACY)
        return judge_by_accuracy(matrices, data.codes, folds, units, *axes, engine)


def _draw_folds(data: Labelled, cv: int, random_state: RandomState) -> Indices:
    """Return the fold that holds out each matrix."""
    data.require_two("drop the class, or pass more of it")
    folds = np.empty(len(data.codes), dtype=np.intp)
    for fold, (_, held_out) in enumerate(data.folds(cv, random_state)):
        folds[held_out] = fold
    return folds


def _check_axis(values: ArrayLike | None, name: str, default: RealArray | None) -> RealArray:
    axis = maps.check_axis(default if values is None else values, name)
    if axis[0] < 0:
        raise ValueError(
            f"{name} starts at {axis[0]:g}, must be >= 0; D^(-a,-b) = D^(b,a), so the positive "
            "quadrant contains every divergence of the negative one"
        )
    return axis


def _by_likelihood(
    matrices: RealArray, alphas: RealArray, betas: RealArray, engine: Engine
) -> WhichDivergence:
    fit = fit_likelihood(matrices, engine=engine)
    data = engine.prepare(matrices.astype(np.float64, copy=False))
    fitted, n = fit.log_density(data, engine=engine), len(matrices)
    named, densities = {}, {}
    for name, (alpha, beta) in zip(NAMED, NAMED_POINTS.tolist(), strict=True):
        member = fit_member(data, alpha, beta, init=fit.center, engine=engine)
        densities[name] = member.log_density(data, engine=engine)
        gain, error = mean_with_error(fitted - densities[name])
        p_value = math.exp(-n * max(gain, 0.0))  # 2 n gain is chi-squared with two degrees
        bic = 2 * n * gain - 2 * math.log(n)
        named[name] = NamedScore(alpha, beta, member.log_likelihood, gain, error, p_value, bic)
    top = max(row.score for row in named.values())
    first = next(name for name in named if math.isclose(named[name].score, top))  # `best_named`
    second = max((name for name in named if name != first), key=lambda name: named[name].score)
    surface = np.full((len(alphas), len(betas)), np.nan)
    # A rough centre is accurate enough, because it maximizes the likelihood. Every second row
    # runs backwards, so that each point starts from the centre of an adjacent one.
    center, volume = fit.center, 0.5 * (data.d + 1) * np.linalg.slogdet(data.matrices)[1].mean()
    with stoppable():  # an interrupt leaves NaN in the map, and the answer as it is
        for row, step in track(list(np.ndindex(surface.shape)), "points of the map"):
            column = -1 - step if row % 2 else step
            point = float(alphas[row]), float(betas[column])
            fit_mean = mean_abld(data, *point, init=center, tol=_MAP_TOLERANCE, engine=engine)
            center, spread = fit_mean.mean, fit_mean.objective
            kappa, (log_z, _) = solve_kappa(*point, spread, data.d, rtol=_MAP_TOLERANCE)
            surface[row, column] = -kappa * spread - log_z - volume
    n_computed = int(np.isfinite(surface).sum())
    return WhichDivergence(
        criterion="likelihood",
        best=(fit.alpha, fit.beta),
        score=fit.log_likelihood,
        named=named,
        runner_up=(second, *mean_with_error(densities[first] - densities[second])),
        alphas=alphas,
        betas=betas,
        map=surface,
        n_matrices=n,
        message=say_how_many(n_computed, surface.size, "points", "of the map computed"),
    )
