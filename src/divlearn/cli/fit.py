"""``divlearn fit``: matrices to a model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from divlearn.cli.options import (
    AsJson,
    Data,
    EngineName,
    LabelsKey,
    MatricesKey,
    Repair,
    ReportFile,
    Seed,
)

__all__ = ["fit"]


def fit(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the model.")],
    model: Annotated[
        str, typer.Option(help="spd (the best of all kinds), iddl, kernel, rbf, mdm or knn.")
    ] = "spd",
    matrices: MatricesKey = None,
    labels: LabelsKey = None,
    repair: Repair = "raise",
    seed: Seed = 0,
    engine: EngineName = "auto",
    report: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Learn a classifier of matrices, and keep it in a file.

    Ctrl-C stops learning early where that is possible, and keeps the best so far.

    Example: divlearn fit matrices.npz -o model.divlearn --report report.html
    """
    from divlearn.cli.data import read_data, require_labels
    from divlearn.cli.models import make_classifier
    from divlearn.cli.output import Output
    from divlearn.cli.tales import tell_of
    from divlearn.models import save

    out = Output(as_json)
    classifier = make_classifier(model, seed, engine)
    dataset = require_labels(read_data(data, matrices, labels, repair), data)
    started = time.perf_counter()
    with out.working(f"Learning from {len(dataset.labels)} matrices ..."):
        classifier.fit(dataset.matrices, dataset.labels)
    seconds = time.perf_counter() - started
    save(classifier, output)
    tale = tell_of(classifier, dataset.labels)
    out.say(f"{type(classifier).__name__}: {tale.text}\nModel: {output}, {seconds:.1f} s.")
    if report is not None:
        from divlearn.report.fitted import classifier_page
        from divlearn.report.writing import write_report

        page = classifier_page(classifier, dataset.matrices, dataset.labels)
        write_report(report, page, dataset.digest(), {"learning": seconds})
        out.say(f"Report: {report}")
    out.finish(
        model=str(output), kind=type(classifier).__name__, seconds=seconds,
        held_out_accuracy=tale.held_out_accuracy, summary=tale.text, data=dataset.digest(),
    )  # fmt: skip
