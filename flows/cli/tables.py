"""Results of commands: JSON for programs, tables for people.

Tables fit the width of the terminal. Pipes and files get plain lines that are never wrapped.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.console import echo, echo_raw, print_json
from flows.formatting import align_columns
from schemas.redaction import escape_control_characters, redact

_STYLES = {
    **dict.fromkeys(("completed", "built", "ok"), "green"),
    **dict.fromkeys(("running", "interrupted", "warn"), "yellow"),
    **dict.fromkeys(("failed", "crashed", "corrupt", "fail"), "red"),
    "cached": "dim",
}
"""Style of a cell by its first word."""

_UNLIMITED = 100_000
_MIN_LAST = 24
"""Minimum width of the last column, whose cells wrap or are cut."""

_MAX_FIXED = 27
"""Length of the longest cells that are never wrapped, such as ids of runs."""


def console_for(stream: TextIO) -> Console:
    """Return a rich console; without a terminal, its lines have no maximum width."""
    width = None if stream.isatty() else _UNLIMITED
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal with a cursor."""
    console = console_for(stream)
    return console.is_terminal and not console.is_dumb_terminal


def as_text(text: str, style: str = "") -> Text:
    """Return styled text with secrets redacted and control characters escaped."""
    return Text(escape_control_characters(redact(text)), style=style)


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    optional: Sequence[int] = (),
    wrap: bool = True,
) -> Table:
    """Return a table.

    Args:
        header: Title of each column. Empty titles: the table has no header.
        rows: Cells; a row can be shorter than the header.
        right: Indexes of the columns with numbers, which align right.
        optional: Indexes of the columns that a terminal shows only if they fit, the least important
            one last.
        wrap: Wrap cells that are too long for the terminal. False: cut the last column.
    """
    result = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(header)
    )
    cells_of_rows = [[*row, *[""] * (len(header) - len(row))] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(header, *cells_of_rows, strict=True)]
    shown = _fitting_columns(widths, optional, console_for(sys.stdout).width)
    for index in shown:
        result.add_column(
            as_text(header[index]),
            justify="right" if index in right else "left",
            no_wrap=index != shown[-1] and (widths[index] <= _MAX_FIXED or not wrap),
            overflow="fold",
        )
    for row in cells_of_rows:
        cells = [as_text(row[index], _style(row[index])) for index in shown]
        if not wrap:
            cells[-1].no_wrap, cells[-1].overflow = True, "ellipsis"
        result.add_row(*cells)
    return result


def _fitting_columns(widths: Sequence[int], optional: Sequence[int], available: int) -> list[int]:
    """Return the indexes of the columns to show, without the optional ones that do not fit."""
    shown, dropped = list(range(len(widths))), list(optional)
    while dropped:
        last = min(widths[shown[-1]], _MIN_LAST)
        if sum(widths[index] + 2 for index in shown[:-1]) + last <= available:
            break
        shown.remove(dropped.pop())
    return shown


def _style(cell: str) -> str:
    return _STYLES.get(cell.partition(" ")[0].rstrip(":").lower(), "")


def print_parts(*parts: str | Table) -> None:
    """Print lines and tables."""
    console = console_for(sys.stdout)
    for part in parts:
        if isinstance(part, str):
            echo(part)
        elif console.is_terminal:
            console.print(part)
        else:
            for line in _plain_lines(part):
                echo_raw(line)


def _plain_lines(part: Table) -> list[str]:
    """Return a table as aligned lines, faster than rich for thousands of rows."""
    header = [[str(column.header) for column in part.columns]] if part.show_header else []
    rows = zip(*(map(str, column.cells) for column in part.columns), strict=True)
    right = [index for index, column in enumerate(part.columns) if column.justify == "right"]
    return align_columns([*header, *rows], right=right)


def print_result(data: Any, *parts: str | Table, as_json: bool) -> None:
    """Print the result of a command: the data as JSON, or lines and tables."""
    if as_json:
        print_json(data)
    else:
        print_parts(*parts)
