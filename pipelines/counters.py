"""Counting what goes in, what comes out, and what is dropped for which reason.

Pure functions take a `Count`; a job passes the one of its `Counters`, a test a plain dict's.
Names are kebab-case. What comes in is `THINGS-in`, what comes out `THINGS-kept`, and what does not
is `THINGS-dropped-REASON`, so that `check_balance` can add up.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from schemas.errors import CountMismatchError

UNKNOWN_TEMPLATE = "template-unknown:"
"""Prefix of the counter of a template whose text is missing in a sentence."""

DROPPED_TEMPLATE = "template-dropped:"
"""Prefix of the counter of a template in a sentence that shows no text, or of a pronunciation in
brackets."""

STREAM_PART = "bzip2-part:"
"""Before what a split's blocks add to a stream's checksum, as JSON, in the name of a counter."""


MAX_EXAMPLES = 3
"""Number of examples that are kept of each counter."""


class Example(NamedTuple):
    """A record that a counter counts."""

    text: str
    """Title or location."""

    url: str = ""
    excerpt: str = ""
    """Start of the record, or what it was compared with."""


class Count(Protocol):
    """Adds `amount` to the counter `name`. `example` is one of the counted records."""

    def __call__(self, name: str, amount: int = 1, /, *, example: Example | str = "") -> None: ...


class Counters(collections.Counter[str]):
    """Named counts of one split, or of many added together.

    Attributes:
        examples: First examples of what is counted, by name, at most `MAX_EXAMPLES` each.
    """

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        super().__init__(counts)
        self.examples: dict[str, list[Example]] = {}

    def count(self, name: str, amount: int = 1, /, *, example: Example | str = "") -> None:
        self[name] += amount
        if example:
            examples = self.examples.setdefault(name, [])
            if len(examples) < MAX_EXAMPLES:
                examples.append(Example(example) if isinstance(example, str) else example)


def check_balance(counters: Mapping[str, int], things: str, *, where: str) -> None:
    """Refuse counts that do not add up: `things-in` is `things-kept` plus every `things-dropped-*`.

    >>> check_balance({"rows-in": 3, "rows-kept": 2, "rows-dropped-empty": 1}, "rows", where="x")

    Raises:
        CountMismatchError: with each count, so that the missing records can be looked for.
    """
    went_in = counters.get(f"{things}-in", 0)
    kept = counters.get(f"{things}-kept", 0)
    dropped = {
        name: value for name, value in counters.items() if name.startswith(f"{things}-dropped-")
    }
    if went_in != kept + sum(dropped.values()):
        listing = ", ".join(f"{name} {value}" for name, value in sorted(dropped.items())) or "none"
        raise CountMismatchError(
            f"{where}: {things} do not add up: {went_in} in, {kept} kept, dropped: {listing}. "
            f"{went_in - kept - sum(dropped.values())} are unaccounted for; nothing was published."
        )
