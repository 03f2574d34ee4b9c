"""Reports: pictures (``plot_...``, `PlaneDisplay`) and HTML pages (`page_of`, ``..._page``)."""

from divlearn.report.clusters import cluster_page
from divlearn.report.fitted import classifier_page
from divlearn.report.page import Page
from divlearn.report.plots import PlaneDisplay, plot_evaluation, plot_matrix, plot_plane
from divlearn.report.results import page_of

__all__ = [
    "Page",
    "PlaneDisplay",
    "classifier_page",
    "cluster_page",
    "page_of",
    "plot_evaluation",
    "plot_matrix",
    "plot_plane",
]
