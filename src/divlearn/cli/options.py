"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AsJson", "Data", "EngineName", "Groups", "LabelsKey", "MatricesKey", "Repair", "ReportFile",
    "Seed",
]  # fmt: skip

Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="Matrices in a .npz, .npy, .mat or HDF5 file.")
]
MatricesKey = Annotated[
    str | None,
    typer.Option("--matrices", metavar="NAME", help="Array of matrices; found by itself."),
]
LabelsKey = Annotated[
    str | None, typer.Option("--labels", metavar="NAME", help="Array of labels; found by itself.")
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups", metavar="NAME|FILE",
        help="Which matrices belong together: an array of DATA, or a .npy, .npz, .csv or .txt file "
        "with one entry for each matrix.",
    ),
]  # fmt: skip
Repair = Annotated[
    str,
    typer.Option(
        "--repair", metavar="HOW",
        help="What to do with matrices that are not definite: raise, shrink, jitter or clip.",
    ),
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Seed = Annotated[int, typer.Option("--seed", help="Of everything random.")]
EngineName = Annotated[str, typer.Option("--engine", help="auto, native, reference or cuda.")]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write a page to look at: report.html."),
]
