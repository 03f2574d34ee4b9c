"""Curves as a section of a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from divlearn.report.section import check_shape

__all__ = ["CurvesSection"]


@dataclass(frozen=True, eq=False)
class CurvesSection:
    """Named curves over one axis, such as objective and held-out score over iterations.

    Attributes
    ----------
    title : str
    curves : mapping of str to array-like, shape (n,) or (2, n)
        Heights over 0, 1, 2, ..., or places and heights. NaN leaves a gap.
    x_label, y_label : str
    note : str
        What one sees, in plain words.
    second : mapping as `curves`, optional
        Curves that have an axis of their own, on the right.
    second_label : str
    marks : mapping of str to float, optional
        Places of upright lines, by what is written beside them.

    Examples
    --------
    >>> section = CurvesSection(
    ...     "Learning", {"objective": [3.0, 2.0, 1.5]}, "iteration", "objective",
    ...     second={"held-out accuracy": [[0, 2], [0.8, 0.9]]}, marks={"kept": 2},
    ... )
    >>> section.content()["curves"][1]["x"]
    array([0., 2.])
    """

    template: ClassVar[str] = "figure.html"
    kind: ClassVar[str] = "curves"

    title: str
    curves: Mapping[str, ArrayLike]
    x_label: str = ""
    y_label: str = ""
    note: str = ""
    second: Mapping[str, ArrayLike] = field(default_factory=dict)
    second_label: str = ""
    marks: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.content()

    def content(self) -> dict[str, Any]:
        """Return what the template and the script need, as plain values."""
        both = ((False, self.curves), (True, self.second))
        return {
            "curves": [
                _curve(name, values, second) for second, group in both
                for name, values in group.items()
            ],
            "x_label": self.x_label,
            "y_label": self.y_label,
            "second_label": self.second_label,
            "marks": [{"name": name, "x": float(place)} for name, place in self.marks.items()],
        }  # fmt: skip


def _curve(name: str, values: ArrayLike, second: bool) -> dict[str, Any]:
    if np.ndim(values) == 2:
        x, y = check_shape(values, f"curve {name!r}", (2, None))
    else:
        y = check_shape(values, f"curve {name!r}", (None,))
        x = np.arange(len(y))
    return {"name": name, "x": x, "y": y, "second": second}
