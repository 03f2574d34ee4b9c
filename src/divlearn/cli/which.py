"""``divlearn which``: the divergence that suits matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli import data as reading
from divlearn.cli import options
from divlearn.cli.output import Output

if TYPE_CHECKING:
    from divlearn.judge import WhichDivergence

WithoutLabels = Annotated[
    bool, typer.Option("--without-labels", help="Ignore labels and use the likelihood.")
]


def which(
    data: options.Data,
    matrices: options.MatricesKey = None,
    labels: options.LabelsKey = None,
    groups: options.Groups = None,
    without_labels: WithoutLabels = False,
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
    from divlearn.judge import which_divergence

    out = Output(as_json, report, reads=reading.data_files(data, labels, groups))
    purpose = None if without_labels else reading.KEEP
    dataset = reading.read_data(out, data, matrices, labels, groups, regularize, purpose)
    y = None if without_labels else reading.require_classes(dataset, data).labels
    if y is None and groups is not None:
        raise ValueError("--groups needs labels: the likelihood has no folds; leave out --groups")
    group_labels = None if y is None else reading.keep_together(dataset, groups, out)
    with out.working("Comparing divergences"):
        answer = which_divergence(
            dataset.matrices,
            y,
            groups=group_labels,
            cv=cv,
            engine=engine,
            random_state=seed,
            regularize=regularize,
        )
    if y is not None:
        reading.say_folds(len(answer.chosen), cv, out)
    _show(out, answer, kept_together=group_labels is not None)


def _show(out: Output, answer: WhichDivergence, *, kept_together: bool) -> None:
    from divlearn.report import page_of
    from divlearn.report.sections import as_sentence

    out.say(answer.summary())
    if out.interrupted:
        out.say(as_sentence(answer.message))
    columns = {"alpha": "alpha", "beta": "beta", "log-likelihood": "score"}
    if answer.criterion == "accuracy":
        columns = {"alpha": "alpha", "beta": "beta", "neighbour": "score", "mean": "mean_score"}
    rows = [
        [str(row["name"]), *(_format(float(row[key])) for key in columns.values())]
        for row in answer.table()
    ]
    out.table(["divergence", *columns], rows)
    out.write_page(lambda: page_of(answer), {"comparing": out.seconds})
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
        kept_together=kept_together,
    )


def _format(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"
