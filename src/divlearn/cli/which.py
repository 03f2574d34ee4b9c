"""``divlearn which``: the divergence that suits matrices."""

import math
from typing import Annotated

import typer

from divlearn.cli import options
from divlearn.cli.output import Output


def which(
    data: options.Data,
    matrices: options.MatricesKey = None,
    labels: options.LabelsKey = None,
    groups: options.Groups = None,
    without_labels: Annotated[
        bool, typer.Option("--without-labels", help="Ignore labels and use the likelihood.")
    ] = False,
    cv: options.CV = 5,
    regularize: options.Regularize = "raise",
    seed: options.Seed = 0,
    engine: options.EngineName = "auto",
    report: options.ReportFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Recommend a divergence for matrices, and say how sure that is.

    With labels, the nearest neighbour and the nearest mean of a class should be of the same class
    as often as possible. Without labels, the likelihood of the matrices is maximised.

    Example: divlearn which matrices.npz --report which.html
    """
    from divlearn.cli.data import (
        KEEP,
        data_files,
        keep_together,
        read_data,
        require_classes,
        say_folds,
    )
    from divlearn.judge import which_divergence
    from divlearn.report import page_of
    from divlearn.report.sections import as_sentence

    out = Output(as_json, report, reads=data_files(data, groups))
    purpose = None if without_labels else KEEP
    dataset = read_data(data, matrices, labels, regularize, out, groups, purpose)
    y = None if without_labels else require_classes(dataset, data).labels
    if y is None and groups is not None:
        raise ValueError("--groups needs labels: the likelihood has no folds; leave out --groups")
    together = None if y is None else keep_together(dataset, groups, out)
    with out.working("Comparing divergences"):
        answer = which_divergence(
            dataset.matrices,
            y,
            groups=together,
            cv=cv,
            engine=engine,
            random_state=seed,
            regularize=regularize,
        )
    if y is not None:
        say_folds(len(answer.chosen), cv, out)
    out.say(answer.summary())
    if out.interrupted:
        out.say(as_sentence(answer.message))
    columns = {"alpha": "alpha", "beta": "beta", "log-likelihood": "score"}
    if answer.criterion == "accuracy":
        columns = {"alpha": "alpha", "beta": "beta", "neighbour": "score", "mean": "mean_score"}
    rows = [
        [str(row["name"]), *(_show(float(row[key])) for key in columns.values())]
        for row in answer.table()
    ]
    out.table(["divergence", *columns], rows)
    digest = out.digest(dataset)
    out.write_page(lambda: page_of(answer), digest, {"comparing": out.seconds})
    out.finish(
        criterion=answer.criterion,
        best=answer.best,
        score=answer.score,
        rule=answer.rule,
        rule_score=answer.rule_score,
        rules={name: vars(row) for name, row in answer.rules.items()},
        p_chance=answer.p_chance,
        summary=answer.summary(),
        message=answer.message,
        table=answer.table(),
        n_folds=len(answer.chosen),
        kept_together=together is not None,
        data=digest,
    )


def _show(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"
