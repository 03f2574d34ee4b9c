"""What a fitted classifier has to say for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tale", "tell_of"]


@dataclass(frozen=True)
class Tale:
    """Sentences about a model.

    Attributes
    ----------
    text : str
    held_out_accuracy : float or None, on matrices held out while it was learned.
    """

    text: str
    held_out_accuracy: float | None


def tell_of(model: Any, labels: NDArray[Any]) -> Tale:
    """Say what was learned, and how well matrices held out on the way were predicted."""
    accuracy = _held_out(model, labels)
    parts = [f"learned {len(model.classes_)} classes from {len(labels)} matrices."]
    if accuracy is not None:
        parts.append(
            f"Of matrices that were held out while learning {accuracy:.1%} were predicted right."
        )
    if hasattr(model, "summary"):
        parts.append(str(model.summary()))
    elif hasattr(model, "message_"):
        parts.append(f"It stopped since {model.message_}.")
    return Tale(" ".join(parts), accuracy)


def _held_out(model: Any, labels: NDArray[Any]) -> float | None:
    said = getattr(model, "oof_proba_", None)
    if said is None:
        return None
    known = np.isfinite(said).all(axis=1)
    if not known.any():
        return None
    predicted = model.classes_[said[known].argmax(axis=1)]
    return float((predicted == labels[known]).mean())
