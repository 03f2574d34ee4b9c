"""Pages of fitted estimators: classifiers with held-out accuracies, and clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.metrics import adjusted_rand_score

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.cluster.agreement import centers_of, p_agreement
from divlearn.divergence import pairwise_abld
from divlearn.fitting.folds import count_groups
from divlearn.hermitian import from_real_form, is_complex, real_form
from divlearn.iddl import IDDLClassifier
from divlearn.judge.evaluation import (
    Evaluation,
    default_classifiers,
    evaluate,
    held_out_predictions,
)
from divlearn.judge.maps import PlaneMap, plane_map
from divlearn.judge.significance import SIGNIFICANT
from divlearn.report.channels import channel_sections
from divlearn.report.figures import confusion_section, curves_section, matrices_section
from divlearn.report.page import Page
from divlearn.report.planes import find_iddl, learned_points, map_section, plane_section
from divlearn.report.sections import (
    Section,
    as_sentence,
    disagreement_section,
    table_section,
    text_section,
)
from divlearn.spd import check_spd
from divlearn.text import counted, say_p

_BASELINES = ("1-NN, AIRM", "linear SVM, log-Euclidean")
_MAX_COMPARED = 3000  # matrices that baselines are fitted to; pairs of more take minutes
_MAX_MAPPED = 1000  # matrices on a map of the plane, which compares all pairs
_MAX_POINTS = 600
_FOLDS = 4
_MAX_CLASSES = 30  # columns of a table


def classifier_page(
    model: BaseEstimator, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None
) -> Page:
    """Make the page of a fitted classifier.

    Parameters
    ----------
    model : estimator, fitted
    X : array-like, shape (n_matrices, d, d), training data.
    y : array-like, shape (n_matrices,)
    groups : array-like, shape (n_matrices,), optional, matrices that its folds kept together.

    Notes
    -----
    Names of channels are those in ``model.feature_names_in_``, if it is set.

    Examples
    --------
    >>> from divlearn import DivergenceKernelClassifier
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    >>> model = DivergenceKernelClassifier(alphas=[0.5], betas=[0.5]).fit(X, y)
    >>> classifier_page(model, X, y).sentence
    'DivergenceKernelClassifier has an accuracy of ...% on 60 held-out matrices of 3 classes, ...'
    """
    is_hermitian, y = is_complex(X), np.asarray(y)
    X = check_spd(real_form(X), regularize=getattr(model, "shrinkage_", None), ndim=3)
    X = from_real_form(X) if is_hermitian else X
    groups = None if groups is None else np.asarray(groups)
    name, classes = type(model).__name__, model.classes_
    sentence = f"{name} was fitted to {len(classes)} classes."
    sections: list[Section] = []
    if getattr(model, "members_", {}):
        sections.append(_members(model))
    evaluation = held_out_predictions(model, y, groups)
    if evaluation is not None:
        sentence = _say_accuracy(evaluation)
        note = "Rows are true classes, columns predicted ones, of held-out matrices."
        counts = {name: evaluation.confusion(name)}
        sections.append(confusion_section("Confusion matrix", classes.tolist(), counts, note))
    sections += _divergence_sections(model, X, y, groups)
    if evaluation is not None:
        section = compare_with_baselines(evaluation, X, y, groups)
        sections += [section] if section is not None else []
    names = getattr(model, "feature_names_in_", None)
    channels = None if names is None else list(map(str, names))
    sections += channel_sections(X, y, groups, channels)
    if hasattr(model, "message_"):
        sections.append(text_section("How the fit ended", as_sentence(model.message_)))
    detail = f"It was fitted to {len(X)} matrices of size {X.shape[-1]}."
    return Page("Fitted classifier", sentence, sections, detail=detail)


def _divergence_sections(
    model: BaseEstimator, X: RealArray, y: Labels, groups: Labels | None
) -> list[Section]:
    """Show the atoms of IDDL, or the plane of divergences with the chosen one."""
    plane = map_training_data(X, y, groups)
    learner = find_iddl(model)
    if learner is not None:
        return iddl_sections(learner, X, plane)
    if plane is None:
        return []
    chosen = learned_points(model)
    star = "The star is the divergence that the model chose." if chosen else ""
    return [map_section(plane, chosen, "chosen", star)]


def _say_accuracy(evaluation: Evaluation) -> str:
    name, p_value = evaluation.best, evaluation.p_chance
    verdict = "better than chance" if p_value < SIGNIFICANT else "not significantly above chance"
    return (
        f"{name} has an accuracy of {evaluation.accuracy(name):.1%} on {len(evaluation.rows)} "
        f"held-out matrices of {len(np.unique(evaluation.codes))} classes, {verdict} "
        f"({say_p(p_value)})."
    )


def iddl_sections(model: IDDLClassifier, X: RealArray, plane: PlaneMap | None) -> list[Section]:
    forms = real_form(X, always=model.hermitian_)  # as atoms are
    nearest = pairwise_abld(forms, model.atoms_, alpha=0.0, beta=0.0).argmin(axis=1)
    note = "Small marks are the learned divergences of atoms."
    points, n_atoms = learned_points(model), len(model.atoms_)
    pairs = np.reshape([point[:2] for point in points], (n_atoms, -1, 2)).tolist()
    shown = points[:_MAX_POINTS]
    captions = [
        "; ".join(f"({a:.2g},\N{NO-BREAK SPACE}{b:.2g})" for a, b in atom) for atom in pairs
    ]
    parameters = "with their (alpha, beta)"
    if len(set(captions)) == 1:  # fixed pairs, written once
        parameters = f"all with (alpha, beta) = {captions[0]}"
        captions = [""] * n_atoms
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
            captions,
            note="The SPD matrices that divergences are measured to, drawn as correlations, "
            f"{parameters}. Percentages are the shares of matrices nearest to each atom.",
        ),
    ]


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


def _members(model: BaseEstimator) -> Section:
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
    order = np.random.RandomState(0).permutation(len(X))[:_MAX_MAPPED]
    codes = np.unique(y[order], return_inverse=True)[1]
    counts = count_groups(codes, None if groups is None else groups[order])
    rows = np.sort(order[counts[codes] > 1])
    if np.count_nonzero(counts > 1) < 2:
        return None
    return plane_map(X[rows], y[rows], groups=None if groups is None else groups[rows])


def compare_with_baselines(
    model: Evaluation, X: RealArray, y: Labels, groups: Labels | None = None
) -> Section | None:
    """Show where a model and baselines disagree; None if classes are too small, or data large."""
    smallest = int(count_groups(np.searchsorted(model.classes, y), groups).min())
    if smallest < 2 or len(X) > _MAX_COMPARED:
        return None
    classifiers = default_classifiers()
    baselines = {name: classifiers[name] for name in _BASELINES}
    compared = evaluate(X, y, baselines, cv=_FOLDS, groups=groups)
    rows = np.intersect1d(model.rows, compared.rows)  # fewer after an interrupt
    predictions = {
        name: model.classes[codes[np.searchsorted(evaluation.rows, rows)]].tolist()
        for evaluation in (model, compared)
        for name, codes in evaluation.predictions.items()
    }
    title = "Where the model and baselines disagree"
    return disagreement_section(title, y[rows].tolist(), predictions, names=rows.tolist())


def cluster_page(
    model: BaseEstimator,
    labels: Indices,
    classes: Labels | None,
    agreement: Mapping[str, float],
    headline: str,
    summary: str,
    bics: Mapping[int, float] | None = None,
) -> Page:
    """Make the page of clusters: centres, progress, and agreement with classes.

    Parameters
    ----------
    model : estimator of `divlearn.cluster`, fitted
    labels : ndarray of int, shape (n_matrices,), clusters of the matrices.
    classes : ndarray, shape (n_matrices,), or None, true classes.
    agreement : mapping of str to float, scores by name.
    headline : str, the answer, see `say_clusters`.
    summary : str, text below it.
    bics : mapping of int to float, optional, BIC by number of clusters.

    Examples
    --------
    >>> from divlearn import ABKMeans
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=12, random_state=0)
    >>> model = ABKMeans(3, random_state=0).fit(X)
    >>> headline, evidence = say_clusters(model.labels_, y)
    >>> cluster_page(model, model.labels_, y, {"F1": 1.0}, headline, evidence).sentence
    '3 clusters agree with the classes better than chance: the adjusted Rand index is 1.00, ...'
    """
    centers = centers_of(model)
    sizes = np.bincount(labels, minlength=len(centers))
    names = [f"cluster {k}" for k in range(len(sizes))]
    texts = [counted(size, "matrices") for size in sizes]
    note = "The centre of every cluster, drawn as correlations; the largest cluster first."
    sections = [matrices_section("Centres", centers, sizes, names, texts, note)]
    if classes is not None:
        note = "1 is perfect agreement. Random clusters have F1 and NMI above 0, and ARI about 0."
        rows, title = list(agreement.items()), "Agreement with the classes"
        formats = {"value": ".3f"}
        scores = table_section(title, ["score", "value"], rows, note, formats=formats)
        sections += [scores, _cross_table(labels, classes, len(centers))]
    if bics:
        curve = {"BIC": np.transpose([*bics.items()])}
        note = "Bayesian information criterion of mixtures; the lowest is best."
        sections.append(curves_section("Number of clusters", curve, "clusters", "BIC", note))
    if hasattr(model, "history_"):
        sections.append(_progress(model.history_))
    return Page("Clusters", headline, sections, summary)


def say_clusters(
    labels: Indices,
    classes: Labels | None = None,
    groups: Labels | None = None,
    stability: float = math.nan,
) -> tuple[str, str]:
    """Say how well clusters agree with classes or how stable they are; then the evidence.

    Parameters
    ----------
    labels : ndarray of int, shape (n_matrices,), clusters of the matrices.
    classes : ndarray, shape (n_matrices,), optional, true classes.
    groups : ndarray, shape (n_matrices,), optional
        Matrices of one group are dependent, and count as one in the permutation test of agreement.
    stability : float, optional
        Adjusted Rand index of clusters of random halves of the matrices, said if there are no
        classes.
    """
    sizes = np.bincount(labels)
    sizes = sizes[sizes > 0]
    if len(sizes) == 1:
        return f"The one cluster has {counted(len(labels), 'matrices')}.", ""
    counts = f"{len(labels)} matrices, {sizes.min()} to {sizes.max()} in a cluster"
    if classes is not None:
        p_value, index = p_agreement(classes, labels, groups), adjusted_rand_score(classes, labels)
        verdict = "better than chance" if p_value < SIGNIFICANT else "no better than chance"
        return (
            f"{len(sizes)} clusters agree with the classes {verdict}: the adjusted Rand index is "
            f"{index:.2f}, where 1 is perfect and 0 is chance.",
            f"{counts}; {say_p(p_value)} by a permutation test.",
        )
    if math.isnan(stability):
        needs = "it takes at least 4 matrices for each cluster"
        return f"There are {len(sizes)} clusters.", f"{counts}. Stability is not known: {needs}."
    return (
        f"{len(sizes)} clusters; their stability is {stability:.2f}, where 1 is perfect.",
        f"{counts}. Stability is the adjusted Rand index of clusters of random halves of the "
        "matrices. It says how well clusters are reproduced, not that they are separate.",
    )


def _cross_table(labels: Indices, classes: Labels, n_clusters: int) -> Section:
    names, codes = np.unique(classes, return_inverse=True)
    counts = np.zeros((n_clusters, len(names)), dtype=np.intp)
    np.add.at(counts, (labels, codes), 1)
    shown = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[:_MAX_CLASSES])
    headings = ["cluster", *(str(name) for name in names[shown])]
    rows = [[f"cluster {k}", *counts[k, shown].tolist()] for k in range(n_clusters)]
    more = f" The {_MAX_CLASSES} largest of {len(names)} classes." * (len(names) > len(shown))
    note = f"Number of matrices of each class in each cluster.{more}"
    return table_section("Clusters and classes", headings, rows, note)


def _progress(history: Mapping[str, RealArray]) -> Section:
    name, label = "lower_bound", "log-likelihood per matrix"
    note = "The log-likelihood after every iteration."
    if "objective" in history:
        name, label = "objective", "objective"
        note = "The objective after every step; it never rises."
    curves = {label: history[name].astype(float)}
    return curves_section("Progress", curves, "step", label, note)
