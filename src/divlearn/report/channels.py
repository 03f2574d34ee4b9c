"""Importance of channels: a picture, and on pages a ranking and a scalp map."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Self

from divlearn.arrays import Labels, RealArray
from divlearn.judge.channels import ChannelImportance, channel_importance
from divlearn.judge.significance import SIGNIFICANT
from divlearn.report.displays import BEST, COLOUR, Display, draw_ranking
from divlearn.report.sections import Formats, Section, table_section, text_section
from divlearn.tangent import TangentClassifier
from divlearn.text import format_p

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLE = "Which channels matter"
_MAX_CHANNELS, _MAX_MATRICES = 64, 3000  # more would take longer than most fits
_FOLDS, _REPEATS = 4, 2
_MONTAGES = "colin27_1005", "standard_1005"  # the same electrodes: since MNE 1.13, and before it


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
        table = self.found.table()
        rows = [(row.name, row.importance, row.standard_error) for row in table]
        ax = self._set_axes(ax, (7.0, 1.2 + 0.3 * len(rows)))
        draw_ranking(ax, rows, [BEST if row.p_value < SIGNIFICANT else COLOUR for row in table])
        ax.axvline(0, color="#bbbbbb", linewidth=1, zorder=0)
        ax.set_xlabel("accuracy lost, in points")
        ax.set_title(f"{self.found.n_matrices} matrices, {self.found.accuracy:.1%} right")
        return self


def channel_sections(
    X: RealArray, y: Labels, groups: Labels | None, names: Sequence[str] | None
) -> list[Section]:
    """Rank channels by a quick classifier, and map them on a scalp if MNE knows all names."""
    d = X.shape[-1]
    if d > _MAX_CHANNELS or len(X) > _MAX_MATRICES:
        text = (
            f"Channels of {len(X)} matrices of size {d} are not ranked, as this would take longer "
            f"than the fit. Up to {_MAX_MATRICES} matrices and {_MAX_CHANNELS} channels are; "
            "divlearn.channel_importance ranks more."
        )
        return [text_section(_TITLE, text)]
    channels = [f"channel {k + 1}" for k in range(d)] if names is None else names
    model = TangentClassifier(random_state=0)
    try:
        importance = channel_importance(
            model, X, y, channels, n_repeats=_REPEATS, cv=_FOLDS, groups=groups
        )
    except ValueError as error:
        return [text_section(_TITLE, f"Channels are not ranked: {error}.")]
    note = (
        "What a quick classifier, TangentClassifier(), loses on held-out matrices if each channel "
        "is permuted among them, with standard errors and p-values adjusted for all channels. With "
        f"all channels it is right for {importance.accuracy:.1%}. divlearn.channel_importance "
        "measures the model itself."
    )
    scalp = [] if names is None else _scalp_map(importance)
    return [ranking_section(_TITLE, importance, note), *scalp]


def ranking_section(title: str, importance: ChannelImportance, note: str) -> Section:
    """Make a table of importances, the most important first; significant ones are bold."""
    rows = importance.table()
    formats: Formats = {"accuracy lost, points": ".1f", "p": format_p}
    return table_section(
        title,
        ["channels", *formats],
        [[row.name, (100 * row.importance, 100 * row.standard_error), row.p_value] for row in rows],
        note,
        bold=[k for k, row in enumerate(rows) if row.importance > 0 and row.p_value < SIGNIFICANT],
        formats=formats,
    )


def _scalp_map(importance: ChannelImportance) -> list[Section]:
    """Draw importances at the positions of electrodes, if MNE is installed and knows all names."""
    try:
        mne = import_module("mne")
    except ImportError:
        return []
    names, built_in = list(importance.channels), mne.channels.get_builtin_montages()
    montages = [mne.channels.make_standard_montage(name) for name in _MONTAGES if name in built_in]
    if not montages or not set(names) <= set(montages[0].ch_names):
        return []
    figure = import_module("matplotlib.figure").Figure((5.0, 4.2), layout="constrained")
    ax, info = figure.add_subplot(), mne.create_info(names, 1.0, "eeg").set_montage(montages[0])
    image, _ = mne.viz.plot_topomap(
        100 * importance.importances, info, axes=ax, names=names, show=False
    )
    figure.colorbar(image, ax=ax, label="accuracy lost, points")
    png = BytesIO()
    figure.savefig(png, format="png", dpi=150)
    content = {
        "source": f"data:image/png;base64,{b64encode(png.getvalue()).decode('ascii')}",
        "text": "Scalp map of the accuracy lost without each channel.",
    }
    return [Section("image", "Scalp map", content, "The ranking above, drawn by MNE.")]
