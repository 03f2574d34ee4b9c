"""Time of one gradient and two objectives, against the dimension and the number of atoms."""

import re
import time
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from divlearn import available_engines, get_engine
from divlearn.datasets import make_wishart_clusters
from paper.cells import Cell, Done, where
from paper.comparison import Claim, Row
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


def measure_gradient(
    nothing: None, ignored: str, *, d: int, n_atoms: int, rounds: int
) -> dict[str, Any]:
    """Measure the processor time of one gradient and two objectives of IDDL-N with a ridge loss.

    On one thread, whichever engine computes other experiments.
    """
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


def _cells(protocol: Protocol) -> list[Cell]:
    sizes = [
        *(("dimension", d, _ATOMS) for d in protocol.gradient_dimensions),
        *(("atoms", _D, n) for n in protocol.gradient_atoms),
    ]
    return [
        Cell(
            ("gradient time", 4),
            "Wishart matrices",
            "",
            "IDDL-N",
            0,
            {"axis": axis, "d": d, "atoms": n_atoms, "rounds": protocol.rounds},
            partial(measure_gradient, d=d, n_atoms=n_atoms, rounds=protocol.rounds),
        )
        for axis, d, n_atoms in sizes
    ]


def _rows(done: Done) -> list[Row]:
    return [
        Row(f"d = {one['d']}, {one['atoms']} atoms", "ms", 1e3 * one["seconds"], decimals=2)
        for one in done
    ]


def _claims(rows: list[Row]) -> list[Claim]:
    claims = []
    sizes = {row.row: [int(number) for number in re.findall(r"\d+", row.row)] for row in rows}
    for place, said, claim in (
        (0, 2, "a gradient takes time quadratic in d"),
        (1, 1, "and linear in the number of atoms"),
    ):
        fixed = (_D, _ATOMS)[1 - place]
        times = {
            sizes[row.row][place]: row.value
            for row in rows
            if sizes[row.row][1 - place] == fixed and row.value is not None
        }
        if len(times) > 1:
            larger = sorted(times.items())[len(times) // 2 - 1 :]  # overheads hide small ones
            x, y = np.log(larger).T
            power = float(np.polyfit(x, y, 1)[0])
            here = f"power {power:.1f} over the larger sizes"
            claims.append(Claim(claim, "synthetic", abs(power - said) <= 0.5, here, f"{said}"))
    return claims


def _effort(protocol: Protocol) -> str:
    return (
        f"{_CLASSES * _PER_CLASS} synthetic matrices; {_ATOMS} atoms where d grows, d = {_D} where "
        f"atoms do; the fastest of {protocol.rounds} rounds, processor time on one thread of the "
        "machine of the run"
    )


def _draw(figure: Any, done: Done) -> None:
    for ax, (axis, setting) in zip(figure.subplots(1, 2), _AXES.items(), strict=True):
        here = where(done, axis=axis)
        ax.plot([one[setting] for one in here], [one["seconds"] for one in here], marker="o")
        ax.set(xlabel=setting, ylabel="seconds", xscale="log", yscale="log")


GRADIENT_TIME = Experiment(
    name="gradient-time",
    title="Time of one gradient and two objectives",
    unit="milliseconds",
    where='Figure "Time taken for one gradient computation and two objective evaluations"',
    cells=_cells,
    rows=_rows,
    claims=_claims,
    effort=_effort,
    draw=_draw,
    timed=True,
)
