"""Convergence of IDDL-V: how much atoms, parameters and head contribute to the decrease."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from divlearn.datasets import Dataset
from paper.cells import Cell, Done
from paper.classification import make_split
from paper.comparison import Claim, Row, rows_with
from paper.experiment import Experiment, data_cell
from paper.methods import make_classifier
from paper.protocol import Limits, Protocol

_SOURCES = ("kth", "virus", "kth-images")
_BLOCKS = ("atoms", "parameters", "head")


def trace_objective(
    dataset: Dataset, engine: str, *, limits: Limits, settings: dict[str, Any]
) -> dict[str, Any]:
    """Descend as the paper does with IDDL-V; returns the objective after every block."""
    train, _ = make_split(dataset, 0, limits)
    y = dataset.labels[train]
    model = make_classifier("IDDL-V", settings, 0, len(np.unique(y)), engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(dataset.matrices[train], y)
    return {name: model.history_[name] for name in ("objective", "block", "seconds")}


def block_shares(one: dict[str, Any]) -> dict[str, float]:
    """Return the share that every block has in the decrease of the objective, in percent.

    Examples
    --------
    >>> block_shares({"objective": [5, 2, 1], "block": ["start", "atoms", "parameters"]})
    {'atoms': 75.0, 'parameters': 25.0}
    """
    values, blocks = np.array(one["objective"], dtype=float), one["block"][1:]
    falls, total = -np.diff(values), values[0] - values[-1]
    return {
        block: float(100 * falls[np.array(blocks) == block].sum() / total) if total > 0 else 0.0
        for block in dict.fromkeys(blocks)
    }


def plot_blocks(figure: Any, done: Done, blocks: Sequence[str]) -> None:
    """Draw objectives against updates, every block in a colour of its own."""
    axes = figure.subplots(1, len(done), squeeze=False)[0]
    for ax, one in zip(axes, done, strict=True):
        values, names = np.array(one["objective"]), np.array(one["block"])
        ax.plot(values, color="lightgrey", zorder=1)
        for block in blocks:
            ends = np.flatnonzero(names == block)
            ax.scatter(ends, values[ends], s=14, label=block, zorder=2)
        ax.set(title=one["data"], xlabel="updates", ylabel="objective")
    axes[0].legend()


def _cells(protocol: Protocol) -> list[Cell]:
    cells = []
    settings = {
        "atoms_per_class": protocol.atoms_per_class,
        "start": [1.0, 1.0],
        "iterations": protocol.convergence_iterations,
    } | protocol.parameters.get("IDDL-V", {})
    for source in _SOURCES:
        limits = protocol.limit(source)
        compute = partial(trace_objective, limits=limits, settings=settings)
        cells.append(data_cell(("descent", 4), source, "IDDL-V", 0, settings, limits, compute))
    return cells


def _rows(done: Done) -> list[Row]:
    rows = []
    for one in done:
        data, values, shares = one["data"], one["objective"], block_shares(one)
        rows += [
            Row(data, "at the start", values[0], decimals=4),
            Row(data, "at the end", values[-1], decimals=4),
            *(Row(data, f"by {block}, %", shares.get(block, 0.0)) for block in _BLOCKS),
            Row(data, "iterations", one["block"].count("head"), decimals=0),
        ]
    return rows


def _claims(rows: list[Row]) -> list[Claim]:
    claim = "the objective falls most when atoms are learned"
    here = "atoms {by atoms, %:.0f} %, head {by head, %:.0f} %"
    return [
        Claim(claim, data, found["by atoms, %"] > 50, here.format(**found))
        for data, found in rows_with(rows, "by atoms, %")
    ]


def _effort(protocol: Protocol) -> str:
    return (
        f"{protocol.convergence_iterations} iterations of block-coordinate descent from (1, 1), "
        "the first split"
    )


CONVERGENCE = Experiment(
    name="convergence",
    title="Convergence of IDDL-V by block",
    where='Figures "convergence of our optimization scheme" (KTH-TIPS2, Virus)',
    unit="objective, % of its decrease by block",
    cells=_cells,
    rows=_rows,
    claims=_claims,
    effort=_effort,
    draw=partial(plot_blocks, blocks=_BLOCKS),
)
