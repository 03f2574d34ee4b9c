"""Results that can be looked at: a picture, and a page in notebooks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Shown"]


class Shown:
    """What result objects have in common.

    How each kind looks is known to `divlearn.report` alone, which lies above all results: it is
    asked for by name, and only when somebody looks.
    """

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw a picture with matplotlib.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        drawn: Axes = _report().plot_result(self, ax)
        return drawn

    def _repr_html_(self) -> str | None:
        html: str | None = _report().result_page(self)._repr_html_()
        return html


def _report() -> Any:
    return import_module("divlearn.report.results")
