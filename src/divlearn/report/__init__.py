"""Reports: pictures of what was computed."""

from divlearn.report.plane import plot_plane

__all__ = ["plot_plane"]
