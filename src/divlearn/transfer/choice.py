"""Choice of an alignment of groups: the one by which classes of new groups are predicted best."""

from collections.abc import Callable

import numpy as np

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.fitting.calibration import calibrate, log_probabilities
from divlearn.fitting.folds import Folds, number_units
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.selection import average_held_out, mean_with_error
from divlearn.heads.discriminants import fit_lda

_FOLDS = 10  # at most
_ENOUGH = 5  # groups for an error that counts
_LEAST = np.log(1e-4)  # of logarithms in the loss: no single matrix decides

ALIGNMENTS = ("none", "center", "stretch")  # the simplest first
Align = Callable[[str, Indices], RealArray]  # see `choose_alignment`


def choose_alignment(data: Labelled, align: Align) -> tuple[str, dict[str, Labels | RealArray]]:
    """Choose an alignment by held-out groups, and tabulate what was tried.

    ``align`` takes the name of an alignment and the rows to learn it from, and returns vectors of
    all matrices. Linear discriminants of the vectors predict the classes of held-out groups. An
    alignment is chosen over a simpler one if it lowers the log-loss by more than one standard
    error, of the paired difference over groups. The error of so few groups that it says little does
    not count: then the lower loss decides.
    """
    folds = data.folds(_FOLDS, random_state=0)
    if not folds:  # every class has one group: nothing can be judged, nothing is changed
        return ALIGNMENTS[0], {}
    losses = {name: _group_losses(data, folds, align, name) for name in ALIGNMENTS}
    chosen = ALIGNMENTS[0]
    for name in ALIGNMENTS[1:]:
        gain, error = mean_with_error(losses[chosen] - losses[name])
        chosen = name if gain > (error if len(losses[name]) >= _ENOUGH else 0) else chosen
    gains, errors = np.array(
        [mean_with_error(losses[ALIGNMENTS[0]] - one) for one in losses.values()]
    ).T
    return chosen, {
        "alignment": np.array(ALIGNMENTS),
        "log_loss": np.array([one.mean() for one in losses.values()]),
        "gain": gains,
        "standard_error": errors,
    }


def _group_losses(data: Labelled, folds: Folds, align: Align, name: str) -> RealArray:
    """Mean log-loss of the matrices of every held-out group, with one temperature for all."""
    parts = []
    for train, held in folds:
        vectors, codes = align(name, train), data.codes[train]
        found = fit_lda(vectors[train], codes, np.bincount(codes) / len(codes))
        parts.append(found.decide(vectors[held])[..., None])
    rows, scores = average_held_out(parts, folds, len(data.codes))
    codes, groups = data.codes[rows], number_units(rows, data.groups)
    known = log_probabilities(scores, *calibrate(scores, codes, data.weights[rows]))
    logarithms = np.maximum(known[np.arange(len(rows)), codes], _LEAST)
    return -np.bincount(groups, logarithms) / np.bincount(groups)
