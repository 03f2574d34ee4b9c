"""Reports: pictures and pages of what was computed."""

from divlearn.report.atoms import AtomsSection
from divlearn.report.confusion import ConfusionSection
from divlearn.report.curves import CurvesSection
from divlearn.report.page import Page
from divlearn.report.plane import plot_plane
from divlearn.report.plane_section import PlaneSection
from divlearn.report.section import Section
from divlearn.report.tables import DisagreementSection, TableSection
from divlearn.report.words import RepeatSection, TextSection

__all__ = [
    "AtomsSection", "ConfusionSection", "CurvesSection", "DisagreementSection", "Page",
    "PlaneSection", "RepeatSection", "Section", "TableSection", "TextSection", "plot_plane",
]  # fmt: skip
