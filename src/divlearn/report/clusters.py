"""Pages of clusters, and what is said of them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from divlearn.arrays import Indices, Labels
from divlearn.cluster.agreement import p_agreement
from divlearn.judge.significance import SIGNIFICANT
from divlearn.report.figures import curves_section, matrices_section
from divlearn.report.page import Page
from divlearn.report.sections import Section, table_section

_MOST_CLASSES = 30  # columns of a table


def say_clusters(
    labels: Indices,
    classes: Labels | None = None,
    groups: Labels | None = None,
    stability: float = math.nan,
) -> str:
    """Say how well clusters agree with classes, or else with clusters of halves of the matrices."""
    sizes = np.bincount(labels)
    sizes = sizes[sizes > 0]
    if len(sizes) == 1:
        return f"All {len(labels)} matrices are in one cluster."
    text = (
        f"{len(labels)} matrices were divided into {len(sizes)} clusters of {sizes.min()} to "
        f"{sizes.max()}"
    )
    if classes is not None:
        p_value, index = p_agreement(classes, labels, groups), adjusted_rand_score(classes, labels)
        verdict = "better than chance" if p_value < SIGNIFICANT else "no better than chance"
        return (
            f"{text}, which agree with the classes {verdict}: the adjusted Rand index is "
            f"{index:.2f}, where 1 is perfect and 0 is chance (p = {p_value:.2g} by a permutation "
            "test)."
        )
    if math.isnan(stability):
        return f"{text}."
    return (
        f"{text}. Clusters of random halves of the matrices agree with each other at an adjusted "
        f"Rand index of {stability:.2f}, where 1 is perfect and 0 is chance."
    )


def cluster_page(
    model: Any,
    labels: Indices,
    classes: Labels | None,
    agreement: Mapping[str, float],
    summary: str,
    bics: Mapping[int, float] | None = None,
    *,
    groups: Labels | None = None,
    stability: float = math.nan,
) -> Page:
    """Make the page of clusters: centres, progress, and agreement with classes.

    Parameters
    ----------
    model : estimator of `divlearn.cluster`, fitted
    labels : ndarray of int, shape (n_matrices,), clusters of the matrices.
    classes : ndarray, shape (n_matrices,), or None, true classes if they are known.
    agreement : mapping of str to float, scores by name.
    summary : str, text below the answer.
    bics : mapping of int to float, optional, BIC by number of clusters.
    groups : ndarray, shape (n_matrices,), optional
        Matrices that belong together, and are no separate evidence of agreement with classes.
    stability : float, optional
        Adjusted Rand index of clusters of random halves of the matrices, shown without classes.

    Examples
    --------
    >>> from divlearn import ABKMeans
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=12, random_state=0)
    >>> model = ABKMeans(3, random_state=0).fit(X)
    >>> cluster_page(model, model.labels_, y, {"F1": 1.0}, "").sentence
    '60 matrices were divided into 3 clusters of 20 to 20, which agree with the classes better ...'
    """
    centers = model.means_ if hasattr(model, "means_") else model.cluster_centers_
    sizes = np.bincount(labels, minlength=len(centers))
    names = [f"cluster {k}" for k in range(len(sizes))]
    texts = [f"{size} matrices" for size in sizes]
    note = "The centre of every cluster, drawn as correlations; the largest cluster first."
    sections = [matrices_section("Centres", centers, sizes, names, texts, note)]
    if classes is not None:
        sections.append(
            table_section(
                "Agreement with the classes",
                ["score", "value"],
                list(agreement.items()),
                "1 is perfect agreement. Random clusters have F1 and NMI above 0, and ARI about 0.",
                formats={"value": ".3f"},
            )
        )
        sections.append(_cross_table(labels, classes, len(centers)))
    if bics:
        curve = {"BIC": np.array([[*bics], [*bics.values()]])}
        note = "Bayesian information criterion of mixtures; the lowest is best."
        sections.append(curves_section("Number of clusters", curve, "clusters", "BIC", note))
    if hasattr(model, "history_"):
        name, label = "lower_bound", "log-likelihood per matrix"
        note = "The log-likelihood after every iteration."
        if "objective" in model.history_:
            name, label = "objective", "objective"
            note = "The objective after every step; it never rises."
        curves = {label: model.history_[name].astype(float)}
        sections.append(curves_section("Progress", curves, "step", label, note))
    sentence = say_clusters(labels, classes, groups, stability)
    return Page("Clusters", sentence, sections, detail=summary)


def _cross_table(labels: Indices, classes: Labels, n_clusters: int) -> Section:
    names, codes = np.unique(classes, return_inverse=True)
    counts = np.zeros((n_clusters, len(names)), dtype=np.intp)
    np.add.at(counts, (labels, codes), 1)
    shown = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[:_MOST_CLASSES])
    headings = ["cluster", *(str(name) for name in names[shown])]
    rows = [[f"cluster {k}", *counts[k, shown].tolist()] for k in range(n_clusters)]
    more = f" The {_MOST_CLASSES} largest of {len(names)} classes." * (len(names) > len(shown))
    note = f"Number of matrices of each class in each cluster.{more}"
    return table_section("Clusters and classes", headings, rows, note)
