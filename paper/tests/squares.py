"""Cells that take no time, some of which end the process, for tests of what is kept then."""

import os
import signal
from functools import partial
from pathlib import Path

import numpy as np

from paper.cells import Cell


def square(_: None, engine: str, number: int, log: str | None = None, stop: str = "") -> dict:
    if log:
        with open(log, "a") as file:
            print(number, file=file)
    if stop == "kill" and number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if stop == "ctrl-c" and number == 2:
        try:  # as learners do
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            return {"square": -1}
    if stop == "fail" and number == 2:
        raise ZeroDivisionError("of two")
    return {"square": np.float64(number**2), "all": np.arange(number)}


def cells(log: Path | None = None, stop: str = "", n: int = 5, **settings) -> list[Cell]:
    told = None if log is None else str(log)
    return [
        Cell(
            ("square", 1),
            "numbers",
            "",
            "multiply",
            number,
            settings,
            partial(square, number=number, log=told, stop=stop),
        )
        for number in range(n)
    ]
