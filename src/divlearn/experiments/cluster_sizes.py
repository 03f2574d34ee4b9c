"""F1 and time of clustering against the dimension, and against the number of clusters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from divlearn.experiments.cells import Cell, Outcomes
from divlearn.experiments.clustering import synthetic_cell
from divlearn.experiments.estimates import mean_of
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.figures import add_legend, plot_means
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import judge
from divlearn.experiments.shelf import Shelf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ClusterDimension", "ClusterNumber"]

_METHODS = ("LE", "E", "NE", "ABKMeans", "ABMixture")
_TIMES = {"parameters": "s, parameters", "centroids": "s, centroids"}


class ClusterSizes(Experiment):
    """Clustering of synthetic Wishart matrices of growing size.

    Attributes
    ----------
    axis : str
        The setting that grows.
    """

    unit = "pairwise F1; seconds of one update in alpha-beta k-means with alpha = beta"
    timed = True
    axis: ClassVar[str]

    @abstractmethod
    def sizes(self, protocol: Protocol) -> Iterable[tuple[int, int, int]]:
        """Clusters, matrices in each, and dimension."""

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        return [
            synthetic_cell(k, size, d, method, seed)
            for k, size, d in self.sizes(protocol)
            for method in _METHODS
            for seed in range(protocol.runs)
            if method != "ABMixture" or d <= protocol.mixture_dimension
        ]

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        rows = []
        for size in done.settings(self.axis):
            here, name = done.where(**{self.axis: size}), f"{self.axis} = {size}"
            for method in _METHODS:
                found = mean_of(here.where(method=method).values("f1"))
                rows.append(Row.of(name, method, found, decimals=3))
            for block, column in _TIMES.items():
                spent = [one[block] for one in here.where(method="E").values("block_seconds")]
                rows.append(Row.of(name, column, mean_of(spent), decimals=4))
        return rows

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        found = {(row.row, row.column): row.value for row in rows if row.value is not None}
        names = dict.fromkeys(row.row for row in rows)
        holds = {
            name: min(found[name, "E"], found[name, "NE"]) > found[name, "LE"]
            for name in names
            if {(name, method) for method in ("LE", "E", "NE")} <= set(found)
        }
        return judge("both variants are better than log-Euclidean k-means at every size", holds)

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        sizes = list(self.sizes(protocol))
        return (
            f"Synthetic Wishart clusters, separated by 3 p^(1/4) standard deviations with p = "
            f"d (d + 1) / 2; {sizes[0][1]} matrices in each; mean of {protocol.runs} draws. "
            f"ABMixture only up to d = {protocol.mixture_dimension}, for time"
        )

    def draw(self, figure: Figure, done: Outcomes) -> None:
        """See `Experiment.draw`."""
        left, right = figure.subplots(1, 2)
        sizes = sorted(done.settings(self.axis))
        by_size = {size: done.where(**{self.axis: size}) for size in sizes}
        for method in _METHODS:
            scores = {
                size: mean_of(here.where(method=method).values("f1"))
                for size, here in by_size.items()
            }
            plot_means(left, scores, method)
        for block in _TIMES:
            spent = {
                size: mean_of([
                    one[block] for one in here.where(method="E").values("block_seconds")
                ])
                for size, here in by_size.items()
            }  # fmt: skip
            plot_means(right, spent, block)
        left.set(xlabel=self.axis, ylabel="pairwise F1", ylim=(0, 1.02))
        right.set(xlabel=self.axis, ylabel="seconds of one update", xscale="log", yscale="log")
        right.set_xticks(sizes, [str(size) for size in sizes])
        right.minorticks_off()
        add_legend(left)
        add_legend(right)


class ClusterDimension(ClusterSizes):
    """F1 and time against the size of the matrices."""

    name = "cluster-dimension"
    title = "Clustering against the dimension"
    where = 'Figure "Sensitivity of alpha-beta k-means", (a) and (b)'
    axis = "d"

    def sizes(self, protocol: Protocol) -> Iterable[tuple[int, int, int]]:
        """See `ClusterSizes.sizes`."""
        return [(15, protocol.n_per_dimension, d) for d in protocol.dimensions]


class ClusterNumber(ClusterSizes):
    """F1 and time against the number of clusters."""

    name = "cluster-number"
    title = "Clustering against the number of clusters"
    where = 'Figure "Sensitivity of alpha-beta k-means", (c) and (d)'
    axis = "clusters"

    def sizes(self, protocol: Protocol) -> Iterable[tuple[int, int, int]]:
        """See `ClusterSizes.sizes`."""
        return [(k, protocol.n_per_number, 10) for k in protocol.numbers]
