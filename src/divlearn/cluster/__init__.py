"""Clustering of SPD matrices, and how well it agrees with classes."""

from divlearn.cluster.agreement import matched_f1_score, pairwise_f1_score
from divlearn.cluster.kmeans import ABKMeans, KarcherKMeans, LogEuclideanKMeans
from divlearn.cluster.mixture import ABMixture

__all__ = [
    "ABKMeans",
    "ABMixture",
    "KarcherKMeans",
    "LogEuclideanKMeans",
    "matched_f1_score",
    "pairwise_f1_score",
]
