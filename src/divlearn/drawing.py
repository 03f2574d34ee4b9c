"""How results look: figures of matplotlib, which is imported late, and summaries in notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from divlearn.checks import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOUR, BEST, INK = "#4c78a8", "#d55e00", "#1a1a1a"  # colour-blind readers can tell them apart
LABEL = {"boxstyle": "round,pad=0.25", "facecolor": "white", "alpha": 0.85, "linewidth": 0}


def make_axes(ax: Axes | None, size: tuple[float, float], *, shown: bool = True) -> Axes:
    """Return the given axes, or those of a new figure, which pyplot shows in notebooks."""
    return ax if ax is not None else _make_figure(size, shown=shown).add_subplot()


def _make_figure(size: tuple[float, float], *, shown: bool = True) -> Any:
    import_extra("matplotlib", "the picture needs matplotlib", "plot")
    from matplotlib import pyplot
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    margins = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    make = pyplot.figure if shown else Figure
    return make(figsize=size, dpi=100 if shown else 150, layout=margins)


def make_panels(axes: Any, count: int) -> list[Any]:
    if axes is None:
        axes = _make_figure((6.5 * count, 5.2)).subplots(1, count)
    given = np.ravel(np.asarray(axes, dtype=object)).tolist()
    if len(given) != count:
        raise ValueError(f"axes holds {len(given)} Axes, must hold {count}, one for each picture")
    return given


class Summarised:
    """What has a `summary()`, which a notebook shows."""

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.summary())}</p>"  # type: ignore[attr-defined]
