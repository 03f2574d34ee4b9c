"""
Short recordings, with pyRiemann's covariances
==============================================

Electrodes record several channels at once, and what tells two states apart is often not the mean of
a channel but how channels vary together. pyRiemann turns recordings into covariance matrices;
everything of divlearn takes these matrices, in the same pipeline.
"""

# %%
# Recordings that behave like those of a brain-computer interface: six hidden sources, mixed into
# eight noisy channels. In each of three states another source is more active.

import matplotlib.pyplot as plt
import numpy as np
from pyriemann.classification import MDM
from pyriemann.estimation import Covariances
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from divlearn.baselines import DivergenceMDM

rng = np.random.default_rng(0)
n_recordings, n_channels, n_sources, longest = 240, 8, 6, 128
state = np.arange(n_recordings) % 3
mixing = rng.standard_normal((n_channels, n_sources))
strength = np.exp(0.3 * rng.standard_normal((n_recordings, n_sources)))  # no two days are alike
strength[np.arange(n_recordings), state] *= 1.8
sources = strength[:, :, None] * rng.standard_normal((n_recordings, n_sources, longest))
recordings = mixing @ sources + 0.5 * rng.standard_normal((n_recordings, n_channels, longest))

# %%
# A recording belongs to the state whose mean covariance is nearest: one line of scikit-learn, with
# the covariances of pyRiemann and the nearest mean of divlearn. The divergence is a parameter, and
# the means follow it. pyRiemann's own nearest mean stands beside ours for the metric both have.

lengths = [10, 12, 16, 32, 64, 128]


def accuracies(classifier):
    """Accuracy for recordings of every length, shape (n_lengths, n_folds)."""
    pipeline = make_pipeline(Covariances("scm"), classifier)
    return np.array([
        cross_val_score(pipeline, recordings[:, :, :length], state, cv=5) for length in lengths
    ])  # fmt: skip


scores = {name: accuracies(DivergenceMDM(name)) for name in ("burg", "stein", "airm")}
scores["reverse-burg"] = accuracies(DivergenceMDM("reverse-burg"))
theirs = accuracies(MDM("riemann"))

# %%
# Long recordings make good covariances, and it does not matter how one compares them. Short ones
# are another matter. Their covariances have small eigenvalues that are far too small, and a
# divergence that inverts them, as Burg's does when its arguments are exchanged, falls towards
# chance. Bands are standard errors over five folds.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
for index, channel in enumerate(recordings[0][:, :64]):
    left.plot(channel / 12 - index, color="#0072b2", linewidth=0.9)
left.set(title="one recording", xlabel="time", ylabel="channel", yticks=[])
left.spines[["top", "right", "left"]].set_visible(False)
colors = ["#009e73", "#0072b2", "#d55e00", "#cc79a7"]
for (name, table), color in zip(scores.items(), colors, strict=True):
    mean, error = table.mean(axis=1), table.std(axis=1, ddof=1) / np.sqrt(table.shape[1])
    right.plot(lengths, mean, "o-", color=color, label=name)
    right.fill_between(lengths, mean - error, mean + error, color=color, alpha=0.12, linewidth=0)
right.plot(lengths, theirs.mean(axis=1), "kx", label="pyRiemann, airm", zorder=3)
right.axhline(1 / 3, color="#cccccc", linestyle=":")
right.text(lengths[-1], 1 / 3, "chance", ha="right", va="bottom", color="#888888")
right.set(title="how long to record", xlabel="samples in a recording", ylabel="accuracy")
right.set_xscale("log", base=2)
right.set_xticks(lengths, lengths)
right.legend(frameon=False, title="nearest mean", loc=(0.55, 0.15))
right.spines[["top", "right"]].set_visible(False)
plt.show()
