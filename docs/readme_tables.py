"""Write the table of accuracy and time in the README from the tables of docs/accuracy.md.

    python docs/readme_tables.py

Its columns are those of docs/accuracy.md: every data set that was measured, EEG included. Methods
that were not measured are left out. The other tables are written by the programs in benchmarks/.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
ROWS = (
    "1-NN, AIRM",
    "MDM, AIRM",
    "logistic regression, tangent vectors",
    "RBF SVM, tangent vectors",
    "MDM, divergence chosen",
    "IDDLClassifier",
    "DivergenceKernelClassifier",
    "SPDClassifier",
)


def accuracy_table(page: str) -> str:
    """Return the chosen rows of the table of accuracies, each with the seconds of all data sets."""
    tables = [part.split("\n") for part in page.split("\n\n") if part.startswith("| ")]
    accuracy = tables[0]
    seconds = next(table for table in tables if table[0].startswith("| seconds"))
    rows, times = ({cells(line)[0]: line for line in table[2:]} for table in (accuracy, seconds))
    lines = [f"{accuracy[0]} seconds, all {len(cells(seconds[0])) - 1} |", f"{accuracy[1]} --- |"]
    known = [name for name in ROWS if name in rows]
    return "\n".join([*lines, *(f"{rows[name]} {total(times.get(name, '-'))} |" for name in known)])


def cells(line: str) -> list[str]:
    """Split a row of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def total(line: str) -> str:
    """Add the seconds of all data sets; a dash where one was not measured."""
    values = cells(line)[1:]
    return "-" if not values or "-" in values else f"{sum(map(float, values)):.3g}"


def between(text: str, marker: str) -> str:
    """What stands between <!-- marker --> and <!-- /marker -->."""
    return text.split(f"<!-- {marker} -->\n")[1].split(f"\n<!-- /{marker} -->")[0]


def main() -> None:
    """Fill the README."""
    path = HERE.parent / "README.md"
    text = path.read_text()
    table = accuracy_table(between((HERE / "accuracy.md").read_text(), "benchmark"))
    path.write_text(text.replace(between(text, "accuracy"), table))


if __name__ == "__main__":
    main()
