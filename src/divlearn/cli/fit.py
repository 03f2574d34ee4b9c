"""``divlearn fit``: matrices to a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli import data as reading
from divlearn.cli import options
from divlearn.cli.output import Output, shell_name
from divlearn.text import counted

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from divlearn.arrays import Labels
    from divlearn.datasets import Dataset

_COVARIANCES = ("oas", "lwf", "sch", "scm", "cov")  # estimators of pyRiemann
_RESUME = "to resume, add --resume to the same command; the checkpoint is"

ModelFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="File of the model; by default DATA.divlearn, here."),
]
ModelName = Annotated[
    str, typer.Option(help="spd (an average of all kinds), iddl, kernel, rbf, mdm or knn.")
]
Covariances = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="DATA are recordings, channels x times: fit a pipeline that begins with their "
        f"covariances by {', '.join(_COVARIANCES)}.",
        callback=options.one_of("--covariances", _COVARIANCES),
    ),
]
Channels = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Names of the channels, one per line in the order of the rows of a matrix, for the "
        "model and the report.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Keep completed stages in a file, for --resume."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume from the file of --checkpoint.")]


def fit(
    data: options.Data,
    output: ModelFile = None,
    model: ModelName = "spd",
    matrices: options.MatricesKey = None,
    labels: options.LabelsKey = None,
    groups: options.Groups = None,
    covariances: Covariances = None,
    channels: Channels = None,
    regularize: options.Regularize = "raise",
    seed: options.Seed = 0,
    engine: options.EngineName = "auto",
    checkpoint: Checkpoint = None,
    resume: Resume = False,
    report: options.ReportFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit a classifier to matrices, and save it to a file.

    Ctrl-C stops the fit early if possible, and keeps the best model so far. With --checkpoint, a
    stopped or killed fit resumes with --resume after its last completed member or fold, and ends
    with the same model. The checkpoint is removed once the model is written.

    Example: divlearn fit matrices.npz -o model.divlearn --report report.html

    Recordings of shape (n, channels, times): divlearn fit raw.npz --covariances oas
    """
    from sklearn.utils.validation import has_fit_parameter

    output = Path(f"{data.stem}.divlearn") if output is None else output
    writes = [("--output", output, ()), ("--checkpoint", checkpoint, ())]
    reads = reading.data_files(data, labels, groups, channels)
    out = Output(as_json, report, reads=reads, writes=writes)
    _check_checkpoint(checkpoint, resume)
    descriptor = None if covariances is None else _make_covariances(covariances)
    classifier = _make_classifier(model, seed, engine).set_params(regularize=regularize)
    takes_groups = has_fit_parameter(classifier, "groups")
    uses_groups = takes_groups or report is not None
    purpose = reading.KEEP if uses_groups else None
    dataset = reading.read_data(
        out, data, matrices, labels, groups, regularize, purpose, descriptor
    )
    reading.require_labels(dataset, data)
    names = reading.read_channels(channels, dataset.matrices.shape[-1])
    group_labels = reading.keep_together(dataset, groups, out) if uses_groups else None
    if groups is not None and not uses_groups:
        out.say(f"{type(classifier).__name__} holds nothing out: --groups has no effect.")
    fit_params = {"groups": group_labels} if takes_groups and group_labels is not None else {}
    _fit(out, classifier, dataset, fit_params, names, checkpoint, output)
    with out.keeping(output):
        _show(out, classifier, dataset, group_labels, output)


def _fit(
    out: Output,
    classifier: BaseEstimator,
    dataset: Dataset,
    fit_params: dict[str, Labels],
    channels: Labels | None,
    checkpoint: Path | None,
    output: Path,
) -> None:
    """Fit and save the classifier; the checkpoint remains until it is saved."""
    from sklearn.pipeline import make_pipeline

    from divlearn.fitting.checkpoint import checkpointed, resumable
    from divlearn.models import save

    with (
        _saying_how_to_resume(checkpoint),
        out.working(f"Fitting {len(dataset.labels)} matrices"),
        resumable(checkpoint),
        checkpointed(classifier, data=lambda: out.digest, y=dataset.labels, **fit_params),
    ):
        classifier.fit(dataset.matrices, dataset.labels, **fit_params)
        if channels is not None:
            classifier.feature_names_in_ = channels
        if dataset.series is None:
            save(classifier, output)
        else:
            pipeline = make_pipeline(dataset.descriptor, classifier)
            save(pipeline, output, dataset.series[:1])  # `predict` then refuses covariances
    if out.interrupted:
        out.say(f"Interrupted; the best model so far is kept: {classifier.message_}.")
        if checkpoint is not None and checkpoint.exists():
            out.say(f"{_RESUME.capitalize()} {checkpoint}.")


def _show(
    out: Output, model: BaseEstimator, dataset: Dataset, groups: Labels | None, output: Path
) -> None:
    from divlearn.report import classifier_page

    seconds = out.seconds
    text, accuracy = _summarise(out, model, dataset.labels)
    usage = f"To use it: divlearn predict {shell_name(output)} NEW.npz"
    out.say(f"Model: {output}, {seconds:.1f} s. {usage}")
    page = partial(classifier_page, model, dataset.matrices, dataset.labels, groups)
    out.write_page(page, {"fitting": seconds})
    out.finish(
        model=str(output),
        kind=type(model).__name__,
        seconds=seconds,
        held_out_accuracy=accuracy,
        summary=text,
        kept_together=groups is not None,
    )


def _make_classifier(name: str, seed: int, engine: str) -> BaseEstimator:
    from divlearn.baselines import LogEuclideanSVM
    from divlearn.committee import SPDClassifier
    from divlearn.iddl import IDDLClassifier
    from divlearn.kernels import DivergenceKernelClassifier
    from divlearn.nearest import DivergenceKNN, DivergenceMDM

    classifiers = {
        "spd": SPDClassifier(random_state=seed, engine=engine),
        "iddl": IDDLClassifier(random_state=seed, engine=engine),
        "kernel": DivergenceKernelClassifier(random_state=seed, engine=engine),
        "rbf": LogEuclideanSVM("rbf", random_state=seed),
        "mdm": DivergenceMDM("choose", random_state=seed, engine=engine),
        "knn": DivergenceKNN(1, "airm", engine=engine),
    }
    if name not in classifiers:
        raise ValueError(f"--model {name} must be one of {', '.join(classifiers)}")
    return classifiers[name]


def _make_covariances(name: str) -> BaseEstimator:
    from divlearn.checks import import_extra

    estimation = import_extra("pyriemann.estimation", "--covariances needs pyRiemann", "riemann")
    return estimation.Covariances(name)


def _summarise(out: Output, model: BaseEstimator, labels: Labels) -> tuple[str, float | None]:
    """Print a summary of the model; return it, and the held-out accuracy or None."""
    from divlearn.judge.evaluation import held_out_predictions

    evaluation = held_out_predictions(model, labels)
    accuracy = None if evaluation is None else evaluation.accuracy(evaluation.best)
    text = (
        f"{type(model).__name__} learned {len(model.classes_)} classes from {len(labels)} matrices."
    )
    if accuracy is not None:
        text += f" Held-out accuracy: {accuracy:.1%}."
    weights = model.weights_ if getattr(model, "members_", {}) else {}
    if weights:
        message = f" ({model.message_})" if len(weights) < len(model.members) else ""
        text += f" It averages {counted(len(weights), 'classifiers')}{message}:"
    elif hasattr(model, "message_"):
        text += f" How the fit ended: {model.message_}."
    out.say(text)
    if weights:
        names = sorted(weights, key=lambda name: -weights[name])
        accuracies = model.oof_accuracy_
        rows = [[name, f"{weights[name]:.2f}", f"{accuracies[name]:.1%}"] for name in names]
        out.table(["member", "weight", "held-out accuracy"], rows)
    return text, accuracy


@contextmanager
def _saying_how_to_resume(checkpoint: Path | None) -> Iterator[None]:
    """Name the checkpoint in the message of Ctrl-C, if there is no model yet."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is None or not checkpoint.exists():
            raise
        raise KeyboardInterrupt(f"{_RESUME} {checkpoint}") from None


def _check_checkpoint(checkpoint: Path | None, resume: bool) -> None:
    if checkpoint is None:
        if resume:
            raise ValueError("--resume needs --checkpoint FILE, the file to resume from; add it")
    elif resume and not checkpoint.exists():
        raise ValueError(f"--resume: there is no {checkpoint} to resume from; leave out --resume")
    elif not resume and checkpoint.exists():
        raise ValueError(
            f"--checkpoint {checkpoint} exists already; add --resume to resume from it, or remove "
            "it to start anew"
        )
