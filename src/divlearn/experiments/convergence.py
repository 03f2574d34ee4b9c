"""Convergence of IDDL-V: what atoms and what parameters contribute to the decrease."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from divlearn.experiments.cells import Cell, Outcome, Outcomes, Task
from divlearn.experiments.classification import Problem, make_problem
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.methods import make_classifier
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Row
from divlearn.experiments.sentences import clauses, judge
from divlearn.experiments.shelf import Holding, Shelf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Convergence", "block_shares", "plot_blocks", "trace_objective"]

TASK = Task("descent", 2)
_BLOCKS = ("atoms", "parameters", "head")


def trace_objective(problem: Problem, n_atoms: int, iterations: int, seed: int) -> Outcome:
    """Descend as the paper does with IDDL-V, and note the objective after every block.

    Returns
    -------
    Outcome
        "objective", "block", "seconds" and "message".
    """
    settings = {
        "atoms": n_atoms,
        "solver": "bcd",
        "iterations": iterations,
        "tol": 0.0,
        "pairs": [[1, 1]],
    }
    model = make_classifier("IDDL-V", settings, seed, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(problem.X_train, problem.y_train)
    history = model.history_
    return {name: history[name] for name in ("objective", "block", "seconds")} | {
        "message": model.message_
    }


def block_shares(outcome: Outcome) -> dict[str, float]:
    """Share that every block has in the decrease of the objective, in percent.

    Examples
    --------
    >>> outcome = {"objective": [5, 2, 1], "block": ["start", "atoms", "parameters"]}
    >>> block_shares(outcome)
    {'atoms': 75.0, 'parameters': 25.0}
    """
    values, blocks = np.array(outcome["objective"], dtype=float), np.array(outcome["block"][1:])
    falls, total = -np.diff(values), values[0] - values[-1]
    return {
        str(block): float(100 * falls[blocks == block].sum() / total) if total > 0 else 0.0
        for block in dict.fromkeys(blocks.tolist())
    }


def plot_blocks(figure: Figure, done: Outcomes, blocks: Sequence[str]) -> None:
    """Draw objectives against updates, every block in a colour of its own."""
    axes = figure.subplots(1, len(done), squeeze=False)[0]
    for ax, (cell, outcome) in zip(axes, done, strict=True):
        values, names = np.array(outcome["objective"]), np.array(outcome["block"])
        ax.plot(values, color="lightgrey", zorder=1)
        for block in blocks:
            ends = np.flatnonzero(names == block)
            ax.scatter(ends, values[ends], s=14, label=block, zorder=2)
        ax.set(title=cell.data, xlabel="updates", ylabel="objective")
    axes[0].legend()


class Convergence(Experiment):
    """The objective of IDDL-V after every block of updates."""

    name = "convergence"
    title = "Convergence of IDDL-V by block"
    where = 'Figures "convergence of our optimization scheme" (KTH-TIPS2, Virus)'
    unit = "objective, % of its decrease by block"
    sources = ("kth", "virus", "kth-images")

    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """See `Experiment.cells`."""
        return [self._cell(holding, protocol) for holding in shelf.find(self.sources)]

    def _cell(self, holding: Holding, protocol: Protocol) -> Cell:
        limits = protocol.limit(holding.source.key)
        each, iterations = protocol.atoms_per_class, protocol.convergence_iterations

        def compute() -> Outcome:
            problem = make_problem(holding.dataset, 0, limits)
            n_atoms = each * len(np.unique(problem.y_train))
            return trace_objective(problem, n_atoms, iterations, 0)

        settings = {"atoms_per_class": each, "iterations": iterations, "limits": str(limits)}
        return Cell(TASK, holding.source.title, holding.digest, "IDDL-V", 0, settings, compute)

    def rows(self, done: Outcomes) -> list[Row]:
        """See `Experiment.rows`."""
        rows = []
        for cell, outcome in done:
            values, shares = outcome["objective"], block_shares(outcome)
            rows += [
                Row(cell.data, "at the start", values[0], decimals=4),
                Row(cell.data, "at the end", values[-1], decimals=4),
                *(Row(cell.data, f"by {block}, %", shares.get(block, 0.0)) for block in _BLOCKS),
                Row(cell.data, "iterations", outcome["block"].count("head"), decimals=0),
            ]
        return rows

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """See `Experiment.claims`."""
        most = {cell.data: block_shares(outcome)["atoms"] > 50 for cell, outcome in done}
        return judge("most of the decrease happens when the dictionary is learned", most)

    def effort(self, protocol: Protocol) -> str:
        """See `Experiment.effort`."""
        return clauses(
            f"{protocol.convergence_iterations} iterations of block-coordinate descent with "
            f"{protocol.atoms_per_class} atoms per class from (1, 1), the first split",
            self.limits(protocol),
        )

    def draw(self, figure: Figure, done: Outcomes) -> None:
        """See `Experiment.draw`."""
        plot_blocks(figure, done, _BLOCKS)
