"""Fitted models in files that hold numbers and names, and nothing that could run.

`resumable` keeps the progress of a fit in such a file.
"""

from divlearn.checkpoint import resumable
from divlearn.models.storage import load, save

__all__ = ["load", "resumable", "save"]
