"""
Short recordings, with pyRiemann's covariances
==============================================

Electrodes record several channels at once. Two mental states often differ not in the mean of a
channel but in how the channels vary together. pyRiemann turns recordings into covariance matrices,
and divlearn's estimators take these matrices in the same pipeline.
"""

# %%
# We simulate a brain-computer interface: six hidden sources are mixed into eight noisy channels. In
# each of three states, a different source is more active.

import matplotlib.pyplot as plt
import numpy as np
from pyriemann.classification import MDM
from pyriemann.estimation import Covariances
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from divlearn import DivergenceMDM

rng = np.random.default_rng(0)
n_recordings, n_channels, n_sources, longest = 240, 8, 6, 128
state = np.arange(n_recordings) % 3
mixing = rng.standard_normal((n_channels, n_sources))
strength = np.exp(0.3 * rng.standard_normal((n_recordings, n_sources)))  # no two days are alike
strength[np.arange(n_recordings), state] *= 1.8
sources = strength[:, :, None] * rng.standard_normal((n_recordings, n_sources, longest))
recordings = mixing @ sources + 0.5 * rng.standard_normal((n_recordings, n_channels, longest))

# %%
# A recording is assigned to the state whose mean covariance is nearest. The pipeline has two steps,
# pyRiemann's covariances and divlearn's nearest mean. The divergence is a parameter, and the means
# depend on it. For AIRM, which both packages have, the plot also shows pyRiemann's own classifier.

lengths = [10, 12, 16, 32, 64, 128]


def accuracies(classifier):
    """Accuracy for recordings of every length, shape (n_lengths, n_folds)."""
    pipeline = make_pipeline(Covariances("scm"), classifier)
    return np.array(
        [cross_val_score(pipeline, recordings[:, :, :length], state, cv=5) for length in lengths]
    )


scores = {name: accuracies(DivergenceMDM(name)) for name in ("burg", "stein", "airm")}
scores["reverse-burg"] = accuracies(DivergenceMDM("reverse-burg"))
theirs = accuracies(MDM("riemann"))

# %%
# Long recordings give good covariances, and all divergences do equally well. The smallest
# eigenvalues of the covariances of short recordings are far too small. Reverse Burg inverts these
# matrices and falls towards chance. Bands are standard errors over five folds.

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
