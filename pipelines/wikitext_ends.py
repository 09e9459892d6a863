"""Where what was opened in a page of wikitext ends, found without reading what lies between.

Each step that finds an end is paid by what it steps over. A step that finds none is paid from a
budget in proportion to the page; when that is used up none is tried any more. So the time spent
here is linear in the page's length whatever the page holds.
"""

from __future__ import annotations

import re

from pipelines import wikitext_tags as tags

NOWHERE = -1
"""What a method gives where there is no end."""

_BRACES = re.compile(r"\{\{++|\}\}++|<(?:!--|(nowiki|math|pre|source|syntaxhighlight)\b[^<>]*+>)")
_BRACKETS = re.compile(r"\[\[|\]\]")
_TABLE = re.compile(r"\n[ \t:*#]*+(?:(\{\|)|\|\}(?!\})|\{\{[ ]*[Ee]nd[ ]*\}\})")
_BREAK = re.compile(r"\n[ \t]*(?=[\n=])")


class Ends:
    """The ends of one page's constructs. Positions are in its text; each method looks from one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next: dict[str, int] = {}  # where an ending written plainly comes next
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
            return NOWHERE
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
                position = inside if inside != NOWHERE else position
        self._budget -= position - start if found else len(text) - start
        return NOWHERE

    def of_picture(self, position: int) -> int:
        """The end of a `[[File:...]]`, links in its caption counted. It has one paragraph."""
        text, depth, start = self._text, 1, position
        if self._budget < 0:
            return NOWHERE
        while (found := _BRACKETS.search(text, position)) is not None:
            position = found.end()
            depth += 1 if found[0] == "[[" else -1
            if depth == 0:
                if text.find("\n\n", start, position) >= 0:
                    break
                return position + text.startswith("]", position)
        self._budget -= position - start if found else len(text) - start
        return NOWHERE

    def of_table(self, position: int) -> int:
        """The end of a table, tables in its cells counted."""
        depth = 1
        if self._budget < 0:
            return NOWHERE
        for found in _TABLE.finditer(self._text, position):
            depth += 1 if found[1] else -1
            if depth == 0:
                return found.end()
        self._budget -= len(self._text) - position
        return NOWHERE

    def of_tag(self, name: str, position: int) -> int:
        """The end of the first ending of the tag `name`, or of a comment (name "-->")."""
        text, plain = self._text, name if name == "-->" else f"</{name}>"
        known = self._next.get(plain, 0)
        if known != NOWHERE and known < position:
            known = text.find(plain, position)
            self._next[plain] = known
        if name == "-->":
            return known + len(plain) if known != NOWHERE else NOWHERE
        if known != NOWHERE and text.find(f"<{name}", position, known) < 0:
            return known + len(plain)
        return self._of_irregular_tag(name, position)

    def _of_irregular_tag(self, name: str, position: int) -> int:
        """As `of_tag`, where tags nest or are written like `</REF >`."""
        absent = f"no </{name}>"
        if absent in self._next or self._budget < 0:
            return NOWHERE
        depth = 1
        for found in tags.ENDINGS[name].finditer(self._text, position):
            depth += 1 if found.lastindex else -1
            if depth == 0:
                return found.end()
        if depth == 1:
            self._next[absent] = position
        self._budget -= len(self._text) - position
        return NOWHERE
