"""Accuracies: the cells of most tables, and what these tables have in common."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from divlearn.datasets import Dataset, Split
from paper.cache import Cell, Done, distinct, where
from paper.comparison import Row, accuracy_of, clauses, figures_of
from paper.data import Data, paper_name
from paper.experiment import Experiment, data_cell, say_limits
from paper.methods import OURS, SOLVER, WHY, make_classifier, settings_of
from paper.protocol import Limits, Protocol

# Cheap ones first: a run that is stopped early has most of the tables.
TABLE_SOURCES = (
    "kth", "virus", "jhmdb-joints", "brodatz", "kth-images", "jhmdb", "breast", "myometrium",
    "rgbd", "hmdb",
)  # fmt: skip


def draw_rows(
    labels: np.ndarray, rows: np.ndarray, classes: np.ndarray, size: int | None,
    rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """Draw rows of some classes, at most `size` of each."""
    drawn = [rng.permutation(rows[labels[rows] == label])[:size] for label in classes]
    return np.sort(np.concatenate(drawn))


def make_split(dataset: Dataset, seed: int, limits: Limits) -> Split:
    """Make the split of a seed; seeds beyond the number of splits begin again."""
    splits = dataset.splits()
    train, test = splits[seed % len(splits)]
    if limits == Limits():
        return train, test
    rng, classes = np.random.default_rng(seed), dataset.classes[: limits.classes]
    return (
        draw_rows(dataset.labels, train, classes, limits.train, rng),
        draw_rows(dataset.labels, test, classes, limits.test, rng),
    )


def measure_accuracy(
    dataset: Dataset, seed: int, limits: Limits, method: str, settings: dict[str, Any]
) -> dict[str, Any]:
    """Fit a method to the training part of a split, and predict the test part once."""
    train, test = make_split(dataset, seed, limits)
    X, y = dataset.matrices, dataset.labels
    model = make_classifier(method, settings, seed, len(np.unique(y[train])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that reach their last iteration
        started = time.perf_counter()
        model.fit(X[train], y[train])
        fitted = time.perf_counter()
        right = model.predict(X[test]) == y[test]
    return {
        "accuracy": float(right.mean()),
        "n_test": len(test),
        "test": sha256(test.astype(np.int64).tobytes()).hexdigest()[:12],  # names the test part
        "n_train": len(train),
        "fit_seconds": fitted - started,
        "predict_seconds": time.perf_counter() - fitted,
    }


def accuracy_cells(
    data: Data, keys: Iterable[str], methods: Iterable[str], protocol: Protocol, **changes: Any
) -> list[Cell]:
    """Make cells for methods on data sets; `changes` override settings of the protocol."""
    cells = []
    for key in (key for key in keys if key in data):
        limits, skipped = protocol.limit(key), protocol.skipped.get(key, ())
        n_splits = len(data[key].official_splits) or data[key].rule.n
        n_seeds = protocol.repeats if n_splits == 1 else min(n_splits, protocol.splits)
        for method in (method for method in methods if method not in skipped):
            settings = settings_of(method, protocol) | changes
            for seed in range(n_seeds):
                compute = partial(measure_accuracy, data[key], seed, limits, method, settings)
                cells.append(
                    data_cell(("accuracy", 1), data, key, method, seed, settings, limits, compute)
                )
    return cells


def accuracy_table(
    *, name: str, title: str, where: str, methods: Sequence[str],
    published: Mapping[str, Mapping[str, float]],
    claims: Callable[[list[Row], Done], list[str]],
    rows: Callable[[Done], list[Row]] | None = None,
    more_cells: Callable[[Data, Protocol], list[Cell]] = lambda data, protocol: [],
    more_effort: Callable[[Protocol], str] = lambda protocol: "",
) -> Experiment:  # fmt: skip
    """Make an experiment of accuracies: data sets in rows, the paper's methods and ours in columns.

    `published` has the paper's figures by data and method; `more_cells` and `more_effort` are what
    a table has beside its methods.
    """

    def cells(data: Data, protocol: Protocol) -> list[Cell]:
        both = (*methods, *reversed(OURS))
        return accuracy_cells(data, TABLE_SOURCES, both, protocol) + more_cells(data, protocol)

    def effort(protocol: Protocol) -> str:
        changed = [method for method in (*methods, *OURS) if method in protocol.parameters]
        return clauses(
            f"At most {_count(protocol.splits, 'split')} of every data set, "
            f"{_count(protocol.repeats, 'fit')} where there is one split",
            say_limits(protocol, TABLE_SOURCES),
            f"{_count(protocol.atoms_per_class, 'atom')} per class for all dictionaries",
            f"the paper's IDDL has {protocol.iterations} iterations of {SOLVER}",
            *(f"{method} with {_say(protocol.parameters[method])}" for method in changed),
            more_effort(protocol),
        )

    def all_claims(found: list[Row], done: Done) -> list[str]:
        beside = (
            _ours_beside(figures_of(found, data), methods, data, published)
            for data in distinct(done, "data")
        )
        return [*filter(None, beside), *claims(found, done)]

    return Experiment(
        name=name, title=title, where=where, unit="accuracy in %", sources=TABLE_SOURCES,
        cells=cells, rows=rows or partial(accuracy_rows, methods=methods, published=published),
        claims=all_claims, effort=effort, reasons=WHY,
    )  # fmt: skip


def accuracy_rows(
    done: Done, methods: Sequence[str], published: Mapping[str, Mapping[str, float]]
) -> list[Row]:
    """Put accuracies together, of the paper's methods and of ours."""
    return [
        Row.of(data, method, accuracy_of(where(done, data=data, method=method)),
               published.get(paper_name(data), {}).get(method))
        for data in distinct(done, "data")
        for method in (*methods, *OURS)
    ]  # fmt: skip


def _ours_beside(
    found: Mapping[str, float], methods: Sequence[str], data: str,
    published: Mapping[str, Mapping[str, float]],
) -> str:  # fmt: skip
    """Compare the best of ours with the best of the paper's methods, once all are there."""
    if not {*methods, *OURS} <= set(found):
        return ""
    one, other = (max(names, key=found.__getitem__) for names in (OURS, methods))
    highest = published.get(paper_name(data), {}).values()
    said = f"; the paper's highest figure is {max(highest):g}" if highest else ""
    return (
        f"{data}: the best of ours is {one} with {found[one]:.1f}, of the paper's methods here "
        f"{other} with {found[other]:.1f}{said}."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _say(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())
