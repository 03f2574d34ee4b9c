"""``python -m divlearn`` is the program ``divlearn``."""

import sys

from divlearn.cli import main

if __name__ == "__main__":
    sys.exit(main())
