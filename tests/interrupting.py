"""Ctrl-C at a counted step: what happens then does not depend on the clock."""

from __future__ import annotations

import signal


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def stop_at(wanted: str, count: int):
    """Return a listener that presses Ctrl-C once, when some work has come so far."""
    pressed = False

    def listener(what, done, total, news):
        nonlocal pressed
        if not pressed and (what, done) == (wanted, count):
            pressed = True
            press_ctrl_c()

    return listener
