"""``divlearn doctor``: problems of matrices and labels."""

import typer

from divlearn.cli import options
from divlearn.cli.output import Output


def doctor(
    data: options.Data,
    matrices: options.MatricesKey = None,
    labels: options.LabelsKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List all problems of matrices and labels, and what to do about them.

    Example: divlearn doctor matrices.npz

    The exit code is 1 if the matrices cannot be used before a problem is fixed.
    """
    import numpy as np

    from divlearn.cli.data import KEEP, as_column, offer_groups
    from divlearn.cli.messages import with_options
    from divlearn.files import read_spd
    from divlearn.judge import examine

    out = Output(as_json)
    contents = read_spd(data, matrices=matrices, labels=as_column(labels), regularize=None)
    diagnosis = examine(contents.matrices, contents.labels)
    out.say(f"{data.name}: {diagnosis.summary()}")
    for finding in diagnosis.findings:
        out.say(f"\n{finding.kind}: {finding.text}.")
        out.say(f"    What to do: {with_options(finding.advice)}.")
    offer_groups(data, contents.group_names, KEEP, out)
    if diagnosis.classes:
        out.table(["class", "matrices"], [[k, str(v)] for k, v in diagnosis.classes.items()])
    out.finish(
        healthy=diagnosis.healthy,
        n_matrices=diagnosis.n_matrices,
        size=diagnosis.size,
        classes=diagnosis.classes,
        group_arrays=contents.group_names,
        condition=np.nanquantile(diagnosis.condition, [0, 0.5, 1]) if diagnosis.healthy else None,
        findings=[vars(finding) for finding in diagnosis.findings],
    )
    if not diagnosis.healthy:
        raise typer.Exit(1)
