"""``divlearn predict``: predictions of a model for matrices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli import options
from divlearn.cli.output import Output, as_csv

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from divlearn.arrays import Labels, RealArray

_SHOWN = 20

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="File of fit or divlearn.save.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="Data as the model was fitted to.")]
Table = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write all predictions here, .csv.")
]
Trust = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="NAME", help="Class or function of another package in MODEL."),
]


def predict(
    model: Model,
    data: Data,
    output: Table = None,
    matrices: options.MatricesKey = None,
    labels: options.LabelsKey = None,
    trust: Trust = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict the classes of matrices, with probabilities where the model has them.

    A pipeline that begins with a step of another package takes the array of DATA as it is.

    Example: divlearn predict model.divlearn new.npz -o predictions.csv

    If the data has labels, the accuracy is printed too.
    """
    from divlearn.atomic import open_atomic
    from divlearn.cli.data import as_column, data_files
    from divlearn.files import read_spd
    from divlearn.models import load

    reads, endings = [("MODEL", model), *data_files(data, labels)], {"--output": (".csv",)}
    out = Output(as_json, reads=reads, writes=[("--output", output)], endings=endings)
    classifier = load(model, trusted=trust or ())
    if not hasattr(classifier, "predict"):
        raise ValueError(f"{model} is a {type(classifier).__name__}, which cannot predict")
    square = _takes_matrices(classifier)
    known = as_column(labels)
    dataset = read_spd(data, matrices=matrices, labels=known, regularize=None, square=square)
    predicted, proba = _predict(classifier, dataset.matrices)
    files = range(len(predicted)) if dataset.files is None else dataset.files
    names, accuracy = [str(one) for one in files], None
    rows = _rows(names, predicted, proba, classifier)
    out.table(rows[0], rows[1 : 1 + _SHOWN])
    if len(names) > _SHOWN:
        hint = "" if output else "; -o predictions.csv writes all"
        out.say(f"... and {len(names) - _SHOWN} more{hint}")
    if dataset.labels is not None and hasattr(classifier, "classes_"):
        accuracy = float((predicted.astype(str) == dataset.labels.astype(str)).mean())
        out.say(f"{accuracy:.1%} of {len(names)} predictions agree with the labels.")
    if output is not None:
        with open_atomic(output) as file:
            file.write(as_csv(rows).encode(errors="backslashreplace"))
        out.say(f"Predictions: {output}")
    out.finish(names=names, predicted=predicted, probabilities=proba, accuracy=accuracy)


def _predict(classifier: BaseEstimator, matrices: RealArray) -> tuple[Labels, RealArray | None]:
    """Predict classes and, where the classifier has them, probabilities."""
    from divlearn.engines import Prepared
    from divlearn.fitting.labelled import MatricesMixin, check_new

    given: RealArray | Prepared = matrices
    if isinstance(classifier, MatricesMixin):  # checked once for both
        given = Prepared.checked(check_new(classifier, matrices))
    probable = hasattr(classifier, "predict_proba") and hasattr(classifier, "classes_")
    return classifier.predict(given), classifier.predict_proba(given) if probable else None


def _rows(
    names: list[str], predicted: Labels, proba: RealArray | None, classifier: BaseEstimator
) -> list[list[str]]:
    """Make a table of predictions, headings first."""
    rows = [["matrix", "predicted"], *map(list, zip(names, map(str, predicted), strict=True))]
    if proba is not None:
        rows[0] += [f"p({name})" for name in classifier.classes_]
        for row, values in zip(rows[1:], proba, strict=True):
            row += [f"{value:.4f}" for value in values]
    return rows


def _takes_matrices(model: BaseEstimator) -> bool:
    """Whether a model begins with an estimator of divlearn that takes SPD matrices."""
    model = getattr(model, "best_estimator_", model)
    if hasattr(model, "steps"):
        return _takes_matrices(model.steps[0][1])
    return type(model).__module__.startswith("divlearn.") and hasattr(model, "regularize")
