"""Messages of the library in terms of command-line options, and exit codes of interrupts."""

import re

# Exit codes of interrupted commands; 0, 1 and 2 are those of all programs.
KEPT = 3  # with the best result so far
INTERRUPTED = 130  # before there was any result
NOTHING_KEPT = "interrupted; nothing is kept"

# Parameters that are options of the same name. Other options are checked by the commands.
_OPTIONS = "checkpoint|divergence|engine|groups|labels|matrices|patch|regularize"
_PHRASES = {
    r"divergence='choose'": "--model mdm",
    r"or name a divergence": "or pass --model knn",
    r"pass y\.astype\(str\)": "save labels as text",
    r'"shrink", here or to check_spd': '"shrink"',
    r'\bregularize="(\w+)"': r"--regularize \1",
    rf"\b({_OPTIONS})=": r"--\1 ",
    r"\btrusted=\['([\w.]+)'\]": r"--trust \1",
    r"\b(leave out|lower) (groups|patch)\b": r"\1 --\2",
    r"save one of shape \(n_matrices, d, d\)": (
        "save one of shape (n_matrices, d, d), or fit recordings with --covariances oas"
    ),
    r"\bn_found=": "",
    r"\bn_(clusters|components)=": "-k/--clusters ",
    r"\blower n_(clusters|components)\b": "lower -k/--clusters",
    r"or use IDDLClassifier": "or pass --model iddl",
    r'; use "I" or "channels"': "; choose another --preset",
    r'add the features "x" and "y", which': "pass --preset brodatz, whose features x and y",
    r"or a pair \(alpha, beta\)": "or two numbers: 0.5,1.5",
    r"DivergenceKNN, .* ABKMeans those of vectors": "--method k-means takes those of vectors",
    r"that limit= leaves; raise it if": "that the program reads; load it in Python if",
    r", else lower limit=\d+": "",
}


def with_options(text: str) -> str:
    """Replace the parameters that a message names by options of the program."""
    for pattern, replacement in _PHRASES.items():
        text = re.sub(pattern, replacement, text)
    return text
