"""
2. Which divergence?
====================

Chapter 1 showed that the choice of a divergence can decide between chance and a working classifier.
Nobody knows in advance which one suits their data. This chapter finds out, in one line, and says
how sure the answer is.
"""

# %%
# Ask the data
# ------------
# These are the matrices of :doc:`chapter 1 <plot_1_compare>`. `~divlearn.judge.which_divergence`
# compares three rules. The first two are the nearest class mean and the nearest neighbour, each in
# the best of five named divergences: AIRM, Stein, Burg, reverse Burg (Burg with X and Y exchanged)
# and log-cosh. The third is the nearest neighbour at the best point (alpha, beta) of a grid, the
# learned point. For each rule, the divergence with the highest held-out accuracy is chosen.
# ``groups`` names the subject of each recording, so that means and neighbours come from other
# subjects only.

import matplotlib.pyplot as plt

from divlearn import which_divergence
from divlearn.datasets import make_recordings
from divlearn.report import PlaneDisplay

recordings, y, subjects = make_recordings(random_state=0)
X = recordings @ recordings.mT / recordings.shape[2]
answer = which_divergence(X, y, groups=subjects, random_state=0)
print(answer.summary())

# %%
# Read the answer in two steps. First, it recommends a rule and a divergence, with the accuracy to
# expect on new subjects. The best of all scores would be too high, so this accuracy comes from
# nested cross-validation: for each fold, rule and divergence are chosen on the other folds, and
# scored on this one. Here the estimator to use is ``DivergenceKNN(1, "log-cosh")``. Second, it
# compares the rules. Its p-values come from a permutation test of paired differences: the test
# flips the signs of whole subjects at random, and is adjusted for the number of comparisons
# (max-T). A small p-value means that a difference is more than chance. The learned point is
# recommended only if it is significantly better than the best named divergence. If no rule is
# significantly better than chance, the answer recommends none.
#
# ``answer.named`` has the accuracy of every named divergence for means and neighbours. The nearest
# mean needs a robust divergence: log-cosh, Stein or reverse Burg. With the nearest neighbour,
# artifacts do less harm.

for name, row in answer.named.items():
    print(f"{name:12}  mean {row.mean_score:.1%}  neighbour {row.score:.1%}")

# %%
# The map shows the accuracy of the nearest neighbour over the grid.

PlaneDisplay(answer).plot()
plt.show()

# %%
# A flat map means that the choice does not matter. Here it does: accuracy is lowest in the upper
# left corner, where alpha is about 0 and beta larger than Burg's 1, and low in the lower right
# corner. It is highest where both alpha and beta are large.
#
# Choose inside a model
# ---------------------
# In a pipeline, the divergence must be chosen on training data only. ``DivergenceMDM("choose")``
# compares ten divergences by cross-validation inside ``fit``; ``cv_results_`` lists them with their
# held-out figures. It keeps AIRM unless the Brier score of another divergence is better by two
# standard errors.

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
# In each fold its choice is more accurate than AIRM. In two of them it is reverse Burg, although
# log-cosh is more accurate on the test part. The reason is that "choose" compares approximate means
# to be fast: it judges log-cosh with the AIRM mean, which artifacts distort. The divergence that is
# chosen gets its exact mean.
#
# So if you can set data aside, call `which_divergence` on the training data. Pass the divergence
# that it recommends, a name or a pair (alpha, beta), to the estimator of the recommended rule:
# ``DivergenceMDM`` for the nearest mean, ``DivergenceKNN(1, ...)`` for the nearest neighbour. Use
# "choose" where a pipeline has to choose by itself.
#
# Without labels
# --------------
# Without labels, likelihood takes the place of accuracy. Every divergence D defines distributions
# of matrices with the density :math:`p(X) \propto e^{-\kappa D(X \| C)}` with respect to the
# affine-invariant volume :math:`\det(X)^{-(d+1)/2} dX`. They have a centre C and a concentration
# :math:`\kappa`. Both are fitted to the data, and the divergence of the highest likelihood is the
# one to cluster with (:doc:`/clustering`). Covariances of Gaussian samples follow the Wishart
# distribution, whose divergence is Burg's, (0, 1):

from divlearn.datasets import make_wishart_clusters

wishart, _ = make_wishart_clusters(1, 400, 4, dof=8, random_state=0)
print(which_divergence(wishart, random_state=0).summary())

# %%
# The number after "BIC" is the BIC of Burg minus that of the best point. It is negative, so Burg is
# the better model: Burg is right for Wishart matrices and wrong for recordings with artifacts. No
# divergence is best for all data.
#
# .. list-table:: Rules of thumb, to be checked on your data
#    :header-rows: 1
#
#    * - your matrices
#      - try
#    * - clean covariances of many samples
#      - any; AIRM and Stein are common. Stein is faster, as it needs no eigenvalues
#    * - covariances of d channels from fewer than about 4 d Gaussian samples, no artifacts, for
#        nearest means
#      - Burg, (0, 1)
#    * - a few eigenvalues far too large: artifacts, outliers
#      - log-cosh, (1, 1), or larger alpha and beta; for nearest means also reverse Burg
#    * - inverse covariances, precision matrices
#      - reverse Burg, (1, 0)
#
# The second row comes from simulations. With 8 x 8 Wishart matrices of four classes, 40 training
# matrices each and 20 seeds, nearest means by Burg have a higher accuracy than those by AIRM, by
# 7.5 +- 0.4 percentage points with 10 samples per matrix, 3.6 +- 0.3 with 16, 1.4 +- 0.2 with 32
# and 0.3 +- 0.1 with 128. The gain nearly vanishes if each matrix is also multiplied by a random
# factor, exp(0.5 z) with z standard normal: with 20 training matrices per class it is 1.5 +- 0.8
# with 10 samples, and -0.9 +- 0.7 with 16.
#
# :doc:`The next chapter <plot_3_learn>` fits models that choose a divergence, or weight several, as
# part of the classifier.
