"""
4. Trust it
===========

A model may disappoint on new data. This chapter shows three reasons and three remedies: hold out
whole groups to estimate the accuracy, remove the shift between groups, and calibrate probabilities.
"""

# %%
# Groups
# ------
# Recordings of one subject resemble each other. In this simulation, each subject mixes the channels
# by a random matrix. Here this matrix is four times as far from the identity as in the chapters
# before (``shift=0.4`` instead of 0.1). Random folds put each subject into both the training and
# the test data. Group folds do not: they test on new subjects.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GroupKFold, KFold, cross_val_score

from divlearn import CalibratedClassifier, DivergenceKNN, DivergenceMDM
from divlearn.datasets import make_recordings

recordings, y, subjects = make_recordings(shift=0.4, random_state=0)
X = recordings @ recordings.mT / recordings.shape[2]

folds = {
    "random folds": list(KFold(4, shuffle=True, random_state=0).split(X)),
    "new subjects": list(GroupKFold(4).split(X, y, subjects)),
}
model = DivergenceKNN(1, "log-cosh")


def accuracies(matrices):
    """Accuracy of the nearest neighbour on both kinds of folds."""
    return {
        kind: cross_val_score(model, matrices, y, cv=splits).mean()
        for kind, splits in folds.items()
    }


before = accuracies(X)
for kind, accuracy in before.items():
    print(f"{kind}: {accuracy:.1%}")

# %%
# The nearest neighbour does better on random folds because it recognises the subject. On a new
# subject that knowledge is worthless. Always pass ``groups`` to the splitter. Some models
# cross-validate inside ``fit``, such as ``DivergenceMDM("choose")``. Pass ``groups`` to their
# ``fit`` as well, so that they hold out whole groups, too.
#
# Shift
# -----
# In this simulation, and roughly in real EEG, subjects differ by a linear map A of their channels.
# It changes the covariance X to :math:`A X A^T`. `~divlearn.transfer.Recenter` removes most of this
# shift. It maps the mean M of every subject to the identity, by
# :math:`X \mapsto M^{-1/2} X M^{-1/2}`. It needs no labels, so it also works for a new subject.
#
# Artifacts would distort the means of AIRM and Burg, so we use the log-cosh mean. Each subject is
# re-centred by its own matrices, so test subjects do not affect the training data.

from divlearn import Recenter

centred = Recenter("log-cosh").fit_transform(X, groups=subjects)
after = accuracies(centred)

figure, panel = plt.subplots(figsize=(6, 3.6), layout="constrained")
for place, (title, table) in enumerate({"as recorded": before, "re-centred": after}.items()):
    color = ["#bbbbbb", "#0072b2"][place]
    bars = panel.bar(np.arange(2) + 0.35 * place, table.values(), 0.33, color=color, label=title)
    panel.bar_label(bars, fmt="{:.0%}")
panel.set(ylim=(0, 1.15), ylabel="accuracy of the nearest neighbour")
panel.set_xticks([0.175, 1.175], list(folds))
panel.spines[["top", "right"]].set_visible(False)
panel.legend(frameon=False, ncols=2, loc="upper left")
plt.show()

# %%
# Re-centring raises the accuracy on new subjects most. Random folds are no longer easier, because
# subjects can hardly be recognised any more.
#
# In a pipeline, `Recenter` estimates the mean of a new subject from the matrices passed to
# ``predict``. Without ``groups``, all matrices of a call count as one subject. So predict one
# subject at a time, or pass ``groups`` as :doc:`/transfer` shows.
#
# Calibration
# -----------
# A prediction with a probability of 80 % should be right four times out of five.
# ``DivergenceMDM`` with a named divergence computes probabilities as the softmax of the negative
# divergences. The plot shows that on these data the highest of them are too low: predictions are
# right more often. `SPDClassifier`, `IDDLClassifier`, `DivergenceKernelClassifier`,
# `CalibratedClassifier` and ``DivergenceMDM("choose")`` calibrate probabilities on held-out data.

from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss

train, test = subjects < 8, subjects >= 8
nearest = DivergenceMDM("log-cosh").fit(centred[train], y[train])
calibrated = CalibratedClassifier(DivergenceMDM("log-cosh"), random_state=0)
calibrated.fit(centred[train], y[train], groups=subjects[train])
candidates = {"softmax of divergences": nearest, "calibrated on held-out data": calibrated}
figure, panel = plt.subplots(figsize=(5, 4.6), layout="constrained")
panel.plot([0, 1], [0, 1], color="#cccccc")
for (name, model), color in zip(candidates.items(), ["#d55e00", "#0072b2"], strict=True):
    proba = model.predict_proba(centred[test])
    loss = log_loss(y[test], proba, labels=model.classes_)
    truth = y[test][:, None] == model.classes_
    right, said = calibration_curve(truth.ravel(), proba.ravel(), n_bins=6, strategy="quantile")
    panel.plot(said, right, "o-", color=color, label=f"{name}\nlog-loss {loss:.2f}")
panel.set(xlabel="predicted probability", ylabel="how often it was right")
panel.legend(frameon=False)
panel.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Checklist
# ---------
#
# - Does every subject, image or session stay in one fold? Pass ``groups``.
# - Is the best model significantly better? `~divlearn.judge.evaluate` compares models on
#   the same folds.
# - Will new data come from other sites or subjects? Hold out whole sites or subjects.
# - Are classes about equally frequent in every group? Then use `Recenter`. Otherwise it may cost
#   accuracy (:doc:`/transfer`).
# - Do you use probabilities? Look at their log-loss, not only at the accuracy.
# - Is the data valid? ``divlearn doctor`` or `divlearn.judge.examine` lists its problems.
