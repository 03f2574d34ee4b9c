"""Write the table of accuracy in the README: some rows of the one in docs/accuracy.md.

    python docs/readme_tables.py

The other tables are written by the programs in benchmarks/.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
ROWS = (
    "1-NN, AIRM",
    "MDM, AIRM",
    "RBF SVM, log-Euclidean vectors",
    "logistic regression, tangent vectors",
    "RBF SVM, tangent vectors",
    "shrinkage LDA, tangent vectors",
    "MDM, divergence chosen",
    "IDDLClassifier",
    "DivergenceKernelClassifier",
    "SPDClassifier",
)


def accuracy_table() -> str:
    """The heading and the chosen rows of the first table between the markers."""
    page = between((HERE / "accuracy.md").read_text(), "benchmark")
    table = page.split("\n\n")[0].split("\n")
    rows = {line.split("|")[1].strip(): line for line in table[2:]}
    return "\n".join([*table[:2], *(rows[name] for name in ROWS)])


def between(text: str, marker: str) -> str:
    """What stands between <!-- marker --> and <!-- /marker -->."""
    return text.split(f"<!-- {marker} -->\n")[1].split(f"\n<!-- /{marker} -->")[0]


def main() -> None:
    """Fill the README."""
    path = HERE.parent / "README.md"
    text = path.read_text()
    path.write_text(text.replace(between(text, "accuracy"), accuracy_table()))


if __name__ == "__main__":
    main()
