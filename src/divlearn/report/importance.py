"""Picture of the importance of channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from divlearn.judge.channels import ChannelImportance
from divlearn.judge.significance import SIGNIFICANT
from divlearn.report.displays import BEST, COLOUR, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ChannelImportanceDisplay(Display):
    """Importances of channels with standard errors.

    Parameters
    ----------
    found : ChannelImportance

    Examples
    --------
    >>> from divlearn import DivergenceMDM, channel_importance
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(2, 10, 3, random_state=0)
    >>> display = ChannelImportanceDisplay(channel_importance(DivergenceMDM(), X, y, cv=2)).plot()
    """

    def __init__(self, found: ChannelImportance) -> None:
        self.found = found

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw one row for every set of channels, the most important at the top."""
        rows = self.found.table()
        ax = self._take(ax, (7.0, 1.2 + 0.3 * len(rows)))
        for place, row in enumerate(rows):
            colour = BEST if row.p_value < SIGNIFICANT else COLOUR
            x, error = 100 * row.importance, 100 * row.standard_error
            ax.errorbar(x, place, xerr=error, fmt="o", capsize=4, color=colour)
        ax.axvline(0, color="#bbbbbb", linewidth=1, zorder=0)
        ax.set_yticks(range(len(rows)), [row.name for row in rows])
        ax.set(xlabel="accuracy lost, in points", ylim=(len(rows) - 0.5, -0.5))
        ax.set_title(f"{len(self.found.correct)} matrices, {self.found.accuracy:.1%} right")
        ax.grid(axis="x", alpha=0.3)
        return self
