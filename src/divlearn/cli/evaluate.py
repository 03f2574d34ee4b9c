"""``divlearn evaluate``: classifiers side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli.options import (
    AsJson,
    Data,
    Groups,
    LabelsKey,
    MatricesKey,
    Repair,
    ReportFile,
    Seed,
)

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
    groups: Groups = None,
    repair: Repair = "raise",
    seed: Seed = 0,
    report: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare our classifiers with the usual ones, all on the same folds.

    Ctrl-C keeps the folds that all of them are through with.

    Example: divlearn evaluate matrices.npz --folds 5 --report evaluation.html
    """
    from divlearn.cli.data import KEEP, groups_file, keep_together, read_data, require_labels
    from divlearn.cli.output import Output
    from divlearn.cli.paths import check_paths
    from divlearn.evaluation import default_classifiers
    from divlearn.evaluation import evaluate as cross_validate
    from divlearn.report.results import result_page
    from divlearn.report.words import as_sentence

    out = Output(as_json, report)
    check_paths([("DATA", data), ("--groups", groups_file(groups))], [("--report", report)])
    known = default_classifiers(seed)
    chosen = {
        name: one
        for name, one in known.items()
        if not only or any(part.lower() in name.lower() for part in only)
    }
    if not chosen:
        raise ValueError(f"--only {' '.join(only or [])} is part of no name: {'; '.join(known)}")
    dataset = read_data(data, matrices, labels, repair, out, groups, KEEP)
    together = keep_together(require_labels(dataset, data), groups, out)
    with out.working("Cross-validating"):
        found = cross_validate(
            dataset.matrices, dataset.labels, chosen, cv=folds, groups=together,
            random_state=seed,
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
    out.say(as_sentence(found.message))
    digest = dataset.digest()
    out.write_page(lambda: result_page(found), digest, found.seconds)
    out.finish(
        summary=found.summary(), message=found.message, data=digest,
        kept_together=together is not None,
        classifiers=[
            {"name": row.name, "accuracy": row.accuracy, "standard_error": row.standard_error,
             "seconds": row.seconds, "versus_best": vars(row.versus_best)}
            for row in rows
        ],
    )  # fmt: skip


def _points(row: Row) -> str:
    paired = row.versus_best
    return f"{100 * paired.difference:.1f} +- {100 * paired.standard_error:.1f}"
