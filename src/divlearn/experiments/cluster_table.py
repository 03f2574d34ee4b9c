"""Agreement of clusters with classes: log-Euclidean, Karcher and alpha-beta k-means."""

from __future__ import annotations

from collections.abc import Sequence

from divlearn.experiments import paper
from divlearn.experiments.cells import Cell, Outcomes
from divlearn.experiments.clustering import CLUSTER_METHODS, cluster_cell
from divlearn.experiments.estimates import mean_of
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import judge
from divlearn.experiments.shelf import SOURCES, Shelf
from divlearn.experiments.tables import figures_of, paper_name

__all__ = ["ClusterTable"]

_LEARNED, _USUAL = ("E", "NE"), ("LE", "Karcher")


class ClusterTable(Experiment):
    """F1 over pairs of matrices, mean over runs from other starts."""

    name = "cluster-table"
    title = "Clustering against variants of k-means"
    where = 'Table "F1-Score based comparisons against different KMeans variants"'
    unit = "pairwise F1"
    column_reasons = dict.fromkeys(
        _LEARNED,
        "the paper's penalty on alpha and beta has no unit to be right in, and lets them grow with "
        "the number of matrices",
    )
    sources = ("kth", "virus", "brodatz", "kth-images", "prostate", "myometrium")

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        return [
            cluster_cell(holding, method, seed, protocol.cluster_limit(holding.source.key))
            for holding in shelf.find(self.sources)
            for method in CLUSTER_METHODS
            for seed in range(protocol.runs)
        ]

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        return [
            Row.of(data, method, mean_of(done.where(data=data, method=method).values("f1")),
                   paper.CLUSTERS.get(paper_name(data), {}).get(method), decimals=3)
            for data in done.data
            for method in CLUSTER_METHODS
        ]  # fmt: skip

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        holds = {}
        for data in done.data:
            found = figures_of(rows, data)
            if {*_LEARNED, *_USUAL} <= set(found):
                holds[data] = max(found[m] for m in _LEARNED) > max(found[m] for m in _USUAL)
        return judge("alpha-beta k-means is better than log-Euclidean and Karcher k-means", holds)

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        parts = [
            f"{SOURCES[key].title if key else 'others'}: {str(limits) or 'everything'}"
            for key, limits in protocol.cluster_limits.items()
        ]
        return f"Mean of {protocol.runs} runs from other starts; {'; '.join(parts)}"
