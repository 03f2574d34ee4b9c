"""``python -m paper``: compute the paper's tables and figures, and write them down."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paper import cache, rendering
from paper.data import load_data
from paper.experiments import EXPERIMENTS
from paper.protocol import FULL, QUICK
from paper.running import INTERRUPTED, compute


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns 1 if a cell failed."""
    options = _parse(arguments)
    protocol = FULL if options.full else QUICK
    chosen = [EXPERIMENTS[name] for name in options.names or EXPERIMENTS]
    data = load_data(options.data, [key for one in chosen for key in one.sources])
    sections, failures, n_missing, n_cells = [], [], 0, 0
    for experiment in chosen:
        cells = list({cell.key: cell for cell in experiment.cells(data, protocol)}.values())
        failed = []
        if not options.cached:
            print(f"{experiment.name}: {len(cells)} cells", file=sys.stderr)
            failed = compute(cells, options.cache, 1 if experiment.timed else options.jobs)
        found = [cache.record(options.cache, cell) for cell in cells]
        done = [record for record in found if record is not None]
        picture = rendering.draw(experiment, done, options.docs)
        text = rendering.section(experiment, protocol, data, done, len(cells), failed, picture)
        print(text)
        sections.append(text)
        failures += failed
        n_missing, n_cells = n_missing + len(cells) - len(done), n_cells + len(cells)
    options.docs.parent.mkdir(parents=True, exist_ok=True)
    options.docs.write_text(rendering.document(protocol, sections, n_missing, n_cells))
    print(f"Written: {options.docs}")
    return 1 if failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    root = os.environ.get("DIVLEARN_DATA")
    parser = argparse.ArgumentParser(
        prog="python -m paper",
        description="Compute the tables and figures of the paper again, beside what it reports. "
        "Finished cells are kept in a cache: repeat a command to resume it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="experiments:\n"
        + "\n".join(f"  {name:<21}{one.title}" for name, one in EXPERIMENTS.items()),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; all by default")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a small part, in minutes (default)")
    size.add_argument("--full", action="store_true", help="the paper's protocol, in hours")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", default=Path(root) if root else None,
        help="folder with one sub-folder per data set; DIVLEARN_DATA by default, and without that "
        "only synthetic data",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument("--cached", action="store_true", help="compute nothing, show what is done")
    parser.add_argument(
        "--docs", type=Path, metavar="FILE", default=Path("reproduced/results.md"),
        help="markdown to write; pictures go into the folder of the same name beside it",
    )  # fmt: skip
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", default=Path("reproduced/cells"),
        help="folder that keeps finished cells",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"NAME {unknown[0]} must be one of {', '.join(EXPERIMENTS)}")
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs} must be >= 1")
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; repeat the command to resume", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except (OSError, ValueError) as error:
        sys.exit(f"paper: {error}")
