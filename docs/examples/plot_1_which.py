"""
Which divergence should I use?
==============================

Somebody hands you covariance matrices and asks for the nearest neighbour of each. Nearest in which
sense? `which_divergence` tries a whole plane of divergences on your data, and says whether the
best point is better than the usual ones by more than chance.
"""

# %%
# With labels
# -----------
# Eight groups of covariance matrices, each matrix from six samples of five variables: short
# recordings make such data. A divergence is good if the nearest other matrix is of the same group.
# All points of the plane come from one pass over the pairs, for the eigenvalues of a pair are the
# same whatever the divergence.

import matplotlib.pyplot as plt

from divlearn import which_divergence
from divlearn.datasets import make_wishart_clusters
from divlearn.report import plot_plane

X, y = make_wishart_clusters(8, 60, 5, dof=6, separation=4, random_state=0)
answer = which_divergence(X, y, random_state=0)
print(answer.summary())

# %%
# A bad choice loses two fifths of the right answers. A good named divergence is enough: the star is
# the learned point, and its gain on held-out matrices is not significant, as the summary says.

plot_plane(answer)
plt.show()

# %%
# Without labels
# --------------
# Divergences cannot be compared with one another by their size: all of them shrink to zero as alpha
# and beta grow. Likelihoods can. Each divergence belongs to a distribution,
# :math:`p(X) \propto e^{-\kappa D(X \| C)}`, whose normaliser divlearn knows. Sample covariances
# are Wishart matrices, and their divergence is Burg's, at (0, 1). Nobody told the computer:

matrices, _ = make_wishart_clusters(1, 400, 4, dof=8, random_state=0)
unlabelled = which_divergence(matrices, random_state=0)
print(unlabelled.summary())
plot_plane(unlabelled)
plt.show()
