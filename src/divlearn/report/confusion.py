"""A confusion matrix as a section of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.report.section import check_shape

__all__ = ["ConfusionSection"]

_MISTAKES = 5  # that are put in words


@dataclass(frozen=True, eq=False)
class ConfusionSection:
    """What was taken for what.

    Attributes
    ----------
    title : str
    classes : sequence, of length n_classes
        Their names.
    matrix : array-like, shape (n_classes, n_classes)
        Counts: a row is a true class, a column a predicted one, as of
        `sklearn.metrics.confusion_matrix`.
    note : str
        What one sees, in plain words.

    Examples
    --------
    >>> section = ConfusionSection("Confusion", ["brick", "grass"], [[9, 1], [0, 5]])
    >>> section.content()["right"], section.content()["mistakes"]
    ('14 of 15 are right (93.3%)', ['brick taken for grass: 1 of 10'])
    """

    template: ClassVar[str] = "confusion.html"
    kind: ClassVar[str] = "confusion"

    title: str
    classes: Sequence[Any]
    matrix: ArrayLike
    note: str = ""

    def __post_init__(self) -> None:
        self._counts()

    def content(self) -> dict[str, Any]:
        """Return what the template and the script need, as plain values."""
        counts = self._counts()
        names = [str(name) for name in self.classes]
        total, right = counts.sum(), counts.trace()
        share = f" ({right / total:.1%})" if total else ""
        return {
            "classes": names,
            "counts": counts.astype(np.int64),
            "right": f"{right:,.0f} of {total:,.0f} are right{share}",
            "mistakes": _mistakes(names, counts),
        }

    def _counts(self) -> RealArray:
        n_classes = len(self.classes)
        counts = check_shape(self.matrix, "matrix", (n_classes, n_classes))
        bad = np.argwhere(~((counts >= 0) & (counts == np.floor(counts)) & (counts < np.inf)))
        if len(bad):
            row, column = (int(i) for i in bad[0])
            raise ValueError(f"matrix[{row}, {column}] = {counts[row, column]} must be a count")
        return counts


def _mistakes(names: Sequence[str], counts: RealArray) -> list[str]:
    """Put the most frequent mistakes in words."""
    wrong = counts - np.diag(counts.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MISTAKES]
    places = [divmod(int(place), len(names)) for place in order]
    return [
        f"{names[row]} taken for {names[column]}: {wrong[row, column]:,.0f} of "
        f"{counts[row].sum():,.0f}"
        for row, column in places
        if wrong[row, column]
    ]
