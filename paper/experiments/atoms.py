"""Accuracy of the variants of IDDL against the number of atoms."""

from matplotlib.figure import Figure

from paper.cache import Cell, Done, distinct, where
from paper.classification import accuracy_cells
from paper.comparison import Row, accuracy_of, clauses, figures_of, names_of
from paper.data import Data
from paper.experiment import Experiment, plot_means, say_limits
from paper.methods import RIDGE, SOLVER
from paper.protocol import Protocol

_SOURCES = (
    "kth", "virus", "jhmdb-joints", "kth-images", "jhmdb", "rgbd", "breast", "myometrium",
)  # fmt: skip


def _cells(data: Data, protocol: Protocol) -> list[Cell]:
    return [
        cell
        for key in _SOURCES
        for each in protocol.sweep
        for cell in accuracy_cells(data, [key], RIDGE, protocol, atoms_per_class=each)
    ]


def _rows(done: Done) -> list[Row]:
    return [
        Row.of(f"{data}, {each} per class", method,
               accuracy_of(where(done, data=data, method=method, atoms_per_class=each)))
        for data in distinct(done, "data")
        for each in distinct(where(done, data=data), "atoms_per_class")
        for method in RIDGE
    ]  # fmt: skip


def _claims(rows: list[Row], done: Done) -> list[str]:
    tables = [figures_of(rows, name) for name in names_of(rows)]
    whole = [found for found in tables if len(found) == len(RIDGE)]
    held = sum(max(found, key=found.__getitem__) in ("IDDL-V", "IDDL-N") for found in whole)
    claim = "The paper: IDDL-N and IDDL-V consistently perform well. Here IDDL-V or IDDL-N is the"
    return [f"{claim} best of the variants in {held} of {len(whole)} rows."] if whole else []


def _effort(protocol: Protocol) -> str:
    return clauses(
        f"{', '.join(map(str, protocol.sweep))} atoms per class",
        f"{protocol.iterations} iterations of {SOLVER}",
        say_limits(protocol, _SOURCES),
    )


def _draw(figure: Figure, done: Done) -> None:
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
    name="atoms", title="Variants of IDDL against the number of atoms", unit="accuracy in %",
    where='Figure "Comparisons between different variants of IDDL for increasing number of atoms"',
    sources=_SOURCES, cells=_cells, rows=_rows, claims=_claims, effort=_effort, draw=_draw,
)  # fmt: skip
