"""The task that most tables are made of: fit a method to a training part, test it once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.datasets import Dataset
from divlearn.datasets.dataset import Split
from divlearn.experiments.cells import Cell, Outcome, Task
from divlearn.experiments.methods import make_classifier, settings_of
from divlearn.experiments.protocol import Limits, Protocol
from divlearn.experiments.shelf import Holding

__all__ = ["Problem", "accuracy_cells", "draw", "make_problem", "measure_accuracy", "seeds_of"]

TASK = Task("accuracy", 1)


@dataclass(frozen=True, eq=False)
class Problem:
    """Matrices to train on and to test on, with their labels."""

    X_train: RealArray
    y_train: NDArray[Any]
    X_test: RealArray
    y_test: NDArray[Any]
    mark: str  # of the test part


def draw(
    labels: NDArray[Any], rows: NDArray[np.intp], classes: NDArray[Any], size: int | None,
    rng: np.random.Generator,
) -> NDArray[np.intp]:  # fmt: skip
    """Draw rows of some classes, of each at most a number.

    Examples
    --------
    >>> labels = np.array(["a", "b", "a", "a", "c"])
    >>> rows = draw(labels, np.arange(5), np.array(["a", "b"]), 2, np.random.default_rng(0))
    >>> labels[rows].tolist()
    ['a', 'b', 'a']
    """
    drawn = [rng.permutation(rows[labels[rows] == label])[:size] for label in classes]
    return np.sort(np.concatenate(drawn))


def make_split(dataset: Dataset, seed: int, limits: Limits) -> Split:
    """Make the split of a seed; seeds beyond the number of splits begin again."""
    splits = dataset.splits()
    train, test = splits[seed % len(splits)]
    if limits == Limits():
        return train, test
    rng = np.random.default_rng(seed)
    classes = dataset.classes[: limits.classes]
    return (
        draw(dataset.labels, train, classes, limits.train, rng),
        draw(dataset.labels, test, classes, limits.test, rng),
    )


def make_problem(dataset: Dataset, seed: int, limits: Limits) -> Problem:
    """Make what a classifier is fitted to and tested on."""
    train, test = make_split(dataset, seed, limits)
    X, y = dataset.matrices, dataset.labels
    mark = sha256(test.astype(np.int64).tobytes()).hexdigest()[:12]
    return Problem(X[train], y[train], X[test], y[test], mark)


def seeds_of(holding: Holding, protocol: Protocol) -> range:
    """Seeds of the splits, or of repeated fits where there is only one split."""
    if holding.n_splits == 1:
        return range(protocol.repeats)
    return range(min(holding.n_splits, protocol.splits))


def measure_accuracy(problem: Problem, model: Any) -> Outcome:
    """Fit a classifier, and predict the test part once.

    Parameters
    ----------
    problem : Problem
    model : classifier

    Returns
    -------
    Outcome
        "accuracy", "n_test", "test" (which names the test part), "n_train", seconds, and what the
        classifier has to say.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that reach their last iteration
        started = time.perf_counter()
        model.fit(problem.X_train, problem.y_train)
        fitted = time.perf_counter()
        right = model.predict(problem.X_test) == problem.y_test
    return {
        "accuracy": float(right.mean()),
        "n_test": len(right),
        "test": problem.mark,
        "n_train": len(problem.y_train),
        "fit_seconds": fitted - started,
        "predict_seconds": time.perf_counter() - fitted,
        "message": str(getattr(model, "message_", "")),
    }


def accuracy_cells(
    holding: Holding, methods: Sequence[str], protocol: Protocol, **changes: Any
) -> list[Cell]:
    """Cells for the accuracy of methods on a data set.

    Parameters
    ----------
    holding : Holding
    methods : sequence of str
        Of `divlearn.experiments.methods`.
    protocol : Protocol
    **changes
        Settings that are other than those of the protocol, such as ``atoms=15``.
    """
    limits = protocol.limit(holding.source.key)

    def cell(method: str, seed: int) -> Cell:
        settings = settings_of(method, protocol) | changes

        def compute() -> Outcome:
            problem = make_problem(holding.dataset, seed, limits)
            n_classes = len(np.unique(problem.y_train))
            return measure_accuracy(problem, make_classifier(method, settings, seed, n_classes))

        return Cell(
            TASK, holding.source.title, holding.digest, method, seed,
            settings | {"limits": str(limits)}, compute,
        )  # fmt: skip

    skipped = protocol.skipped.get(holding.source.key, ())
    return [
        cell(method, seed)
        for method in methods
        if method not in skipped
        for seed in seeds_of(holding, protocol)
    ]
