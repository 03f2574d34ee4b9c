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
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep progress in a file, to go on from after a kill."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the file of --checkpoint.")
    ] = False,
    report: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Learn a classifier of matrices, and keep it in a file.

    Ctrl-C stops learning early where that is possible, and keeps the best so far. With
    --checkpoint, learning that was stopped or killed goes on by --resume, and ends with the same
    model; the file is removed once that is written.

    Example: divlearn fit matrices.npz -o model.divlearn --report report.html
    """
    from sklearn.utils.validation import has_fit_parameter

    from divlearn.checkpoint import checkpointed, stage
    from divlearn.cli.data import read_data, read_groups, require_labels
    from divlearn.cli.models import make_classifier
    from divlearn.cli.output import Output, prepare_output
    from divlearn.cli.tales import tell_of
    from divlearn.models import save
    from divlearn.report.fitted import classifier_page

    out = Output(as_json, report)
    _check_checkpoint(checkpoint, resume)
    output = Path(data.name).with_suffix(".divlearn") if output is None else output
    prepare_output(output)
    classifier = make_classifier(model, seed, engine)
    dataset = require_labels(read_data(data, matrices, labels, repair), data)
    given = {"X": dataset.matrices, "y": dataset.labels}
    groups = None
    if has_fit_parameter(classifier, "groups"):  # the others hold nothing out
        groups = read_groups(data, matrices, dataset.labels, out)
    kept = {} if groups is None else {"groups": groups}
    started = time.perf_counter()
    with checkpointed(checkpoint, classifier, **given, **kept):
        with out.working(f"Learning from {len(dataset.labels)} matrices"):
            classifier = stage("fit", lambda: classifier.fit(**given, **kept))
        seconds = time.perf_counter() - started
        save(classifier, output)
    tale = tell_of(classifier, dataset.labels)
    if out.interrupted:
        out.say(f"Interrupted, and the best so far is kept: {classifier.message_}.")
        if checkpoint is not None and checkpoint.exists():
            out.say(f"To go on: the same command with --resume; its checkpoint is {checkpoint}.")
    out.say(f"{type(classifier).__name__} {tale.text}")
    if tale.members:
        out.table(["member", "weight", "right, held out"], tale.members)
    out.say(f"Model: {output}, {seconds:.1f} s. To use it: divlearn predict {output} NEW.npz")
    out.write_page(
        lambda: classifier_page(classifier, **given, groups=groups),
        dataset.digest(), {"learning": seconds},
    )  # fmt: skip
    out.finish(
        model=str(output), kind=type(classifier).__name__, seconds=seconds,
        held_out_accuracy=tale.held_out_accuracy, summary=tale.text,
        images_kept_together=groups is not None, data=dataset.digest(),
    )  # fmt: skip


def _check_checkpoint(checkpoint: Path | None, resume: bool) -> None:
    """Raise where it is not clear whether to go on or to start anew."""
    if checkpoint is None:
        if resume:
            raise ValueError("--resume needs --checkpoint FILE, the file to go on from; add it")
    elif resume and not checkpoint.exists():
        raise ValueError(f"--resume: there is no {checkpoint} to go on from; leave out --resume")
    elif not resume and checkpoint.exists():
        raise ValueError(
            f"--checkpoint {checkpoint} is there already; add --resume to go on from it, or remove "
            "it to start anew"
        )
