"""``divlearn which``: the divergence that matrices want."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from divlearn.cli.options import (
    AsJson,
    Data,
    EngineName,
    Groups,
    LabelsKey,
    MatricesKey,
    Repair,
    ReportFile,
    Seed,
)

__all__ = ["which"]


def which(
    data: Data,
    matrices: MatricesKey = None,
    labels: LabelsKey = None,
    groups: Groups = None,
    without_labels: Annotated[
        bool, typer.Option("--without-labels", help="Choose by likelihood, though there are some.")
    ] = False,
    folds: Annotated[int, typer.Option(help="Of cross-validation.")] = 5,
    repair: Repair = "raise",
    seed: Seed = 0,
    engine: EngineName = "auto",
    report: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Say which divergence these matrices want, and how sure that is.

    With labels it is the one under which nearest neighbours are most often of the same class,
    without them the most likely one.

    Example: divlearn which matrices.npz --report which.html
    """
    from divlearn.cli.data import KEEP, groups_file, keep_together, read_data
    from divlearn.cli.output import Output
    from divlearn.cli.paths import check_paths
    from divlearn.report.results import result_page
    from divlearn.report.words import as_sentence
    from divlearn.which import which_divergence

    out = Output(as_json, report)
    check_paths([("DATA", data), ("--groups", groups_file(groups))], [("--report", report)])
    purpose = None if without_labels else KEEP
    dataset = read_data(data, matrices, labels, repair, out, groups, purpose)
    y = None if without_labels else dataset.labels
    if y is None and groups is not None:
        raise ValueError("--groups needs labels: the likelihood has no folds; leave out --groups")
    together = None if y is None else keep_together(dataset, groups, out)
    started = time.perf_counter()
    with out.working("Comparing divergences"):
        answer = which_divergence(
            dataset.matrices, y, groups=together, cv=folds, engine=engine, random_state=seed
        )
    seconds = time.perf_counter() - started
    out.say(answer.summary())
    if out.interrupted:
        out.say(as_sentence(answer.message))
    score = "accuracy" if answer.criterion == "accuracy" else "log-likelihood"
    rows = [
        [str(row["name"]), *(f"{float(row[key]):.4g}" for key in ("alpha", "beta", "score"))]
        for row in answer.table()
    ]
    out.table(["divergence", "alpha", "beta", score], rows)
    digest = dataset.digest()
    out.write_page(lambda: result_page(answer), digest, {"comparing": seconds})
    out.finish(
        criterion=answer.criterion, best=answer.best, score=answer.score,
        summary=answer.summary(), message=answer.message, table=answer.table(),
        kept_together=together is not None, data=digest,
    )  # fmt: skip
