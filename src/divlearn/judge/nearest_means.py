"""Nearest class means on held-out folds, with exact means in every divergence."""

from itertools import combinations_with_replacement

import numpy as np

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.engines import Engine, Prepared
from divlearn.fitting.progress import track
from divlearn.judge.maps import Point
from divlearn.means import arithmetic_mean, harmonic_mean, mean_abld, search_mean
from divlearn.nearest.plane import Flags
from divlearn.sharded.blocks import engine_for
from divlearn.threads import limit_blas

_TOLERANCE, _ROUGH = 1e-5, 1e-3  # of gradients at means, and at that of all, where searches start
_STEPS = 200
_CLOSED = {(0.0, 1.0): arithmetic_mean, (1.0, 0.0): harmonic_mean}


def judge_means(
    matrices: RealArray, codes: Indices, folds: Indices, points: RealArray, engine: Engine
) -> Flags:
    """Tell whether the nearest mean has the same class, leaving out each fold in turn."""
    # Returned are flags (n_folds, n_points, n_matrices), those of a matrix by means without the
    # left-out fold and without its own.
    flags = []
    with limit_blas(1):  # threads would cost more than these matrices
        for alpha, beta in track(points.tolist(), "divergences of means"):
            flags.append(_judge_point(matrices, codes, folds, (alpha, beta), engine))
    return np.stack(flags, axis=1)


def _judge_point(
    matrices: RealArray, codes: Indices, folds: Indices, point: Point, engine: Engine
) -> Flags:
    n_folds, n_classes = int(folds.max()) + 1, int(codes.max()) + 1
    left_out = np.array(list(combinations_with_replacement(range(n_folds), 2)))
    kept = (folds != left_out[:, :, None]).all(axis=1)
    # A class of which nothing is kept has no mean, and is never the nearest.
    means: list[dict[int, RealArray]] = [{} for _ in left_out]
    for code in range(n_classes):
        own = codes == code
        parts = np.flatnonzero(kept[:, own].any(axis=1))
        found = _find_means(matrices[own], kept[np.ix_(parts, own)], point, engine)
        for part, mean in zip(parts.tolist(), found, strict=True):
            means[part][code] = mean
    correct = np.zeros((n_folds, len(matrices)), dtype=np.bool_)
    for part, (one, other) in enumerate(left_out.tolist()):
        if not means[part]:
            continue
        held = np.flatnonzero(~kept[part])
        atoms = Prepared.checked(np.stack(list(means[part].values())))
        table = engine.encode(Prepared.checked(matrices[held]), atoms, *point)
        right = np.array(list(means[part]))[table.argmin(axis=1)] == codes[held]
        for mine, left in ((one, other), (other, one)):
            rows = folds[held] == mine
            correct[left, held[rows]] = right[rows]
    return correct


def _find_means(matrices: RealArray, kept: Flags, point: Point, engine: Engine) -> RealArray:
    """Find the means of parts of a class, kept (n_parts, n_matrices), all at once."""
    shares = (kept / kept.sum(axis=1, keepdims=True)).T
    if point in _CLOSED:
        return np.stack([_CLOSED[point](matrices, part) for part in shares.T])
    data = engine.keep(Prepared.checked(matrices))
    start = mean_abld(data, *point, tol=_ROUGH, engine=engine).mean
    searches = [search_mean(*point, start, _TOLERANCE, _STEPS) for _ in kept]
    means = np.empty((len(kept), *start.shape))
    suited = engine_for(engine, kept.size, data.d)
    with np.errstate(over="ignore", invalid="ignore"):  # steps that go too far are not taken
        trials = {part: next(search) for part, search in enumerate(searches)}
        while trials:
            asked, weights = list(trials), shares[:, list(trials)]
            back = suited.pullback(
                data,
                np.stack(list(trials.values())),
                *point,
                weights,
                parameters=False,
                values=True,
            )
            values = (weights * to_host(back.values)).sum(axis=0)
            for part, value, slope in zip(asked, values, -to_host(back.whitened), strict=True):
                try:
                    trials[part] = searches[part].send((float(value), slope))
                except StopIteration as end:
                    means[part] = end.value.mean
                    del trials[part]
    return means
