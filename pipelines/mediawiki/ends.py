"""Where what was opened in a page of wikitext ends, found without reading what lies between.

The endings of tags are found once for the page, when the first is asked for. Of the others, a step
that finds an end is paid by what it steps over; one that finds none is paid from a budget in
proportion to the page, and when that is used up none is tried any more. So the time spent here is
linear in the page's length (but for a binary search) whatever the page holds.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable

from pipelines.mediawiki import tags

NOT_FOUND = -1
"""What a method gives where there is no end."""

_BRACES = re.compile(r"\{\{++|\}\}++|<(?:!--|(nowiki|math|pre|source|syntaxhighlight)\b[^<>]*+>)")
_BRACKETS = re.compile(r"\[\[|\]\]")
_TABLE = re.compile(r"\n[ \t:*#]*+(?:(\{\|)|\|\}(?!\})|\{\{[ ]*[Ee]nd[ ]*\}\})")
_COMMENT_END = re.compile("-->")
_BREAK = re.compile(r"\n[ \t]*(?=[\n=])")


class Ends:
    """The ends of one page's constructs. Positions are in its text; each method looks from one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[str, tuple[list[int], list[int]]] = {}  # endings of tags, by name
        self._budget = 8 * len(text) + 1024  # characters that steps without an end may look at

    def of_paragraph(self, position: int) -> int:
        """The next blank line or heading: what has no end of its own ends there."""
        found = _BREAK.search(self._text, position)
        return found.start() if found else len(self._text)

    def of_line(self, position: int) -> int:
        end = self._text.find("\n", position)
        return end if end >= 0 else len(self._text)

    def of_braces(self, position: int) -> int:
        """The end of the braces that open at `position`, all braces between counted."""
        text, depth, start = self._text, 0, position
        if self._budget < 0:
            return NOT_FOUND
        while (found := _BRACES.search(text, position)) is not None:
            position = found.end()
            first = text[found.start()]
            if first == "{":
                depth += position - found.start()
            elif first == "}":
                depth -= position - found.start()
                if depth <= 0:
                    end = position + depth
                    if text.find("\n==", start, end) < 0:
                        return end
                    break  # a template holds no headings: those braces were another's
            else:
                inside = self.of_tag(found[1] or "-->", position)
                position = inside if inside != NOT_FOUND else position
        self._budget -= position - start if found else len(text) - start
        return NOT_FOUND

    def of_picture(self, position: int) -> int:
        """The end of a `[[File:...]]`, links in its caption counted. It has one paragraph."""
        text, depth, start = self._text, 1, position
        if self._budget < 0:
            return NOT_FOUND
        while (found := _BRACKETS.search(text, position)) is not None:
            position = found.end()
            depth += 1 if found[0] == "[[" else -1
            if depth == 0:
                if text.find("\n\n", start, position) >= 0:
                    break
                return position + text.startswith("]", position)
        self._budget -= position - start if found else len(text) - start
        return NOT_FOUND

    def of_table(self, position: int) -> int:
        """The end of a table, tables in its cells counted."""
        depth = 1
        if self._budget < 0:
            return NOT_FOUND
        for found in _TABLE.finditer(self._text, position):
            depth += 1 if found[1] else -1
            if depth == 0:
                return found.end()
        self._budget -= len(self._text) - position
        return NOT_FOUND

    def of_tag(self, name: str, position: int) -> int:
        """The end of the first ending of the tag `name`, or of a comment (name "-->").

        For a tag that nests, `position` is right behind its opening.
        """
        starts, ends = self._endings(name)
        index = bisect.bisect_left(starts, position)
        if name in tags.NESTING:  # its own opening comes before; the end that belongs to it is kept
            return ends[index - 1] if index else NOT_FOUND
        return ends[index] if index < len(ends) else NOT_FOUND

    def _endings(self, name: str) -> tuple[list[int], list[int]]:
        """Where a tag's endings start and end; of one that nests, its openings and their ends."""
        found = self._found.get(name)
        if found is None:
            matches = (_COMMENT_END if name == "-->" else tags.ENDINGS[name]).finditer(self._text)
            if name in tags.NESTING:
                found = _matched(matches)
            else:
                spans = [match.span() for match in matches]
                found = [start for start, _ in spans], [end for _, end in spans]
            self._found[name] = found
        return found


def _matched(tags_found: Iterable[re.Match[str]]) -> tuple[list[int], list[int]]:
    """Where each opening tag starts, and where the tag that closes it ends: `NOT_FOUND` if none."""
    starts, ends, open_tags = list[int](), list[int](), list[int]()
    for match in tags_found:
        if match.lastindex:
            open_tags.append(len(starts))
            starts.append(match.start())
            ends.append(NOT_FOUND)
        elif open_tags:
            ends[open_tags.pop()] = match.end()
    return starts, ends
