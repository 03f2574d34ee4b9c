"""
4. Trust it
===========

A model may disappoint on new data. This chapter shows three reasons, and what to do: hold out whole
groups to estimate the accuracy, remove the shift between them, and check the probabilities.
"""

# %%
# Groups
# ------
# Recordings of one subject resemble each other. Here the channels of every subject are mixed by a
# random matrix that is four times as far from the identity as in the chapters before (``shift=0.4``
# instead of 0.1). Random folds put every subject into both the training and the test part.
# Group folds do not.

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
# subject that knowledge is worthless. Always pass ``groups`` to the splitter. Pass them also to
# ``fit`` of models that cross-validate inside it: they then hold out whole groups, too.
# ``DivergenceKNN`` does not, and takes none.
#
# Shift
# -----
# In this simulation, and roughly in real EEG, subjects differ by a linear map of their channels,
# that is by a congruence :math:`X \mapsto A X A^T`. `~divlearn.transfer.Recenter` removes most of
# it: it maps the mean M of every subject to the identity, :math:`X \mapsto M^{-1/2} X M^{-1/2}`. It
# needs no labels, so it also works for a new subject. The mean has to be robust: we use that of
# log-cosh, since artifacts would distort those of AIRM and Burg. Each subject is centred by its own
# matrices, so held-out subjects do not affect the training data.

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
# little is left by which to recognise a subject.
#
# In a pipeline, `Recenter` estimates the mean of a new subject from the matrices passed to
# ``predict``. Without ``groups``, all matrices of a call count as one subject: predict one subject
# at a time, or pass ``groups`` as :doc:`/transfer` shows.
#
# Calibration
# -----------
# A prediction with a probability of 80 % should be right four times out of five. Divergences
# are not on such a scale: on these data, the softmax of negative divergences is underconfident.
# `SPDClassifier`, `IDDLClassifier`, `DivergenceKernelClassifier`, `CalibratedClassifier` and
# ``DivergenceMDM("choose")`` calibrate their probabilities on held-out data.

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
# - Does new data come from other sites or subjects? Hold out whole ones. Use `Recenter` if classes
#   are about equally frequent in each; otherwise it may cost accuracy (:doc:`/transfer`).
# - Do you use probabilities? Look at their log-loss, not only at accuracy.
# - Is the data itself sound? ``divlearn doctor`` or `divlearn.judge.examine` lists its problems.
