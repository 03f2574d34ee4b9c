"""Saving and loading of models, in files of numbers and names that contain no code."""

from divlearn.models.storage import load, save

__all__ = ["load", "save"]
