"""``divlearn predict``: predictions of a model for matrices."""

from pathlib import Path
from typing import Annotated, Any

import typer

from divlearn.cli import options
from divlearn.cli.output import Output, as_csv

_SHOWN = 20


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File of fit or divlearn.save.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Data as the model was fitted to.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write all predictions here, .csv.")
    ] = None,
    matrices: options.MatricesKey = None,
    labels: options.LabelsKey = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            "--trust", metavar="NAME", help="Class or function of another package in MODEL."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict the classes of matrices, with probabilities where the model has them.

    A pipeline that begins with a step of another package takes the array of DATA as it is.

    Example: divlearn predict model.divlearn new.npz -o predictions.csv

    If the data has labels, the accuracy is printed too.
    """
    from divlearn.arrays import RealArray
    from divlearn.atomic import open_atomic
    from divlearn.engines import Prepared
    from divlearn.files import read_spd
    from divlearn.fitting.labelled import MatricesMixin, check_new
    from divlearn.models import load

    out = Output(
        as_json,
        reads=[("MODEL", model), ("DATA", data)],
        writes=[("--output", output)],
        endings={"--output": (".csv",)},
    )
    classifier = load(model, trusted=trust or ())
    if not hasattr(classifier, "predict"):
        raise ValueError(f"{model} is a {type(classifier).__name__}, which cannot predict")
    dataset = read_spd(
        data, matrices=matrices, labels=labels, regularize=None, square=_takes_matrices(classifier)
    )
    given: RealArray | Prepared = dataset.matrices
    if isinstance(classifier, MatricesMixin):  # checked once for classes and probabilities
        given = Prepared.checked(check_new(classifier, given))
    predicted = classifier.predict(given)
    files = range(len(predicted)) if dataset.files is None else dataset.files
    names = [str(one) for one in files]
    headings = ["matrix", "predicted"]
    rows = [[name, str(said)] for name, said in zip(names, predicted, strict=True)]
    proba = None
    if hasattr(classifier, "predict_proba") and hasattr(classifier, "classes_"):
        proba = classifier.predict_proba(given)
        headings += [f"p({name})" for name in classifier.classes_]
        for row, values in zip(rows, proba, strict=True):
            row += [f"{value:.4f}" for value in values]
    out.table(headings, rows[:_SHOWN])
    if len(rows) > _SHOWN:
        hint = "" if output else "; -o predictions.csv writes all"
        out.say(f"... and {len(rows) - _SHOWN} more{hint}")
    accuracy = None
    if dataset.labels is not None and hasattr(classifier, "classes_"):
        accuracy = float((predicted.astype(str) == dataset.labels.astype(str)).mean())
        out.say(f"{accuracy:.1%} of {len(rows)} predictions agree with the labels.")
    if output is not None:
        with open_atomic(output) as file:
            file.write(as_csv([headings, *rows]).encode(errors="backslashreplace"))
        out.say(f"Predictions: {output}")
    out.finish(names=names, predicted=predicted, probabilities=proba, accuracy=accuracy)


def _takes_matrices(model: Any) -> bool:
    """Whether a model begins with an estimator of divlearn that takes SPD matrices."""
    model = getattr(model, "best_estimator_", model)
    if hasattr(model, "steps"):
        return _takes_matrices(model.steps[0][1])
    return type(model).__module__.startswith("divlearn.") and hasattr(model, "regularize")
