"""Every table and figure of the paper: computed again, beside what the paper reports.

An experiment is a list of cells, each a small computation that is cached by what it depends on
(`cells`, `cache`), and a way to put their outcomes together (`experiment`, `result`). Data comes
from a shelf (`shelf`), sizes from a protocol (`protocol`), the paper's figures from `paper`.
"""

from divlearn.experiments.cache import Cache
from divlearn.experiments.protocol import FULL, QUICK, Protocol
from divlearn.experiments.registry import EXPERIMENTS
from divlearn.experiments.result import Result, Row
from divlearn.experiments.running import run
from divlearn.experiments.shelf import Shelf

__all__ = ["EXPERIMENTS", "FULL", "QUICK", "Cache", "Protocol", "Result", "Row", "Shelf", "run"]
