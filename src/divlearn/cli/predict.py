"""``divlearn predict``: predictions of a model for matrices."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from divlearn.cli import options
from divlearn.cli.messages import with_options
from divlearn.cli.output import Output, as_csv

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from divlearn.arrays import Indices, Labels, RealArray

_N_SHOWN = 20  # predictions

_T = TypeVar("_T")

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="File of fit or divlearn.save.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="Data as the model was fitted to.")]
Table = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write all predictions here, .csv.")
]
Trust = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="NAME", help="Class or function of another package in MODEL."),
]
Invalid = Annotated[
    str,
    typer.Option(
        help="Matrices that the model refuses: stop, or skip them and say why in their rows.",
        callback=options.one_of("--invalid", ("stop", "skip")),
    ),
]


def predict(
    model: Model,
    data: Data,
    output: Table = None,
    matrices: options.MatricesKey = None,
    labels: options.LabelsKey = None,
    invalid: Invalid = "stop",
    trust: Trust = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict the classes of matrices, with probabilities where the model has them.

    A pipeline that begins with a step of another package takes the array of DATA as it is.

    Example: divlearn predict model.divlearn new.npz -o predictions.csv

    If the data has labels, the accuracy is printed too.
    """
    from divlearn.cli.data import as_column, data_files
    from divlearn.files import read_spd
    from divlearn.models import load

    reads = [("MODEL", model), *data_files(data, labels)]
    out = Output(as_json, reads=reads, writes=[("--output", output, (".csv",))])
    classifier = load(model, trusted=trust or ())
    if not hasattr(classifier, "predict"):
        raise ValueError(f"{model} is a {type(classifier).__name__}, which cannot predict")
    square, column = _takes_matrices(_first_step(classifier)), as_column(labels)
    dataset = read_spd(data, matrices=matrices, labels=column, regularize=None, square=square)
    predicted, proba, problems = _predict(classifier, dataset.matrices, skip=invalid == "skip")
    files = range(len(dataset.matrices)) if dataset.files is None else dataset.files
    names, accuracy = list(map(str, files)), None
    if dataset.labels is not None and hasattr(classifier, "classes_"):
        _check_classes(classifier.classes_, dataset.labels, out)
        pairs = zip(predicted, dataset.labels, strict=True)
        agree = [_agree(name, label) for name, label in pairs if name is not None]
        accuracy = sum(agree) / len(agree)
    rows = _make_table(names, predicted, proba, classifier)
    if invalid == "skip":
        rows[0].append("problem")
        for number, row in enumerate(rows[1:]):
            row.append(problems.get(number, ""))
    _show(out, rows, len(problems), accuracy, output)
    out.finish(
        names=names,
        predicted=predicted,
        probabilities=proba,
        problems=[problems.get(row) for row in range(len(names))],
        accuracy=accuracy,
    )


def _check_classes(classes: Labels, labels: Labels, out: Output) -> None:
    """Say so if no label is a class of the model: the accuracy is then 0 for another reason."""
    given = set(labels.tolist())
    if not any(_agree(name, label) for name in classes for label in given):
        out.say(
            f"No label of the data, such as {labels[0]}, is a class of the model, such as "
            f"{classes[0]}: name the classes as in training, or choose other labels with --labels."
        )


def _agree(predicted: object, label: object) -> bool:
    """Whether two class labels are equal, as 1, "1.0" and True are, but "1" and "01" are not."""
    if str(predicted) == str(label):
        return True
    if isinstance(predicted, str) and isinstance(label, str):
        return False
    try:
        return float(predicted) == float(label)  # type: ignore[arg-type]
    except ValueError:
        return False


def _predict(
    classifier: BaseEstimator, matrices: RealArray, *, skip: bool
) -> tuple[list[object], list[RealArray | None] | None, dict[int, str]]:
    """Predict classes and probabilities, None for rows with problems; then return the problems."""
    import numpy as np

    rows, problems = np.arange(len(matrices)), {}
    try:
        predicted, proba = _predict_all(classifier, matrices)
    except ValueError:
        problems = _find_problems(_get_check(classifier), matrices, rows) if skip else {}
        if len(problems) in (0, len(rows)):  # no rows would be left
            raise
        rows = np.setdiff1d(rows, list(problems))
        predicted, proba = _predict_all(classifier, matrices[rows])

    def fill_rows(values: Iterable[_T]) -> list[_T | None]:
        by_row = dict(zip(rows.tolist(), values, strict=True))
        return [by_row.get(row) for row in range(len(matrices))]

    return fill_rows(predicted), None if proba is None else fill_rows(proba), problems


def _predict_all(classifier: BaseEstimator, matrices: RealArray) -> tuple[Labels, RealArray | None]:
    import numpy as np

    from divlearn.fitting.labelled import MatricesMixin, prepare_new

    # Check the matrices once for both.
    is_divlearn = isinstance(classifier, MatricesMixin)
    prepared = prepare_new(classifier, matrices) if is_divlearn else matrices
    has_proba = hasattr(classifier, "predict_proba") and hasattr(classifier, "classes_")
    try:
        predicted = classifier.predict(prepared)
    except ValueError as error:
        gaps = np.argwhere(~np.isfinite(matrices))
        if not len(gaps) or str(error).startswith("X["):  # it names the sample
            raise
        first, *place = gaps[0].tolist()
        raise ValueError(
            f"X[{first}] has the entry {matrices[first, *place]} at {tuple(place)}, must be "
            "finite; drop it or fill its gaps"
        ) from error
    return predicted, classifier.predict_proba(prepared) if has_proba else None


def _get_check(classifier: BaseEstimator) -> Callable[[RealArray], object]:
    """Return the cheapest function that raises for matrices that a classifier refuses."""
    from divlearn.fitting.labelled import check_new

    first = _first_step(classifier)
    if _takes_matrices(first):
        return partial(check_new, first)
    return partial(_predict_all, classifier)


def _find_problems(
    check: Callable[[RealArray], object], matrices: RealArray, rows: Indices
) -> dict[int, str]:
    """Find the rows that are invalid on their own, by bisection; return their messages."""
    import numpy as np

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `predict` warns again
            check(matrices[rows])
    except ValueError as error:
        if len(rows) == 1:
            return {int(rows[0]): _format_problem(error)}
        first, second = (_find_problems(check, matrices, half) for half in np.array_split(rows, 2))
        return first | second
    return {}


def _format_problem(error: ValueError) -> str:
    """Return the message for a batch of one matrix, without its index and their number."""
    text = re.sub(r"\bX\[0\] | \(1 of 1 [^)]*\)", "", " ".join(str(error).split()))
    return with_options(text)


def _make_table(
    names: list[str],
    predicted: list[object],
    proba: list[RealArray | None] | None,
    classifier: BaseEstimator,
) -> list[list[str]]:
    """Make a table of predictions, headings first."""
    rows = [["matrix", "predicted"]]
    rows += [
        [name, "" if label is None else str(label)]
        for name, label in zip(names, predicted, strict=True)
    ]
    if proba is not None:
        rows[0] += [f"p({name})" for name in classifier.classes_]
        blank = [""] * len(classifier.classes_)
        for row, values in zip(rows[1:], proba, strict=True):
            row += blank if values is None else [f"{value:.4f}" for value in values]
    return rows


def _show(
    out: Output,
    rows: list[list[str]],
    n_problems: int,
    accuracy: float | None,
    output: Path | None,
) -> None:
    from divlearn.atomic import open_atomic

    out.table(rows[0], rows[1 : 1 + _N_SHOWN])
    n_matrices = len(rows) - 1
    if n_matrices > _N_SHOWN:
        hint = "" if output else "; -o predictions.csv writes all"
        out.say(f"... and {n_matrices - _N_SHOWN} more{hint}")
    if n_problems:
        out.say(f"{n_problems} of {n_matrices} matrices are invalid and were skipped.")
    if accuracy is not None:
        n_predicted = n_matrices - n_problems
        out.say(f"{accuracy:.1%} of {n_predicted} predictions agree with the labels.")
    if output is not None:
        with open_atomic(output) as file:
            file.write(as_csv(rows).encode(errors="backslashreplace"))
        out.say(f"Predictions: {output}")


def _first_step(model: BaseEstimator) -> BaseEstimator:
    model = getattr(model, "best_estimator_", model)
    return _first_step(model.steps[0][1]) if hasattr(model, "steps") else model


def _takes_matrices(first: BaseEstimator) -> bool:
    """Whether the first step of a model is an estimator of divlearn that takes SPD matrices."""
    return type(first).__module__.startswith("divlearn.") and hasattr(first, "regularize")
