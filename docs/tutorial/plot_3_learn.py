"""
3. Learn it with the task
=========================

The nearest mean describes a class by one matrix. In our simulation every state comes in several
variants, so one matrix is not enough. This chapter fits three classifiers that learn more: a
support vector machine (SVM), IDDL, and `~divlearn.committee.SPDClassifier`, which averages several.
"""

# %%
# Hold out subjects
# -----------------
# We train on eight subjects and test on the other four.

import matplotlib.pyplot as plt

from divlearn import DivergenceKernelClassifier, DivergenceMDM, IDDLClassifier, SPDClassifier
from divlearn.datasets import make_recordings

recordings, y, subjects = make_recordings(random_state=0)
X = recordings @ recordings.mT / recordings.shape[2]
train, test = subjects < 8, subjects >= 8

# %%
# A support vector machine
# ------------------------
# `~divlearn.kernels.DivergenceKernelClassifier` is an SVM. Its kernel, the similarity of two
# matrices, is :math:`e^{-s \tilde D(X, Y)}`, where :math:`\tilde D` is the mean of
# :math:`D(X \| Y)` and :math:`D(Y \| X)`. The classifier uses cross-validation to choose first the
# divergence, then the scale s and the penalty C. For some divergences and scales, the kernel is not
# positive definite (see Kernels in :doc:`/maths`). The SVM is fitted all the same, and
# cross-validation rejects it if it predicts badly.

kernel = DivergenceKernelClassifier(random_state=0)
kernel.fit(X[train], y[train], groups=subjects[train])
print(kernel.message_)

# %%
# Atoms
# -----
# IDDL (information divergence and dictionary learning) encodes a matrix by its divergences to
# *atoms*, which are SPD matrices too. It learns the atoms together with a linear classifier of
# these codes, the *head*.

iddl = IDDLClassifier(random_state=0)
iddl.fit(X[train], y[train], groups=subjects[train])
print(f"{len(iddl.atoms_)} atoms of full rank")
print(iddl.summary())

# %%
# IDDL is itself an average of models, which the second line counts. Models with atoms are called
# models of full rank. Four of them have learned atoms, 48 each, and each is trained on three
# quarters of the training data. Four others keep the initial atoms, and learn only the head.
#
# A model of rank 1 or 4 has *filters* instead of atoms. A filter of rank p is a matrix V with p
# columns. It encodes a matrix X by the p x p matrix V^T X V: by the logarithm of its determinant
# and, for p > 1, also by its divergences to the identity.
#
# Discriminant analyses of the codes and of matrix logarithms join the average. :doc:`/classifiers`
# says when some models are left out. The column "weight" shows how much the heads of full rank rely
# on each divergence. They rely least on Burg, which artifacts mislead.

# %%
# An average of classifiers
# -------------------------
# No classifier is best on all data. `SPDClassifier` fits seven of them, its members, and averages
# their probabilities. The weights of the members maximise the likelihood of held-out labels. Two
# members are IDDL and the SVM. Another one is logistic regression on tangent vectors, which are the
# entries of :math:`\log(M^{-1/2} X M^{-1/2})`, where M is the AIRM mean of all training matrices.
#
# `SPDClassifier` is the model to try first. A fit takes seconds for hundreds of matrices. For 8,000
# matrices of size 16 it took 16 seconds on 16 cores (:doc:`/growth`).

average = SPDClassifier(random_state=0).fit(X[train], y[train], groups=subjects[train])
print(average.summary())

# %%
# Here two members have the highest held-out accuracies: the nearest neighbour and the SVM
# ("kernel"). The nearest neighbour also has the largest weight. IDDL has a larger weight than the
# SVM although it is less accurate here: before any data, IDDL counts four times as much as each
# other member. If a single member is about as accurate as the average, the summary names it: try
# this member, too.
#
# On new subjects
# ---------------
# We compare the three classifiers with simpler ones (grey bars). One of these is the SVM with AIRM.
# Its divergence is fixed, as that of the nearest mean is.

models = {
    "nearest mean, AIRM": DivergenceMDM("airm").fit(X[train], y[train]),
    "nearest mean, log-cosh": DivergenceMDM("log-cosh").fit(X[train], y[train]),
    "SVM, AIRM": DivergenceKernelClassifier(alphas=[0], betas=[0], random_state=0).fit(
        X[train], y[train], groups=subjects[train]
    ),
    "DivergenceKernelClassifier": kernel,
    "IDDLClassifier": iddl,
    "SPDClassifier": average,
}
scores = {name: model.score(X[test], y[test]) for name, model in models.items()}

figure, panel = plt.subplots(figsize=(7, 3.3), layout="constrained")
bars = panel.barh(list(scores), list(scores.values()), color=["#bbbbbb"] * 3 + ["#0072b2"] * 3)
panel.bar_label(bars, fmt="{:.0%}", padding=3)
panel.set(xlim=(0, 1.05), xlabel="accuracy on 120 recordings of new subjects")
panel.invert_yaxis()
panel.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Both the nearest mean and the SVM are more accurate with another divergence than AIRM. The nearest
# mean in log-cosh has 78 %, IDDL 84 %, the SVM 89 % and `SPDClassifier` 93 %. These figures have a
# standard error of 2 to 4 points if the 120 recordings are independent. It is larger if the
# recordings of a subject resemble each other. The best model differs between data sets:
# :doc:`/accuracy` has tables for real data.
#
# Save the model
# --------------
# `divlearn.save <divlearn.models.save>` writes any of these models, or a pipeline that contains
# one. `divlearn.load <divlearn.models.load>` reads it back. Unlike loading a pickle, this runs no
# code from the file.

import tempfile
from pathlib import Path

import divlearn

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.divlearn"
    divlearn.save(kernel, path)
    again = divlearn.load(path)
print((again.predict(X[test]) == kernel.predict(X[test])).all())

# %%
# To predict numbers, use `~divlearn.committee.SPDRegressor`. :doc:`The last chapter <plot_4_trust>`
# shows why a model may disappoint on new data.
