"""Ends of markup: where a template, a link to a picture, a table or a tag of a page closes."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterable

NESTING_TAGS = frozenset({"table", "ul", "ol", "dl", "menu"})
"""Tags that nest in themselves."""

_MAX_CAPTION = 5_000  # characters; brackets that are closed later belong to other markup

NOT_FOUND = -1
"""Result if there is no closing delimiter."""

_BRACES = re.compile(r"\{\{++|\}\}++|<(?:!--|(nowiki|math|pre|source|syntaxhighlight)\b[^<>]*+>)")
_BRACKETS = re.compile(r"\[\[|\]\]")
_TABLE = re.compile(r"\n[ \t:*#]*+(?:(\{\|)|\|\}(?!\})|\{\{[ ]*[Ee]nd[ ]*\}\})")
_COMMENT_END = re.compile("-->")
_BREAK = re.compile(r"\n[ \t]*(?=[\n=])")


@functools.cache
def _ending_pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of the closing tag `name`; a nesting tag's opening is group 1."""
    opening = rf"(<{name}\b[^<>]*>)|" if name in NESTING_TAGS else ""
    return re.compile(rf"{opening}</{name}\s*>", re.IGNORECASE)


class Delimiters:
    """Closing delimiters of a page. Positions are offsets in its text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tags: dict[str, tuple[list[int], list[int]]] = {}  # their endings, by name
        self._budget = 8 * len(text) + 1024  # characters that failing searches may read

    def end_of_paragraph(self, position: int) -> int:
        """Return the next blank line or heading, which ends unclosed markup."""
        match = _BREAK.search(self._text, position)
        return match.start() if match else len(self._text)

    def end_of_line(self, position: int) -> int:
        end = self._text.find("\n", position)
        return end if end >= 0 else len(self._text)

    def end_of_braces(self, position: int) -> int:
        """Return the end of the braces that open at `position`, nested braces included."""
        text, depth, start = self._text, 0, position
        if self._budget < 0:
            return NOT_FOUND
        while (match := _BRACES.search(text, position)) is not None:
            position = match.end()
            first = text[match.start()]
            if first == "{":
                depth += position - match.start()
            elif first == "}":
                depth -= position - match.start()
                if depth <= 0:
                    end = position + depth
                    if text.find("\n==", start, end) < 0:
                        return end
                    break  # a template has no headings: the braces belong to another one
            else:
                inside = self.end_of_tag(match[1] or "-->", position)
                position = inside if inside != NOT_FOUND else position
        self._budget -= position - start if match else len(text) - start
        return NOT_FOUND

    def end_of_picture(self, position: int) -> int:
        """Return the end of a `[[File:...]]`, whose caption may hold links and blank lines."""
        text, depth, start = self._text, 1, position
        if self._budget < 0:
            return NOT_FOUND
        while (match := _BRACKETS.search(text, position)) is not None:
            position = match.end()
            depth += 1 if match[0] == "[[" else -1
            if depth == 0:
                if position - start > _MAX_CAPTION or text.find("\n==", start, position) >= 0:
                    break
                return position + text.startswith("]", position)
        self._budget -= position - start if match else len(text) - start
        return NOT_FOUND

    def end_of_table(self, position: int) -> int:
        """Return the end of a table, nested tables included."""
        depth = 1
        if self._budget < 0:
            return NOT_FOUND
        for match in _TABLE.finditer(self._text, position):
            depth += 1 if match[1] else -1
            if depth == 0:
                return match.end()
        self._budget -= len(self._text) - position
        return NOT_FOUND

    def end_of_tag(self, name: str, position: int) -> int:
        """Return the end of the first closing tag `name`, or of a comment (name "-->").

        For a tag that nests, `position` is directly after its opening tag.
        """
        starts, ends = self._endings(name)
        index = bisect.bisect_left(starts, position)
        if name in NESTING_TAGS:  # the end of the last opening tag before
            return ends[index - 1] if index else NOT_FOUND
        return ends[index] if index < len(ends) else NOT_FOUND

    def _endings(self, name: str) -> tuple[list[int], list[int]]:
        """Return starts and ends of closing tags; for a nesting tag, of the tags themselves."""
        endings = self._tags.get(name)
        if endings is None:
            matches = (_COMMENT_END if name == "-->" else _ending_pattern(name)).finditer(
                self._text
            )
            if name in NESTING_TAGS:
                endings = _matched(matches)
            else:
                spans = [match.span() for match in matches]
                endings = [start for start, _ in spans], [end for _, end in spans]
            self._tags[name] = endings
        return endings


def _matched(tags: Iterable[re.Match[str]]) -> tuple[list[int], list[int]]:
    """Return the start of each opening tag and the end of its closing tag or `NOT_FOUND`."""
    starts, ends, open_tags = list[int](), list[int](), list[int]()
    for match in tags:
        if match.lastindex:
            open_tags.append(len(starts))
            starts.append(match.start())
            ends.append(NOT_FOUND)
        elif open_tags:
            ends[open_tags.pop()] = match.end()
    return starts, ends
