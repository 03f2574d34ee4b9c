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
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File of the model; DATA with the ending .divlearn."),
    ] = None,
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
    from divlearn.report.fitted import classifier_page

    out = Output(as_json, report)
    output = Path(data.name).with_suffix(".divlearn") if output is None else output
    classifier = make_classifier(model, seed, engine)
    dataset = require_labels(read_data(data, matrices, labels, repair), data)
    started = time.perf_counter()
    with out.working(f"Learning from {len(dataset.labels)} matrices"):
        classifier.fit(dataset.matrices, dataset.labels)
    seconds = time.perf_counter() - started
    save(classifier, output)
    tale = tell_of(classifier, dataset.labels)
    if out.interrupted:
        out.say(f"Interrupted, and the best so far is kept: {classifier.message_}.")
    out.say(f"{type(classifier).__name__} {tale.text}")
    if tale.members:
        out.table(["member", "weight", "right, held out"], tale.members)
    out.say(f"Model: {output}, {seconds:.1f} s. To use it: divlearn predict {output} NEW.npz")
    out.write_page(
        lambda: classifier_page(classifier, dataset.matrices, dataset.labels),
        dataset.digest(), {"learning": seconds},
    )  # fmt: skip
    out.finish(
        model=str(output), kind=type(classifier).__name__, seconds=seconds,
        held_out_accuracy=tale.held_out_accuracy, summary=tale.text, data=dataset.digest(),
    )  # fmt: skip
