"""Data sets: raw samples, SPD matrices, labels and splits. Nothing is ever downloaded."""

from divlearn.datasets.actions import load_hmdb, load_jhmdb, load_jhmdb_joints
from divlearn.datasets.brodatz import load_brodatz
from divlearn.datasets.cancer import load_breast, load_myometrium, load_prostate
from divlearn.datasets.dataset import Dataset, Split, SplitRule
from divlearn.datasets.embedded import load_basic_motions, load_japanese_vowels
from divlearn.datasets.files import ImageFiles
from divlearn.datasets.image_folders import load_image_folder
from divlearn.datasets.kth_tips2 import load_kth_tips2, load_kth_tips2_authors
from divlearn.datasets.objects import load_rgbd
from divlearn.datasets.riemannian_gaussian import make_riemannian_gaussian_clusters
from divlearn.datasets.stored import load_spd
from divlearn.datasets.synthetic import make_inverse_wishart_clusters, make_wishart_clusters
from divlearn.datasets.textures import load_textures
from divlearn.datasets.virus import load_virus

__all__ = [
    "Dataset", "ImageFiles", "Split", "SplitRule", "load_basic_motions", "load_breast",
    "load_brodatz", "load_hmdb", "load_image_folder", "load_japanese_vowels", "load_jhmdb",
    "load_jhmdb_joints", "load_kth_tips2", "load_kth_tips2_authors", "load_myometrium",
    "load_prostate", "load_rgbd", "load_spd", "load_textures", "load_virus",
    "make_inverse_wishart_clusters", "make_riemannian_gaussian_clusters", "make_wishart_clusters",
]  # fmt: skip
