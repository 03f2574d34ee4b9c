"""The program ``divlearn``. Commands import what they need when they run: help is instant."""

from divlearn.cli.app import main

__all__ = ["main"]
