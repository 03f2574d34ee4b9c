"""Pages of fitted classifiers: what they learned, and how they do on matrices held out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.divergence import pairwise_abld
from divlearn.evaluation import HeldOut, count_confusions, held_out_predictions
from divlearn.iddl import IDDLClassifier
from divlearn.maps import PlaneMap
from divlearn.report.atoms import AtomsSection
from divlearn.report.beside import disagreement_section, map_training_data, plane_section
from divlearn.report.confusion import ConfusionSection
from divlearn.report.curves import CurvesSection
from divlearn.report.page import Page
from divlearn.report.plane_section import PlaneSection
from divlearn.report.section import Section
from divlearn.report.tables import TableSection
from divlearn.report.words import TextSection

__all__ = ["classifier_page", "iddl_sections"]

_MOST_POINTS = 600


def classifier_page(
    model: Any, X: RealArray, y: NDArray[Any], groups: NDArray[Any] | None = None
) -> Page:
    """Page of a fitted classifier.

    Parameters
    ----------
    model : estimator
    X : ndarray, shape (n_matrices, d, d), what it was fitted to.
    y : ndarray, shape (n_matrices,)
    groups : ndarray, shape (n_matrices,), optional
        What its folds kept together.

    Returns
    -------
    Page

    Examples
    --------
    >>> from divlearn import DivergenceKernelClassifier
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    >>> page = classifier_page(DivergenceKernelClassifier().fit(X, y), X, y)
    >>> page.sentence
    'DivergenceKernelClassifier tells 3 classes apart: it is right on ...% of 60 matrices held out.'
    """
    sentence = f"{type(model).__name__} has learned to tell {len(model.classes_)} classes apart."
    sections: list[Section] = []
    held_out = held_out_predictions(model, y)
    if held_out is not None:
        sentence = (
            f"{type(model).__name__} tells {len(model.classes_)} classes apart: it is right on "
            f"{held_out.accuracy:.1%} of {len(held_out.rows)} matrices held out."
        )
        sections.append(_held_out(model.classes_, held_out))
    members = getattr(model, "members_", {})
    if members:
        sections.insert(0, _members(model))
    plane = map_training_data(X, y, groups)
    learner = _find_iddl(model)
    if learner is not None:
        sections += iddl_sections(learner, X, plane)
    elif plane is not None:
        sections.append(_chosen(model, plane))
    if held_out is not None:
        name = type(model).__name__
        section = disagreement_section(name, held_out, model.classes_, X, y, groups)
        sections += [section] if section is not None else []
    if hasattr(model, "message_"):
        sections.append(TextSection("How it ended", f"{model.message_}."))
    detail = f"It was learned from {len(X)} matrices of size {X.shape[-1]}."
    return Page("What was learned", sentence, sections, detail=detail)


def iddl_sections(
    model: IDDLClassifier, X: RealArray, plane: PlaneMap | None = None
) -> list[Section]:
    """Sections of an IDDL model: where its divergences lie, how it learned, and its atoms.

    Parameters
    ----------
    model : IDDLClassifier, or another estimator with atoms.
    X : ndarray, shape (n_matrices, d, d), the matrices it was fitted to.
    plane : PlaneMap, optional
        Shown behind the learned divergences.

    Returns
    -------
    list of Section

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=6, random_state=0)
    >>> model = IDDLClassifier(n_atoms=3, max_iter=2, random_state=0).fit(X, y)
    >>> [section.title for section in iddl_sections(model, X)]
    ['Learned divergences', 'Learning', 'Atoms']
    """
    alpha, beta = (np.reshape(value, (len(value), -1)) for value in (model.alpha_, model.beta_))
    points = [
        (float(a), float(b), f"atom {k}")
        for k in range(len(alpha))
        for a, b in zip(alpha[k], beta[k], strict=True)
    ]
    nearest = pairwise_abld(X, model.atoms_, alpha=0.0, beta=0.0).argmin(axis=1)
    uses = np.bincount(nearest, minlength=len(alpha))
    texts = [
        "; ".join(f"({a:.2g}, {b:.2g})" for a, b in zip(alpha[k], beta[k], strict=True))
        for k in range(len(alpha))
    ]
    return [
        plane_section(
            plane, points[:_MOST_POINTS],
            "Every small mark is a divergence that was learned for an atom; circles have a name in "
            "the literature.",
        ),
        _learning(model),
        AtomsSection(
            "Atoms", model.atoms_, uses, texts,
            note="The SPD matrices that divergences are measured to, as correlations, with the "
            "(alpha, beta) of each. The share is that of the matrices it is the nearest atom of.",
        ),
    ]  # fmt: skip


def _find_iddl(model: Any) -> IDDLClassifier | None:
    """Return the model itself, or the member of the highest weight that learned its atoms."""
    if isinstance(model, IDDLClassifier):
        return model
    weights = getattr(model, "weights_", {})
    learners = [
        name for name, member in getattr(model, "members_", {}).items()
        if isinstance(member, IDDLClassifier) and name.startswith("iddl")
    ]  # fmt: skip
    return model.members_[max(learners, key=weights.__getitem__)] if learners else None


def _learning(model: IDDLClassifier) -> CurvesSection:
    history = model.history_
    # Block-coordinate descent has a row for every block; an iteration ends with the head.
    ends = ~np.isin(history["block"], ["atoms", "parameters"])
    objective = history["objective"][ends]
    if "batch" in history["block"]:
        return CurvesSection(
            "Learning", {"objective": [np.arange(1, len(objective) + 1), objective]}, "batch",
            "objective", note="The objective on every batch, before the model learned from it.",
        )  # fmt: skip
    if "held_out_loss" not in history:
        return CurvesSection(
            "Learning",
            {"objective": objective},
            "iteration",
            "objective",
            note="The objective falls with every iteration. The model is the last one.",
        )
    owners = history["model"][ends]
    numbers = np.unique(owners).tolist()
    return CurvesSection(
        "Learning", {f"model {number + 1}": objective[owners == number] for number in numbers},
        "iteration", "objective", second={"held-out loss": history["held_out_loss"]},
        second_label="loss of matrices held out", marks={"kept": float(model.n_iter_)},
        note="The objective falls with every iteration. What counts is the loss of matrices held "
        "out: the models are taken from the iteration where it is lowest.",
    )  # fmt: skip


def _chosen(model: Any, plane: PlaneMap) -> PlaneSection:
    """Mark the one divergence of a model, where it has chosen one."""
    best = getattr(model, "best_params_", {})
    points = [(best["alpha"], best["beta"], "chosen")] if {"alpha", "beta"} <= set(best) else []
    said = "The star is the divergence that the model has chosen; c" if points else "C"
    return plane_section(plane, points, f"{said}ircles have a name in the literature.", "chosen")


def _held_out(classes: NDArray[Any], held_out: HeldOut) -> ConfusionSection:
    counts = count_confusions(held_out.codes, held_out.predicted, len(classes))
    return ConfusionSection(
        "What is taken for what", classes.tolist(), counts,
        note="Rows are true classes, columns predicted ones, of matrices that were held out while "
        "the model was learned.",
    )  # fmt: skip


def _members(model: Any) -> TableSection:
    rows = [
        [name, weight, model.oof_accuracy_.get(name)]
        for name, weight in sorted(model.weights_.items(), key=lambda item: -item[1])
    ]
    return TableSection(
        "Who has a say", ["member", "weight", "right on matrices held out"], rows,
        formats={"weight": ".2f", "right on matrices held out": ".1%"},
        note="The answer is an average of quite different classifiers; the weights make what "
        "happened to matrices held out likely.",
    )  # fmt: skip
