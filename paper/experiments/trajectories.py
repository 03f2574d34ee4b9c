"""Where alpha and beta of IDDL-S go from several starts."""

import warnings
from functools import partial
from typing import Any

import numpy as np

from divlearn import LogEuclideanKMeans
from divlearn.datasets import Dataset
from paper.cells import Cell, Done
from paper.classification import make_split
from paper.comparison import Claim, Row, figures_of, names_of
from paper.experiment import Experiment, data_cell
from paper.methods import make_iddl
from paper.protocol import Limits, Protocol

_ATOMS, _GAMMA = 15, 1e-3


def follow(
    dataset: Dataset,
    engine: str,
    *,
    limits: Limits,
    start: tuple[float, float],
    n_atoms: int,
    iterations: int,
) -> dict[str, Any]:
    """Descend as the paper does; returns alpha, beta and the objective after every iteration.

    The history of a fit has no accuracies. Fits of fewer iterations have them, and since they are
    the first part of the same descent, a few of them show how the training accuracy grows.
    """
    train, _ = make_split(dataset, 0, limits)
    X, y = dataset.matrices[train], dataset.labels[train]
    atoms = LogEuclideanKMeans(n_atoms, n_init=1, random_state=0).fit(X).cluster_centers_
    given = {"n_atoms": n_atoms, "init": atoms, "gamma": _GAMMA, "random_state": 0}
    model = make_iddl("S", "ridge", engine, start=start, **given)
    stops = sorted({0, iterations // 4, iterations // 2, iterations})
    accuracy = []
    for stop in stops:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            accuracy.append(model.set_params(max_iter=stop).fit(X, y).score(X, y))
    history = model.history_
    whole = np.isin(history["block"], ("start", "head"))
    return {
        "alpha": history["alpha"][whole, 0, 0],
        "beta": history["beta"][whole, 0, 0],
        "objective": history["objective"][whole],
        "stops": stops,
        "train_accuracy": accuracy,
    }


def _cells(protocol: Protocol) -> list[Cell]:
    cells, limits, iterations = [], protocol.limit("virus"), protocol.trajectory_iterations
    for start in protocol.starts:
        compute = partial(follow, limits=limits, start=start, n_atoms=_ATOMS, iterations=iterations)
        settings = {
            "atoms": _ATOMS,
            "iterations": iterations,
            "gamma": _GAMMA,
            "start": f"({start[0]:g}, {start[1]:g})",
        }
        cells.append(data_cell(("trajectory", 3), "virus", "IDDL-S", 0, settings, limits, compute))
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


def _claims(rows: list[Row]) -> list[Claim]:
    found = {name: figures_of(rows, name) for name in names_of(rows)}
    if len(found) < 2:
        return []
    ends = np.array([(one["alpha"], one["beta"]) for one in found.values()])
    objectives = {name: one["objective"] for name, one in found.items()}
    least, most = (choose(objectives, key=objectives.__getitem__) for choose in (min, max))
    apart = float(np.linalg.norm(ends[:, None] - ends, axis=-1).max())
    spread = objectives[most] / objectives[least] - 1
    here = f"ends {apart:.2f} apart, objectives differ by {100 * spread:.0f} %"
    return [
        Claim(
            "starts lead to other alpha, beta and like objectives",
            "Virus",
            apart > 0.1 and spread < 0.1,
            here,
        ),
        Claim(
            "and (1, 1) to a slightly better one",
            "Virus",
            least == "start (1, 1)",
            f"the best is {least} with {objectives[least]:.4f}",
        ),
    ]


def _effort(protocol: Protocol) -> str:
    return (
        f"{protocol.trajectory_iterations} iterations of block-coordinate descent, {_ATOMS} atoms, "
        f"gamma = {_GAMMA:g}, the first split"
    )


def _draw(figure: Any, done: Done) -> None:
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
    name="trajectories",
    title="Trajectories of alpha and beta (IDDL-S)",
    where='Figure "Trajectory of alpha and beta over BCD iterations"',
    unit="parameters, objective, training accuracy in %",
    cells=_cells,
    rows=_rows,
    claims=_claims,
    effort=_effort,
    draw=_draw,
)
