"""The program ``divlearn``. Commands import libraries when they run, so that help is instant."""

import sys
from collections.abc import Sequence

from divlearn.cli.messages import INTERRUPTED, NOTHING_KEPT

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program on arguments, by default `sys.argv`; return the exit code."""
    try:
        from divlearn.cli.app import run  # Ctrl-C may come during this import

        return run(argv)
    except KeyboardInterrupt:
        print(f"divlearn: {NOTHING_KEPT}", file=sys.stderr)
        return INTERRUPTED
