"""Descriptors: how fast images become SPD matrices, and how well those tell classes apart.

Speed is that of the library beside a plain loop that computes the same numbers. Accuracy is that
of the log-Euclidean nearest neighbour on the data sets under DIVLEARN_DATA, skipped where it is not
set.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from machine import machine, machine_line, write_between_markers
from paper_data import load_brodatz, load_kth_tips2_authors, load_virus
from rich.console import Console
from skimage import data
from sklearn.neighbors import KNeighborsClassifier

from divlearn.descriptors import RegionCovariance
from divlearn.descriptors.covariances import box_covariances
from divlearn.descriptors.pixels import COORDINATES, get_preset, pixel_features
from divlearn.log_vectors import log_vectors

ROUNDS = 5
PAPER = {"Virus": 66.67, "KTH-TIPS2": 72.05, "Brodatz": 80.10}
RECIPES = ("brodatz", "texture")  # for Brodatz


@dataclass(frozen=True)
class Speed:
    what: str
    seconds: float
    plain: float
    ratio: float


@dataclass(frozen=True)
class Accuracy:
    data: str
    recipe: str
    n_train: int
    n_test: int
    accuracies: list[float]

    def __str__(self) -> str:
        mean, n = 100 * np.mean(self.accuracies), len(self.accuracies)
        error = f" +- {100 * np.std(self.accuracies, ddof=1) / n**0.5:.1f}" if n > 1 else ""
        return f"{mean:.1f}{error}"


# ------------------------------------------------------------------ speed


def side_by_side(
    what: str, ours: Callable[[], np.ndarray], plain: Callable[[], np.ndarray]
) -> Speed:
    """Median seconds of both, and median ratio of rounds that run one after the other."""
    scale = np.sqrt(np.diagonal(expected := plain(), axis1=1, axis2=2))
    error = np.abs(ours() - expected) / scale[:, :, None] / scale[:, None, :]
    assert error.max() < 1e-8, f"{what}: results differ by {error.max():.2g}"
    times = []
    for _ in range(ROUNDS):
        row = []
        for job in (ours, plain):
            start = time.perf_counter()
            job()
            row.append(time.perf_counter() - start)
        times.append(row)
    own, other = np.transpose(times)
    return Speed(
        what, float(np.median(own)), float(np.median(other)), float(np.median(other / own))
    )


def describe_images(preset: str, n_images: int, side: int) -> Speed:
    images = np.random.default_rng(0).integers(0, 256, (n_images, side, side)).astype(np.uint8)
    features = get_preset(preset).features
    sizes = np.where(
        np.isin(RegionCovariance(preset).fit(images).feature_names_, ["x", "y"]), side - 1, 1
    )

    def one_by_one() -> np.ndarray:
        maps = (
            pixel_features(image[None, :, :, None].astype(float), features)[0][0]
            for image in images
        )
        return np.stack([np.cov(m.reshape(len(m), -1)) for m in maps]) / np.outer(sizes, sizes)

    return side_by_side(
        f"{n_images:,} images of {side} x {side} to {len(sizes)} x {len(sizes)}",
        lambda: RegionCovariance(preset, n_jobs=1).fit_transform(images),
        one_by_one,
    )


def describe_boxes(name: str, preset: str, size: int | None, sides: tuple[int, int]) -> Speed:
    """A thousand overlapping boxes in a photograph."""
    image = getattr(data, name)()[:size, :size]
    channels = image[None, ..., None] if image.ndim == 2 else image[None]
    maps, names = pixel_features(channels.astype(float), get_preset(preset).features)
    axes = {i: COORDINATES[name] for i, name in enumerate(names) if name in COORDINATES}
    rng = np.random.default_rng(0)
    corners = [(rng.random(1000) * (size - sides[1])).astype(int) for size in image.shape[:2]]
    lengths = rng.integers(*sides, (2, 1000))
    boxes = np.stack([*corners, *(np.array(corners) + lengths)], axis=1)

    def one_by_one() -> np.ndarray:
        parts = (maps[0][:, top:bottom, left:right] for top, left, bottom, right in boxes)
        return np.stack([np.cov(part.reshape(len(part), -1)) for part in parts])

    where = f"{name}, {image.shape[0]} x {image.shape[1]}, {preset}"
    return side_by_side(
        f"1,000 boxes of side {sides[0]} to {sides[1]} in {where}",
        lambda: box_covariances(maps[0], boxes, axes),
        one_by_one,
    )


# ------------------------------------------------------------------ accuracy


def nearest(vectors: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    neighbour = KNeighborsClassifier(1, algorithm="brute").fit(vectors[train], labels[train])
    return float(neighbour.score(vectors[test], labels[test]))


def evaluate(
    name: str, recipe: str, matrices: np.ndarray, labels: np.ndarray, splits: list
) -> Accuracy:
    vectors = log_vectors(matrices)
    found = [nearest(vectors, labels, train, test) for train, test in splits]
    return Accuracy(name, recipe, len(splits[0][0]), len(splits[0][1]), found)


def accuracies(console: Console) -> list[Accuracy]:
    virus = load_virus()
    rows = [evaluate("Virus", "virus", virus.matrices, virus.labels, virus.splits())]
    kth = load_kth_tips2_authors()
    rows.append(
        evaluate("KTH-TIPS2", "the authors' matrices", kth.matrices, kth.labels, kth.splits())
    )
    console.print(*map(str, rows))
    pool = list(dict.fromkeys(name for recipe in RECIPES for name in get_preset(recipe).features))
    brodatz = load_brodatz(features=pool)
    for recipe in RECIPES:
        features = get_preset(recipe).features
        picked = [pool.index(feature) for feature in features]
        matrices = brodatz.matrices[:, picked][:, :, picked]
        text = f"{recipe}: {', '.join(features)}"
        rows.append(evaluate("Brodatz", text, matrices, brodatz.labels, brodatz.splits()[:1]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--docs", type=Path, help="put the tables between their markers there")
    given = parser.parse_args()
    console = Console()
    speeds = [
        describe_images("brodatz", 10_000, 32),
        describe_images("virus", 1_500, 41),
        *(
            describe_boxes(name, preset, None, (40, 200))
            for name in ("brick", "camera")
            for preset in ("brodatz", "texture", "virus")
        ),
    ]
    about = machine()
    lines = ["| | times as fast as the plain loop |", "|---|---|"]
    lines += [f"| {s.what} | {s.ratio:.1f} |" for s in speeds]
    results = {"machine": about, "speed": [asdict(speed) for speed in speeds]}
    if os.environ.get("DIVLEARN_DATA"):
        rows = accuracies(console)
        lines += [
            "",
            "| data | descriptor | train / test | log-Euclidean 1-NN, % | paper |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {a.data} | {a.recipe.replace('|', chr(92) + '|')} | {a.n_train:,} / {a.n_test:,} x "
            f"{len(a.accuracies)} | {a} | {PAPER[a.data]} |"
            for a in rows
        ]
        results["accuracy"] = [asdict(row) for row in rows]
    lines += ["", f"Measured on: {machine_line(about)}."]
    console.print("\n".join(lines), markup=False)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    if given.docs:
        write_between_markers(given.docs, "\n".join(lines))


if __name__ == "__main__":
    main()
