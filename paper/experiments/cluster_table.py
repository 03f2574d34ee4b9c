"""Agreement of clusters with classes: log-Euclidean, Karcher and alpha-beta k-means."""

from paper import published
from paper.cache import Cell, Done, distinct, where
from paper.clustering import cluster_cell
from paper.comparison import Row, figures_of, judge, mean_of
from paper.data import SOURCES, Data, paper_name
from paper.experiment import Experiment
from paper.methods import CLUSTERINGS
from paper.protocol import Protocol

_LEARNED, _USUAL = ("E", "NE"), ("LE", "Karcher")
_SOURCES = ("kth", "virus", "brodatz", "kth-images", "prostate", "myometrium")


def _cells(data: Data, protocol: Protocol) -> list[Cell]:
    return [
        cluster_cell(data, key, method, seed, protocol)
        for key in _SOURCES
        if key in data
        for method in CLUSTERINGS
        for seed in range(protocol.runs)
    ]


def _rows(done: Done) -> list[Row]:
    rows = []
    for data in distinct(done, "data"):
        known = published.CLUSTERS.get(paper_name(data), {})
        for method in CLUSTERINGS:
            found = mean_of([one["f1"] for one in where(done, data=data, method=method)])
            rows.append(Row.of(data, method, found, known.get(method), decimals=3))
    return rows


def _claims(rows: list[Row], done: Done) -> list[str]:
    holds = {}
    for data in distinct(done, "data"):
        found = figures_of(rows, data)
        if {*_LEARNED, *_USUAL} <= set(found):
            holds[data] = max(found[m] for m in _LEARNED) > max(found[m] for m in _USUAL)
    return judge("alpha-beta k-means is better than log-Euclidean and Karcher k-means", holds)


def _effort(protocol: Protocol) -> str:
    parts = [
        f"{SOURCES[key].title if key else 'others'}: {str(limits) or 'everything'}"
        for key, limits in protocol.cluster_limits.items()
    ]
    return f"Mean of {protocol.runs} runs from other starts; {'; '.join(parts)}"


CLUSTER_TABLE = Experiment(
    name="cluster-table", title="Clustering against variants of k-means", unit="pairwise F1",
    where='Table "F1-Score based comparisons against different KMeans variants"',
    sources=_SOURCES, cells=_cells, rows=_rows, claims=_claims, effort=_effort,
    reasons=dict.fromkeys(
        _LEARNED,
        "the paper's penalty on alpha and beta has no unit to be right in, and lets them grow with "
        "the number of matrices",
    ),
)  # fmt: skip
