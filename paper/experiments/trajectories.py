"""Where alpha and beta of IDDL-S go from several starts."""

import warnings
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from divlearn import LogEuclideanKMeans
from divlearn.datasets import Dataset
from paper.cache import Cell, Done
from paper.classification import make_split
from paper.comparison import Row, clauses
from paper.data import Data
from paper.experiment import Experiment, data_cell, say_limits
from paper.methods import make_iddl
from paper.protocol import Limits, Protocol

_ATOMS, _GAMMA = 15, 1e-3


def follow(
    dataset: Dataset, limits: Limits, start: tuple[float, float], n_atoms: int, iterations: int
) -> dict[str, Any]:
    """Descend as the paper does; returns alpha, beta and the objective after every iteration.

    The history of a fit has no accuracies. Fits of fewer iterations have them, and since they are
    the first part of the same descent, a few of them show how the training accuracy grows.
    """
    train, _ = make_split(dataset, 0, limits)
    X, y = dataset.matrices[train], dataset.labels[train]
    atoms = LogEuclideanKMeans(n_atoms, n_init=1, random_state=0).fit(X).cluster_centers_
    model = make_iddl("S", start=start).set_params(
        n_atoms=n_atoms, init=atoms, gamma=_GAMMA, random_state=0
    )
    stops = sorted({0, iterations // 4, iterations // 2, iterations})
    accuracy = []
    for stop in stops:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            accuracy.append(model.set_params(max_iter=stop).fit(X, y).score(X, y))
    history = model.history_
    whole = np.isin(history["block"], ("start", "head"))
    return {
        "alpha": history["alpha"][whole, 0, 0], "beta": history["beta"][whole, 0, 0],
        "objective": history["objective"][whole], "stops": stops, "train_accuracy": accuracy,
    }  # fmt: skip


def _cells(data: Data, protocol: Protocol) -> list[Cell]:
    cells, limits, iterations = [], protocol.limit("virus"), protocol.trajectory_iterations
    for start in protocol.starts if "virus" in data else ():
        compute = partial(follow, data["virus"], limits, start, _ATOMS, iterations)
        settings = {
            "atoms": _ATOMS, "iterations": iterations, "gamma": _GAMMA,
            "start": f"({start[0]:g}, {start[1]:g})",
        }  # fmt: skip
        cells.append(
            data_cell(("trajectory", 3), data, "virus", "IDDL-S", 0, settings, limits, compute)
        )
    return cells


def _rows(done: Done) -> list[Row]:
    rows = []
    for one in done:
        name = f"start {one['start']}"
        rows += [
            Row(name, "alpha", one["alpha"][-1], decimals=3),
            Row(name, "beta", one["beta"][-1], decimals=3),
            Row(name, "objective", one["objective"][-1], decimals=4),
            Row(name, "training accuracy, %", 100 * one["train_accuracy"][-1]),
        ]
    return rows


def _claims(rows: list[Row], done: Done) -> list[str]:
    if len(done) < 2:
        return []
    ends = np.array([(one["alpha"][-1], one["beta"][-1]) for one in done])
    objectives = np.array([one["objective"][-1] for one in done])
    apart = float(np.linalg.norm(ends[:, None] - ends, axis=-1).max())
    spread = float(np.ptp(objectives) / objectives.min())
    best = done[int(objectives.argmin())]["start"]
    return [
        "The paper: different starts lead to different points with similar objectives, slightly "
        f"better from (1, 1). Here the ends are up to {apart:.2f} apart, the largest objective is "
        f"{100 * spread:.0f} % above the smallest, which is reached from {best}."
    ]


def _effort(protocol: Protocol) -> str:
    return clauses(
        f"{protocol.trajectory_iterations} iterations of block-coordinate descent, {_ATOMS} atoms, "
        f"gamma = {_GAMMA:g}, the first split",
        say_limits(protocol, ["virus"]),
    )


def _draw(figure: Figure, done: Done) -> None:
    plane, objective, accuracy = figure.subplots(1, 3)
    for one in done:
        (line,) = plane.plot(one["alpha"], one["beta"], marker=".", label=one["start"])
        color = line.get_color()
        plane.plot(one["alpha"][-1], one["beta"][-1], "*", color=color, ms=12)
        objective.plot(one["objective"], color=color)
        percent = 100 * np.array(one["train_accuracy"])
        accuracy.plot(one["stops"], percent, color=color, marker="o")
    plane.set(xlabel=r"$\alpha$", ylabel=r"$\beta$")
    plane.legend(title="start")
    objective.set(xlabel="iterations", ylabel="objective")
    accuracy.set(xlabel="iterations", ylabel="training accuracy, %")


TRAJECTORIES = Experiment(
    name="trajectories", title="Trajectories of alpha and beta (IDDL-S)",
    where='Figure "Trajectory of alpha and beta over BCD iterations"',
    unit="parameters, objective, training accuracy in %", sources=("virus",), cells=_cells,
    rows=_rows, claims=_claims, effort=_effort, draw=_draw,
)  # fmt: skip
