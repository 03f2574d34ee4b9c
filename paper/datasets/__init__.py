"""The paper's data sets from local copies. Nothing is downloaded; docs/data.md has the layouts."""

from paper.datasets.actions import load_hmdb, load_jhmdb, load_jhmdb_joints
from paper.datasets.images import load_brodatz, load_kth_tips2, load_virus
from paper.datasets.matrices import load_cancer, load_kth_tips2_authors, load_rgbd

__all__ = [
    "load_brodatz",
    "load_cancer",
    "load_hmdb",
    "load_jhmdb",
    "load_jhmdb_joints",
    "load_kth_tips2",
    "load_kth_tips2_authors",
    "load_rgbd",
    "load_virus",
]
