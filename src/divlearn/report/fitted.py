"""Pages of fitted classifiers, with their accuracy on held-out matrices."""

from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from divlearn.arrays import Labels, RealArray
from divlearn.divergence import ABDivergence, pairwise_abld
from divlearn.fitting.folds import count_groups
from divlearn.iddl import IDDLClassifier
from divlearn.judge.evaluation import HeldOut, default_classifiers, evaluate, held_out_predictions
from divlearn.judge.maps import PlaneMap, plane_map
from divlearn.judge.significance import SIGNIFICANT, p_above_chance
from divlearn.report.figures import confusion_section, curves_section, matrices_section
from divlearn.report.page import Page
from divlearn.report.planes import map_section, plane_section
from divlearn.report.sections import Section, disagreement_section, table_section, text_section
from divlearn.spd import check_spd

_BASELINES = ("1-NN, AIRM", "linear SVM, log-Euclidean")
_MOST_COMPARED = 3000  # matrices that baselines are fitted to; pairs of more take minutes
_MOST_MAPPED = 1000  # matrices whose pairs are all compared
_MOST_POINTS = 600
_FOLDS = 4


def classifier_page(model: Any, X: RealArray, y: Labels, groups: Labels | None = None) -> Page:
    """Make the page of a fitted classifier.

    Parameters
    ----------
    model : estimator, fitted
    X : ndarray, shape (n_matrices, d, d), training data.
    y : ndarray, shape (n_matrices,)
    groups : ndarray, shape (n_matrices,), optional, matrices that its folds kept together.

    Examples
    --------
    >>> from divlearn import DivergenceKernelClassifier
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    >>> model = DivergenceKernelClassifier(alphas=[0.5], betas=[0.5]).fit(X, y)
    >>> classifier_page(model, X, y).sentence
    'DivergenceKernelClassifier has an accuracy of ...% on 60 held-out matrices of 3 classes, ...'
    """
    X = check_spd(X, regularize=getattr(model, "shrinkage_", None), ndim=3)
    name, classes = type(model).__name__, model.classes_
    sentence = f"{name} was fitted to {len(classes)} classes."
    sections: list[Section] = []
    if getattr(model, "members_", {}):
        sections.append(_members(model))
    held_out = held_out_predictions(model, y)
    if held_out is not None:
        sentence = _say_accuracy(name, held_out, groups)
        codes = np.arange(len(classes))
        sections.append(
            confusion_section(
                "Confusion matrix",
                classes.tolist(),
                confusion_matrix(held_out.codes, held_out.predicted, labels=codes),
                note="Rows are true classes, columns predicted ones, of held-out matrices.",
            )
        )
    plane = map_training_data(X, y, groups)
    learner = _find_iddl(model)
    if learner is not None:
        sections += iddl_sections(learner, X, plane)
    elif plane is not None:
        chosen = learned_points(model)
        star = "The star is the divergence that the model chose." if chosen else ""
        sections.append(map_section(plane, chosen, "chosen", star))
    if held_out is not None:
        section = compare_with_baselines(name, held_out, classes, X, y, groups)
        sections += [section] if section is not None else []
    if hasattr(model, "message_"):
        sections.append(text_section("How the fit ended", f"{model.message_}."))
    detail = f"It was fitted to {len(X)} matrices of size {X.shape[-1]}."
    return Page("Fitted classifier", sentence, sections, detail=detail)


def _say_accuracy(name: str, held_out: HeldOut, groups: Labels | None) -> str:
    right = held_out.predicted == held_out.codes
    together = None if groups is None else np.unique(groups[held_out.rows], return_inverse=True)[1]
    p_value = p_above_chance(right, held_out.codes, together)
    verdict = "better than chance" if p_value < SIGNIFICANT else "not significantly above chance"
    return (
        f"{name} has an accuracy of {held_out.accuracy:.1%} on {len(held_out.rows)} held-out "
        f"matrices of {len(np.unique(held_out.codes))} classes, {verdict} (p = {p_value:.2g})."
    )


def iddl_sections(model: IDDLClassifier, X: RealArray, plane: PlaneMap | None) -> list[Section]:
    nearest = pairwise_abld(X, model.atoms_, alpha=0.0, beta=0.0).argmin(axis=1)
    note = "Small marks are the learned divergences of atoms."
    points, n_atoms = learned_points(model), len(model.atoms_)
    pairs = np.reshape([point[:2] for point in points], (n_atoms, -1, 2)).tolist()
    shown = points[:_MOST_POINTS]
    return [
        plane_section("Learned divergences", learned=shown, note=f"{note} Circles have names.")
        if plane is None
        else map_section(plane, shown, "learned", note),
        _learning(model),
        matrices_section(
            "Atoms",
            model.atoms_,
            np.bincount(nearest, minlength=n_atoms),
            [f"atom {k}" for k in range(n_atoms)],
            ["; ".join(f"({a:.2g},\N{NO-BREAK SPACE}{b:.2g})" for a, b in atom) for atom in pairs],
            note="The SPD matrices that divergences are measured to, drawn as correlations, with "
            "their (alpha, beta). Percentages are the shares of matrices nearest to each atom.",
        ),
    ]


def _find_iddl(model: Any) -> IDDLClassifier | None:
    """Return the model itself, or the member of the highest weight that learned its atoms."""
    if isinstance(model, IDDLClassifier):
        return model
    learners = [
        name
        for name, member in getattr(model, "members_", {}).items()
        if isinstance(member, IDDLClassifier) and name.startswith("iddl")
    ]
    return model.members_[max(learners, key=model.weights_.__getitem__)] if learners else None


def learned_points(model: Any) -> list[tuple[float, float, str]]:
    """Return alpha, beta and the owner of each divergence that an estimator learned or chose."""
    learner = _find_iddl(model) or model
    if hasattr(learner, "alpha_"):
        both = [np.ravel(some).tolist() for some in (learner.alpha_, learner.beta_)]
        if not hasattr(learner, "atoms_"):
            return [(a, b, "of the clusters") for a, b in sorted(set(zip(*both, strict=True)))]
        each = len(both[0]) // len(learner.atoms_)
        return [(a, b, f"atom {i // each}") for i, (a, b) in enumerate(zip(*both, strict=True))]
    field = getattr(model, "divergence_", None)
    field = field if isinstance(field, list) else [field]
    if known := [one for one in field if isinstance(one, ABDivergence)]:
        return [(one.alpha, one.beta, "chosen") for one in known]
    best = getattr(model, "best_params_", {})
    return [(best["alpha"], best["beta"], "chosen")] if {"alpha", "beta"} <= {*best} else []


def _learning(model: IDDLClassifier) -> Section:
    history = model.history_
    # Block-coordinate descent has a row for every block; an iteration ends with the head.
    ends = ~np.isin(history["block"], ["atoms", "parameters"])
    objective, curves = history["objective"][ends], {}
    note = "The objective falls with every iteration."
    if "model" in history:
        owners = history["model"][ends]
        curves = {f"model {k + 1}": objective[owners == k] for k in np.unique(owners).tolist()}
    else:
        note += " The model is that of the last one."
    if "held_out_loss" in history:
        before, after = history["held_out_loss"]
        note += f" The held-out loss is {before:.4g} before learning and {after:.4g} after."
    curves = curves or {"objective": objective}
    return curves_section("Learning", curves, "iteration", "objective", note)


def _members(model: Any) -> Section:
    weights = sorted(model.weights_.items(), key=lambda item: -item[1])
    return table_section(
        "Members",
        ["member", "weight", "held-out accuracy"],
        [[name, weight, model.oof_accuracy_.get(name)] for name, weight in weights],
        formats={"weight": ".2f", "held-out accuracy": ".1%"},
        note="Predictions are weighted averages over these classifiers. The weights maximise the "
        "likelihood of held-out labels.",
    )


def map_training_data(X: RealArray, y: Labels, groups: Labels | None = None) -> PlaneMap | None:
    """Map the plane for training data, or a sample of it; None without two classes of two."""
    order = np.random.RandomState(0).permutation(len(X))[:_MOST_MAPPED]
    codes = np.unique(y[order], return_inverse=True)[1]
    counts = count_groups(codes, None if groups is None else groups[order])
    rows = np.sort(order[counts[codes] > 1])
    if np.count_nonzero(counts > 1) < 2:
        return None
    return plane_map(X[rows], y[rows], groups=None if groups is None else groups[rows])


def compare_with_baselines(
    name: str,
    held_out: HeldOut,
    classes: Labels,
    X: RealArray,
    y: Labels,
    groups: Labels | None = None,
) -> Section | None:
    """Show where a model and baselines disagree; None if classes are too small, or data large."""
    smallest = int(count_groups(np.searchsorted(classes, y), groups).min())
    if smallest < 2 or len(X) > _MOST_COMPARED:
        return None
    known = default_classifiers()
    found = evaluate(X, y, {one: known[one] for one in _BASELINES}, cv=_FOLDS, groups=groups)
    rows = held_out.rows[np.isin(held_out.rows, found.rows)]  # fewer after an interrupt
    said = {name: held_out.predicted[np.searchsorted(held_out.rows, rows)]} | {
        one: codes[np.searchsorted(found.rows, rows)] for one, codes in found.predictions.items()
    }
    return disagreement_section(
        "Where the model and baselines disagree",
        y[rows].tolist(),
        {one: classes[codes].tolist() for one, codes in said.items()},
        names=rows.tolist(),
    )
