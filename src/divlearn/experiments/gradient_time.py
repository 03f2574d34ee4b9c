"""Time of one gradient and two objectives, against the dimension and the number of atoms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from divlearn.datasets import make_wishart_clusters
from divlearn.engines import cpu_engine
from divlearn.experiments.cells import Cell, Outcome, Outcomes, Task
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.shelf import Shelf
from divlearn.iddl.features import FeatureMap
from divlearn.iddl.losses import RidgeLoss
from divlearn.iddl.objective import Dictionary, Objective
from divlearn.iddl.variants import make_variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["GradientTime", "measure_gradient"]

TASK = Task("gradient time", 3)
_CLASSES, _PER_CLASS = 10, 20
_ATOMS, _D = 20, 20  # where the other one grows
_DIMENSION, _DICTIONARY = "dimension", "atoms"


def measure_gradient(d: int, n_atoms: int, rounds: int) -> Outcome:
    """Time one gradient and two evaluations of the ridge objective, of IDDL-N on synthetic data.

    Parameters
    ----------
    d, n_atoms : int
    rounds : int
        The fastest of as many counts, which a busy machine disturbs the least.

    Returns
    -------
    Outcome
        "seconds" of processor time.
    """
    X, y = make_wishart_clusters(_CLASSES, _PER_CLASS, d, random_state=0)
    engine = cpu_engine(n_threads=1)
    variant = make_variant("N", n_atoms, [(1.0, 1.0)])
    weights, targets = np.full(len(X), 1 / len(X)), np.eye(_CLASSES)[y]
    atoms = X[np.random.default_rng(0).choice(len(X), n_atoms, replace=n_atoms > len(X))]
    objective = Objective(
        engine, engine.prepare(X), targets, weights, variant, FeatureMap(), RidgeLoss(), 1e-3
    )
    point = Dictionary(np.linalg.cholesky(atoms), variant.start)
    objective.trial(point)  # so that nothing is done for the first time below
    seconds = []
    for _ in range(rounds):
        started = time.process_time()  # which waits for no other process
        objective.trial(point)
        objective.gradient(objective.trial(point))
        seconds.append(time.process_time() - started)
    return {"seconds": min(seconds)}


class GradientTime(Experiment):
    """How the time of a step grows."""

    name = "gradient-time"
    title = "Time of one gradient and two objectives"
    where = 'Figure "Time taken for one gradient computation and two objective evaluations"'
    unit = "milliseconds"
    timed = True

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        sizes = [
            *((_DIMENSION, d, _ATOMS) for d in protocol.gradient_dimensions),
            *((_DICTIONARY, _D, n) for n in protocol.gradient_atoms),
        ]
        return [self._cell(axis, d, n, protocol.rounds) for axis, d, n in sizes]

    def _cell(self, axis: str, d: int, n_atoms: int, rounds: int) -> Cell:
        settings = {"axis": axis, "d": d, "atoms": n_atoms, "rounds": rounds}
        return Cell(
            TASK, "Wishart matrices", "wishart 1", "IDDL-N", 0, settings,
            lambda: measure_gradient(d, n_atoms, rounds),
        )  # fmt: skip

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        return [
            Row(f"d = {cell.settings['d']}, {cell.settings['atoms']} atoms", "ms",
                1e3 * outcome["seconds"], decimals=2)
            for cell, outcome in done
        ]  # fmt: skip

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        told = []
        for axis, setting, claim in (
            (_DIMENSION, "d", "quadratic in the dimension"),
            (_DICTIONARY, "atoms", "linear in the number of atoms"),
        ):
            here = done.where(axis=axis)
            sizes, seconds = here.settings(setting), here.values("seconds")
            if len(sizes) > 1:
                half = len(sizes) // 2  # of small ones overheads hide the growth
                x, y = np.log(sizes[half - 1 :]), np.log(seconds[half - 1 :])
                power = np.polyfit(x, y, 1)[0]
                told.append(
                    f"The paper: seemingly {claim}. Here the time grows like the power "
                    f"{power:.1f} of it over the larger sizes."
                )
        return told

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        return (
            f"{_CLASSES * _PER_CLASS} synthetic matrices; {_ATOMS} atoms where d grows, d = {_D} "
            f"where atoms do; the fastest of {protocol.rounds} rounds, processor time on one "
            "thread of the machine of the run"
        )

    def draw(self, figure: Figure, done: Outcomes) -> None:
        """See `Experiment.draw`."""
        axes = figure.subplots(1, 2)
        pairs = ((_DIMENSION, "d"), (_DICTIONARY, "atoms"))
        for ax, (axis, setting) in zip(axes, pairs, strict=True):
            here = done.where(axis=axis)
            ax.plot(here.settings(setting), here.values("seconds"), marker="o")
            ax.set(xlabel=setting, ylabel="seconds", xscale="log", yscale="log")
