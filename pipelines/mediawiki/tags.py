"""Tags of wikitext (MediaWiki's extensions and HTML) by their treatment in the scanner."""

from __future__ import annotations

import re


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Tags whose content is not text.
DROPPED = _names(
    "ref references gallery timeline imagemap score hiero graph mapframe maplink templatedata "
    "templatestyles inputbox categorytree includeonly indicator charinsert rss dynamicpagelist "
    "quiz script style rt rp h1 h2 h3 h4 h5 h6 pre syntaxhighlight source caption phonos "
    "mapdata languages"
)
# The same, but these nest in themselves.
NESTING = frozenset({"table", "ul", "ol", "dl", "menu"})
# Tags whose content is necessary for a sentence, but is not text.
FORMULA = frozenset({"math", "chem", "ce", "code"})
# Tags that end a paragraph.
BLOCK = _names(
    "p div blockquote center poem hr gallery pre syntaxhighlight source table ul ol dl menu "
    "references timeline imagemap score graph mapframe li dd dt tr td th caption h1 h2 h3 h4 h5 "
    "h6 section article aside header footer figure figcaption"
)
# Tags that are removed without their content.
INLINE = _names(
    "b i u s em strong small big sub sup span font tt kbd samp var cite del ins strike abbr dfn "
    "q bdi bdo mark ruby rb rtc time data wbr noinclude onlyinclude nobr a img label address "
    "acronym translate tvar includeonly thead tbody tfoot nowiki math code br blink main nav "
    "ref chem ce section"
)
KNOWN = DROPPED | NESTING | FORMULA | BLOCK | INLINE

PLAIN_CODE = re.compile(r"(?=.*\w)[\w.,/@$%+()-][\w.,/@$%+() -]{0,39}")
"""Code that reads as a word: the name of a function, a file or a command."""

PLAIN_FORMULA = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .,=+<>()/-]{0,24}")
"""A formula that is its own text, `x` or `n = 5`: no TeX in it."""

MARKUP = re.compile(r"\{\{|\[\[|</|''|<[a-z]|\n[*#|=:]")
HIDDEN = re.compile(r"display\s*:\s*none")
RAISED = re.compile(r"([^<>{}\[\]|\n]{1,6})</sup\s*>", re.IGNORECASE)


def ending_pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of the closing tag `name`; a nesting tag's opening is group 1."""
    opening = rf"(<{name}\b[^<>]*>)|" if name in NESTING else ""
    return re.compile(rf"{opening}</{name}\s*>", re.IGNORECASE)


ENDINGS = {name: ending_pattern(name) for name in DROPPED | NESTING | FORMULA | {"nowiki", "span"}}
