"""What survives: kills while models and checkpoints are written, damaged files, sanitizers.

``reliability.py [PART ...]`` runs all parts, or some, keeps what it found in
results/reliability.json and writes docs/reliability.md. Figures are counts; the fuzz takes half an
hour, all else some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scaling_tables import fill_page, table
from sklearn.base import clone

from divlearn import ABKMeans, ABMixture, IDDLClassifier, load, resumable, save
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import Recipe
from divlearn.models.storage import fingerprint

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
FITS = {
    "IDDLClassifier": IDDLClassifier(
        n_atoms=6, recipe=Recipe(loss="softmax"), max_iter=10, random_state=0
    ),
    "ABMixture": ABMixture([2, 3], "wishart", n_init=2, random_state=0),
    "ABKMeans": ABKMeans(3, "learn", n_init=6, tol=0, random_state=0),
}
FUZZED = {
    "models": "tests/models/test_models_hostile.py",
    "checkpoints": "tests/fitting/test_checkpoint_hostile.py",
    "data files": "tests/files/test_files_hostile.py",
}


# ---------------------------------------------------------------------- kills


def start(work: Callable[[], None]) -> int:
    """Run something in a process of its own; returns its number."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def ended(child: int) -> int:
    """Wait for a process; returns its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_saves(trials: int) -> dict[str, Any]:
    """Kill a process that writes one of two models over the other, again and again."""
    generator = random.Random(0)
    models = [ABKMeans(number, init=np.full((10, 60, 60), float(number))) for number in (1, 2)]
    kept, lost, halves = [0, 0], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        save(models[0], path)

        def overwrite() -> None:
            while True:
                for model in models:
                    save(model, path)

        for _ in range(trials):
            child = start(overwrite)
            time.sleep(generator.uniform(0, 0.05))
            os.kill(child, signal.SIGKILL)
            assert ended(child) == -signal.SIGKILL
            try:
                found = load(path)
                assert (found.init == found.n_clusters).all()
                kept[found.n_clusters - 1] += 1
            except Exception as error:
                print(f"lost: {error!r}")
                lost += 1
            parts = list(Path(folder).glob(".*.part"))
            halves += len(parts)
            for part in parts:
                part.unlink()
    return {"trials": trials, "lost": lost, "first": kept[0], "second": kept[1], "halves": halves}


def learned(model: Any) -> list[str]:
    """Fingerprints of all that was learned, but not of how long it took."""
    model.history_.pop("seconds", None)
    return [fingerprint(value) for value in leaves(vars(model))]


def leaves(value: Any) -> Iterator[Any]:
    """Yield values one by one: whether two parts share an array is no part of the result."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    elif hasattr(value, "__dict__"):
        value = [*vars(value).keys(), *vars(value).values()]
    if isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def kill_fits(trials: int) -> dict[str, Any]:
    """Kill fits that have a checkpoint, and let them resume."""
    generator = random.Random(1)
    rows = [kill_fit(name, -(-trials // len(FITS)), generator) for name in FITS]
    return {"rows": rows}


def kill_fit(name: str, trials: int, generator: random.Random) -> dict[str, Any]:
    X, y = make_wishart_clusters(3, 30, 3, separation=2, random_state=0)
    counts = {"kills": 0, "with a checkpoint": 0, "fits": 0, "lost": 0}
    with tempfile.TemporaryDirectory() as folder:
        whole, path, work = (Path(folder) / part for part in ("whole", "model", "fit"))

        def fit(target: Path, kept: Path | None) -> None:
            with resumable(kept):
                save(clone(FITS[name]).fit(X, y), target)

        began = time.monotonic()
        assert ended(start(lambda: fit(whole, None))) == 0
        longest = time.monotonic() - began
        expected = learned(load(whole))
        while counts["kills"] < trials:
            child = start(lambda: fit(path, work))
            time.sleep(generator.uniform(0, longest))
            os.kill(child, signal.SIGKILL)
            code = ended(child)
            counts["kills"] += code == -signal.SIGKILL
            counts["with a checkpoint"] += code == -signal.SIGKILL and work.exists()
            if code != 0 and counts["kills"] < trials and generator.random() < 0.5:
                continue  # it is killed again before it ends
            if code != 0:
                code = ended(start(lambda: fit(path, work)))
            counts["fits"] += 1
            same = code == 0 and not work.exists() and learned(load(path)) == expected
            counts["lost"] += not same
            path.unlink(missing_ok=True)
            if not same:
                work.unlink(missing_ok=True)
    return {"estimator": name, **counts}


# ---------------------------------------------------------------------- damage


def fuzz(count: int) -> dict[str, Any]:
    """Damage files of every format, each part in a process that may crash, hang or grow."""
    rows = []
    for name, test in FUZZED.items():
        began = time.monotonic()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                f"{test}::test_damage_is_refused_or_harmless",
            ],
            cwd=ROOT,
            env={**os.environ, "DIVLEARN_MUTATIONS": str(count)},
            check=False,
        )
        # The largest of all processes so far: of this one, at most.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        seconds = time.monotonic() - began
        rows.append(
            {
                "files": name,
                "mutations": count,
                "code": done.returncode,
                "seconds": seconds,
                "peak_bytes": peak,
            }
        )
    return {"rows": rows}


def sanitize(_: int) -> dict[str, Any]:
    """Run the tests of the compiled engine under sanitizers."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [ROOT / "tools" / "sanitize.sh", f"{folder}/build"],
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHON": sys.executable},
        )
    print(done.stdout)
    return {"code": done.returncode, "told": done.stdout.strip().splitlines()[-1]}


# ---------------------------------------------------------------------- the page


def saves_section(found: dict[str, Any]) -> str:
    return (
        f"**Saving.** A process that wrote two models over each other in turn was killed "
        f"{found['trials']} times at random moments: {found['lost']} models were lost. Afterwards "
        f"the file held the first {found['first']} times and the second {found['second']} times, "
        f"always whole; {found['halves']} kills hit the middle of a write, and left a part of a "
        "file beside it."
    )


def fits_section(found: dict[str, Any]) -> str:
    rows = [
        [
            row["estimator"],
            *(str(row[key]) for key in ("kills", "with a checkpoint", "fits", "lost")),
        ]
        for row in found["rows"]
    ]
    kills, lost = (sum(row[key] for row in found["rows"]) for key in ("kills", "lost"))
    return "\n\n".join(
        [
            f"**Checkpoints.** Fits with a checkpoint were killed {kills} times at random moments, "
            f"some of them several times in a row, and run again: {lost} results differed from "
            "that of the uninterrupted fit in any bit.",
            table(
                [
                    "estimator",
                    "kills",
                    "kills after a checkpoint was written",
                    "completed fits",
                    "results lost or different",
                ],
                rows,
            ),
        ]
    )


def fuzz_section(found: dict[str, Any]) -> str:
    rows = [
        [
            row["files"],
            f"{row['mutations']:,}",
            "none" if row["code"] == 0 else str(row["code"]),
            f"{row['seconds'] / 60:.0f} min",
            f"{row['peak_bytes'] / 1e6:.0f} MB",
        ]
        for row in found["rows"]
    ]
    return "\n\n".join(
        [
            "**Damaged files.** Bytes of valid files were changed at random. Each file had to "
            "raise a `ValueError` that names the file, or load. Files with checksums (models, "
            "checkpoints, .npz, compressed .mat) had to load unchanged, others as SPD matrices:",
            table(
                ["files", "mutations", "crashes, hangs, other errors", "time", "peak memory"], rows
            ),
        ]
    )


def sanitize_section(found: dict[str, Any]) -> str:
    outcome = "found nothing" if found["code"] == 0 else f"ended with code {found['code']}"
    return (
        "**Sanitizers.** The tests of the compiled engine under the address and "
        f"undefined-behaviour sanitizers of GCC (`tools/sanitize.sh`): {found['told']}; the "
        f"sanitizers {outcome}."
    )


PARTS: dict[str, tuple[Callable[[int], Any], int, Callable[[Any], str]]] = {
    "saves": (kill_saves, 200, saves_section),
    "fits": (kill_fits, 200, fits_section),
    "fuzz": (fuzz, 100_000, fuzz_section),
    "sanitizers": (sanitize, 0, sanitize_section),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="part")
    parser.add_argument("--count", type=int, help="trials or mutations, fewer for a try")
    given = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in given.parts:
        measure, count, _ = PARTS[name]
        known[name] = measure(given.count or count) | {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
        }
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    fill_page(
        PAGE, [section(known[name]) for name, (*_, section) in PARTS.items() if name in known]
    )


if __name__ == "__main__":
    main()
