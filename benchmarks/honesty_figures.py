"""Held-out figures beside the truth: chance on data without signal, new data with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from machine import machine_line
from scaling_tables import table
from simulated import N_MATRICES, SIZE, Claims, Row, draw_matrices, move_groups, run_all

from divlearn import (
    DivergenceKernelClassifier,
    IDDLClassifier,
    SPDClassifier,
)
from divlearn.arrays import Indices
from divlearn.baselines import LogEuclideanSVM
from divlearn.nearest import DivergenceMDM

CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "SPDClassifier": lambda: SPDClassifier(random_state=0),
    "IDDLClassifier": lambda: IDDLClassifier(random_state=0),
    "DivergenceKernelClassifier": lambda: DivergenceKernelClassifier(random_state=0),
    'DivergenceMDM("choose")': lambda: DivergenceMDM("choose", random_state=0),
    'LogEuclideanSVM("rbf")': lambda: LogEuclideanSVM("rbf", random_state=0),
    "LogEuclideanSVM()": lambda: LogEuclideanSVM(random_state=0),
}
N_GROUPS = 10  # with as many matrices of either class
SIGNAL = 1.5  # separation of classes: some three of four matrices are recognised


def held_out_accuracy(model: Any, y: Indices) -> float:
    """Return the accuracy that a fitted classifier states of itself."""
    if hasattr(model, "oof_accuracy_"):
        return model.oof_accuracy_["average"]
    if hasattr(model, "held_out_accuracy_"):
        return model.held_out_accuracy_
    known = np.isfinite(model.oof_proba_).all(axis=1)
    return float(np.mean(model.classes_[model.oof_proba_[known].argmax(axis=1)] == y[known]))


def run_figure(rng: np.random.Generator, name: str, grouped: bool, separation: float) -> Claims:
    """Fit to some matrices; compare what the fit states with new matrices.

    A fold trains on three quarters of the matrices, and so does the model that is compared.
    """
    X, y, _ = draw_matrices(rng, 0.5, False, separation, more=9)
    known, new = slice(N_MATRICES), slice(N_MATRICES, None)
    together = None
    if grouped:  # classes have equal shares in folds, so that chance is 50 % in each
        together = np.tile(np.arange(N_GROUPS), N_MATRICES // N_GROUPS)
        X[known] = move_groups(rng, X[known], together)
    model = CLASSIFIERS[name]().fit(X[known], y[known], groups=together)
    figure = held_out_accuracy(model, y[known])
    if not separation:
        return {"figure": figure}
    less = _three_quarters(y[known])
    accuracy = float(model.fit(X[less], y[less]).score(X[new], y[new]))
    return {"figure": figure, "new": accuracy, "gap": figure - accuracy}


def _three_quarters(y: Indices) -> Indices:
    rows = [np.flatnonzero(y == code) for code in np.unique(y)]
    return np.concatenate([some[: 3 * len(some) // 4] for some in rows])


def run_figures(runs: int) -> dict[str, Any]:
    settings: list[Row] = [
        {"name": name, "grouped": grouped, "separation": separation}
        for name in CLASSIFIERS
        for grouped, separation in ((False, 0.0), (True, 0.0), (False, SIGNAL))
    ]
    return {"rows": run_all(run_figure, settings, runs)}


def figures_text(known: dict[str, Any]) -> str:
    names = list(dict.fromkeys(row["name"] for row in known["rows"]))
    head = [
        "accuracy stated, %",
        "no signal",
        f"no signal, {N_GROUPS} groups",
        "signal",
        "new matrices",
        "stated minus new",
    ]
    body = []
    for name in names:
        plain, grouped, signal = (row for row in known["rows"] if row["name"] == name)
        cells = [_with_error(plain, "figure"), _with_error(grouped, "figure")]
        body.append([name, *cells, *(_with_error(signal, one) for one in ("figure", "new", "gap"))])
    return "\n\n".join(
        [
            f"{known['runs']} simulations each, {N_MATRICES} matrices of size {SIZE} in two equal "
            "classes; chance is 50 %. Errors are standard errors of the mean. New matrices "
            "are classified by a model of three quarters of the matrices, as many as a fold trains "
            f"on. {machine_line(known['machine'])}.",
            table(head, body),
        ]
    )


def _with_error(row: Row, name: str) -> str:
    return f"{100 * row[name]:.1f} +- {100 * row['errors'][name]:.1f}"
