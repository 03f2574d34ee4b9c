"""
EEG of several people: one pipeline, from trials to a file
==========================================================

A brain-computer interface has to work for new people. Scores from folds that mix the trials of one
person into training and test data do not show whether it will. Here every step keeps people apart,
including the choice of the divergence.
"""

# %%
# We simulate trials of six people who imagine moving their left or right hand, which weakens a
# rhythm over the opposite half of the brain. People differ slightly in the strength of the sources
# and in how the sources reach the electrodes. The strength also varies from trial to trial.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from pyriemann.classification import MDM
from pyriemann.estimation import Covariances
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import Pipeline

from divlearn import DivergenceMDM, SPDClassifier, load, save

rng = np.random.default_rng(0)
n_people, n_trials, n_channels, n_sources, n_times = 6, 40, 10, 8, 100
person = np.repeat(np.arange(n_people), n_trials)
hand = np.tile(["left", "right"], n_people * n_trials // 2)
mixing = rng.standard_normal((n_people, n_channels, n_sources)) * 0.15
mixing += rng.standard_normal((n_channels, n_sources))
strength = np.exp(0.3 * rng.standard_normal((n_people, n_sources)))[person]
strength *= np.exp(0.25 * rng.standard_normal(strength.shape))
strength[hand == "left", 0] *= 0.6
strength[hand == "right", 1] *= 0.6
sources = strength[:, :, None] * rng.standard_normal((len(person), n_sources, n_times))
trials = mixing[person] @ sources
trials += 0.5 * rng.standard_normal(trials.shape)

# %%
# Leave one person out
# --------------------
# pyRiemann computes covariances, and divlearn classifies them. Both classifiers of divlearn
# cross-validate inside ``fit``, to choose a divergence or to weight the members of a committee. We
# pass people as ``groups``, so that these inner folds keep people apart as well.


def make_pipeline(classifier):
    """From trials to classes."""
    return Pipeline([("covariances", Covariances("scm")), ("classify", classifier)])


def accuracies(classifier, **parameters):
    """Accuracy on each person, of a pipeline that has seen only the others."""
    return cross_val_score(
        make_pipeline(classifier),
        trials,
        hand,
        groups=person,
        cv=LeaveOneGroupOut(),
        params=parameters,
    )


committee = SPDClassifier(("tangent lda", "tangent logistic", "nearest mean"), random_state=0)
scores = {
    "pyRiemann,\nMDM": accuracies(MDM("riemann")),
    "divlearn,\nDivergenceMDM": accuracies(
        DivergenceMDM("choose", random_state=0), classify__groups=person
    ),
    "divlearn,\nSPDClassifier": accuracies(committee, classify__groups=person),
}

# %%
# Each grey line is a person, and the blue line is the mean. People differ far more than classifiers
# do. With six people, none of the three classifiers is clearly better.

table = np.array(list(scores.values()))
figure, panel = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
panel.plot(table, color="#bbbbbb", linewidth=1, marker="o", markersize=4)
panel.plot(table.mean(axis=1), color="#0072b2", linewidth=3, marker="o", markersize=9)
for place, mean in enumerate(table.mean(axis=1)):
    panel.annotate(f"{mean:.1%}", (place, mean), (8, -18), textcoords="offset points")
panel.axhline(0.5, color="#cccccc", linestyle=":")
panel.text(2.4, 0.5, "chance", ha="right", va="bottom", color="#888888")
panel.set_xticks(range(len(scores)), scores)
panel.set(ylabel="accuracy on a person never seen", xlim=(-0.4, 2.4))
panel.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# One file
# --------
# The fitted pipeline, with pyRiemann's step in it, is saved in one file. Unlike a pickle, the file
# runs nothing when it is loaded.

pipeline = make_pipeline(committee).fit(trials, hand, classify__groups=person)
print(pipeline[-1].summary())
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "hands.divlearn"
    save(pipeline, path)
    size, again = path.stat().st_size, load(path)
same = np.array_equal(again.predict_proba(trials), pipeline.predict_proba(trials))
print(f"{size / 1024:.0f} KiB; the same probabilities: {same}")
