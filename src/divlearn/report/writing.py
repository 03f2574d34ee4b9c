"""Writing pages together with what it takes to repeat them."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from divlearn.report.page import Page
from divlearn.report.words import RepeatSection

__all__ = ["write_report"]

_LIBRARIES = ("divlearn", "numpy", "scipy", "scikit-learn")


def write_report(path: Path, page: Page, data_digest: str, seconds: Mapping[str, float]) -> None:
    """Write a page, with the command, the digest of the data, versions and times at its end.

    Parameters
    ----------
    path : Path
    page : Page
    data_digest : str
    seconds : mapping of str to float
        Time that every stage took.
    """
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    versions["Python"] = ".".join(map(str, sys.version_info[:3]))
    command = shlex.join(["divlearn", *sys.argv[1:]])
    repeat = RepeatSection(command, data_digest, versions, dict(seconds))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(page, sections=[*page.sections, repeat]).write(path)
