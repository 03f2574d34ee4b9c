"""Accuracy over the (alpha, beta) plane, with a dictionary that is not learned."""

from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from divlearn import LogEuclideanKMeans, divergence_plane
from divlearn.datasets import Dataset
from paper.cells import Cell, Done
from paper.classification import make_split
from paper.comparison import Claim, Row, figures_of, names_of, share_error
from paper.data import SOURCES
from paper.experiment import Experiment, data_cell
from paper.protocol import Limits, Protocol

_ATOMS = {"kth": 22, "virus": 30, "kth-images": 22}
_LARGEST = 2.0
_GAMMAS, _FOLDS = (1e-1, 1e-2, 1e-3, 1e-4), 4  # penalties, and folds to choose one by
_NAMED = {"AIRM": 0.0, "JBLD": 0.5, '"Burg" (1, 1)': 1.0}  # alpha = beta


def map_accuracy(
    dataset: Dataset, engine: str, *, limits: Limits, n_atoms: int, step: float
) -> dict[str, Any]:
    """Compute the test accuracy of the paper's ridge head at every point of a grid."""
    train, test = make_split(dataset, 0, limits)
    X, y = dataset.matrices, dataset.labels
    classes, codes = np.unique(y[train], return_inverse=True)
    truth = np.searchsorted(classes, y[test])
    atoms = LogEuclideanKMeans(n_atoms, n_init=1, random_state=0).fit(X[train]).cluster_centers_
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    parts = list(folds.split(codes, codes))
    grid = np.arange(0, _LARGEST + step / 2, step)
    V, W = (divergence_plane(X[rows], atoms, grid, grid) for rows in (train, test))
    accuracy = np.empty((len(grid), len(grid)))
    for i, j in np.ndindex(accuracy.shape):
        v, w = V[:, :, i, j], W[:, :, i, j]
        scores = [
            sum(count_right(v[a], codes[a], v[b], codes[b], gamma) for a, b in parts)
            for gamma in _GAMMAS
        ]
        best = _GAMMAS[int(np.argmax(scores))]
        accuracy[i, j] = count_right(v, codes, w, truth, best) / len(truth)
    return {"grid": grid, "accuracy": accuracy, "n_test": len(truth)}


def count_right(
    V: np.ndarray, codes: np.ndarray, W: np.ndarray, truth: np.ndarray, gamma: float
) -> int:
    """Count the rows of W that a ridge head fitted to V puts into the right class."""
    penalty = 2 * gamma * len(V) * np.eye(V.shape[1])
    head = np.linalg.solve(V.T @ V + penalty, V.T @ np.eye(codes.max() + 1)[codes])
    return int(((W @ head).argmax(axis=1) == truth).sum())


def _cells(protocol: Protocol) -> list[Cell]:
    cells = []
    for source, n_atoms in _ATOMS.items():
        limits, step = protocol.limit(source), protocol.plane_step
        compute = partial(map_accuracy, limits=limits, n_atoms=n_atoms, step=step)
        settings = {"atoms": n_atoms, "step": step}
        cells.append(data_cell(("plane", 1), source, "ridge", 0, settings, limits, compute))
    return cells


def _rows(done: Done) -> list[Row]:
    rows = []
    for one in done:
        accuracy, grid = np.array(one["accuracy"]), np.array(one["grid"])
        diagonal = accuracy.diagonal()
        figures = {name: diagonal[np.abs(grid - at).argmin()] for name, at in _NAMED.items()}
        figures |= {"highest": accuracy.max(), "lowest": accuracy.min()}
        rows += [
            Row(one["data"], name, 100 * value, 100 * share_error(value, one["n_test"]))
            for name, value in figures.items()
        ]
    return rows


def _claims(rows: list[Row]) -> list[Claim]:
    claims = []
    for data in names_of(rows):
        found = figures_of(rows, data)
        error = max(row.error or 0.0 for row in rows if row.row == data)
        here = "highest {highest:.1f}, lowest {lowest:.1f}".format(**found)
        varies = found["highest"] - found["lowest"] > 2 * error
        claims.append(Claim("the accuracy varies with alpha and beta", data, varies, here))
    return claims


def _effort(protocol: Protocol) -> str:
    atoms = ", ".join(f"{SOURCES[key].title} {n}" for key, n in _ATOMS.items())
    return (
        f"Atoms from log-Euclidean k-means, not learned ({atoms}); the ridge head is fitted at "
        f"every point of a grid of step {protocol.plane_step:g}; the first split"
    )


def _draw(figure: Any, done: Done) -> None:
    axes = figure.subplots(1, len(done), squeeze=False)[0]
    for ax, one in zip(axes, done, strict=True):
        percent = 100 * np.array(one["accuracy"])
        image = ax.pcolormesh(one["grid"], one["grid"], percent.T, cmap="cividis")
        figure.colorbar(image, ax=ax, label="test accuracy, %")
        ax.set(title=one["data"], xlabel=r"$\alpha$", ylabel=r"$\beta$", box_aspect=1)


HEAT_MAP = Experiment(
    name="heat-map",
    title="Accuracy over the (alpha, beta) plane",
    unit="accuracy in %",
    where='Figures "accuracy on KTH-TIPS2 and Virus as we change alpha and beta"',
    cells=_cells,
    rows=_rows,
    claims=_claims,
    effort=_effort,
    draw=_draw,
)
