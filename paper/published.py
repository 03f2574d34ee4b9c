"""The figures of the paper: accuracies in percent, and F1 scores. Typed from its tables, once."""

Table = dict[str, dict[str, float]]


def _table(columns: tuple[str, ...], rows: dict[str, tuple[float, ...]]) -> Table:
    return {name: dict(zip(columns, values, strict=True)) for name, values in rows.items()}


# Table "Comparisons against 1-NN and SVM classification".
STANDARD = _table(
    ("LE 1-NN", "AIRM 1-NN", "JBLD 1-NN", "SVM-LE", "IDDL, best variant"),
    {
        "JHMDB": (52.99, 51.87, 52.24, 54.48, 68.3),
        "HMDB": (29.30, 43.3, 46.3, 41.7, 55.50),
        "VIRUS": (66.67, 67.89, 68.11, 68.00, 78.39),
        "BRODATZ": (80.10, 80.50, 80.50, 86.80, 74.10),
        "KTH TIPS": (72.05, 72.83, 72.87, 75.59, 79.37),
        "3D Object": (97.4, 98.2, 95.6, 98.9, 96.08),
        "Breast Cancer": (87.42, 80.00, 84.00, 87.71, 90.46),
        "Myometrium Cancer": (80.87, 84.18, 93.20, 93.22, 94.66),
    },
)
BEST_VARIANT = {
    "JHMDB": "V",
    "HMDB": "N",
    "VIRUS": "N",
    "BRODATZ": "N",
    "KTH TIPS": "V",
    "3D Object": "B",
    "Breast Cancer": "B",
    "Myometrium Cancer": "B",
}

# Table "Comparisons against state of the art".
STATE_OF_THE_ART = _table(
    (
        "LEML",
        "kSP_LE",
        "kSP_JBLD",
        "kLLC",
        "RSPDL",
        "IDDL-S",
        "IDDL-V",
        "IDDL-N",
        "IDDL-A",
        "IDDL-B",
    ),
    {
        "JHMDB": (58.85, 55.97, 44.40, 57.46, 57.5, 67.10, 68.3, 67.20, 61.19, 61.01),
        "HMDB": (52.15, 44.9, 28.43, 40.20, 21.0, 52.30, 57.3, 58.6, 43.20, 46.94),
        "VIRUS": (74.60, 68.00, 57.84, 70.91, 60.8, 76.48, 77.74, 79.44, 78.33, 78.37),
        "BRODATZ": (47.15, 55.00, 65.19, 70.00, 74.9, 72.50, 73.2, 77.10, 62.63, 79.44),
        "KTH TIPS": (79.25, 77.18, 69.92, 73.96, 64.5, 78.68, 79.37, 79.67, 78.80, 78.36),
        "3D Object": (87.56, 59.26, 72.45, 87.40, 80.0, 89.17, 94.07, 92.57, 87.90, 96.08),
        "Breast Cancer": (83.18, 76.34, 71.67, 82.32, 74.2, 89.99, 90.00, 90.02, 88.00, 90.46),
        "Myometrium Cancer": (90.94, 88.69, 86.80, 88.74, 87.0, 93.41, 93.30, 90.24, 93.99, 94.66),
    },
)

# Table "IDDL variants for ridge regression and structured SVM alternatives".
LOSSES = _table(
    ("IDDL-V", "IDDL-N", "IDDL-V, structured SVM", "IDDL-N, structured SVM"),
    {
        "JHMDB": (68.3, 67.2, 69.2, 65.8),
        "HMDB": (57.3, 58.6, 56.7, 53.8),
        "VIRUS": (77.4, 79.4, 79.6, 78.6),
        "BRODATZ": (73.2, 77.1, 81.5, 82.1),
        "KTH TIPS": (79.4, 79.7, 71.3, 73.7),
        "3D Object": (94.1, 92.3, 98.3, 98.2),
        "Breast Cancer": (90.0, 88.0, 78.1, 76.7),
        "Myometrium Cancer": (93.3, 90.2, 89.8, 89.2),
    },
)

# Table "fixing the dictionary atoms against fixing the parameters", one split of Virus, by atoms.
JOINT = {
    atoms: dict(zip(("Fix(alpha, beta)", "Fix(B)", "joint"), values, strict=True))
    for atoms, values in {
        15: (78.33, 61.67, 77.33),
        45: (80.33, 70.00, 83.67),
        75: (81.67, 76.00, 82.33),
    }.items()
}

# Table "F1-Score based comparisons against different KMeans variants".
CLUSTERS = _table(
    ("LE", "Karcher", "E", "NE"),
    {
        "VIRUS": (0.248, 0.254, 0.252, 0.257),
        "BRODATZ": (0.353, 0.366, 0.378, 0.381),
        "KTH TIPS": (0.379, 0.400, 0.429, 0.419),
        "Prostate Cancer": (0.578, 0.594, 0.679, 0.660),
        "Myometrium Cancer": (0.737, 0.661, 0.778, 0.779),
    },
)
