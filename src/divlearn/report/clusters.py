"""Pages of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.report.atoms import atoms_section
from divlearn.report.page import Page
from divlearn.report.planes import plane_section
from divlearn.report.sections import Section, curves_section
from divlearn.report.tables import table_section

__all__ = ["cluster_page"]

_MOST_CLASSES = 30  # columns of a table


def cluster_page(
    model: Any, labels: NDArray[np.intp], classes: NDArray[Any] | None,
    agreement: Mapping[str, float], summary: str,
) -> Page:  # fmt: skip
    """Make the page of clusters: centres, progress, and agreement with classes.

    Parameters
    ----------
    model : estimator, fitted
        Of `divlearn.cluster`.
    labels : ndarray of int, shape (n_matrices,)
        Clusters of the matrices.
    classes : ndarray, shape (n_matrices,), or None
        True classes, if they are known.
    agreement : mapping of str to float
        Scores, by name.
    summary : str
        Text below the answer.

    Returns
    -------
    Page

    Examples
    --------
    >>> from divlearn import ABKMeans
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 3, separation=12, random_state=0)
    >>> model = ABKMeans(3, random_state=0).fit(X)
    >>> cluster_page(model, model.labels_, y, {"F1": 1.0}, "").sentence
    'The 60 matrices form 3 clusters of 20 to 20.'
    """
    centers = model.means_ if hasattr(model, "means_") else model.cluster_centers_
    sizes = np.bincount(labels, minlength=len(centers))
    texts = [f"cluster {k}: {size} matrices" for k, size in enumerate(sizes)]
    note = "The centre of every cluster, drawn as correlations; the largest cluster first."
    sections = [atoms_section("Centres", centers, sizes, texts, note)]
    if classes is not None:
        sections.append(table_section(
            "Agreement with the classes", ["score", "value"], list(agreement.items()),
            "1 is perfect agreement. For random clusters F1 and NMI are above 0, ARI is about 0.",
            formats={"value": ".3f"},
        ))  # fmt: skip
        sections.append(_cross_table(labels, classes, len(centers)))
    if hasattr(model, "alpha_"):
        points = sorted(set(zip(np.ravel(model.alpha_), np.ravel(model.beta_), strict=True)))
        sections.append(plane_section(
            "Divergence", learned=[(float(a), float(b), "of the clusters") for a, b in points],
            mark="used here", note="The divergence used, among those with a name.",
        ))  # fmt: skip
    if hasattr(model, "history_"):
        sections.append(_progress(model.history_))
    sentence = (
        f"The {len(labels)} matrices form {np.count_nonzero(sizes)} clusters of "
        f"{sizes[sizes > 0].min()} to {sizes.max()}."
    )
    return Page("Clusters", sentence, sections, detail=summary)


def _cross_table(labels: NDArray[np.intp], classes: NDArray[Any], n_clusters: int) -> Section:
    names, codes = np.unique(classes, return_inverse=True)
    counts = np.zeros((n_clusters, len(names)), dtype=np.intp)
    np.add.at(counts, (labels, codes), 1)
    shown = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[:_MOST_CLASSES])
    headings = ["cluster", *(str(name) for name in names[shown])]
    rows = [[f"cluster {k}", *counts[k, shown].tolist()] for k in range(n_clusters)]
    more = f" The {_MOST_CLASSES} largest of {len(names)} classes." * (len(names) > len(shown))
    note = f"Number of matrices of each class in each cluster.{more}"
    return table_section("Clusters and classes", headings, rows, note)


def _progress(history: Mapping[str, NDArray[Any]]) -> Section:
    if "objective" in history:
        name = label = "objective"
        note = "The objective after every step; it never rises."
    else:
        name, label = "lower_bound", "log-likelihood per matrix"
        note = "The log-likelihood after every iteration."
    return curves_section("Progress", {label: history[name].astype(float)}, "step", label, note)
