"""
A session that drifts: adapt trial by trial
===========================================

Electrodes dry and people tire, so that covariance matrices drift while a session goes on. A model
of yesterday gets worse from trial to trial. `partial_fit` lets it follow, with labels of the new
trials or without.
"""

# %%
# We simulate trials of three classes. In the new session the gains of the channels drift apart, up
# to factors between 0.1 and 8 at its end.

import matplotlib.pyplot as plt
import numpy as np

from divlearn import (
    CalibratedClassifier,
    DivergenceMDM,
    DivergenceOutliers,
    Recenter,
    predict_or_reject,
)
from divlearn.datasets import make_wishart_clusters

n_old, n_new, d = 150, 400, 5
X, y = make_wishart_clusters(3, 200, d, separation=3, random_state=0)
order = np.random.default_rng(0).permutation(len(y))
X, y = X[order], np.array(["left", "right", "rest"])[y[order]]
old, old_y, new, new_y = X[:n_old], y[:n_old], X[n_old:][:n_new], y[n_old:][:n_new]
ends = np.array([8.0, 0.1, 1.0, 3.0, 0.2])
gains = ends ** np.linspace(0, 1, n_new)[:, None]
new = gains[:, :, None] * new * gains[:, None, :]

# %%
# Three ways to go through the session
# ------------------------------------
# The first model stays as it is. The second re-centres every trial by the running mean of the
# session, which needs no labels. The third knows the label of every trial after it has predicted
# it, and moves the mean of that class. Both forget: with 0.03, the mean of the last 30 trials or so
# counts.

fixed = DivergenceMDM().fit(old, old_y)
taught = DivergenceMDM().fit(old, old_y)
recenter = Recenter()
centred = DivergenceMDM().fit(recenter.fit_transform(old), old_y)

right = {"fixed": [], "re-centred, no labels": [], "class means, with labels": []}
for trial, label in zip(new, new_y, strict=True):
    recenter.partial_fit(trial[None], forgetting=0.03)
    answers = (
        fixed.predict(trial[None]),
        centred.predict(recenter.transform(trial[None])),
        taught.predict(trial[None]),
    )
    taught.partial_fit(trial[None], [label], forgetting=0.08)
    for flags, answer in zip(right.values(), answers, strict=True):
        flags.append(answer[0] == label)

# %%
# The accuracy of the last 60 trials, as the session goes on: without adaptation it falls, and with
# it, it stays.

window = 60
figure, panel = plt.subplots(figsize=(8, 4.2), layout="constrained")
for (name, flags), colour in zip(right.items(), ("#999999", "#0072b2", "#d55e00"), strict=True):
    running = np.convolve(flags, np.full(window, 100 / window), mode="valid")
    panel.plot(np.arange(window, n_new + 1), running, color=colour, linewidth=2, label=name)
    print(f"{name}: {np.mean(flags):.1%} of all trials, {np.mean(flags[-window:]):.1%} at the end")
panel.axhline(100 / 3, color="#cccccc", linestyle=":")
panel.set(xlabel="trial of the new session", ylabel=f"accuracy of the last {window} trials, %")
panel.legend(frameon=False)
panel.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Say nothing rather than something wrong
# ---------------------------------------
# `predict_or_reject` leaves trials undecided whose class is not probable enough. Probabilities must
# be calibrated for that, which `CalibratedClassifier` does on held-out trials. We train on the old
# trials and predict the first 100 new ones, which have drifted little.

calibrated = CalibratedClassifier(DivergenceMDM(), random_state=0).fit(old, old_y)
for bound in (0.5, 0.7, 0.8, 0.9):
    answers = predict_or_reject(calibrated, new[:100], bound)
    sure = answers != "unsure"
    share = np.mean(answers[sure] == new_y[:100][sure])
    print(f"bound {bound:.0%}: {sure.sum()} of 100 trials decided, {share:.0%} of these right")

# %%
# Artifacts
# ---------
# A detector of artifacts has to follow the drift too. Every 20th trial gets an artifact here. A
# detector that stays as it was takes the drift for artifacts.

artifact = np.arange(n_new) % 20 == 10
direction = np.array([1.0, 0.5, 0.2, -0.5, -1.0])
recorded = new + 30 * artifact[:, None, None] * np.outer(direction, direction)
for name, forgetting in {"fixed": None, "online": 0.02}.items():
    detector, rejected = DivergenceOutliers().fit(old), np.zeros(n_new, bool)
    for place, trial in enumerate(recorded):
        rejected[place] = detector.predict(trial[None])[0] == -1
        if forgetting is not None:
            detector.partial_fit(trial[None], forgetting=forgetting)
    found, false = rejected[artifact].mean(), rejected[~artifact].mean()
    print(f"{name} detector: {found:.0%} of artifacts found, {false:.0%} of clean trials rejected")
