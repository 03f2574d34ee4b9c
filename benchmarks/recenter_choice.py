"""Which alignment `Recenter("choose")` chooses, and the accuracy on test parts with each.

The choice sees training parts only. The classifier is logistic regression of tangent vectors.
Needs DIVLEARN_DATA, or --packed. Prints a table of docs/transfer.md.

    python benchmarks/recenter_choice.py
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from accuracy_data import EEG_COLUMNS, load, make_problem
from recenter import SPLITS, percent, table
from timing import limit_threads

from divlearn import Recenter
from divlearn.tangent import TangentClassifier

COLUMNS = {column.title: (column.data, column.seeds) for column in EEG_COLUMNS.values()} | SPLITS
DEFAULT = [
    "2b, across sessions",
    "EEGMAT, within recordings",
    "EEGMAT, across subjects",
    "EMG subjects",
    "ETH-80, 5 objects",
]
ALIGNMENTS = {"none": None, "center": Recenter(), "stretch": Recenter(stretch=True)}


def run(name: str, packed: Path | None) -> tuple[Counter[str], dict[str, list[float]]]:
    """Count choices, and score every alignment that is possible, and the chosen one."""
    file, seeds = COLUMNS[name]
    data, chosen = load(file, packed), Counter[str]()
    scores: dict[str, list[float]] = {name: [] for name in (*ALIGNMENTS, "chosen")}
    for seed in seeds:
        problem = make_problem(data, seed, quick=False)
        assert problem.domains is not None
        train, test = problem.domains
        best = Recenter("choose").fit(problem.X_train, problem.y_train, train).chosen_
        chosen[best] += 1
        for how, model in ALIGNMENTS.items():
            parts = problem.X_train, problem.X_test
            if model is not None:
                try:
                    moved = model.fit_transform(problem.X_train, problem.y_train, train)
                except ValueError:  # every group has a single class
                    continue
                parts = moved, model.transform(problem.X_test, train.max() + 1 + test)
            classifier = TangentClassifier("logistic", cv=problem.cv, random_state=seed)
            score = classifier.fit(parts[0], problem.y_train).score(parts[1], problem.y_test)
            scores[how].append(score)
            if how == best:
                scores["chosen"].append(score)
        print(name, seed, best, {how: one[-1:] for how, one in scores.items()}, flush=True)
    return chosen, scores


def row(name: str, chosen: Counter[str], scores: dict[str, list[float]]) -> Sequence[str]:
    counts = ", ".join(f"{how} {count}" for how, count in chosen.most_common())
    return [name, counts, *(percent(one) if one else "not possible" for one in scores.values())]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=COLUMNS, default=DEFAULT)
    parser.add_argument("--packed", type=Path, help="folder of data; see benchmarks/accuracy.py")
    given = parser.parse_args()
    limit_threads(1)
    rows = [row(name, *run(name, given.packed)) for name in given.data]
    print(table(["data", "chosen (number of splits)", *ALIGNMENTS, "as chosen"], rows))


if __name__ == "__main__":
    main()
