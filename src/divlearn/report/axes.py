"""Where pictures are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LABEL", "make_axes"]

LABEL = {"boxstyle": "round,pad=0.25", "facecolor": "white", "alpha": 0.85, "linewidth": 0}


def make_axes(ax: Axes | None, size: tuple[float, float], *, shown: bool = True) -> Axes:
    """Axes to draw into: the given ones, or those of a new figure.

    Parameters
    ----------
    ax : matplotlib Axes or None
    size : (float, float)
        Of a new figure, in inches.
    shown : bool, default=True
        Whether pyplot gets to know of a new figure, which shows it in notebooks. One that is only
        saved needs no display and leaves no trace.

    Returns
    -------
    matplotlib Axes
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError('the picture needs matplotlib: pip install "divlearn[plot]"') from error
    margins = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    make = pyplot.figure if shown else Figure
    return make(figsize=size, dpi=100 if shown else 150, layout=margins).add_subplot()
