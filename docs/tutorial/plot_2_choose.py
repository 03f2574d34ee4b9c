"""
2. Which divergence?
====================

Chapter 1 showed that a classifier works with one divergence and almost fails with another. Nobody
knows in advance which one suits their data. This chapter shows how to find out, and how sure the
answer is.
"""

# %%
# Ask the data
# ------------
# These are the matrices of :doc:`chapter 1 <plot_1_compare>`. `~divlearn.judge.which_divergence`
# compares three rules to classify a matrix:
#
# - the nearest class mean, in the best of five named divergences: AIRM, Stein, Burg, reverse Burg
#   (Burg with its two arguments exchanged) and log-cosh;
# - the nearest neighbour, in the best of the same five;
# - the nearest neighbour in the best divergence of a grid of points (alpha, beta). We call this
#   point the learned point, and this rule the learned nearest neighbour.
#
# "Best" means the highest accuracy on held-out matrices. ``groups`` names the subject of each
# recording. Means and neighbours then come from other subjects only.

import matplotlib.pyplot as plt

from divlearn import which_divergence
from divlearn.datasets import make_recordings
from divlearn.report import PlaneDisplay

recordings, y, subjects = make_recordings(random_state=0)
X = recordings @ recordings.mT / recordings.shape[2]
answer = which_divergence(X, y, groups=subjects, random_state=0)
print(answer.summary())

# %%
# The first sentence recommends a rule and a divergence, and states the accuracy to expect on new
# subjects. As an estimate, the highest of all accuracies would be too optimistic. So the matrices
# are divided into folds. For each fold, the rule and the divergence are chosen on the other folds,
# and then scored on this fold (nested cross-validation). Here the estimator to use is
# ``DivergenceKNN(1, "log-cosh")``.
#
# The other sentences compare the rules. A small p-value means that two equally accurate rules would
# seldom differ as much as these do. The p-values come from a permutation test. It flips the signs
# of paired differences at random, all those of a subject together. They are adjusted for the number
# of comparisons (max-T). The learned point is recommended only if it is significantly better than
# the best named divergence. If no rule is significantly better than chance, none is recommended.
#
# ``answer.named`` has the accuracy of every named divergence, for means and for neighbours. The
# nearest mean needs a robust divergence: log-cosh, Stein or reverse Burg. Artifacts do less harm to
# the nearest neighbour.

for name, row in answer.named.items():
    print(f"{name:12}  mean {row.mean_score:.1%}  neighbour {row.score:.1%}")

# %%
# This map shows the accuracy of the nearest neighbour at every point of the grid.

PlaneDisplay(answer).plot()
plt.show()

# %%
# If the map were flat, the choice would not matter. Here it does. Accuracy is lowest in the upper
# left corner, where alpha is about 0 and beta is larger than 1. It is also low in the lower right
# corner, and highest where both alpha and beta are large.
#
# Choose inside a model
# ---------------------
# In a pipeline, the divergence must be chosen on training data only. ``DivergenceMDM("choose")``
# compares ten divergences by cross-validation inside ``fit``. It keeps AIRM unless another one
# predicts better probabilities, by two standard errors of their Brier score (the mean squared error
# of probabilities). ``cv_results_`` lists all ten with their scores.

from sklearn.model_selection import GroupKFold

from divlearn import DivergenceMDM

for train, test in GroupKFold(3).split(X, y, subjects):
    fixed = DivergenceMDM("airm").fit(X[train], y[train])
    chosen = DivergenceMDM("choose", random_state=0).fit(X[train], y[train], groups=subjects[train])
    log_cosh = DivergenceMDM("log-cosh").fit(X[train], y[train])
    print(
        f"AIRM {fixed.score(X[test], y[test]):.1%}, "
        f"chosen: {chosen.divergence_.name} {chosen.score(X[test], y[test]):.1%}, "
        f"log-cosh {log_cosh.score(X[test], y[test]):.1%}"
    )

# %%
# In each of the three folds, "choose" selects a divergence that is more accurate than AIRM. In two
# folds it selects reverse Burg, although log-cosh is more accurate on the test data. The reason is
# that "choose" compares approximate means, to be fast. It judges log-cosh with the AIRM mean, which
# artifacts distort. The classifier then uses exact means in the selected divergence.
#
# So if you can hold out test data yourself, call `which_divergence` on the training data. It
# recommends a rule and a divergence. Pass the divergence to ``DivergenceMDM`` if the rule is the
# nearest mean, and to ``DivergenceKNN(1, ...)`` if it is the nearest neighbour. Use "choose" where
# a pipeline has to choose by itself.
#
# Without labels
# --------------
# Without labels, likelihood takes the place of accuracy. Every divergence D defines distributions
# of d x d matrices, with the density :math:`p(X) \propto e^{-\kappa D(X \| C)}` with respect to the
# affine-invariant volume :math:`\det(X)^{-(d+1)/2} dX`. Such a distribution has a centre C and a
# concentration :math:`\kappa`. Both are fitted to the data. Cluster with the divergence that has
# the highest likelihood (:doc:`/clustering`). For example, covariances of Gaussian samples follow
# the Wishart distribution, which belongs to the Burg divergence, (0, 1):

from divlearn.datasets import make_wishart_clusters

wishart, _ = make_wishart_clusters(1, 400, 4, dof=8, random_state=0)
print(which_divergence(wishart, random_state=0).summary())

# %%
# The best point of the plane has a slightly higher likelihood than Burg, but two more parameters.
# The BIC (Bayesian information criterion) weighs one against the other; a lower BIC is better. The
# number after "BIC" is that of Burg minus that of the best point. It is negative, so Burg is the
# better model. Burg is right for these matrices, and wrong for recordings with artifacts. No
# divergence is best for all data.
#
# .. list-table:: Rules of thumb, to be checked on your data
#    :header-rows: 1
#
#    * - your matrices
#      - try
#    * - clean covariances of many samples
#      - any; AIRM and Stein are common. Stein is faster, as it needs no eigenvalues
#    * - covariances of d channels from fewer than about 4 d Gaussian samples, without artifacts
#      - for nearest means, Burg, (0, 1)
#    * - matrices with artifacts: a few eigenvalues are far too large
#      - log-cosh, (1, 1), or larger alpha and beta; for nearest means also reverse Burg
#    * - inverse covariances, precision matrices
#      - reverse Burg, (1, 0)
#
# The second row comes from simulations: ``make_wishart_clusters(4, 140, 8, dof=n, separation=3)``
# makes four classes of covariances of 8 channels and n samples. The first 40 matrices of each class
# are training data. The nearest mean in Burg is more accurate than that in AIRM by 7.9 +- 0.4
# percentage points for n = 10, 4.2 +- 0.3 for n = 16, 2.0 +- 0.3 for n = 32 and 0.5 +- 0.2 for
# n = 128 (mean and standard error over 20 seeds). The advantage is smaller, or lost, if the
# amplitude varies between matrices. If each matrix is multiplied by exp(z / 2), with z standard
# normal, it is 3.4 +- 0.7 for n = 10, -0.6 +- 1.0 for n = 16 and -2.7 +- 1.1 for n = 32.
#
# :doc:`The next chapter <plot_3_learn>` fits classifiers that choose a divergence themselves, or
# combine several.
