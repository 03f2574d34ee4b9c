"""Pictures of the answer to "which divergence should I use?"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from divlearn.maps import PlaneMap
from divlearn.report.axes import LABEL, make_axes
from divlearn.report.plane import edges, plot_plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from divlearn.which import WhichDivergence

__all__ = ["plot_answer"]

_LEVELS = 0.5  # log-likelihood per matrix below the maximum that the picture tells apart


def plot_answer(answer: WhichDivergence, ax: Axes | None = None) -> Axes:
    """Picture of a map, of accuracy or of likelihood, with the best point marked."""
    draw = _plot_likelihood if answer.correct is None else _plot_accuracy
    return draw(answer, ax)


def _plot_accuracy(answer: WhichDivergence, ax: Axes | None) -> Axes:
    assert answer.correct is not None
    ax = plot_plane(PlaneMap(answer.alphas, answer.betas, answer.correct), ax=ax)
    ax.child_axes[0].set_ylabel("cross-validated 1-NN accuracy", fontsize=12)
    return ax


def _plot_likelihood(answer: WhichDivergence, ax: Axes | None) -> Axes:
    ax = make_axes(ax, (7.5, 7.0))
    ax.set(xlabel=r"$\alpha$", ylabel=r"$\beta$", box_aspect=1)
    both = edges(answer.alphas), edges(answer.betas)
    lost = answer.map.T - answer.score
    image = ax.pcolormesh(*both, lost, cmap="cividis", vmin=max(np.nanmin(lost), -_LEVELS), vmax=0)
    label = "log-likelihood per matrix below the maximum"
    ax.figure.colorbar(image, ax=ax, label=label, shrink=0.8, extend="min")
    for name, row in answer.named.items():
        ax.plot(row.alpha, row.beta, "o", color="white", markeredgecolor="black")
        ax.annotate(
            f"{name} {-row.difference:.3f}", (row.alpha, row.beta), (6, -16),
            textcoords="offset points", bbox=LABEL,
        )  # fmt: skip
    ax.plot(*answer.best, "*", color="#d55e00", markeredgecolor="white", markersize=20, zorder=5)
    ax.set_title(f"maximum at ({answer.best[0]:.3g}, {answer.best[1]:.3g})")
    return ax
