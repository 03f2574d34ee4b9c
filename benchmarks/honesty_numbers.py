"""Held-out R2 of regressors beside the truth: zero without signal, new data with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from machine import machine_line
from scaling_tables import table
from simulated import N_MATRICES, SIZE, Claims, Row, draw_matrices, move_groups, run_all

from divlearn import (
    DivergenceKernelRegressor,
    IDDLRegressor,
    NearestRegressor,
    SPDRegressor,
    TangentRegressor,
)
from divlearn.arrays import RealArray

REGRESSORS: dict[str, Callable[[], Any]] = {
    "SPDRegressor": lambda: SPDRegressor(random_state=0),
    "IDDLRegressor": lambda: IDDLRegressor(random_state=0),
    "DivergenceKernelRegressor": lambda: DivergenceKernelRegressor(random_state=0),
    "NearestRegressor": lambda: NearestRegressor(random_state=0),
    "TangentRegressor()": lambda: TangentRegressor(random_state=0),
}
N_GROUPS = 10
NOISE = 1.0  # standard deviation, of what has a signal of the same size


def held_out_r2(model: Any, y: RealArray) -> float:
    """Return the R2 that a fitted regressor states of itself."""
    if hasattr(model, "oof_r2_"):
        return model.oof_r2_["average"]
    return float(1 - np.mean((model.oof_prediction_ - y) ** 2) / np.var(y))


def run_number(rng: np.random.Generator, name: str, grouped: bool, signal: bool) -> Claims:
    """Fit to some matrices; compare what the fit states with new matrices.

    A fold trains on three quarters of the matrices, and so does the model that is compared.
    """
    X, _, _ = draw_matrices(rng, 0.5, False, more=9)
    y = NOISE * rng.standard_normal(len(X))
    known, new = slice(N_MATRICES), slice(N_MATRICES, None)
    together = None
    if grouped:
        together = np.tile(np.arange(N_GROUPS), N_MATRICES // N_GROUPS)
        X[known] = move_groups(rng, X[known], together)
        y[known] += rng.standard_normal(N_GROUPS)[together]
    if signal:
        sizes = np.linalg.slogdet(X)[1]
        y += (sizes - sizes.mean()) / sizes.std()
    model = REGRESSORS[name]().fit(X[known], y[known], groups=together)
    figure = held_out_r2(model, y[known])
    if not signal:
        return {"figure": figure}
    less = slice(3 * N_MATRICES // 4)
    r2 = float(model.fit(X[less], y[less]).score(X[new], y[new]))
    return {"figure": figure, "new": r2, "gap": figure - r2}


def run_numbers(runs: int) -> dict[str, Any]:
    settings: list[Row] = [
        {"name": name, "grouped": grouped, "signal": signal}
        for name in REGRESSORS
        for grouped, signal in ((False, False), (True, False), (False, True))
    ]
    return {"rows": run_all(run_number, settings, runs)}


def numbers_text(known: dict[str, Any]) -> str:
    head = [
        "R2 stated",
        "no signal",
        f"no signal, {N_GROUPS} groups",
        "signal",
        "new matrices",
        "stated minus new",
    ]
    body = []
    for name in dict.fromkeys(row["name"] for row in known["rows"]):
        plain, grouped, signal = (row for row in known["rows"] if row["name"] == name)
        stated = [_show(row, "figure") for row in (plain, grouped, signal)]
        body.append([name, *stated, _show(signal, "new"), _show(signal, "gap")])
    return "\n\n".join(
        [
            f"{known['runs']} simulations each, {N_MATRICES} matrices of size {SIZE}. Errors are "
            "standard errors of the mean. New matrices are predicted by a model of three quarters "
            f"of the matrices, as many as a fold trains on. {machine_line(known['machine'])}.",
            table(head, body),
        ]
    )


def _show(row: Row, name: str) -> str:
    return f"{row[name]:.3f} +- {row['errors'][name]:.3f}"
