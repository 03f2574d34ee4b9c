"""The program ``divlearn``. Commands import what they need when they run: help is instant."""

import sys
from collections.abc import Sequence

from divlearn.cli.messages import INTERRUPTED, NOTHING_KEPT

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program on arguments, those of the process by default; return the exit code."""
    try:
        from divlearn.cli.app import run  # Ctrl-C may come while this is imported

        return run(argv)
    except KeyboardInterrupt:
        print(f"divlearn: {NOTHING_KEPT}", file=sys.stderr)
        return INTERRUPTED
