"""
A new session: re-centre before you classify
============================================

Electrodes move between two sessions, and amplifiers have other gains. Covariance matrices of the
new session then lie elsewhere as a whole, and a classifier of the old session fails. `Recenter`
moves the mean of every session to the identity. It needs no labels of the new session.
"""

# %%
# We simulate trials of three classes in six sessions. A session has its own linear map A from the
# sources to the electrodes, so its covariances are A X A^T.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from divlearn import DivergenceMDM, Recenter
from divlearn.datasets import make_wishart_clusters
from divlearn.geometry import logm

n_sessions, d = 6, 5
rng = np.random.default_rng(0)
X, y = make_wishart_clusters(3, 120, d, separation=3, random_state=0)
session = rng.permutation(len(y)) % n_sessions
maps = np.eye(d) + 0.25 * rng.standard_normal((n_sessions, d, d))
X = maps[session] @ X @ maps[session].mT

# %%
# Train on three sessions, test on the others
# -------------------------------------------
# `fit_transform` keeps the means of the training sessions. `transform` finds those of new ones from
# the matrices it gets.

train, test = session < 3, session >= 3
recenter = Recenter()
centred = np.empty_like(X)
centred[train] = recenter.fit_transform(X[train], y[train], groups=session[train])
centred[test] = recenter.transform(X[test], groups=session[test])

both = {"as recorded": X, "re-centred": centred}
right = {}
for name, matrices in both.items():
    model = DivergenceMDM("airm").fit(matrices[train], y[train])
    right[name] = model.predict(matrices[test]) == y[test]
    print(f"{name}: {right[name].mean():.1%} of the trials of new sessions are right")

# %%
# Seen from above
# ---------------
# The first two principal components of the matrix logarithms: colours are classes, symbols are
# sessions. Sessions lie apart before, and on top of each other afterwards.

figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
for ax, (name, matrices) in zip(axes, both.items(), strict=True):
    vectors = logm(matrices)[:, *np.triu_indices(d)]
    places = PCA(2).fit_transform(vectors)
    for number, marker in enumerate("osD^vP"):
        of_session = session == number
        ax.scatter(*places[of_session].T, c=y[of_session], marker=marker, s=18, cmap="viridis")
    ax.set(title=f"{name}: {right[name].mean():.0%} right", xticks=[], yticks=[])
plt.show()

# %%
# Session by session, every new one gains:

new = np.arange(3, n_sessions)
for shift, (name, flags) in zip((-0.2, 0.2), right.items(), strict=True):
    shares = [100 * flags[session[test] == number].mean() for number in new]
    plt.bar(new + shift, shares, 0.4, label=name)
plt.xticks(new, [f"session {number + 1}" for number in new])
plt.ylabel("accuracy, %")
plt.legend(loc="upper left")
plt.show()

# %%
# Does it help here?
# ------------------
# Re-centring assumes that every session has about the same mixture of classes;
# :doc:`/transfer` says when it is wrong. With labels of the training sessions, ``"choose"`` holds
# out each of them in turn, and re-centres only if this lowers the loss on held-out sessions.

chosen = Recenter("choose").fit(X[train], y[train], groups=session[train])
print(f'chosen: "{chosen.chosen_}"')
for name, gain, error in zip(
    *(chosen.cv_results_[key] for key in ("alignment", "gain", "standard_error")), strict=True
):
    print(f"{name:>8}: log-loss lower by {gain:.2f} +- {error:.2f}")
