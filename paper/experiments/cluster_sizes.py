"""F1 and time of clustering against the dimension, and against the number of clusters."""

from collections.abc import Callable
from functools import partial
from typing import Any

from paper.cells import Cell, Done, distinct, where
from paper.clustering import synthetic_cell
from paper.comparison import Claim, Estimate, Row, figures_of, mean_of, names_of
from paper.experiment import Experiment, plot_means
from paper.protocol import Protocol

_METHODS = ("LE", "E", "NE", "ABKMeans", "ABMixture")
_BLOCKS = ("parameters", "centroids")
Sizes = Callable[[Protocol], list[tuple[int, int, int]]]  # clusters, matrices in each, dimension


def _cells(protocol: Protocol, sizes: Sizes) -> list[Cell]:
    return [
        synthetic_cell(k, size, d, method, seed)
        for k, size, d in sizes(protocol)
        for method in _METHODS
        for seed in range(protocol.runs)
        if method != "ABMixture" or d <= protocol.mixture_dimension
    ]


def _f1(done: Done, method: str) -> Estimate | None:
    return mean_of([one["f1"] for one in where(done, method=method)])


def _seconds(done: Done, block: str) -> Estimate | None:
    return mean_of([one["block_seconds"][block] for one in where(done, method="E")])


def _rows(done: Done, axis: str) -> list[Row]:
    rows = []
    for size in distinct(done, axis):
        here, name = where(done, **{axis: size}), f"{axis} = {size}"
        rows += [Row.of(name, method, _f1(here, method), decimals=3) for method in _METHODS]
        rows += [Row.of(name, f"s, {one}", _seconds(here, one), decimals=4) for one in _BLOCKS]
    return rows


def _claims(rows: list[Row]) -> list[Claim]:
    tables = {name: figures_of(rows, name) for name in names_of(rows)}
    gains = {
        name: min(found["E"], found["NE"]) - found["LE"]
        for name, found in tables.items()
        if {"LE", "E", "NE"} <= set(found)
    }
    if not gains:
        return []
    least = min(gains, key=gains.__getitem__)
    held = sum(gain > 0 for gain in gains.values())
    here = f"at {held} of {len(gains)}; least gain {gains[least]:+.3f} at {least}"
    on = f"{least.split()[0]} from {next(iter(gains)).split()[-1]} to {[*gains][-1].split()[-1]}"
    claim = "alpha-beta k-means beats log-Euclidean k-means at every size"
    return [Claim(claim, on, held == len(gains), here)]


def _effort(protocol: Protocol, sizes: Sizes, clusters: str) -> str:
    return (
        f"{clusters}; {sizes(protocol)[0][1]} matrices in each; mean of {protocol.runs} draws; "
        f"ABMixture only up to d = {protocol.mixture_dimension}"
    )


def _draw(figure: Any, done: Done, axis: str) -> None:
    left, right = figure.subplots(1, 2)
    by_size = {size: where(done, **{axis: size}) for size in sorted(distinct(done, axis))}
    for method in _METHODS:
        plot_means(left, {size: _f1(here, method) for size, here in by_size.items()}, method)
    for block in _BLOCKS:
        plot_means(right, {size: _seconds(here, block) for size, here in by_size.items()}, block)
    left.set(xlabel=axis, ylabel="pairwise F1", ylim=(0, 1.02))
    right.set(xlabel=axis, ylabel="seconds of one update", xscale="log", yscale="log")
    right.set_xticks(list(by_size), [str(size) for size in by_size])
    right.minorticks_off()


def _experiment(
    name: str, title: str, panels: str, axis: str, sizes: Sizes, clusters: str
) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        where=f'Figure "Sensitivity of alpha-beta k-means", {panels}',
        unit="pairwise F1; seconds of one update in alpha-beta k-means with alpha = beta",
        cells=partial(_cells, sizes=sizes),
        rows=partial(_rows, axis=axis),
        claims=_claims,
        effort=partial(_effort, sizes=sizes, clusters=clusters),
        draw=partial(_draw, axis=axis),
        timed=True,
    )


CLUSTER_DIMENSION = _experiment(
    "cluster-dimension",
    "Clustering against the dimension",
    "(a) and (b)",
    "d",
    lambda protocol: [(15, protocol.n_per_dimension, d) for d in protocol.dimensions],
    "Synthetic Wishart clusters, 3 p^(1/4) standard deviations apart, p = d (d + 1) / 2",
)
CLUSTER_NUMBER = _experiment(
    "cluster-number",
    "Clustering against the number of clusters",
    "(c) and (d)",
    "clusters",
    lambda protocol: [(k, protocol.n_per_number, 10) for k in protocol.numbers],
    "Clusters as in `cluster-dimension`",
)
