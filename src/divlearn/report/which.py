"""Pictures of the answer to "which divergence should I use?"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divlearn.maps import PlaneMap
from divlearn.report.plane import edges, plot_plane

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from divlearn.which import WhichDivergence

__all__ = ["plot_answer"]

_LABEL = {"boxstyle": "round,pad=0.25", "facecolor": "white", "alpha": 0.85, "linewidth": 0}
_LEVELS = 0.5  # log-likelihood per matrix below the maximum that the picture tells apart


def plot_answer(answer: WhichDivergence) -> Figure:
    """Picture of a map, of accuracy or of likelihood, with the best point marked."""
    return _plot_likelihood(answer) if answer.correct is None else _plot_accuracy(answer)


def _plot_accuracy(answer: WhichDivergence) -> Figure:
    assert answer.correct is not None
    figure = plot_plane(PlaneMap(answer.alphas, answer.betas, answer.correct))
    figure.axes[0].child_axes[0].set_ylabel("cross-validated 1-NN accuracy", fontsize=12)
    return figure


def _plot_likelihood(answer: WhichDivergence) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('the picture needs matplotlib: pip install "divlearn[plot]"') from error
    figure = Figure(figsize=(7.5, 7.0), dpi=150, layout="constrained")
    ax = figure.add_subplot(xlabel=r"$\alpha$", ylabel=r"$\beta$", box_aspect=1)
    both = edges(answer.alphas), edges(answer.betas)
    lost = answer.map.T - answer.score
    image = ax.pcolormesh(*both, lost, cmap="cividis", vmin=max(lost.min(), -_LEVELS), vmax=0)
    figure.colorbar(
        image, label="log-likelihood per matrix below the maximum", shrink=0.8, extend="min"
    )
    for name, row in answer.named.items():
        ax.plot(row.alpha, row.beta, "o", color="white", markeredgecolor="black")
        ax.annotate(
            f"{name} {-row.difference:.3f}", (row.alpha, row.beta), (6, -16),
            textcoords="offset points", bbox=_LABEL,
        )  # fmt: skip
    ax.plot(*answer.best, "*", color="#d55e00", markeredgecolor="white", markersize=20, zorder=5)
    ax.set_title(f"maximum at ({answer.best[0]:.3g}, {answer.best[1]:.3g})")
    return figure
