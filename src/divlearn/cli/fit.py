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
    Groups,
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
    groups: Groups = None,
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

    from divlearn.checkpoint import checkpointed, resumable, stage
    from divlearn.cli.data import KEEP, groups_file, keep_together, read_data, require_labels
    from divlearn.cli.models import make_classifier
    from divlearn.cli.output import Output
    from divlearn.cli.paths import check_paths, shell_name
    from divlearn.cli.tales import tell_of
    from divlearn.models import save
    from divlearn.report.fitted import classifier_page

    out = Output(as_json, report)
    output = Path(f"{data.stem}.divlearn") if output is None else output
    check_paths(
        [("DATA", data), ("--groups", groups_file(groups))],
        [("--output", output), ("--checkpoint", checkpoint), ("--report", report)],
    )
    _check_checkpoint(checkpoint, resume)
    classifier = make_classifier(model, seed, engine)
    holds_out = has_fit_parameter(classifier, "groups")
    judges = holds_out or report is not None
    dataset = read_data(data, matrices, labels, repair, out, groups, KEEP if judges else None)
    given = {"X": require_labels(dataset, data).matrices, "y": dataset.labels}
    together = keep_together(dataset, groups, out) if judges else None
    if groups is not None and not judges:
        out.say(f"{type(classifier).__name__} holds nothing out: --groups changes nothing.")
    kept = {"groups": together} if holds_out and together is not None else {}
    started = time.perf_counter()
    with resumable(checkpoint), checkpointed(classifier, **given, **kept):
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
    out.say(
        f"Model: {output}, {seconds:.1f} s. To use it: divlearn predict {shell_name(output)} "
        "NEW.npz"
    )
    digest = dataset.digest()
    out.write_page(
        lambda: classifier_page(classifier, **given, groups=together), digest,
        {"learning": seconds},
    )  # fmt: skip
    out.finish(
        model=str(output), kind=type(classifier).__name__, seconds=seconds,
        held_out_accuracy=tale.held_out_accuracy, summary=tale.text,
        kept_together=together is not None, data=digest,
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
