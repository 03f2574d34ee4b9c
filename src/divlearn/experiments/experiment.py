"""What every experiment is: cells to compute, and how their outcomes are put together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from divlearn.experiments.cells import Cell, Outcomes
from divlearn.experiments.protocol import Limits, Protocol
from divlearn.experiments.result import Result, Row
from divlearn.experiments.sentences import tell_differences
from divlearn.experiments.shelf import SOURCES, Shelf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Experiment"]


class Experiment(ABC):
    """A table or figure of the paper.

    Attributes
    ----------
    name : str
        What it is called on the command line.
    title : str
    where : str
        Which table or figure of the paper.
    unit : str
        Of its figures.
    sources : tuple of str
        Keys of the data that the paper used for it; none for synthetic data.
    column_reasons : mapping of str to str
        Why columns may differ from the paper, by their names.
    timed : bool
        Whether times are among its figures, which others at work would disturb.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    where: ClassVar[str]
    unit: ClassVar[str]
    sources: ClassVar[tuple[str, ...]] = ()
    column_reasons: ClassVar[Mapping[str, str]] = {}
    timed: ClassVar[bool] = False

    @abstractmethod
    def cells(self, shelf: Shelf, protocol: Protocol) -> list[Cell]:
        """List what is to be computed, what is cheap first."""

    @abstractmethod
    def rows(self, done: Outcomes) -> list[Row]:
        """Put outcomes together, those there are."""

    @abstractmethod
    def effort(self, protocol: Protocol) -> str:
        """Say what is done under a protocol."""

    def reasons(self, rows: Sequence[Row]) -> Mapping[str, str]:
        """Why rows may differ from the paper, by their names."""
        return {source.title: source.why for source in SOURCES.values()}

    def claims(self, rows: Sequence[Row], done: Outcomes) -> list[str]:
        """Say which of the paper's claims hold."""
        return []

    def draw(self, figure: Figure, done: Outcomes) -> None:
        """Draw the figure; not all experiments have one."""
        raise NotImplementedError

    @property
    def draws(self) -> bool:
        """Whether there is a figure."""
        return type(self).draw is not Experiment.draw

    def collect(
        self, shelf: Shelf, protocol: Protocol, done: Outcomes, *, n_cells: int, seconds: float,
        failures: Sequence[str] = (),
    ) -> Result:  # fmt: skip
        """Make the result of what is done.

        Parameters
        ----------
        shelf : Shelf
        protocol : Protocol
        done : Outcomes
        n_cells : int
            How many there are in all.
        seconds : float
            That those done took.
        failures : sequence of str
        """
        rows = self.rows(done)
        # Small parts of the data differ from all of it for a reason that goes without saying.
        quick = protocol.name == "quick"
        differences = (
            [] if quick else tell_differences(rows, self.reasons(rows), self.column_reasons)
        )
        return Result(
            name=self.name, title=self.title, where=self.where, unit=self.unit,
            effort=self.effort(protocol), rows=rows, text=[*differences, *self.claims(rows, done)],
            used=[holding.source.title for holding in shelf.find(self.sources)],
            missing=shelf.missing(self.sources), seconds=seconds, n_cells=n_cells,
            n_done=len(done), failures=failures,
            draw=(lambda figure: self.draw(figure, done)) if self.draws and len(done) else None,
        )  # fmt: skip

    def limits(self, protocol: Protocol) -> str:
        """Say how much of the data is used."""
        told = {
            SOURCES[key].title: str(protocol.limits[key])
            for key in self.sources
            if key in protocol.limits
        }
        rest = protocol.limits[""]
        parts = [f"of {title} {text}" for title, text in told.items()]
        if rest != Limits():
            parts.append(f"{'of all other data' if parts else 'of all data'} {rest}")
        return "; ".join(parts)
