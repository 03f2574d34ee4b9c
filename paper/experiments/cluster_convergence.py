"""Convergence of alpha-beta k-means with alpha = beta, block by block."""

from functools import partial

import numpy as np

from paper.cells import Cell, Done
from paper.clustering import cluster_cell, synthetic_cell
from paper.comparison import Claim, Row, rows_with
from paper.experiment import Experiment
from paper.experiments.convergence import block_shares, plot_blocks
from paper.protocol import Protocol

_SOURCES = ("myometrium", "kth", "virus")  # the paper shows the first


def _cells(protocol: Protocol) -> list[Cell]:
    real = [cluster_cell(source, "E", 0, protocol) for source in _SOURCES]
    return [*real, synthetic_cell(15, protocol.n_per_number, 10, "E", 0)]


def _rows(done: Done) -> list[Row]:
    rows = []
    for one in done:
        data, values = one["data"], one["objective"]
        rows += [
            Row(data, "at the start", values[0]),
            Row(data, "at the end", values[-1]),
            *(Row(data, f"by {block}, %", part) for block, part in block_shares(one).items()),
            Row(data, "rises", int((np.diff(values) > 1e-9).sum()), decimals=0),
            Row(data, "iterations", one["n_iter"], decimals=0),
            Row(data, "alpha = beta at the end", one["alpha"][-1], decimals=2),
        ]
    return rows


def _claims(rows: list[Row]) -> list[Claim]:
    claim = "alpha-beta k-means: the objective falls block by block"
    here = "from {at the start:.0f} to {at the end:.0f}, {rises:.0f} rises"
    return [
        Claim(claim, data, not found["rises"], here.format(**found))
        for data, found in rows_with(rows, "rises")
    ]


def _effort(protocol: Protocol) -> str:
    return "One run from log-Euclidean k-means"


CLUSTER_CONVERGENCE = Experiment(
    name="cluster-convergence",
    title="Convergence of alpha-beta k-means by block",
    where='Figure "Convergence plot of the objective function"',
    unit="objective, % of its decrease by block",
    cells=_cells,
    rows=_rows,
    claims=_claims,
    effort=_effort,
    draw=partial(plot_blocks, blocks=("centroids", "parameters", "assignment")),
)
