"""Choice of the alignment of groups that predicts the classes of held-out groups best."""

from collections.abc import Callable, Mapping

import numpy as np

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.fitting.calibration import calibrate, log_probabilities
from divlearn.fitting.folds import Folds, count_groups, number_units
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.selection import average_held_out, mean_with_error
from divlearn.heads.discriminants import fit_lda

_MAX_FOLDS = 10
_MIN_GROUPS = 5  # with fewer, the standard error is too uncertain to be used
_MIN_LOG_PROBABILITY = np.log(1e-4)  # bounds the loss of a single matrix

ALIGNMENTS = ("none", "center", "stretch")  # the simplest first
Align = Callable[[str, Indices], RealArray]  # see `choose_alignment`


def choose_alignment(data: Labelled, align: Align) -> tuple[str, dict[str, Labels | RealArray]]:
    """Choose an alignment by held-out groups; return its name and ``cv_results_``.

    ``align`` takes the name of an alignment and the rows to learn it from, and returns vectors of
    all matrices. Linear discriminants of the vectors predict the classes of held-out groups. An
    alignment is chosen over a simpler one if it lowers the log-loss by more than one standard
    error, of the paired difference over groups. With fewer than five groups it is chosen if it
    lowers the log-loss at all.
    """
    folds = data.folds(_MAX_FOLDS, random_state=0)
    # If every group lies inside one class, alignments remove the classes. Their losses are those of
    # chance, which by luck may be lower than those of a weak signal.
    numbers = number_units(np.arange(len(data.codes)), data.groups)
    are_inside = count_groups(data.codes, numbers).sum() == numbers.max() + 1
    if are_inside or not folds:  # no folds: no group can be held out
        return ALIGNMENTS[0], {}
    return compare_losses({name: _group_losses(data, folds, align, name) for name in ALIGNMENTS})


def compare_losses(
    losses: Mapping[str, RealArray],
) -> tuple[str, dict[str, Labels | RealArray]]:
    """Choose by the losses of groups, for every alignment; see `choose_alignment`."""
    chosen = ALIGNMENTS[0]
    for name in ALIGNMENTS[1:]:
        gain, error = mean_with_error(losses[chosen] - losses[name])
        chosen = name if gain > (error if len(losses[name]) >= _MIN_GROUPS else 0) else chosen
    gains, errors = np.array(
        [mean_with_error(losses[ALIGNMENTS[0]] - loss) for loss in losses.values()]
    ).T
    return chosen, {
        "alignment": np.array(ALIGNMENTS),
        "log_loss": np.array([loss.mean() for loss in losses.values()]),
        "gain": gains,
        "standard_error": errors,
    }


def _group_losses(data: Labelled, folds: Folds, align: Align, name: str) -> RealArray:
    """Mean log-loss of the matrices of every held-out group, with one temperature for all."""
    decisions = []
    for train, held_out in folds:
        vectors, codes = align(name, train), data.codes[train]
        lda = fit_lda(vectors[train], codes, np.bincount(codes) / len(codes))
        decisions.append(lda.decide(vectors[held_out])[..., None])
    rows, scores = average_held_out(decisions, folds, len(data.codes))
    codes, groups = data.codes[rows], number_units(rows, data.groups)
    log_proba = log_probabilities(scores, *calibrate(scores, codes, data.weights[rows]))
    log_likelihoods = np.maximum(log_proba[np.arange(len(rows)), codes], _MIN_LOG_PROBABILITY)
    return -np.bincount(groups, log_likelihoods) / np.bincount(groups)
