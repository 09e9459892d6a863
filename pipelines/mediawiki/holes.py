"""Count the templates within sentences that write nothing, by name.

A template is *dropped* if a reader sees no text there (a footnote, an icon, a request for a source)
or if it is a pronunciation in brackets. Every other one is *unknown*: its text is missing, and it
leaves a *hole* in its sentence. The scanner leaves a mark with the name in either case; marks are
counted and removed here, where the sentence around them is known. A template after the end of a
sentence is not counted.
"""

# ruff: noqa: RUF001 - punctuation of several scripts
from __future__ import annotations

import re
from collections import Counter

from pipelines.counters import DROPPED_TEMPLATE, UNKNOWN_TEMPLATE
from pipelines.mediawiki.cleaning import DROPPED, HOLE, LOST, PROTECT, drop_marked_sentences

MOST_NAMES = 200
"""Unknown and dropped names that one split reports, the most frequent of each."""

_LEAST_ROOM = 20 * MOST_NAMES  # names that are counted before the rarest are forgotten
_PREFIXES = (UNKNOWN_TEMPLATE, DROPPED_TEMPLATE)
_LONGEST_NAME = 60
_UNPROTECT = {private: character for character, private in PROTECT.items()}
_MARK = re.compile(f"{HOLE}({DROPPED}?)([^{HOLE}]*){HOLE}")
_CLOSING = frozenset('"”’»」』)）')
_STOPS = frozenset(".!?…。！？؟۔।")
_HIRAGANA = ("\u3041", "\u309f")


def template_marker(name: str, *, is_dropped: bool) -> str:
    """Return the mark that replaces the template `name` in the text."""
    name = name[:_LONGEST_NAME].replace(HOLE, "").replace(DROPPED, "").translate(PROTECT)
    return f"{HOLE}{DROPPED if is_dropped else ''}{name}{HOLE}"


def without_names(text: str) -> str:
    """Return the text with the marks of templates as those of any dropped markup."""
    return _MARK.sub(DROPPED, text)


def continues_sentence(text: str, position: int) -> bool:
    """Return whether a sentence may continue at `position`, after a template that begins a line."""
    spaced = text[position : position + 1] in (" ", "\u00a0")
    character = text[position + spaced : position + spaced + 1]
    if character.islower() or character in {",", ";", "،", "、"}:
        return True
    if character.isalpha() and not character.isupper():  # a script without capitals
        return spaced or _HIRAGANA[0] <= character <= _HIRAGANA[1]
    return False


class UnknownTemplates:
    """Counts of the templates of a split that wrote nothing, in bounded memory."""

    def __init__(self, *, drop_sentences: bool = False, names: Counter[str] | None = None) -> None:
        """Start with `names`, the counts by name of an earlier part of the split."""
        self.total = 0
        """Number of holes."""

        self.templates_dropped = 0
        self.sentences_dropped = 0
        self._names = Counter[str]() if names is None else names
        self._drops = drop_sentences

    def most_common(self, prefix: str = UNKNOWN_TEMPLATE) -> list[tuple[str, int]]:
        """Return the names with this prefix of their counter, the most frequent first."""
        names = (item for item in self._names.items() if item[0].startswith(prefix))
        ranked = sorted(names, key=lambda item: (-item[1], item[0]))[:MOST_NAMES]
        return [(name.removeprefix(prefix), number) for name, number in ranked]

    def remove_markers(self, text: str) -> str:
        """Count the marks of a paragraph and replace them by those of dropped markup, or drop the
        sentences with holes."""
        parts: list[str] = []
        before, end = "", 0
        for match in _MARK.finditer(text):
            plain = text[end : match.start()]
            before = _last_mark(plain) or before
            end = match.end()
            is_inside = before not in _STOPS or text[end : end + 2].lstrip()[:1].islower()
            is_hole = is_inside and not match[1]
            if is_inside:
                self.total += is_hole
                self.templates_dropped += not is_hole
                self._count_name(_PREFIXES[not is_hole] + match[2].translate(_UNPROTECT))
            parts += (plain, LOST if is_hole and self._drops else DROPPED)
        text = "".join((*parts, text[end:]))
        if LOST in text:
            text, dropped = drop_marked_sentences(text, frozenset(LOST))
            self.sentences_dropped += dropped
        return text

    def _count_name(self, name: str) -> None:
        self._names[name] += 1
        if len(self._names) > _LEAST_ROOM:
            kept = {p + name: n for p in _PREFIXES for name, n in self.most_common(p)}
            self._names.clear()
            self._names.update(kept)


def _last_mark(text: str) -> str:
    """Return the last character that is not white space or a closing quote, or ""."""
    for character in reversed(text[-8:]):
        if not character.isspace() and character not in _CLOSING:
            return character
    return ""
