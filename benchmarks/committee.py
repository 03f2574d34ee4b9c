"""Seconds of every member of a committee, on simulated matrices of many unequal classes.

By default 7,593 matrices of size 51, of rank 20 with a ridge, in 78 classes; with ``--engine cuda``
on a GPU. Members share what was computed for those before: the first has to wait for the means and
the tangent vectors.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

import numpy as np
from machine import machine, machine_line
from simulated import draw_many_classes

from divlearn import SPDClassifier
from divlearn.committee import MEMBERS
from divlearn.fitting.progress import listen

N_NEW = 2000  # matrices to test on


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--matrices", type=int, default=7593)
    parser.add_argument("--size", type=int, default=51)
    parser.add_argument("--classes", type=int, default=78)
    parser.add_argument("--members", nargs="+", default=list(MEMBERS))
    parser.add_argument("--jobs", type=int, help="threads; all by default")
    options = parser.parse_args()
    X, y = draw_many_classes(options.matrices + N_NEW, options.size, options.classes)
    committee = SPDClassifier(
        options.members, engine=options.engine, n_jobs=options.jobs, random_state=0
    )
    print(machine_line(machine()))
    print(f"{options.matrices} x {options.size} x {options.size}, {options.classes} classes")
    starts: list[tuple[float, str]] = []

    def note(what: str, done: int, total: int, news: str) -> None:
        if what == "kinds of classifiers":
            starts.append((time.perf_counter(), news))

    with listen(note):
        committee.fit(X[:-N_NEW], y[:-N_NEW])
    for (began, news), (ended, _) in pairwise(starts):
        name = news.removeprefix("fitting ").split(";")[0]
        print(f"{name:20} {ended - began:8.1f} s", flush=True)
    print(f"{'all':20} {starts[-1][0] - starts[0][0]:8.1f} s")
    print(committee.message_)
    print(committee.summary())
    accuracy = np.mean(committee.predict(X[-N_NEW:]) == y[-N_NEW:])
    print(f"accuracy on {N_NEW} new matrices: {accuracy:.4f}")


if __name__ == "__main__":
    main()
