"""Accuracy of the variants of IDDL against the number of atoms."""

from typing import Any

from paper.cells import Cell, Done, distinct, where
from paper.classification import accuracy_cells
from paper.comparison import Claim, Row, accuracy_of, against, figures_of, names_of
from paper.experiment import Experiment, plot_means
from paper.methods import RIDGE
from paper.protocol import Protocol

_SOURCES = (
    "kth",
    "virus",
    "jhmdb-joints",
    "kth-images",
    "jhmdb",
    "rgbd",
    "breast",
    "myometrium",
)
_WELL = ("IDDL-V", "IDDL-N")


def _cells(protocol: Protocol) -> list[Cell]:
    return [
        cell
        for source in _SOURCES
        for each in protocol.sweep
        for cell in accuracy_cells([source], RIDGE, protocol, atoms_per_class=each)
    ]


def _rows(done: Done) -> list[Row]:
    return [
        Row.of(
            f"{data}, {each} per class",
            method,
            accuracy_of(where(done, data=data, method=method, atoms_per_class=each)),
        )
        for data in distinct(done, "data")
        for each in distinct(where(done, data=data), "atoms_per_class")
        for method in RIDGE
    ]


def _claims(rows: list[Row]) -> list[Claim]:
    by_data: dict[str, list[tuple[bool, str]]] = {}
    for name in names_of(rows):
        found = figures_of(rows, name)
        best = against(found, _WELL, [other for other in RIDGE if other not in _WELL])
        if best:
            error = max(row.error or 0.0 for row in rows if row.row == name)
            near = max(found.values()) - max(found[one] for one in _WELL) <= error
            by_data.setdefault(name.rpartition(",")[0], []).append((near, best[1]))
    claim = "IDDL-V or IDDL-N is best for any number of atoms, within a standard error"
    return [
        Claim(
            claim,
            data,
            all(near for near, _ in sizes),
            f"at {sum(near for near, _ in sizes)} of {len(sizes)}; at the last {sizes[-1][1]}",
        )
        for data, sizes in by_data.items()
    ]


def _effort(protocol: Protocol) -> str:
    return f"{', '.join(map(str, protocol.sweep))} atoms per class"


def _draw(figure: Any, done: Done) -> None:
    titles = distinct(done, "data")
    axes = figure.subplots(1, len(titles), squeeze=False)[0]
    for ax, data in zip(axes, titles, strict=True):
        sizes = sorted(distinct(where(done, data=data), "atoms_per_class"))
        for method in RIDGE:
            here = where(done, data=data, method=method)
            found = {size: accuracy_of(where(here, atoms_per_class=size)) for size in sizes}
            plot_means(ax, found, method)
        ax.set(title=data, xlabel="atoms per class", ylabel="test accuracy, %", xticks=sizes)


ATOMS = Experiment(
    name="atoms",
    title="Variants of IDDL against the number of atoms",
    unit="accuracy in %",
    where='Figure "Comparisons between different variants of IDDL for increasing number of atoms"',
    cells=_cells,
    rows=_rows,
    claims=_claims,
    effort=_effort,
    draw=_draw,
)
