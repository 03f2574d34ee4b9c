"""
Clusters of covariance matrices
===============================

k-means needs a mean and a distance. For SPD matrices both depend on the divergence. The usual
choice, ordinary k-means on matrix logarithms, is fast and often good. It suffers when matrices
come from few samples: their smallest eigenvalues are then far too small, and logarithms amplify the
error.
"""

# %%
# We simulate eight groups of sample covariances of ten variables, each from eleven samples only.
# Three methods try to find the groups.

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.manifold import TSNE
from sklearn.metrics import confusion_matrix

from divlearn import get_divergence
from divlearn.cluster import ABKMeans, ABMixture, LogEuclideanKMeans, pairwise_f1_score
from divlearn.datasets import make_wishart_clusters

k = 8
X, y = make_wishart_clusters(k, 40, 10, dof=11, separation=7, random_state=2)
methods = {
    "k-means of logarithms": LogEuclideanKMeans(k, random_state=0),
    "k-means, divergence (0.5, 1.5)": ABKMeans(k, random_state=0),
    "mixture, divergence learned": ABMixture(k, random_state=0),
}
found = {name: method.fit_predict(X) for name, method in methods.items()}

# %%
# The mixture reports more than labels: which distribution it has learned, and how certain this is.
# It finds that sample covariances are Wishart matrices.

print(methods["mixture, divergence learned"].summary(X))

# %%
# The picture places similar matrices close together (t-SNE of Stein distances). Every panel shows
# the same points. Colours show groups or clusters, and titles the agreement (F1). k-means often
# merges two groups and splits another; the mixture escapes such local optima. This is one draw of
# data: :doc:`/results` has means over several draws.

distances = get_divergence("stein").pairwise(X, squared=False)
layout = TSNE(metric="precomputed", init="random", method="exact", max_iter=500, random_state=0)
places = layout.fit_transform(distances)


def draw(panel, labels, title):
    """Points, each cluster in the colour of the group that it matches."""
    shared = confusion_matrix(y, labels, labels=range(k))
    groups, clusters = linear_sum_assignment(-shared)
    color_of = np.empty(k, dtype=int)
    color_of[clusters] = groups
    panel.scatter(*places.T, c=color_of[labels], cmap="tab10", vmin=0, vmax=9, s=22, linewidths=0)
    panel.set(xticks=[], yticks=[])
    panel.set_title(title, fontsize=12)


figure, panels = plt.subplots(2, 2, figsize=(9, 9), layout="constrained")
draw(panels.flat[0], y, "the groups")
for panel, (name, labels) in zip(panels.flat[1:], found.items(), strict=True):
    draw(panel, labels, f"{name}: F1 {pairwise_f1_score(y, labels):.2f}")
plt.show()
