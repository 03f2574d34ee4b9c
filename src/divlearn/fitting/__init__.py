"""Parts of every fit: labels, weights, groups and folds; progress and resuming."""

from divlearn.fitting.checkpoint import resumable
from divlearn.fitting.progress import Listener, listen

__all__ = ["Listener", "listen", "resumable"]
