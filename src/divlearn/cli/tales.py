"""What a fitted classifier has to say for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from divlearn.evaluation import held_out_predictions

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
    held_out = held_out_predictions(model, labels)
    accuracy = None if held_out is None else float((held_out[0] == held_out[1]).mean())
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
