"""Parts of every fit: labels, weights, groups, folds and rows; progress and resuming."""

from divlearn.fitting.checkpoint import resumable
from divlearn.fitting.progress import Listener, listen
from divlearn.fitting.rows import from_rows, to_rows, vectorized

__all__ = ["Listener", "from_rows", "listen", "resumable", "to_rows", "vectorized"]
