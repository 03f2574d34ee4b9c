"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="Matrices in a .npz, .npy, .mat or HDF5 file.")
]
MatricesKey = Annotated[str | None, typer.Option(
    "--matrices", metavar="NAME", help="Array of matrices; usual names are known."
)]  # fmt: skip
LabelsKey = Annotated[str | None, typer.Option(
    "--labels", metavar="NAME", help="Array of labels; usual names are known."
)]  # fmt: skip
Groups = Annotated[str | None, typer.Option(
    "--groups", metavar="NAME|FILE",
    help="Which matrices belong together: an array of DATA, or a .npy, .npz, .csv or .txt file "
    "with one entry for each matrix.",
)]  # fmt: skip
Regularize = Annotated[Any, typer.Option(
    "--regularize", metavar="HOW", parser=lambda how: how if how.isalpha() else float(how),
    help="Matrices that are not positive definite: raise, shrink, or a weight to shrink by.",
)]  # fmt: skip
CV = Annotated[int, typer.Option("--cv", help="Number of folds of cross-validation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random choices.")]
EngineName = Annotated[str, typer.Option("--engine", help="auto, native, reference or cuda.")]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write a report: report.html.")
]
