"""Reports: pictures (``plot_...``) and HTML pages (`page_of`, `classifier_page`) of results."""

from divlearn.report.fitted import classifier_page, cluster_page
from divlearn.report.page import Page
from divlearn.report.plots import plot_evaluation, plot_matrix, plot_plane
from divlearn.report.results import page_of

__all__ = [
    "Page", "classifier_page", "cluster_page", "page_of", "plot_evaluation", "plot_matrix",
    "plot_plane",
]  # fmt: skip
