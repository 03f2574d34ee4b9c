"""``divlearn evaluate``: cross-validate classifiers on the same folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli import options
from divlearn.cli.output import Output

if TYPE_CHECKING:
    from divlearn.judge import Evaluation


def evaluate(
    data: options.Data,
    cv: options.CV = 5,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Classifiers to compare, by a part of their names; may be repeated."),
    ] = None,
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

    Example: divlearn evaluate matrices.npz --cv 5 --report evaluation.html
    """
    from divlearn import judge
    from divlearn.cli.data import (
        KEEP,
        data_files,
        keep_together,
        read_data,
        require_labels,
        say_folds,
    )
    from divlearn.report import page_of

    out = Output(as_json, report, reads=data_files(data, groups))
    known = judge.default_classifiers(seed)
    chosen = {
        name: one
        for name, one in known.items()
        if not only or any(part.lower() in name.lower() for part in only)
    }
    if not chosen:
        raise ValueError(f"--only {' '.join(only or [])} matches no classifier: {'; '.join(known)}")
    dataset = read_data(data, matrices, labels, regularize, out, groups, KEEP)
    together = keep_together(require_labels(dataset, data), groups, out)
    with out.working("Cross-validating"):
        found = judge.evaluate(
            dataset.matrices,
            dataset.labels,
            chosen,
            cv=cv,
            groups=together,
            random_state=seed,
            regularize=regularize,
        )
    say_folds(found.n_folds, cv, out)
    show_evaluation(out, found)
    digest = out.digest(dataset)
    out.write_page(lambda: page_of(found), digest, found.seconds)
    out.finish(
        summary=found.summary(),
        message=found.message,
        data=digest,
        n_folds=found.n_folds,
        kept_together=together is not None,
        classifiers=[vars(row) | {"versus_best": vars(row.versus_best)} for row in found.table()],
    )


def show_evaluation(out: Output, found: Evaluation) -> None:
    from divlearn.report.sections import as_sentence

    out.table(
        ["classifier", "accuracy", "behind the best", "p", "seconds"],
        [
            [
                row.name,
                f"{row.accuracy:.1%} +- {row.standard_error:.1%}",
                f"{100 * paired.difference:.1f} +- {100 * paired.standard_error:.1f}",
                f"{paired.p_value:.2g}",
                f"{row.seconds:.1f}",
            ]
            for row in found.table()
            for paired in [row.versus_best]
        ],
    )
    out.say(found.summary())
    out.say(as_sentence(found.message))
