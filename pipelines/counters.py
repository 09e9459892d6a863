"""Counters of records: in = kept + dropped, by reason.

Names are kebab-case: `RECORDS-in`, `RECORDS-kept` and `RECORDS-dropped-REASON`, which
`check_balance` adds. Pure functions take a `Count`.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Protocol

from schemas.errors import CountMismatchError

TEXT_UNITS = ("sentences", "characters")
"""Units of text that is dropped within documents: `sentences-dropped-REASON`."""

UNKNOWN_TEMPLATE = "template-unknown:"
"""Prefix of the counter of a template whose text is missing in a sentence."""

DROPPED_TEMPLATE = "template-dropped:"
"""Prefix of the counter of a template in a sentence that shows no text, or of a pronunciation in
brackets."""


class Count(Protocol):
    """Adds `amount` to the counter `name`. `where` locates one of the counted records."""

    def __call__(self, name: str, amount: int = 1, /, *, where: str = "") -> None: ...


class Counters(collections.Counter[str]):
    """Named counts of one split, or of many added together.

    Attributes:
        locations: Location of the first record that a counter counts, by name.
    """

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        super().__init__(counts)
        self.locations: dict[str, str] = {}

    def count(self, name: str, amount: int = 1, /, *, where: str = "") -> None:
        self[name] += amount
        if where:
            self.locations.setdefault(name, where)


def check_balance(counters: Mapping[str, int], records: str, *, where: str) -> None:
    """Check that `RECORDS-in` equals `RECORDS-kept` plus every `RECORDS-dropped-*`.

    >>> check_balance({"rows-in": 3, "rows-kept": 2, "rows-dropped-empty": 1}, "rows", where="x")

    Raises:
        CountMismatchError: The counts do not add up. The message has each count.
    """
    records_in = counters.get(f"{records}-in", 0)
    kept = counters.get(f"{records}-kept", 0)
    dropped = {
        name: value for name, value in counters.items() if name.startswith(f"{records}-dropped-")
    }
    if records_in != kept + sum(dropped.values()):
        listing = ", ".join(f"{name} {value}" for name, value in sorted(dropped.items())) or "none"
        raise CountMismatchError(
            f"{where}: {records} do not add up: {records_in} in, {kept} kept, dropped: {listing}. "
            f"{records_in - kept - sum(dropped.values())} are missing; nothing was published."
        )
