"""Readers of files that may be damaged or hostile: stacks of matrices, archives and images."""

from divlearn.files.images import ImageFiles, list_images
from divlearn.files.stacks import SPDFile, read_spd

__all__ = ["ImageFiles", "SPDFile", "list_images", "read_spd"]
