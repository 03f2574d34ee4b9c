"""Pages of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.report.atoms import AtomsSection
from divlearn.report.curves import CurvesSection
from divlearn.report.page import Page
from divlearn.report.plane_section import PlaneSection
from divlearn.report.section import Section
from divlearn.report.tables import TableSection

__all__ = ["cluster_page"]

_MOST_CLASSES = 30  # columns of a table


def cluster_page(
    model: Any, labels: NDArray[np.intp], classes: NDArray[Any] | None,
    agreement: Mapping[str, float], summary: str,
) -> Page:  # fmt: skip
    """Page of clusters: their centres, how they were found, and how they agree with classes.

    Parameters
    ----------
    model : estimator, fitted
        Of `divlearn.cluster`.
    labels : ndarray of int, shape (n_matrices,), the clusters of the matrices.
    classes : ndarray, shape (n_matrices,), or None
        True classes, where they are known.
    agreement : mapping of str to float
        Scores, by name.
    summary : str
        What to say below the answer.

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
    'The 60 matrices fall into 3 clusters of 20 to 20.'
    """
    centers = model.means_ if hasattr(model, "means_") else model.cluster_centers_
    sizes = np.bincount(labels, minlength=len(centers))
    sections: list[Section] = [_centers(centers, sizes)]
    if classes is not None:
        sections += [_scores(agreement), _crossed(labels, classes, len(centers))]
    if hasattr(model, "alpha_"):
        sections.append(_divergences(model))
    if hasattr(model, "history_"):
        sections.append(_progress(model.history_))
    sentence = (
        f"The {len(labels)} matrices fall into {np.count_nonzero(sizes)} clusters of "
        f"{sizes[sizes > 0].min()} to {sizes.max()}."
    )
    return Page("Which clusters?", sentence, sections, detail=summary)


def _centers(centers: RealArray, sizes: NDArray[np.intp]) -> AtomsSection:
    texts = [f"cluster {k}: {size} matrices" for k, size in enumerate(sizes)]
    return AtomsSection(
        "Centres", centers, sizes, texts,
        note="The centre of every cluster, as correlations; the largest cluster first.",
    )  # fmt: skip


def _scores(agreement: Mapping[str, float]) -> TableSection:
    rows = [[name, value] for name, value in agreement.items()]
    return TableSection(
        "Agreement with the classes", ["score", "value"], rows, formats={"value": ".3f"},
        note="1 is perfect agreement. F1 and NMI of a random clustering are above 0, ARI is not.",
    )  # fmt: skip


def _crossed(labels: NDArray[np.intp], classes: NDArray[Any], n_clusters: int) -> TableSection:
    names, codes = np.unique(classes, return_inverse=True)
    counts = np.zeros((n_clusters, len(names)), dtype=np.intp)
    np.add.at(counts, (labels, codes), 1)
    shown = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[:_MOST_CLASSES])
    headings = ["cluster", *(str(name) for name in names[shown])]
    rows = [[f"cluster {k}", *counts[k, shown].tolist()] for k in range(n_clusters)]
    more = f" The {_MOST_CLASSES} largest of {len(names)} classes." * (len(names) > len(shown))
    note = f"How many matrices of each class came into each cluster.{more}"
    return TableSection("Clusters and classes", headings, rows, note=note)


def _divergences(model: Any) -> PlaneSection:
    points = sorted(set(zip(np.ravel(model.alpha_), np.ravel(model.beta_), strict=True)))
    return PlaneSection(
        "Divergence", learned=[(float(a), float(b), "of the clusters") for a, b in points],
        mark="used here",
        note="The divergence that matrices were compared by, among those with a name.",
    )  # fmt: skip


def _progress(history: Mapping[str, NDArray[Any]]) -> CurvesSection:
    name = "objective" if "objective" in history else "lower_bound"
    label = "objective" if name == "objective" else "log-likelihood per matrix"
    return CurvesSection(
        "Progress", {label: history[name].astype(np.float64)}, "step", label,
        note="The objective after every step; none makes it worse."
        if name == "objective"
        else "The log-likelihood after every iteration.",
    )  # fmt: skip
