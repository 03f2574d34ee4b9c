"""Accuracy of the variants of IDDL against the number of atoms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from divlearn.experiments.cells import Cell, Outcomes
from divlearn.experiments.classification import accuracy_cells
from divlearn.experiments.estimates import accuracy_of
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.figures import add_legend, plot_means
from divlearn.experiments.methods import RIDGE
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import clauses
from divlearn.experiments.shelf import Shelf
from divlearn.experiments.tables import SOLVERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Atoms"]


class Atoms(Experiment):
    """S, V, N, A and B with few atoms and with many."""

    name = "atoms"
    title = "Variants of IDDL against the number of atoms"
    where = 'Figure "Comparisons between different variants of IDDL for increasing number of atoms"'
    unit = "accuracy in %"
    sources = (
        "kth",
        "virus",
        "jhmdb-joints",
        "kth-images",
        "jhmdb",
        "rgbd",
        "breast",
        "myometrium",
    )

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        return [
            cell
            for holding in shelf.find(self.sources)
            for each in protocol.sweep
            for cell in accuracy_cells(holding, tuple(RIDGE), protocol, atoms_per_class=each)
        ]

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        return [
            Row.of(f"{data}, {each} per class", method,
                   accuracy_of(done.where(data=data, method=method, atoms_per_class=each)))
            for data in done.data
            for each in done.where(data=data).settings("atoms_per_class")
            for method in RIDGE
        ]  # fmt: skip

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        best: dict[str, bool] = {}
        for name in dict.fromkeys(row.row for row in rows):
            found = {row.column: row.value for row in rows if row.row == name}
            known = {method: value for method, value in found.items() if value is not None}
            if len(known) == len(RIDGE):
                best[name] = max(known, key=lambda m: known[m]) in ("IDDL-V", "IDDL-N")
        if not best:
            return []
        held = sum(best.values())
        text = f"IDDL-V or IDDL-N is the best of the variants in {held} of {len(best)} rows"
        return [f"The paper: IDDL-N and IDDL-V consistently perform well. Here {text}."]

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        return clauses(
            f"{', '.join(map(str, protocol.sweep))} atoms per class",
            f"{protocol.iterations} iterations of {SOLVERS[protocol.solver]}",
            self.limits(protocol),
        )

    def draw(self, figure: Figure, done: Outcomes) -> None:
        """See `Experiment.draw`."""
        axes = figure.subplots(1, len(done.data), squeeze=False)[0]
        for ax, data in zip(axes, done.data, strict=True):
            here = done.where(data=data)
            sizes = sorted(here.settings("atoms_per_class"))
            for method in RIDGE:
                found = {
                    size: accuracy_of(here.where(method=method, atoms_per_class=size))
                    for size in sizes
                }
                plot_means(ax, found, method)
            ax.set(title=data, xlabel="atoms per class", ylabel="test accuracy, %", xticks=sizes)
        add_legend(axes[0])
