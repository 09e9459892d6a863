"""Holes: where a template that nothing is known of stood within a sentence, counted by its name.

The scanner leaves a mark with the name; here marks are counted and taken out once the paragraph
around them is known. A template behind the end of a sentence, where footnotes stand, leaves none.
"""

# ruff: noqa: RUF001 - punctuation of several scripts
from __future__ import annotations

import re
from collections import Counter

from pipelines.mediawiki.cleaning import DROPPED, HOLE, LOST, PROTECT, drop_marked_sentences

MOST_NAMES = 200
"""Names that one split gives on, the most frequent first."""

_LEAST_ROOM = 20 * MOST_NAMES  # names that are counted before the rarest are forgotten
_LONGEST_NAME = 60
_UNPROTECT = {private: character for character, private in PROTECT.items()}
_MARK = re.compile(f"{HOLE}([^{HOLE}]*){HOLE}")
_CLOSING = frozenset('"”’»」』)）')
_STOPS = frozenset(".!?…。！？؟۔।")
_HIRAGANA = ("\u3041", "\u309f")


def hole_mark(name: str) -> str:
    """What the scanner leaves in the text for the template `name`."""
    return f"{HOLE}{name[:_LONGEST_NAME].replace(HOLE, '').translate(PROTECT)}{HOLE}"


def goes_on(text: str, position: int) -> bool:
    """Whether a sentence may go on at `position`, behind a template that begins a line."""
    spaced = text[position : position + 1] in (" ", "\u00a0")
    character = text[position + spaced : position + spaced + 1]
    if character.islower() or character in {",", ";", "،", "、"}:
        return True
    if character.isalpha() and not character.isupper():  # a script without capitals
        return spaced or _HIRAGANA[0] <= character <= _HIRAGANA[1]
    return False


class Holes:
    """Counts the holes of a split, by name, in bounded memory."""

    def __init__(self, *, drop_sentences: bool = False, names: Counter[str] | None = None) -> None:
        """`names` goes on being counted in, as of a split that was begun before."""
        self.total = 0
        self.sentences_dropped = 0
        self._names = Counter[str]() if names is None else names
        self._drops = drop_sentences

    def most_common(self) -> list[tuple[str, int]]:
        """Names and counts, the most frequent first, equal ones by name."""
        return sorted(self._names.items(), key=lambda item: (-item[1], item[0]))[:MOST_NAMES]

    def take_out(self, text: str) -> str:
        """Count the marks of a paragraph, and put those of dropped markup in their places; or
        drop the sentences that they stand in."""
        parts: list[str] = []
        before, end = "", 0
        for match in _MARK.finditer(text):
            plain = text[end : match.start()]
            before = _last_mark(plain) or before
            end = match.end()
            is_hole = before not in _STOPS or text[end : end + 2].lstrip()[:1].islower()
            if is_hole:
                self._count(match[1].translate(_UNPROTECT))
            parts += (plain, LOST if is_hole and self._drops else DROPPED)
        text = "".join((*parts, text[end:]))
        if LOST in text:
            text, dropped = drop_marked_sentences(text, frozenset(LOST))
            self.sentences_dropped += dropped
        return text

    def _count(self, name: str) -> None:
        self.total += 1
        self._names[name] += 1
        if len(self._names) > _LEAST_ROOM:
            kept = dict(self.most_common())
            self._names.clear()
            self._names.update(kept)


def _last_mark(text: str) -> str:
    """The last character that says whether a sentence has ended: closing quotes are passed over;
    "" where there is none, "." before any text."""
    for character in reversed(text[-8:]):
        if not character.isspace() and character not in _CLOSING:
            return character
    return ""
