"""Reports: pictures (``plot_...``) and HTML pages (`page_of`, `classifier_page`) of results."""

from divlearn.report.atoms import atoms_section
from divlearn.report.fitted import classifier_page, cluster_page
from divlearn.report.page import Page
from divlearn.report.planes import plane_section
from divlearn.report.plots import plot_evaluation, plot_matrix, plot_plane
from divlearn.report.results import page_of
from divlearn.report.sections import (
    Section,
    confusion_section,
    curves_section,
    disagreement_section,
    repeat_section,
    table_section,
    text_section,
)

__all__ = [
    "Page", "Section", "atoms_section", "classifier_page", "cluster_page", "confusion_section",
    "curves_section", "disagreement_section", "page_of", "plane_section", "plot_evaluation",
    "plot_matrix", "plot_plane", "repeat_section", "table_section", "text_section",
]  # fmt: skip
