"""Figures of a report: charts with a legend and notes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from schemas.errors import BertloomError


class Panel(NamedTuple):
    """One chart."""

    title: str
    svg: str
    note: str = ""
    """Text below the chart."""


class Key(NamedTuple):
    """A line of a legend."""

    mark: str
    """Class of the mark in the style sheet, such as `line series-1`."""

    label: str


class Figure(NamedTuple):
    """Panels with one legend, or the reason why they are missing."""

    panels: tuple[Panel, ...] = ()
    legend: tuple[Key, ...] = ()
    note: str = ""
    """Text below all panels."""

    problem: str = ""

    @property
    def first(self) -> Figure:
        """The first panel with the legend and the note."""
        return self._replace(panels=self.panels[:1])


def try_draw(draw: Callable[[], Figure]) -> Figure:
    """Return a figure, or one with a problem if a file that it needs is missing or damaged."""
    try:
        return draw()
    except (BertloomError, OSError, ValueError, KeyError, TypeError) as error:  # a damaged file
        return Figure(problem=f"Not drawn: {type(error).__name__}: {error}")
