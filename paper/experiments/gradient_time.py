"""Time of one gradient and two objectives, against the dimension and the number of atoms."""

import time
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from divlearn import available_engines, get_engine
from divlearn.datasets import make_wishart_clusters
from paper.cache import Cell, Done, where
from paper.comparison import Row
from paper.data import Data
from paper.experiment import Experiment
from paper.protocol import Protocol

_CLASSES, _PER_CLASS = 10, 20
_ATOMS, _D = 20, 20  # where the other one grows
_GAMMA = 1e-3
_AXES = {"dimension": "d", "atoms": "atoms"}  # and the settings along them


def ridge_slopes(V: np.ndarray, targets: np.ndarray) -> np.ndarray:
    r"""Fit a ridge head with bias to divergences; returns the gradient of the objective in them.

    The objective is :math:`\frac{1}{2n} \sum_i \|h_i - W v_i - b\|^2 + \gamma \|W\|^2` at the best
    W and b, hence its gradient is the partial one.
    """
    n = len(V)
    centred, wanted = V - V.mean(axis=0), targets - targets.mean(axis=0)
    gram = centred.T @ centred / n + 2 * _GAMMA * np.eye(V.shape[1])
    W = np.linalg.solve(gram, centred.T @ wanted / n)
    slopes: np.ndarray = -(wanted - centred @ W) @ W.T / n
    return slopes


def measure_gradient(d: int, n_atoms: int, rounds: int) -> dict[str, Any]:
    """Measure the processor time of one gradient and two objectives of IDDL-N with a ridge loss."""
    X, y = make_wishart_clusters(_CLASSES, _PER_CLASS, d, random_state=0)
    engine = get_engine(available_engines()[0], n_threads=1)
    data, targets, ones = engine.prepare(X), np.eye(_CLASSES)[y], np.ones(n_atoms)
    atoms = X[np.random.default_rng(0).choice(len(X), n_atoms, replace=n_atoms > len(X))]

    def objective() -> np.ndarray:
        return ridge_slopes(engine.encode(data, atoms, ones, ones), targets)

    seconds = []
    with threadpool_limits(1):
        objective()  # so that nothing is done for the first time below
        for _ in range(rounds):
            started = time.process_time()  # other processes do not count
            objective()
            engine.pullback(data, atoms, ones, ones, objective())
            seconds.append(time.process_time() - started)
    return {"seconds": min(seconds)}


def _cells(data: Data, protocol: Protocol) -> list[Cell]:
    sizes = [
        *(("dimension", d, _ATOMS) for d in protocol.gradient_dimensions),
        *(("atoms", _D, n) for n in protocol.gradient_atoms),
    ]
    return [
        Cell(("gradient time", 4), "Wishart matrices", "wishart 1", "IDDL-N", 0,
             {"axis": axis, "d": d, "atoms": n_atoms, "rounds": protocol.rounds},
             partial(measure_gradient, d, n_atoms, protocol.rounds))
        for axis, d, n_atoms in sizes
    ]  # fmt: skip


def _rows(done: Done) -> list[Row]:
    return [
        Row(f"d = {one['d']}, {one['atoms']} atoms", "ms", 1e3 * one["seconds"], decimals=2)
        for one in done
    ]


def _claims(rows: list[Row], done: Done) -> list[str]:
    told = []
    for (axis, setting), claim in zip(
        _AXES.items(), ("quadratic in the dimension", "linear in the number of atoms"), strict=True
    ):
        here = where(done, axis=axis)
        if len(here) > 1:
            larger = here[len(here) // 2 - 1 :]  # overheads hide the growth of small ones
            x, y = (np.log([one[name] for one in larger]) for name in (setting, "seconds"))
            told.append(
                f"The paper: seemingly {claim}. Here the time grows like the power "
                f"{np.polyfit(x, y, 1)[0]:.1f} of it over the larger sizes."
            )
    return told


def _effort(protocol: Protocol) -> str:
    return (
        f"{_CLASSES * _PER_CLASS} synthetic matrices; {_ATOMS} atoms where d grows, d = {_D} where "
        f"atoms do; the fastest of {protocol.rounds} rounds, processor time on one thread of the "
        "machine of the run"
    )


def _draw(figure: Figure, done: Done) -> None:
    for ax, (axis, setting) in zip(figure.subplots(1, 2), _AXES.items(), strict=True):
        here = where(done, axis=axis)
        ax.plot([one[setting] for one in here], [one["seconds"] for one in here], marker="o")
        ax.set(xlabel=setting, ylabel="seconds", xscale="log", yscale="log")


GRADIENT_TIME = Experiment(
    name="gradient-time", title="Time of one gradient and two objectives", unit="milliseconds",
    where='Figure "Time taken for one gradient computation and two objective evaluations"',
    cells=_cells, rows=_rows, claims=_claims, effort=_effort, draw=_draw, timed=True,
)  # fmt: skip
