"""Convergence of alpha-beta k-means with alpha = beta, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from divlearn.experiments.cells import Cell, Outcomes
from divlearn.experiments.clustering import cluster_cell, synthetic_cell
from divlearn.experiments.convergence import block_shares, plot_blocks
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import clauses, judge
from divlearn.experiments.shelf import Shelf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ClusterConvergence"]


class ClusterConvergence(Experiment):
    """The paper shows myometrium cancer and calls other data consistent with it."""

    name = "cluster-convergence"
    title = "Convergence of alpha-beta k-means by block"
    where = 'Figure "Convergence plot of the objective function"'
    unit = "objective, % of its decrease by block"
    sources = ("myometrium", "kth", "virus")

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        real = [
            cluster_cell(holding, "E", 0, protocol.cluster_limit(holding.source.key))
            for holding in shelf.find(self.sources)
        ]
        return [*real, synthetic_cell(15, protocol.n_per_number, 10, "E", 0)]

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        rows = []
        for cell, outcome in done:
            values = outcome["objective"]
            rows.append(Row(cell.data, "at the start", values[0]))
            rows.append(Row(cell.data, "at the end", values[-1]))
            rows += [
                Row(cell.data, f"by {block}, %", share)
                for block, share in block_shares(outcome).items()
            ]
            rows.append(Row(cell.data, "iterations", outcome["n_iter"], decimals=0))
            rows.append(Row(cell.data, "alpha = beta at the end", outcome["alpha"][-1], decimals=2))
        return rows

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        falls = {
            cell.data: bool((np.diff(np.array(outcome["objective"])) <= 1e-9).all())
            for cell, outcome in done
        }
        return judge("the objective falls block by block until clusters stay", falls)

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        return clauses("One run from log-Euclidean k-means", str(protocol.cluster_limits[""]))

    def draw(self, figure: Figure, done: Outcomes) -> None:
        """See `Experiment.draw`."""
        plot_blocks(figure, done, ("centroids", "parameters", "assignment"))
