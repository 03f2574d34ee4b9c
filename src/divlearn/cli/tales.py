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
    members : list of (name, weight, accuracy), of a committee; empty for others.
    """

    text: str
    held_out_accuracy: float | None
    members: list[list[str]]


def tell_of(model: Any, labels: NDArray[Any]) -> Tale:
    """Say what was learned, and how well matrices held out on the way were predicted."""
    held_out = held_out_predictions(model, labels)
    accuracy = None if held_out is None else held_out.accuracy
    parts = [f"learned {len(model.classes_)} classes from {len(labels)} matrices."]
    if accuracy is not None:
        parts.append(
            f"Of matrices that were held out while learning, {accuracy:.1%} were predicted right."
        )
    weights = getattr(model, "weights_", {})
    if weights:
        parts.append(f"It averages {len(weights)} classifiers:")
    elif hasattr(model, "message_"):
        parts.append(f"How it ended: {model.message_}.")
    members = [
        [name, f"{weights[name]:.2f}", f"{model.oof_accuracy_[name]:.1%}"]
        for name in sorted(weights, key=lambda name: -weights[name])
    ]
    return Tale(" ".join(parts), accuracy, members)
