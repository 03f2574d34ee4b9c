"""
3. Learn it with the task
=========================

A nearest mean describes a class by one matrix. In our simulation every state comes in several
variants, so one mean is not enough. This chapter fits three models that learn more: a support
vector machine, IDDL and `~divlearn.committee.SPDClassifier`.
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
# A kernel machine
# ----------------
# :math:`e^{-s \tilde D(X, Y)}` is a similarity of two matrices, with :math:`\tilde D` the mean of
# :math:`D(X \| Y)` and :math:`D(Y \| X)`. It can serve as the kernel of a support vector machine.
# It is not positive definite for every divergence and scale (see Kernels in :doc:`/maths`). The
# machine is fitted all the same, and cross-validation judges it by what it predicts.
# `~divlearn.kernels.DivergenceKernelClassifier` uses cross-validation to choose first the
# divergence, then the scale s and the penalty C. It computes the eigenvalues of all pairs once, for
# all candidates.

kernel = DivergenceKernelClassifier(random_state=0)
kernel.fit(X[train], y[train], groups=subjects[train])
print(kernel.message_)

# %%
# Atoms
# -----
# IDDL (information divergence and dictionary learning) encodes a matrix by its divergences to
# *atoms*, which are SPD matrices too. It learns the atoms and a linear classifier, the head,
# together. Models with such atoms are "of full rank". Models of lower rank have filters instead of
# atoms, and follow below.

iddl = IDDLClassifier(random_state=0)
iddl.fit(X[train], y[train], groups=subjects[train])
print(f"{len(iddl.atoms_)} atoms of full rank")
print(iddl.summary())

# %%
# IDDL is itself an average. It trains a model with 48 atoms on each of four training parts, and
# keeps it with its learned atoms, with its initial ones, or with both, whichever predicts best. It
# does the same for ranks 1 and 4: a model of rank p learns *filters* V with p columns instead of
# atoms, and compares the p x p matrices V^T X V. All these models are averaged, together with
# discriminant analyses of their features; :doc:`/classifiers` says when some are left out. The
# table shows how much the heads of full rank rely on each divergence: least on Burg, which
# artifacts mislead.

# %%
# A committee
# -----------
# No kind of model wins on all data. `SPDClassifier` fits eight and averages their probabilities.
# The simplest is logistic regression on tangent vectors, the entries of
# :math:`\log(M^{-1/2} X M^{-1/2})` with the mean M. The weights of the average maximise the
# likelihood of held-out labels. `SPDClassifier` is the model to try first. A fit takes seconds for
# hundreds of matrices, and about 20 seconds for 4,000 to 8,000 matrices of size 16 with four
# threads (:doc:`/growth`).

committee = SPDClassifier(random_state=0).fit(X[train], y[train], groups=subjects[train])
print(committee.summary())

# %%
# Here the nearest neighbour and the kernel machine have the highest held-out accuracies of all
# members. The nearest neighbour has the largest weight; next comes IDDL, whose prior weight is four
# times that of another member, and then the kernel machine. The last sentence of the summary above
# names a single member that does as well as the average, if there is one: try it, too.
#
# On new subjects
# ---------------
# Grey bars are baselines. One of them is the kernel machine with AIRM, which shows what the SVM
# alone gains.

models = {
    "nearest mean, AIRM": DivergenceMDM("airm").fit(X[train], y[train]),
    "nearest mean, log-cosh": DivergenceMDM("log-cosh").fit(X[train], y[train]),
    "SVM, AIRM": DivergenceKernelClassifier(alphas=[0], betas=[0], random_state=0).fit(
        X[train], y[train], groups=subjects[train]
    ),
    "DivergenceKernelClassifier": kernel,
    "IDDLClassifier": iddl,
    "SPDClassifier": committee,
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
# The nearest mean and the SVM appear twice: with AIRM and with a better divergence.
# `DivergenceKernelClassifier` is the SVM with a divergence that it chose. The nearest mean in
# log-cosh has 78 %, IDDL 84 %, the kernel machine 89 % and the committee 93 %. These are 120
# recordings of four subjects, so the standard error of each is at least 2 to 4 points. The best
# model differs between data sets: :doc:`/accuracy` has tables for real data.
#
# Keep it
# -------
# `divlearn.save <divlearn.models.save>` writes any of these models, or a pipeline that contains
# one. `divlearn.load <divlearn.models.load>` reads it back. Unlike
# loading a pickle, this runs no code from the file.

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
# asks how far to trust an accuracy.
