"""Fitted models in files that hold numbers and names, and nothing that could run."""

from divlearn.models.storage import load, save

__all__ = ["load", "save"]
