"""Convergence of alpha-beta k-means with alpha = beta, block by block."""

from functools import partial

import numpy as np

from paper.cache import Cell, Done
from paper.clustering import cluster_cell, synthetic_cell
from paper.comparison import Row, clauses, judge
from paper.data import Data
from paper.experiment import Experiment
from paper.experiments.convergence import block_shares, plot_blocks
from paper.protocol import Protocol

_SOURCES = ("myometrium", "kth", "virus")  # the paper shows the first


def _cells(data: Data, protocol: Protocol) -> list[Cell]:
    real = [cluster_cell(data, key, "E", 0, protocol) for key in _SOURCES if key in data]
    return [*real, synthetic_cell(15, protocol.n_per_number, 10, "E", 0)]


def _rows(done: Done) -> list[Row]:
    rows = []
    for one in done:
        data, values = one["data"], one["objective"]
        rows += [
            Row(data, "at the start", values[0]),
            Row(data, "at the end", values[-1]),
            *(Row(data, f"by {block}, %", part) for block, part in block_shares(one).items()),
            Row(data, "iterations", one["n_iter"], decimals=0),
            Row(data, "alpha = beta at the end", one["alpha"][-1], decimals=2),
        ]
    return rows


def _claims(rows: list[Row], done: Done) -> list[str]:
    falls = {one["data"]: bool((np.diff(one["objective"]) <= 1e-9).all()) for one in done}
    return judge("the objective falls block by block until clusters stay", falls)


def _effort(protocol: Protocol) -> str:
    return clauses("One run from log-Euclidean k-means", str(protocol.cluster_limits[""]))


CLUSTER_CONVERGENCE = Experiment(
    name="cluster-convergence", title="Convergence of alpha-beta k-means by block",
    where='Figure "Convergence plot of the objective function"',
    unit="objective, % of its decrease by block", sources=_SOURCES, cells=_cells, rows=_rows,
    claims=_claims, effort=_effort,
    draw=partial(plot_blocks, blocks=("centroids", "parameters", "assignment")),
)  # fmt: skip
