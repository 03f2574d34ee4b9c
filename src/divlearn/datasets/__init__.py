"""Data sets: raw samples, SPD matrices, labels and splits. Nothing is ever downloaded."""

from divlearn.datasets.dataset import Dataset, Split
from divlearn.datasets.loaders import (
    load_image_folder,
    load_japanese_vowels,
    load_spd,
    load_textures,
)
from divlearn.datasets.riemannian_gaussian import make_riemannian_gaussian_clusters
from divlearn.datasets.synthetic import (
    make_inverse_wishart_clusters,
    make_recordings,
    make_wishart_clusters,
)
from divlearn.files import ImageFiles

__all__ = [
    "Dataset",
    "ImageFiles",
    "Split",
    "load_image_folder",
    "load_japanese_vowels",
    "load_spd",
    "load_textures",
    "make_inverse_wishart_clusters",
    "make_recordings",
    "make_riemannian_gaussian_clusters",
    "make_wishart_clusters",
]
