"""``divlearn evaluate``: classifiers side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli.options import AsJson, Data, LabelsKey, MatricesKey, Repair, ReportFile, Seed

if TYPE_CHECKING:
    from divlearn.evaluation import Row

__all__ = ["evaluate"]


def evaluate(
    data: Data,
    folds: Annotated[int, typer.Option(help="Of cross-validation.")] = 5,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Classifier to take part, by a part of its name; may be repeated."),
    ] = None,
    matrices: MatricesKey = None,
    labels: LabelsKey = None,
    repair: Repair = "raise",
    seed: Seed = 0,
    report: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare our classifiers with the usual ones, all on the same folds.

    Ctrl-C keeps those that are through.

    Example: divlearn evaluate matrices.npz --folds 5 --report evaluation.html
    """
    from divlearn.cli.data import read_data, require_labels
    from divlearn.cli.output import Output
    from divlearn.evaluation import default_classifiers
    from divlearn.evaluation import evaluate as cross_validate

    out = Output(as_json)
    known = default_classifiers(seed)
    chosen = {
        name: one
        for name, one in known.items()
        if not only or any(part.lower() in name.lower() for part in only)
    }
    if not chosen:
        raise ValueError(f"--only {' '.join(only or [])} is part of no name: {'; '.join(known)}")
    dataset = require_labels(read_data(data, matrices, labels, repair), data)
    with out.working("Cross-validating ...") as tell:
        found = cross_validate(
            dataset.matrices, dataset.labels, chosen, n_folds=folds, random_state=seed,
            watch=lambda name, fold, n_folds: tell(f"{name}, fold {fold} of {n_folds} ..."),
        )  # fmt: skip
    rows = found.table()
    out.table(
        ["classifier", "accuracy", "behind the best", "p", "seconds"],
        [
            [row.name, f"{row.accuracy:.1%} +- {row.standard_error:.1%}", _points(row),
             f"{row.versus_best.p_value:.2g}", f"{row.seconds:.1f}"]
            for row in rows
        ],
    )  # fmt: skip
    out.say(found.summary())
    if found.interrupted:
        out.say(f"Interrupted: {len(rows)} of {len(chosen)} classifiers are through.")
    if report is not None:
        from divlearn.report.evaluations import evaluation_page
        from divlearn.report.writing import write_report

        write_report(report, evaluation_page(found), dataset.digest(), found.seconds)
        out.say(f"Report: {report}")
    out.finish(
        summary=found.summary(), interrupted=found.interrupted, data=dataset.digest(),
        classifiers=[
            {"name": row.name, "accuracy": row.accuracy, "standard_error": row.standard_error,
             "seconds": row.seconds, "versus_best": vars(row.versus_best)}
            for row in rows
        ],
    )  # fmt: skip


def _points(row: Row) -> str:
    paired = row.versus_best
    return f"{100 * paired.difference:.1f} +- {100 * paired.standard_error:.1f}"
