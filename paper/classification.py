"""Accuracies: the cells of most tables, and what these tables have in common."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from divlearn.datasets import Dataset, Split
from paper.cells import Cell, Done, distinct, where
from paper.comparison import Claim, Row, accuracy_of
from paper.data import SOURCES, paper_name
from paper.experiment import Experiment, data_cell
from paper.methods import OURS, STRUCTURED, make_classifier, settings_of
from paper.protocol import Limits, Protocol

# Cheap ones first: a run that is stopped early has most of the tables.
TABLE_SOURCES = (
    "kth",
    "virus",
    "jhmdb-joints",
    "brodatz",
    "kth-images",
    "jhmdb",
    "breast",
    "myometrium",
    "rgbd",
    "hmdb",
)
WHOLE = "brodatz-all"  # too large for most methods


def draw_rows(
    labels: np.ndarray,
    rows: np.ndarray,
    classes: np.ndarray,
    size: int | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw rows of some classes, at most `size` of each."""
    drawn = [rng.permutation(rows[labels[rows] == label])[:size] for label in classes]
    return np.sort(np.concatenate(drawn))


def make_split(dataset: Dataset, seed: int, limits: Limits) -> Split:
    """Make the split of a seed: official ones in turn, or as many random ones as there are seeds.

    More random splits begin with those that fewer would be.
    """
    splits = dataset.splits() if dataset.official_splits else dataset.splits(n=seed + 1)
    train, test = splits[seed % len(splits)]
    if limits == Limits():
        return train, test
    rng, classes = np.random.default_rng(seed), dataset.classes[: limits.classes]
    return (
        draw_rows(dataset.labels, train, classes, limits.train, rng),
        draw_rows(dataset.labels, test, classes, limits.test, rng),
    )


def measure_accuracy(
    dataset: Dataset,
    engine: str,
    *,
    seed: int,
    limits: Limits,
    method: str,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """Fit a method to the training part of a split, and predict the test part once."""
    train, test = make_split(dataset, seed, limits)
    X, y = dataset.matrices, dataset.labels
    model = make_classifier(method, settings, seed, len(np.unique(y[train])), engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that reach their last iteration
        started = time.perf_counter()
        model.fit(X[train], y[train])
        fitted = time.perf_counter()
        right = model.predict(X[test]) == y[test]
    chosen = {"gamma": float(model.penalty_)} if hasattr(model, "penalty_") else {}
    return chosen | {
        "accuracy": float(right.mean()),
        "n_test": len(test),
        "test": sha256(test.astype(np.int64).tobytes()).hexdigest()[:12],  # names the test part
        "fit_seconds": round(fitted - started, 3),
    }


def accuracy_cells(
    sources: Iterable[str],
    methods: Iterable[str],
    protocol: Protocol,
    seeds: int | None = None,
    **changes: Any,
) -> list[Cell]:
    """Make cells for methods on data sets; `changes` override settings of the protocol."""
    cells = []
    for source in sources:
        limits, skipped = protocol.limit(source), protocol.skipped.get(source, ())
        n_splits = SOURCES[source].n_splits
        n_seeds = protocol.repeats if n_splits == 1 else min(n_splits, protocol.splits)
        for method in (method for method in methods if method not in skipped):
            settings = settings_of(method, protocol) | changes
            for seed in range(n_seeds if seeds is None else seeds):
                compute = partial(
                    measure_accuracy, seed=seed, limits=limits, method=method, settings=settings
                )
                cells.append(
                    data_cell(
                        ("accuracy", 2),
                        source,
                        method,
                        seed,
                        settings,
                        limits,
                        compute,
                        resumes=method in STRUCTURED,
                    )
                )
    return cells


def accuracy_table(
    *,
    name: str,
    title: str,
    where: str,
    methods: Sequence[str],
    published: Mapping[str, Mapping[str, float]],
    claims: Callable[[list[Row]], list[Claim]],
    effort: str,
    rows: Callable[[Done], list[Row]] | None = None,
    more_cells: Callable[[Protocol], list[Cell]] = lambda protocol: [],
) -> Experiment:
    """Make an experiment of accuracies: data sets in rows, the paper's methods and ours in columns.

    `published` has the paper's figures by data and method; `more_cells` are those that a table has
    beside its methods.
    """

    def cells(protocol: Protocol) -> list[Cell]:
        both = (*methods, *reversed(OURS))
        return accuracy_cells(TABLE_SOURCES, both, protocol) + more_cells(protocol)

    return Experiment(
        name=name,
        title=title,
        where=where,
        unit="accuracy in %",
        cells=cells,
        rows=rows or partial(accuracy_rows, methods=methods, published=published),
        claims=claims,
        effort=lambda protocol: effort,
    )


def accuracy_rows(
    done: Done, methods: Sequence[str], published: Mapping[str, Mapping[str, float]]
) -> list[Row]:
    """Put accuracies together, of the paper's methods and of ours."""
    rows = [
        Row.of(
            data,
            method,
            accuracy_of(where(done, data=data, method=method)),
            published.get(paper_name(data), {}).get(method),
        )
        for data in distinct(done, "data")
        for method in (*methods, *OURS)
    ]
    return [row for row in rows if row.value is not None or row.row != SOURCES[WHOLE].title]


def whole_cells(methods: Iterable[str], protocol: Protocol, seeds: int | None = 1) -> list[Cell]:
    """Make cells of all patches of Brodatz; one split has 8000 of them to test on."""
    return accuracy_cells([WHOLE] if protocol.whole else [], methods, protocol, seeds)
