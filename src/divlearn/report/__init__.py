"""Reports: pictures (classes named ``...Display``) and HTML pages (`page_of`, ``..._page``)."""

from divlearn.report.channels import ChannelImportanceDisplay
from divlearn.report.displays import (
    BICDisplay,
    ClusterDisplay,
    EvaluationDisplay,
    MatrixDisplay,
    PlaneDisplay,
    WeightsDisplay,
)
from divlearn.report.fitted import classifier_page, cluster_page, say_clusters
from divlearn.report.page import Page
from divlearn.report.results import page_of

__all__ = [
    "BICDisplay",
    "ChannelImportanceDisplay",
    "ClusterDisplay",
    "EvaluationDisplay",
    "MatrixDisplay",
    "Page",
    "PlaneDisplay",
    "WeightsDisplay",
    "classifier_page",
    "cluster_page",
    "page_of",
    "say_clusters",
]
