"""Arguments and options that several commands share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer


def between(option: str, least: int, most: int | None = None) -> Callable[[int | None], int | None]:
    """Make a callback that refuses other numbers before any file is read."""

    def check(value: int | None) -> int | None:
        if value is not None and (value < least or (most is not None and value > most)):
            limit = "" if most is None else f" and <= {most}"
            raise ValueError(f"{option} {value} must be >= {least}{limit}")
        return value

    return check


def one_of(option: str, names: Sequence[str]) -> Callable[[str | None], str | None]:
    """Make a callback that refuses other names before any file is read."""

    def check(name: str | None) -> str | None:
        if name is not None and name not in names:
            raise ValueError(f"{option} {name} must be one of {', '.join(names)}")
        return name

    return check


def _parse_regularize(text: str) -> str | float:
    try:
        return text if text.isalpha() else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither raise, shrink nor a number") from None


Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="Matrices in a .npz, .npy, .mat, .csv or HDF5 file.")
]
MatricesKey = Annotated[
    str | None,
    typer.Option("--matrices", metavar="NAME", help="Array of matrices; usual names are known."),
]
LabelsKey = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="NAME|FILE",
        help="Labels: an array of DATA, where usual names are known, or a .npy, .npz, .csv or .txt "
        "file with one entry for each matrix.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="NAME|FILE",
        help="Which matrices belong together: an array of DATA, or a .npy, .npz, .csv or .txt file "
        "with one entry for each matrix.",
    ),
]
Regularize = Annotated[
    Any,  # str or float, which typer cannot tell apart
    typer.Option(
        "--regularize",
        metavar="HOW",
        parser=_parse_regularize,
        help="Matrices that are not positive definite: raise, shrink, or a weight to shrink by.",
    ),
]
ModelFile = Annotated[Path | None, typer.Option("--output", "-o", help="File of the model.")]
CV = Annotated[
    int,
    typer.Option(
        "--cv", help="Number of folds of cross-validation, at most.", callback=between("--cv", 2)
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", help="Seed of all random choices.", callback=between("--seed", 0, 2**32 - 1)
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="auto, native, reference or cuda.",
        callback=one_of("--engine", ("auto", "native", "reference", "cuda")),
    ),
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write a report: report.html.")
]
