"""Fields of metrics: several divergences that are added up, each to means of its own."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.divergence import ABDivergence, Divergence, get_divergence
from divlearn.engines import Engine, Prepared
from divlearn.fitting.calibration import fit_temperature
from divlearn.fitting.labelled import Labelled
from divlearn.hermitian import is_complex
from divlearn.nearest.search import typical


def is_sequence(divergence: Any) -> bool:
    """Tell several divergences from one, such as a pair of numbers."""
    listed = isinstance(divergence, list | tuple | np.ndarray)
    return listed and not (len(divergence) and all(isinstance(one, Real) for one in divergence))


def known_field(divergences: Any) -> list[Divergence]:
    """Return divergences by their names; raise where two are the same up to a factor."""
    field = [get_divergence(one) for one in divergences]
    points = [_without_scale(one) for one in field]
    twice = [one for one, at in zip(divergences, points, strict=True) if points.count(at) > 1]
    if twice or not field:
        raise ValueError(
            f"divergence={divergences!r} must hold one divergence, or several that differ by more "
            f"than a factor; {f'leave out all but one of {twice}' if twice else 'name one'}"
        )
    return field


def _without_scale(divergence: Divergence) -> Any:
    if isinstance(divergence, ABDivergence):
        return divergence.alpha, divergence.beta, divergence.symmetrized
    return divergence


def measure_field(
    matrices: RealArray, field: list[Divergence], means: RealArray, engine: Engine
) -> RealArray:
    """Divergences (n_divergences, n_matrices, n_classes) in their usual form."""
    prepared = engine.prepare(Prepared.checked(matrices))
    # Complex means are given their real form with each table, which halves the divergences.
    known = means if is_complex(means) else map(Prepared.checked, means)
    pairs = zip(field, known, strict=True)
    return np.stack([one.pairwise(prepared, some, engine=engine) for one, some in pairs])


def balance(data: Labelled, field: list[Divergence], means: RealArray, engine: Engine) -> RealArray:
    """Weights of divergences, each as if it were alone, so that none outweighs the others."""
    scales = []
    for table in measure_field(data.matrices, field, means, engine):
        unit = typical(table)
        shares = data.weights / data.weights.sum()
        scales.append(1 / (unit * fit_temperature(-table / unit, data.codes, shares)[0]))
    return np.array(scales) / len(field)
