"""Which divergence should I use? Answered for real images in one command.

``divlearn demo`` maps the (alpha, beta) plane for the texture images that ship inside
scikit-image, saves a picture of it, and lets IDDL learn divergences beside the usual baselines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from divlearn.arrays import RealArray
from divlearn.baselines import DivergenceKNN
from divlearn.datasets import Dataset, load_textures
from divlearn.engines import Engine, get_engine
from divlearn.iddl import IDDLClassifier
from divlearn.log_vectors import log_vectors
from divlearn.maps import NAMED, PlaneMap, plane_map
from divlearn.progress import track
from divlearn.report.plane import plot_plane

__all__ = ["run_demo"]

_FINE, _COARSE = 0.125, 0.5  # steps of the grid; every named point lies on both
_LARGEST = 2.0
_SPLITS, _TRAIN = 5, 0.5
_BOTH = ("alpha_", "beta_")
Indices = NDArray[np.intp]
Working = Callable[[str], AbstractContextManager[None]]
Rule = Callable[[RealArray, NDArray[Any], RealArray], NDArray[Any]]  # data, labels, new data
_PLAIN: dict[str, Any] = {"title_justify": "left", "box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}


def run_demo(
    output: Path, report: Path | None, *, patch: int, engine: str, threads: int | None,
    working: Working = lambda text: nullcontext(),
) -> None:  # fmt: skip
    """Map the plane for patches of images, learn divergences beside baselines, and show all.

    Parameters
    ----------
    output : Path
        Picture of the plane, in a folder that exists.
    report : Path or None
        Page with everything.
    patch : int
        Side of a patch in pixels.
    engine : str
    threads : int or None
        All by default.
    working : callable
        From what is done to a context that shows how it goes on.
    """
    console = Console(highlight=False)
    running = get_engine(engine, threads)
    if not output.suffix:
        raise ValueError(f"--output {output} must name a picture; add an ending: .png")
    textures = load_textures(patch)
    n, d = textures.matrices.shape[:2]
    console.print(
        f"Data: {n} covariance matrices, {d} x {d}, of {patch} x {patch} pixel "
        f"patches of {len(textures.classes)} images ({', '.join(textures.classes)}).\n"
        "Question: by which divergence is the nearest other patch most often of the same image?"
    )
    # NumPy alone would take minutes for the fine grid.
    step = _COARSE if running.name == "reference" else _FINE
    grid = np.arange(0, _LARGEST + step, step)
    started = time.perf_counter()
    with working("Computing the map"):
        plane = plane_map(textures.matrices, textures.labels, grid, grid, engine=running)
    seconds = time.perf_counter() - started
    console.print(
        f"Computed {n * (n - 1) * grid.size**2:,} divergences ({n * (n - 1):,} pairs x "
        f"{grid.size**2} points) in {seconds:.1f} s: {running.name} engine, "
        f"{running.n_threads} thread{'s' * (running.n_threads > 1)}.\n"
    )
    if step == _COARSE:
        console.print("The grid is coarse, for the reference engine is slow.\n")
    console.print(_named_table(plane))
    console.print(_plane_table(plane))
    console.print(plane.summary() + "\n")
    compared = _learn(textures, running, console, working) if step == _FINE else None
    names = ", ".join(textures.classes[:-1]) + f" and {textures.classes[-1]}"
    with _writing(output):
        plot_plane(plane, output, title=f"Which divergence? Patches of {names}")
    console.print(f"Picture: {escape(str(output))}", soft_wrap=True)
    if report is not None:
        try:
            with _writing(report, "--report"):
                _write_report(report, textures, plane, compared, seconds)
            console.print(f"Report: {escape(str(report))}", soft_wrap=True)
        except ImportError as error:  # the rest was worth it without
            console.print(f"No report: {error}", soft_wrap=True)


def _write_report(
    path: Path, textures: Dataset, plane: PlaneMap, compared: Compared | None, seconds: float
) -> None:
    from divlearn.report.answers import plane_page
    from divlearn.report.fitted import iddl_sections
    from divlearn.report.tables import TableSection
    from divlearn.report.writing import write_report

    page, stages = plane_page(plane), {"map of the plane": seconds}
    sections = list(page.sections)
    if compared is not None:
        accuracies, learned = compared.accuracies, compared.learned[-1]
        rows = [
            [name, values.mean(), _error(values), compared.seconds[name]]
            for name, values in accuracies.items()
        ]
        best = max(accuracies, key=lambda name: float(accuracies[name].mean()))
        sections.append(
            TableSection(
                "Classifiers of new patches", ["classifier", "accuracy", "±", "seconds"], rows,
                bold=[list(accuracies).index(best)],
                formats={"accuracy": ".1%", "±": ".1%", "seconds": ".1f"},
                note=f"Mean of {len(accuracies[best])} splits. {_say_learned(compared)}",
            )
        )  # fmt: skip
        sections += iddl_sections(learned, textures.matrices)
        stages |= compared.seconds
    write_report(path, replace(page, sections=sections), textures.digest(), stages)


@dataclass(frozen=True, eq=False)
class Compared:
    """Classifiers on the same splits, and the models that IDDL learned on them."""

    accuracies: dict[str, RealArray]
    learned: list[IDDLClassifier]
    seconds: dict[str, float]


def _learn(textures: Dataset, engine: Engine, console: Console, working: Working) -> Compared:
    """Baselines and IDDL on the same splits."""
    splits = textures.splits(n=_SPLITS, train=_TRAIN)
    rules = {
        f"1-NN, {name}": _nearest_under(name.lower(), engine)
        for name in ("log-Euclidean", "AIRM", "Stein")
    }
    rules["linear SVM, log-Euclidean vectors"] = _linear_svm
    learned: list[IDDLClassifier] = []
    rules["IDDL, learned divergences"] = partial(_iddl, engine, learned)
    accuracies, seconds = {}, {}
    for name, rule in rules.items():
        started = time.perf_counter()
        with working(name):
            accuracies[name] = np.array(
                [_score(rule, textures, *split) for split in track(splits, "splits")]
            )
        seconds[name] = time.perf_counter() - started
    compared = Compared(accuracies, learned, seconds)
    console.print(_accuracy_table(accuracies, textures, len(splits)))
    console.print(_say_learned(compared) + "\n")
    return compared


def _score(rule: Rule, textures: Dataset, train: Indices, test: Indices) -> float:
    X, y = textures.matrices, textures.labels
    return float((rule(X[train], y[train], X[test]) == y[test]).mean())


def _nearest_under(divergence: str, engine: Engine) -> Rule:
    neighbour = DivergenceKNN(1, divergence, engine=engine)
    return lambda X, y, unseen: neighbour.fit(X, y).predict(unseen)


def _linear_svm(X: RealArray, y: NDArray[Any], unseen: RealArray) -> NDArray[Any]:
    machine = make_pipeline(StandardScaler(), LinearSVC())
    return np.asarray(machine.fit(log_vectors(X), y).predict(log_vectors(unseen)))


def _iddl(
    engine: Engine, learned: list[IDDLClassifier], X: RealArray, y: NDArray[Any], unseen: RealArray
) -> NDArray[Any]:
    classifier = IDDLClassifier(engine=engine, random_state=0).fit(X, y)
    learned.append(classifier)
    return classifier.predict(unseen)


def _accuracy_table(accuracies: dict[str, RealArray], textures: Dataset, n_splits: int) -> Table:
    n_train = int(_TRAIN * len(textures.labels))
    table = Table(
        title=f"Accuracy on new patches, {n_splits} splits, {n_train} to train on", **_PLAIN
    )
    table.add_column("classifier")
    table.add_column("accuracy", justify="right", no_wrap=True)
    highest = max(values.mean() for values in accuracies.values())
    for name, values in accuracies.items():
        error = _error(values)
        best = values.mean() == highest
        table.add_row(name, f"{values.mean():.1%} +- {error:.1%}", style="bold" if best else None)
    return table


def _error(values: RealArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _say_learned(compared: Compared) -> str:
    accuracies, learned = compared.accuracies, compared.learned
    *baselines, iddl = accuracies
    best = max(baselines, key=lambda name: float(accuracies[name].mean()))
    gain = accuracies[iddl] - accuracies[best]
    error = _error(gain)
    sure = "more than noise" if abs(gain.mean()) > 2 * error else "not more than noise"
    alpha, beta = (np.concatenate([getattr(one, name) for one in learned]) for name in _BOTH)
    iterations = [one.n_iter_ for one in learned]
    return (
        f"IDDL gives each of its atoms {alpha.shape[1]} divergences and stops where data held out "
        f"is predicted best: after {min(iterations)} to {max(iterations)} iterations, with alpha "
        f"up to {alpha.max():.2f} and beta up to {beta.max():.2f}. Against the best baseline "
        f"({best}) it gains {gain.mean():+.1%} +- {error:.1%} on the same splits: {sure}."
    )


@contextmanager
def _writing(path: Path, option: str = "--output") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write {path} ({error.strerror}); choose another {option}"
        ) from error


def _named_table(plane: PlaneMap) -> Table:
    table = Table(title="Named divergences", **_PLAIN)
    table.add_column("name")
    table.add_column("alpha", justify="right")
    table.add_column("beta", justify="right")
    table.add_column("formula")
    table.add_column("accuracy", justify="right", no_wrap=True)
    highest = max(plane.named.values())
    for name, accuracy in plane.named.items():
        known = NAMED[name]
        error = plane.standard_error[plane.index(known.alpha, known.beta)]
        table.add_row(
            name, f"{known.alpha:g}", f"{known.beta:g}", escape(known.formula),
            f"{accuracy:.1%} +- {error:.1%}", style="bold" if accuracy == highest else None,
        )  # fmt: skip
    return table


def _plane_table(plane: PlaneMap) -> Table:
    """Every point of the grid that is a multiple of a quarter, beta upwards as in the picture."""
    alphas, betas = (
        [float(value) for value in grid if 4 * value == int(4 * value)]
        for grid in (plane.alphas, plane.betas)
    )
    table = Table(title="Accuracy in %: alpha right, beta up", **_PLAIN)
    table.add_column("", justify="right")
    for alpha in alphas:
        table.add_column(f"{alpha:g}", justify="right", no_wrap=True)
    highest = plane.accuracy.max()
    for beta in reversed(betas):
        cells = [plane.at(alpha, beta) for alpha in alphas]
        table.add_row(
            f"{beta:g}",
            *(f"[bold]{100 * x:.1f}[/]" if x == highest else f"{100 * x:.1f}" for x in cells),
        )
    return table
