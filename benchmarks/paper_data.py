"""What benchmarks share with the paper's experiments, which stand in the folder above."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from paper.datasets import (
    load_brodatz,
    load_jhmdb_joints,
    load_kth_tips2_authors,
    load_virus,
)
from paper.methods import make_clustering
from paper.published import CLUSTERS

__all__ = [
    "CLUSTERS",
    "load_brodatz",
    "load_jhmdb_joints",
    "load_kth_tips2_authors",
    "load_virus",
    "make_clustering",
]
