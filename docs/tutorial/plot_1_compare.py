"""
1. What the choice of a divergence changes
==========================================

A covariance matrix of enough samples is symmetric and positive definite (SPD). To classify, cluster
or average such matrices, you need a way to compare two of them. A divergence is a number that does
so: it is zero for equal matrices, and the larger the more they differ. There are many divergences.
This chapter shows where they disagree, and why that matters for your data.
"""

# %%
# Recordings become matrices
# --------------------------
# We simulate a small brain-computer interface: 12 subjects, 8 channels, 3 mental states. A quarter
# of the recordings contain an artifact, such as a movement or a loose electrode. The covariance of
# a recording describes how its channels vary together. The simulated signals have mean zero. With
# your own recordings, first subtract the mean of every channel.

import matplotlib.pyplot as plt
import numpy as np

from divlearn.datasets import make_recordings

recordings, y, subjects = make_recordings(random_state=0)
X = recordings @ recordings.mT / recordings.shape[2]
print(f"{recordings.shape} recordings, {X.shape} matrices, {len(set(y))} states")

# %%
# Compare two matrices
# --------------------
# The eigenvalues :math:`\lambda_i` of :math:`X Y^{-1}` describe how X differs from Y: they are all
# 1 if X = Y. An alpha-beta divergence is a sum :math:`D(X \| Y) = \sum_i f(\log \lambda_i)`. The
# function f has two parameters, alpha and beta (:doc:`/maths` has the formula). Well-known
# divergences are points of the plane (alpha, beta): AIRM (the affine-invariant Riemannian metric)
# is (0, 0), and the Stein divergence (1/2, 1/2). Other libraries use other constant factors. At
# (0, 0), D is half the squared AIRM distance. At (1/2, 1/2), it is four times pyRiemann's squared
# log-det distance.

from divlearn import abld, get_divergence

for name in ("airm", "stein", "burg", "log-cosh"):
    divergence = get_divergence(name)
    value = abld(X[0], X[12], alpha=divergence.alpha, beta=divergence.beta)
    print(f"{name:9} (alpha, beta) = ({divergence.alpha:g}, {divergence.beta:g})   D = {value:.2f}")

# %%
# Where they differ
# -----------------
# A plot of f shows the difference. For matrices of size 1, D is f itself.

ratios = np.geomspace(1 / 100, 100, 201)
numbers, one = ratios[:, None, None], np.ones((1, 1))
named = {"airm": "AIRM", "stein": "Stein", "burg": "Burg", "log-cosh": "log-cosh"}
colors = dict(zip(named, ["#d55e00", "#0072b2", "#cc79a7", "#009e73"], strict=True))

figure, panel = plt.subplots(figsize=(7, 4.2), layout="constrained")
for name, title in named.items():
    point = get_divergence(name)
    values = [abld(number, one, alpha=point.alpha, beta=point.beta) for number in numbers]
    panel.plot(
        ratios, values, color=colors[name], label=f"{title} ({point.alpha:g}, {point.beta:g})"
    )
panel.set(xscale="log", ylim=(0, 12), xlabel="eigenvalue of $X Y^{-1}$", ylabel="f")
panel.spines[["top", "right"]].set_visible(False)
panel.legend(frameon=False, title="(alpha, beta)")
plt.show()

# %%
# All curves have the same curvature at 1, so all divergences agree on matrices that are close. They
# disagree on large eigenvalues. Burg grows in proportion to a large eigenvalue, AIRM to the square
# of its logarithm, and Stein and log-cosh only to its logarithm. Log-cosh grows half as fast as
# Stein.
#
# Consider a recording with an artifact and one without, and their covariances X and Y. The artifact
# inflates one eigenvalue, usually to more than 1,000, which is beyond the right edge of this plot.
# This eigenvalue dominates the Burg divergence. In log-cosh, the other seven still count.
#
# What it means for a classifier
# ------------------------------
# A simple classifier assigns a matrix to the class whose mean is nearest. The mean in a divergence
# is the matrix M that minimises :math:`\sum_i D(X_i \| M)`. So the divergence decides which matrix
# is the mean, and which mean is nearest. We measure accuracy with and without artifacts, and hold
# out three subjects at a time.

from sklearn.model_selection import GroupKFold, cross_val_score

from divlearn import DivergenceMDM

clean = make_recordings(artifacts=0, random_state=0)[0]
data = {"no artifacts": clean @ clean.mT / clean.shape[2], "artifacts in 25 %": X}
accuracy = {
    (kind, name): cross_val_score(
        DivergenceMDM(name), matrices, y, groups=subjects, cv=GroupKFold(4)
    ).mean()
    for kind, matrices in data.items()
    for name in named
}

figure, panel = plt.subplots(figsize=(7, 3.8), layout="constrained")
for place, name in enumerate(named):
    heights = [accuracy[kind, name] for kind in data]
    bars = panel.bar(
        np.arange(2) + 0.2 * place, heights, 0.18, color=colors[name], label=named[name]
    )
    panel.bar_label(bars, fmt="{:.0%}", fontsize=9)
panel.axhline(1 / 3, color="#888888", linestyle=":", linewidth=1)
panel.text(0.8, 1 / 3, "chance", va="bottom", ha="center", color="#888888")
panel.set(ylim=(0, 1.05), ylabel="accuracy on new subjects")
panel.set_xticks([0.3, 1.3], list(data))
panel.spines[["top", "right"]].set_visible(False)
panel.legend(frameon=False, ncols=4, loc="upper center")
plt.show()

# %%
# On clean data the choice hardly matters. With artifacts it matters a lot: Burg falls almost to
# chance, AIRM loses much accuracy, Stein loses little, and log-cosh least.
#
# Which divergence is best depends on the data. :doc:`The next chapter <plot_2_choose>` finds out.
