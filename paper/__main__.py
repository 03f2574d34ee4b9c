"""``python -m paper``: compute the paper's tables and figures, and write them down."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paper import rendering
from paper.cells import INTERRUPTED, Cell, compute, merge_results, read_results
from paper.data import SOURCES, load_data, pack
from paper.experiment import Experiment
from paper.experiments import EXPERIMENTS
from paper.protocol import FULL, QUICK, Protocol


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns 1 if a cell failed."""
    options = _parse(arguments)
    protocol = FULL if options.full else QUICK
    if options.pack:
        pack(load_data(options.data, SOURCES), options.pack)
        return 0
    if options.merge:
        merge_results(options.results, options.merge)
    if options.list:
        print(*_list(protocol, options.results), sep="\n")
        return 0
    chosen = {
        name: _cells(name, protocol, options.methods) for name in options.names or EXPERIMENTS
    }
    failures = [] if options.cached else _compute(chosen, options)
    results = read_results(options.results)
    every = [rendering.find(one, protocol, results) for one in EXPERIMENTS.values()]
    shown = {name.partition("/")[0] for name in chosen}
    every = [one for one in every if one.experiment.name in shown]
    options.docs.parent.mkdir(parents=True, exist_ok=True)
    text = rendering.document(every, protocol, options.docs, failures)
    options.docs.write_text(text)
    print(f"{text}\nWritten: {options.docs}")
    return 1 if failures else 0


def _cells(name: str, protocol: Protocol, methods: Sequence[str] | None) -> list[Cell]:
    """List the cells of an experiment, or of a part of it."""
    experiment, _, source = name.partition("/")
    return [
        cell
        for cell in rendering.distinct_cells(EXPERIMENTS[experiment], protocol)
        if source in ("", cell.source) and (methods is None or cell.method in methods)
    ]


def _compute(chosen: dict[str, list[Cell]], options: argparse.Namespace) -> list[str]:
    data = load_data(options.data, [cell.source for cells in chosen.values() for cell in cells])
    failures = []
    for name, cells in chosen.items():
        experiment = EXPERIMENTS[name.partition("/")[0]]
        there = [cell for cell in cells if not cell.source or cell.source in data]
        print(f"{name}: {len(there)} cells", file=sys.stderr, flush=True)
        jobs = 1 if experiment.timed else options.jobs
        failed = compute(there, data, options.results, jobs, options.engine)
        failures += [f"{experiment.name}: {failure}" for failure in failed]
    return failures


def _list(protocol: Protocol, path: Path) -> list[str]:
    """List the parts that can be computed one by one, and what those that are done took."""
    results = read_results(path)
    lines = [f"{'part':<34}{'cells':>6}{'done':>6}  took"]
    for name, experiment in EXPERIMENTS.items():
        lines.append(f"{experiment.title}: {experiment.effort(protocol)}")
        for part in _parts(name, experiment, protocol):
            cells = _cells(part, protocol, None)
            done = [results[cell.key]["seconds"] for cell in cells if cell.key in results]
            took = rendering.say_time(sum(done)) if done else ""
            lines.append(f"  {part:<32}{len(cells):>6}{len(done):>6}  {took}")
    return lines


def _parts(name: str, experiment: Experiment, protocol: Protocol) -> list[str]:
    sources = dict.fromkeys(cell.source for cell in experiment.cells(protocol))
    return [f"{name}/{source}" if source else name for source in sources]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    root = os.environ.get("DIVLEARN_DATA")
    parser = argparse.ArgumentParser(
        prog="python -m paper",
        description="Compute the tables and figures of the paper again, beside what it reports. "
        "Finished cells are kept in a file: repeat a command to resume it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="experiments:\n"
        + "\n".join(f"  {name:<21}{one.title}" for name, one in EXPERIMENTS.items()),
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="experiments, or parts of them as atoms/virus; all by default",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a small part, in minutes (default)")
    size.add_argument("--full", action="store_true", help="the paper's protocol, in hours")
    parser.add_argument("--list", action="store_true", help="list all parts and what they took")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=Path(root) if root else None,
        help="folder with one sub-folder per data set; DIVLEARN_DATA by default, and without that "
        "only synthetic data",
    )
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="only these, as IDDL-N")
    parser.add_argument("--engine", default="auto", help="of IDDL and 1-NN, as cuda")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument("--cached", action="store_true", help="compute nothing, show what is done")
    parser.add_argument(
        "--docs",
        type=Path,
        metavar="FILE",
        default=Path("reproduced/results.md"),
        help="markdown to write; pictures go into the folder of the same name beside it",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        default=Path("reproduced/results.jsonl"),
        help="file that keeps finished cells",
    )
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="first add the cells of other such files, which other machines computed",
    )
    parser.add_argument(
        "--pack",
        type=Path,
        metavar="DIR",
        help="write all data as matrices, for a machine without image libraries, and end",
    )
    options = parser.parse_args(arguments)
    for name in options.names:
        experiment, _, source = name.partition("/")
        if experiment not in EXPERIMENTS:
            parser.error(f"NAME {name} must be one of {', '.join(EXPERIMENTS)}")
        if source and name not in _parts(experiment, EXPERIMENTS[experiment], FULL):
            parser.error(f"NAME {name} must be a part that --list names")
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
