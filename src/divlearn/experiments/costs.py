"""How long it will take, from how long it took elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from divlearn.experiments.cache import Cache
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.rendering import say_time
from divlearn.experiments.running import cells_left
from divlearn.experiments.shelf import Shelf

__all__ = ["say_cost"]


def say_cost(
    experiments: Sequence[Experiment], shelf: Shelf, protocol: Protocol, cache: Cache
) -> str:
    """Say how much is to be computed, and about how long that takes of a processor.

    Parameters
    ----------
    experiments : sequence of Experiment
    shelf : Shelf
    protocol : Protocol
    cache : Cache
    """
    left = cells_left(experiments, shelf, protocol, cache)
    to_do, n_cells = (sum(column) for column in zip(*left.values(), strict=True))
    if not to_do:
        return f"All {n_cells} parts are done."
    costs = {
        name: 60 * protocol.minutes.get(name, 0.0) * undone / all_cells
        for name, (undone, all_cells) in left.items()
        if undone
    }
    told = ", ".join(f"{name} {say_time(cost)}" for name, cost in costs.items() if cost)
    total = f", about {say_time(sum(costs.values()))} of one processor ({told})" if told else ""
    return f"{to_do} of {n_cells} parts are to be computed{total}."
