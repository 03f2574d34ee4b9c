"""What several figures have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from divlearn.experiments.estimates import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["add_legend", "plot_means"]


def plot_means(ax: Axes, found: Mapping[int, Estimate | None], label: str) -> None:
    """Draw means against sizes, with bars for their errors; those that are not there are left out.

    Parameters
    ----------
    ax : matplotlib Axes
    found : mapping of int to Estimate or None, by size.
    label : str
    """
    known = {size: one for size, one in sorted(found.items()) if one is not None}
    if known:
        ax.errorbar(
            list(known), [one.value for one in known.values()],
            [one.error or 0.0 for one in known.values()], label=label, marker="o", capsize=2,
        )  # fmt: skip


def add_legend(ax: Axes) -> None:
    """Add a legend, where there is something to explain."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend()
