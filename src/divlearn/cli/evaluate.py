"""``divlearn evaluate``: cross-validate classifiers on the same folds."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli import data as reading
from divlearn.cli import options
from divlearn.cli.output import Output
from divlearn.text import format_p

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from divlearn.judge import Evaluation

Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Classifiers to compare, by a part of their names or classes, such as AIRM or mdm; "
        "may be repeated."
    ),
]


def evaluate(
    data: options.Data,
    cv: options.CV = 5,
    only: Only = None,
    matrices: options.MatricesKey = None,
    labels: options.LabelsKey = None,
    groups: options.Groups = None,
    regularize: options.Regularize = "raise",
    seed: options.Seed = 0,
    report: options.ReportFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare classifiers of divlearn with the usual baselines on the same folds.

    Ctrl-C keeps the folds that all classifiers completed.

    Example: divlearn evaluate matrices.npz --cv 5 --report result.html
    """
    from divlearn import judge
    from divlearn.report import page_of

    out = Output(as_json, report, reads=reading.data_files(data, labels, groups))
    classifiers = _select(judge.default_classifiers(seed), only or [])
    dataset = reading.read_data(out, data, matrices, labels, groups, regularize, reading.KEEP)
    group_labels = reading.keep_together(reading.require_labels(dataset, data), groups, out)
    with out.working("Cross-validating"):
        result = judge.evaluate(
            dataset.matrices,
            dataset.labels,
            classifiers,
            cv=cv,
            groups=group_labels,
            random_state=seed,
            regularize=regularize,
        )
    reading.say_folds(result.n_folds, cv, out)
    show_evaluation(out, result)
    out.write_page(lambda: page_of(result), result.seconds)
    out.finish(
        summary=result.summary(),
        message=result.message,
        n_folds=result.n_folds,
        kept_together=group_labels is not None,
        classifiers=[vars(row) | {"versus_best": vars(row.versus_best)} for row in result.table()],
    )


def _select(classifiers: dict[str, BaseEstimator], only: list[str]) -> dict[str, BaseEstimator]:
    # Classes have the names that `fit --model` takes, such as mdm and knn.
    full = {name: f"{name} {type(model).__name__}".lower() for name, model in classifiers.items()}
    matches = {part: [name for name in full if part.lower() in full[name]] for part in only or [""]}
    for part, names in matches.items():
        if not names:
            raise ValueError(f"--only {part} matches no classifier: {'; '.join(classifiers)}")
    chosen = set(chain.from_iterable(matches.values()))
    return {name: model for name, model in classifiers.items() if name in chosen}


def show_evaluation(out: Output, evaluation: Evaluation) -> None:
    from divlearn.report.sections import as_sentence

    out.table(
        ["classifier", "accuracy", "behind the best", "p", "seconds"],
        [
            [
                row.name,
                f"{row.accuracy:.1%} +- {row.standard_error:.1%}",
                f"{100 * paired.difference:.1f} +- {100 * paired.standard_error:.1f}",
                format_p(paired.p_value),
                f"{row.seconds:.1f}",
            ]
            for row in evaluation.table()
            for paired in [row.versus_best]
        ],
    )
    out.say(evaluation.summary())
    out.say(as_sentence(evaluation.message))
