"""What a person's terminal is shown where a pipe gets plain lines: tables, colours, clean lines.

Plain lines go wherever nobody looks: into pipes and files, and to a terminal that says it is dumb.
Colours are left out where `NO_COLOR` is set.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.console import print_lines
from flows.formatting import align_columns
from schemas.redaction import escape_control_characters, redact

NARROW = 100
"""A terminal of fewer columns has no room for all columns of a table."""

_STYLES = {
    "completed": "green",
    "built": "green",
    "cached": "dim",
    "running": "yellow",
    "interrupted": "yellow",
    "failed": "red",
    "crashed": "red",
    "CORRUPT": "red",
    "corrupt": "red",
}
"""By the first word of a cell."""

_CLEAR_LINE, _CLEAR_BELOW = "\r\x1b[K", "\x1b[J"


def in_terminal(stream: TextIO | None = None) -> bool:
    """Whether a stream, standard output by default, is a terminal with a cursor and UTF-8."""
    stream = stream or sys.stdout
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    is_utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
    return stream.isatty() and is_utf8 and not dumb


def terminal_size() -> tuple[int, int]:
    """Columns and lines."""
    size = shutil.get_terminal_size((80, 24))
    return size.columns, size.lines


def text_of(text: str, style: str = "") -> Text:
    """A text in which names may stand that others gave, to be printed as it is."""
    return Text(escape_control_characters(redact(text)), style=style)


def print_over_bars(text: Text, *, err: bool = False) -> None:
    """Print a line where progress bars may stand, which are drawn anew below it."""
    stream = sys.stderr if err else sys.stdout
    stream.write(_CLEAR_LINE)
    _console(stream).print(text, soft_wrap=True)
    stream.write(_CLEAR_BELOW)
    stream.flush()


def print_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    folds: Collection[int] = (),
    less: Collection[int] = (),
) -> None:
    """Print rows of texts: in a terminal as a table that fits it, elsewhere as aligned lines.

    Args:
        head: titles of the columns.
        rows: a text a column.
        right: numbers of the columns that are set to the right.
        folds: of those whose texts may take several lines.
        less: of those that a narrow terminal is not shown, which is said.
    """
    if not in_terminal():
        print_lines(align_columns([head, *rows], right=tuple(right)))
        return
    left_out = set(less) if terminal_size()[0] < NARROW else set()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    shown = [number for number in range(len(head)) if number not in left_out]
    for number in shown:
        table.add_column(
            head[number],
            justify="right" if number in right and number not in folds else "left",
            no_wrap=number not in folds,
            overflow="fold",
        )
    for row in rows:
        cells = [*row, *[""] * len(head)]
        table.add_row(*(text_of(cells[n], _style(cells[n])) for n in shown))
    _console(sys.stdout).print(table)
    if left_out:
        names = ", ".join(head[number] for number in sorted(left_out))
        note = f"not shown in {terminal_size()[0]} columns: {names} (a wider terminal, --json)"
        _console(sys.stdout).print(text_of(note, "dim"))


def _style(cell: str) -> str:
    words = cell.split()
    return _STYLES.get(words[0].rstrip(":"), "") if words else ""


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, markup=False, emoji=False)
