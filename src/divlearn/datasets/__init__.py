"""Data sets: real SPD matrices that need no download."""

from divlearn.datasets.textures import Textures, load_textures

__all__ = ["Textures", "load_textures"]
