"""Extract the text passages of a page of wikitext (paper 3.1: "extract only the text passages and
ignore lists, tables, and headers").

`Scanner` removes the markup, `pipelines.mediawiki.paragraphs` joins lines to paragraphs, and
`pipelines.mediawiki.cleaning` cleans each. The time is linear in the length of any page.
Grammar: https://www.mediawiki.org/wiki/Markup_spec and the preprocessor's rules there.
"""

# ruff: noqa: RUF001 - punctuation of several scripts
from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

from pipelines.mediawiki.cleaning import (
    CODE,
    DROPPED,
    FORMULA,
    HOLE,
    LINK_TEXT,
    LOST,
    PROTECT,
    STOPS,
    UnknownTemplates,
    clean_paragraph,
    continues_sentence,
    first_gap,
    is_in_brackets,
    template_marker,
    without_names,
)
from pipelines.mediawiki.delimiters import NESTING_TAGS, NOT_FOUND, Delimiters
from pipelines.mediawiki.dropped_text import DroppedText
from pipelines.mediawiki.languages import (
    FALLBACK,
    LANGUAGE_CODES,
    REDIRECT_WORDS,
    WIKI_PREFIXES,
    WikiSettings,
    wiki_settings,
)
from pipelines.mediawiki.paragraphs import LINE_REASONS, join_paragraphs
from pipelines.mediawiki.template_functions import (
    EQUALS,
    PIPE,
    parse_arguments,
    raised_text,
    subpage_word,
)
from pipelines.mediawiki.templates import Rule, counter_name, rule_for
from pipelines.mediawiki.variants import CONVERTERS, shown_text


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Tags whose content is not text.
_DROPPED_TAGS = _names(
    "ref references gallery timeline imagemap score hiero graph mapframe maplink templatedata "
    "templatestyles inputbox categorytree includeonly indicator charinsert rss dynamicpagelist "
    "quiz script style rt rp h1 h2 h3 h4 h5 h6 pre syntaxhighlight source caption phonos "
    "mapdata languages"
)
# Those of them that hold text, and the reason why it is dropped.
_REASONS = {
    "ref": "reference", "references": "reference", "gallery": "caption", "imagemap": "caption",
    "table": "table", "caption": "table", "ul": "list", "ol": "list", "dl": "list", "menu": "list",
    "pre": "code", "syntaxhighlight": "code", "source": "code",
    "h1": "heading", "h2": "heading", "h3": "heading", "h4": "heading", "h5": "heading",
    "h6": "heading",
}  # fmt: skip
# Tags whose content is necessary for a sentence, but is not text.
_FORMULA_TAGS = frozenset({"math", "chem", "ce", "code"})
# Tags around text whose lines may be indented.
_QUOTE_TAGS = frozenset({"poem", "blockquote"})
_INDENTS = re.compile(rf"\n[ \t:]++(?!{FORMULA})")
# Tags that end a paragraph.
_BLOCK_TAGS = _names(
    "p div blockquote center poem hr gallery pre syntaxhighlight source table ul ol dl menu "
    "references timeline imagemap score graph mapframe li dd dt tr td th caption h1 h2 h3 h4 h5 "
    "h6 article aside header footer figure figcaption"
)
# Tags that are removed without their content.
_INLINE_TAGS = _names(
    "b i u s em strong small big sub sup span font tt kbd samp var cite del ins strike abbr dfn "
    "q bdi bdo mark ruby rb rtc time data wbr noinclude onlyinclude nobr a img label address "
    "acronym translate tvar includeonly thead tbody tfoot nowiki math code br blink main nav "
    "ref chem ce section"
)
_KNOWN_TAGS = _DROPPED_TAGS | NESTING_TAGS | _FORMULA_TAGS | _BLOCK_TAGS | _INLINE_TAGS

_PLAIN_CODE = re.compile(r"(?=.*\w)[\w.,/@$%+()-][\w.,/@$%+() -]{0,39}")
"""Code that reads as a word: the name of a function, a file or a command."""

_PLAIN_FORMULA = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .,=+<>()/-]{0,24}")
"""A formula that is its own text, `x` or `n = 5`: no TeX in it."""

_MARKUP = re.compile(r"\{\{|\[\[|</|''|<[a-z]|\n[*#|=:]")
_HIDDEN = re.compile(r"display\s*:\s*none")
_RAISED = re.compile(r"([^<>{}\[\]|\n]{1,6})</sup\s*>", re.IGNORECASE)

_MAX_DEPTH = 40  # deeper nesting is not text; MediaWiki has the same limit

# Each alternative begins with a literal character outside of groups, so that `re` can skip ahead by
# first character.
_TOKENS = r"""
      \[\[ (?: [^\[\]{}<>|\n:]*+ \| )? ([^\[\]{}<>|\n:]++) \]\]     # 1 a whole link: its label
    | \[ ( \[ (?!\[) [ ]* (:? [^\[\]{}<>|\n:]*+ :)? )                # 2 a link opens; 3 its prefix
    | \] ( \] )                                                      # 4 a link closes
    | \{ ( \{ ([^{}|<>\[\]]*+) )                                   # 5 a template opens; 6 its name
    | \} ( \} )                                                      # 7 a template closes
    | < ( !-- )                                                      # 8 a comment
    | < ( (/?) ([A-Za-z][A-Za-z0-9]*+)                               # 9 a tag; 10 / 11 name 12 rest
          ( (?: [^<>"]++ | "[^"\n]{0,200}+"(?=[\s/>]) ){0,20}+ (?= > ) | [^<>]*+ (?= > )
          | (?<= <[Rr][Ee][Ff] ) (?: (?! </?[Rr][Ee][Ff] ) [^\n] ){0,300}? "[ ]*+/?+ (?= > )
          | (?<= <[Rr][Ee][Ff] ) \s [^>\n]{0,300}+ ) > )
    | \n ( (={1,6}) ([^\n]*+) )                                      # 13 heading; 14 level 15 title
    | \n ( [*\#:;|!] [^\n<{]*+ (?= \n | \Z )
           (?: \n [*\#:;|!] [^\n<{]*+ (?= \n | \Z ) ){0,30}+ )        # 16 plain list lines
    | \n ( [ \t:*\#]*+ \{\| )                                        # 17 a table opens
    | \[ ( (?: (?: https? | ftp | irc | news ) :// | // | mailto: ) [^\s\[\]<>"|{}]*+
           (?: [^\S\n]++ ([^\[\]\n{}<>]*+) \] | \] | [^\S\n]++ )? ) # 18 a web link; 19 its label
"""
_VARIANT_TOKENS = r"""
    | - ( \{ ) (?!\{)                                               # 20 words of variants open
    | \} ( - )                                                      # 21 and close
"""
_TOKEN = re.compile(_TOKENS, re.VERBOSE)
_VARIANT_TOKEN = re.compile(_TOKENS + _VARIANT_TOKENS, re.VERBOSE)
_HEADING = re.compile(r"\n(={1,6})[^\n=][^\n]*=")
_TITLE = re.compile(r"[^\n=]++={2,6}")  # of a heading that text follows on its line
# Lines of closing sections: one that may be prose, by whether the language is spaceless; a work.
_LONG_LINE = {
    False: re.compile(r"\n[^*#:;|!= {}<\n][^\n]{79}"),
    True: re.compile(r"\n[^*#:;|!= {}<\n][^\n]{39}"),
}
_LEAST_PROSE = {False: 160, True: 80}  # characters; one sentence only introduces a list
_LIST_MARKS = frozenset("*#:;|!{}<")
_LINE_MARKS = tuple("*#:;")
_WORK = re.compile(
    r"://|ISBN|\bdoi\b|\bp{1,2}\. ?\d|\b[Vv]ol\.|\b[Ee]ds?\.|^\W*[^\W\d_][\w'’-]*+, [^\W\d_]"
    r"|^[^.]{0,80}\(\d{4}[a-z]?\)|\(\w* ?\d{4}\) ?[:.,]"
)
_SPACES = re.compile(r"[ \t]*")
_INDENT = re.compile(r"[ \t]*:*[ \t]*")
_SEPARATORS = str.maketrans({"|": PIPE, "=": EQUALS})
_LOOK_BACK = 200  # pieces and characters of the output before a pronunciation

_rule = functools.lru_cache(maxsize=4096)(rule_for)
_SUBPAGE_WORD = Rule(subpage_word, always_shows_text=True)
_WORD_BEFORE = re.compile(r"[^\W\d_]\.?\s\Z")
# "or" between two pronunciations, the first of which is dropped.
_LINKED = re.compile(rf"{HOLE}\s*(?:or|and|o|e|ou|et|oder|und|y|または)\s*\Z")


class _Open(NamedTuple):
    """A link, a template or `-{` that is open."""

    start: int
    """Index of its text in the output."""

    rule: Rule | None
    """Rule of the template; None for a link and for `-{`."""

    source: int = 0
    """Position of the template in the page."""

    name: str = ""
    """The template's name, as in the page; `-{` for the words of variants; "" for a link."""


def _shown(target: str) -> str:
    """Return the text of a link without a label: its target without the name of another wiki."""
    prefix, colon, title = target.lstrip(":").partition(":")
    is_wiki = colon and title and prefix.strip().lower() in WIKI_PREFIXES
    return title if is_wiki else target.removeprefix(":")


def _mark_kind(rule: Rule | None) -> str:
    """Return the kind of mark (`template_marker`) of a template that is not written."""
    if rule is not None and rule.is_missing:
        return LOST
    return DROPPED if rule is not None and rule.is_drop else ""


def _without_comments(line: str) -> str:
    """Remove the comments of a line. An unclosed comment remains."""
    kept = []
    at = 0
    while (start := line.find("<!--", at)) >= 0 and (end := line.find("-->", start + 4)) >= 0:
        kept.append(line[at:start])
        at = end + 3
    return "".join((*kept, line[at:]))


def _is_prose(line: str) -> bool:
    """Return whether a line without markup is a paragraph of text and not a cited work."""
    line = line.strip(" '\"”»)\ufdd0")
    return line[-1:] in STOPS and line[:1] not in _LIST_MARKS and _WORK.search(line) is None


class Scanner:
    """Scanner of one page. `run` returns lines without markup.

    A line that starts with one of `*#:;|!=` or a blank is not text but a list, table or heading.
    """

    def __init__(
        self,
        text: str,
        markup: WikiSettings,
        title: str = "",
        timestamp: str = "",
        dropped: DroppedText | None = None,
    ) -> None:
        self._text = "\n" + text.replace("\r\n", "\n")
        self._markup = markup
        self._title = title
        self._timestamp = timestamp
        self._dropped = (DroppedText() if dropped is None else dropped).characters
        self._end_of_closing = 0  # of the last closing section
        self._quotation: int | None = None  # index of the output where an open quotation begins
        self._out: list[str] = []
        self._stack: list[_Open] = []
        self._templates = 0  # how many of the stack are templates
        self._delimiters = Delimiters(self._text)
        self._converter = CONVERTERS.get(markup.converter)

    def run(self) -> str:
        tokens = _VARIANT_TOKEN if self._converter else _TOKEN
        text, out, search = self._text, self._out, tokens.search
        handlers = self._handlers()
        position = 0
        while (token := search(text, position)) is not None:
            start, end = token.span()
            if start > position:
                out.append(text[position:start])
            kind = token.lastindex or 0
            if kind == 1:
                label = token[1]
                out.append(label.translate(_SEPARATORS) if self._templates else label)
                position = end
            else:
                position = handlers[kind](token)
        out.append(text[position:])
        self._unwind()
        return "".join(out)

    def _handlers(self) -> dict[int, Callable[[re.Match[str]], int]]:
        return {
            2: self._open_link,
            4: self._close_link,
            5: self._open_template,
            7: self._close_template,
            8: self._comment,
            9: self._tag,
            13: self._heading,
            16: self._list_lines,
            17: self._table,
            18: self._web_link,
            20: self._open_variants,
            21: self._close_variants,
        }

    def _write(self, text: str) -> None:
        """Write the text of closed markup. It separates no arguments of the template around it."""
        self._out.append(text.translate(_SEPARATORS) if self._templates else text)

    # Dropped markup

    def _skip(self, position: int, *, mark: str = "") -> int:
        """Continue at `position`, within a line of the page, and leave a mark there.

        Where the output is at the start of a line, blanks are skipped: they would mark the line as
        preformatted, which it is not in the page.
        """
        out = self._out
        if not out or out[-1][-1:] == "\n":
            blanks = _SPACES.match(self._text, position)
            return blanks.end() if blanks else position
        if mark or (out[-1][-1:] == "'" and self._text.startswith("'", position)):
            out.append(mark or DROPPED)  # two runs of apostrophes stay two
        return position

    def _skip_block(self, position: int) -> int:
        """Continue at `position`, after markup that ends a paragraph within a line of the page.

        A character there marks no list: MediaWiki reads list marks at the start of a line only.
        """
        position = self._skip(position)
        is_line_start = not self._out or self._out[-1][-1:] == "\n"
        if is_line_start and self._text.startswith(_LINE_MARKS, position):
            self._out.append(DROPPED)
        return position

    def _skip_invisible(self, position: int) -> int:
        """Continue at `position`, after markup that shows nothing."""
        out = self._out
        if out and out[-1][-1:] == "\n" and self._text.startswith("\n", position):
            out[-1] = out[-1][:-1]  # a line with nothing else is no line
            return position
        return self._skip(position)

    # Links

    def _open_link(self, token: re.Match[str]) -> int:
        prefix = token[3]
        if prefix:
            word = prefix[:-1].strip().replace("_", " ").lower()
            if word in self._markup.dropped_namespaces:
                return self._picture(token)
            if word in LANGUAGE_CODES:
                end = self._text.find("]]", token.end(), token.end() + 300)
                return self._skip(end + 2 if end >= 0 else token.end())
        if len(self._stack) < _MAX_DEPTH:
            self._stack.append(_Open(len(self._out), None))
            self._out.append(prefix or "")
        return token.end()

    def _picture(self, token: re.Match[str]) -> int:
        start = token.end()
        end = self._delimiters.end_of_picture(start)
        if end == NOT_FOUND:
            end = self._delimiters.end_of_line(start)
        if self._text.find("|", start, end) >= 0:  # a category has none
            self._dropped["caption"] += end - token.start()
        return self._skip(end)

    def _close_link(self, token: re.Match[str]) -> int:
        if self._is_link_open():
            index = self._stack.pop().start
            content = "".join(self._out[index:])
            target, pipe, label = content.partition("|")
            if "\n\n" in content:  # a link ends with its paragraph: this one is not closed
                return token.end()
            del self._out[index:]
            self._write(label if pipe and label else _shown(target))
        return token.end()

    def _is_link_open(self) -> bool:
        """Return whether the innermost open markup is a link."""
        return bool(self._stack) and self._stack[-1].rule is None and not self._stack[-1].name

    def _web_link(self, token: re.Match[str]) -> int:
        whole, label = token[0], token[19]
        if label:
            self._write(label)
        elif whole[-1].isspace():  # its label holds markup: the bracket is closed later
            self._out.append(LINK_TEXT)
        else:
            return self._skip(token.end(), mark=DROPPED)
        return token.end()

    # Templates

    def _open_template(self, token: re.Match[str]) -> int:
        text, name, start = self._text, token[6], token.start()
        rule = _rule(name, self._markup.language)
        is_inline = bool(self._out) and self._out[-1][-1:] != "\n" and "\n" not in name
        if rule is None and is_inline and self._is_subpage_word(token):
            rule = _SUBPAGE_WORD
        is_written = rule is not None and not rule.is_drop and not rule.is_missing
        if is_written and "\n\n" not in name and len(self._stack) < _MAX_DEPTH:
            self._stack.append(_Open(len(self._out), rule, start, name))
            self._out.append("")
            self._templates += 1
            return token.end()
        end = self._delimiters.end_of_braces(start)
        if end != NOT_FOUND:
            self._dropped["template"] += end - start
            is_line = "\n" not in name and text.find("\n", token.end(), end) < 0
            if is_line or is_inline:
                return self._leave_mark(end, name, _mark_kind(rule), is_inline=is_inline)
            return self._skip(end, mark=DROPPED)
        if text.startswith("{{{", start) and not name:
            return self._skip(start + 3, mark=DROPPED)
        end = self._delimiters.end_of_paragraph(start + 2)
        self._dropped["template"] += end - start
        return self._skip(end, mark=DROPPED)

    def _is_subpage_word(self, token: re.Match[str]) -> bool:
        """Return whether a template may be a word in the style of a book of English Wikibooks."""
        has_arguments = self._text.startswith("|", token.end())
        return has_arguments and "/" in token[6] and self._markup.language == FALLBACK

    def _leave_mark(self, position: int, name: str, kind: str, *, is_inline: bool) -> int:
        """Continue after a template that writes nothing. Leave a mark with its name if it is in a
        line of text."""
        plain = counter_name(name, self._markup.language)
        if not plain or not (is_inline or continues_sentence(self._text, position)):
            return self._skip(position, mark=DROPPED)
        self._out.append(template_marker(plain, kind))
        return position

    def _is_aside(self, source: int) -> bool:
        """Return whether a pronunciation is an aside in brackets. One that a word introduces, as in
        "(named /x/, plural ...)", belongs to the text."""
        before = "".join(part[-_LOOK_BACK:] for part in self._out[-_LOOK_BACK:])[-_LOOK_BACK:]
        word = _WORD_BEFORE.search(self._text, max(0, source - 3), source)
        is_introduced = word and not _LINKED.search(before)
        return is_in_brackets(before.rpartition("\n\n")[2]) and not is_introduced

    def _close_template(self, token: re.Match[str]) -> int:
        if not self._templates:
            return token.end()
        while (top := self._stack.pop()).rule is None:
            self._forgive(top)
        self._templates -= 1
        content = "".join(self._out[top.start :])
        if "\n\n" in content.strip() and not top.rule.is_block:
            self._forgive(top)  # the braces belong to another template: its content is text
            return self._skip(token.end())
        del self._out[top.start :]
        if top.rule.is_block:
            content = _INDENTS.sub("\n", content)
        arguments = parse_arguments(
            top.name + content, title=self._title, timestamp=self._timestamp
        )
        value = top.rule.render(arguments)
        is_dropped = top.rule.is_pronunciation and self._is_aside(top.source)
        if not value and not arguments.are_filled():
            value = first_gap(content)  # of a template that its own text depends on
        if value and not is_dropped:
            self._write(value)
            return self._skip_block(token.end()) if value[-1] == "\n" else token.end()
        has_arguments = arguments.are_filled() or top.rule.always_shows_text
        is_dropped |= top.rule.may_be_empty or not has_arguments
        is_inline = bool(self._out) and self._out[-1][-1:] != "\n"
        kind = DROPPED if is_dropped else ""
        return self._leave_mark(token.end(), top.name, kind, is_inline=is_inline)

    def _unwind(self) -> None:
        """Write the text of all open markup. It is never closed."""
        while self._stack:
            self._forgive(self._stack.pop())
        self._templates = 0

    def _forgive(self, opened: _Open) -> None:
        """Write the text of unclosed markup without its first arguments."""
        out = self._out
        for index in range(opened.start, min(opened.start + 2, len(out))):
            if out[index]:
                first, newline, rest = out[index].partition("\n")
                out[index] = first.rpartition("|")[2] + newline + rest
                return

    # Language variants

    def _open_variants(self, token: re.Match[str]) -> int:
        if len(self._stack) < _MAX_DEPTH:
            self._stack.append(_Open(len(self._out), None, name="-{"))
            self._out.append("")
        return token.end()

    def _close_variants(self, token: re.Match[str]) -> int:
        self._end_links()
        if self._converter is None or not self._is_variants_open():
            self._out.append(token[0])
            return token.end()
        index = self._stack.pop().start
        shown = shown_text("".join(self._out[index:]), self._converter)
        del self._out[index:]
        if not shown.strip():
            return self._skip(token.end(), mark=DROPPED)
        self._write(shown)
        return token.end()

    def _is_variants_open(self) -> bool:
        """Return whether the innermost open markup is `-{`."""
        return bool(self._stack) and self._stack[-1].name == "-{"

    # Tags

    def _comment(self, token: re.Match[str]) -> int:
        end = self._delimiters.end_of_tag("-->", token.end())
        if end == NOT_FOUND:
            return self._skip(self._delimiters.end_of_paragraph(token.end()))
        return self._skip_invisible(end)

    def _tag(self, token: re.Match[str]) -> int:
        name, end = token[11].lower(), token.end()
        if name not in _KNOWN_TAGS:
            return self._unknown_tag(token)
        closes, empty = token[10] == "/", token[12].lower().endswith(("/", "</ref"))
        if name == "br":
            return self._line_break(end)
        if name == "section":  # a part of the page that other pages include
            return self._skip_invisible(end)
        if not closes and not empty:
            if name == "nowiki":
                return self._protected(end)
            if name in _FORMULA_TAGS:
                return self._formula(name, end)
            if name in _DROPPED_TAGS or name in NESTING_TAGS:
                return self._dropped_tag(token, name)
            if name == "sup" and (raised := _RAISED.match(self._text, end)):
                self._out.append(raised_text(raised[1]))
                return raised.end()
            if name == "span" and _HIDDEN.search(token[12]):
                hidden = self._delimiters.end_of_tag("span", end)
                return self._skip(hidden if hidden != NOT_FOUND else end, mark=DROPPED)
        if name in _BLOCK_TAGS:
            self._out.append("\n\n")
            if name in _QUOTE_TAGS:
                self._end_quotation()
                self._quotation = None if closes else len(self._out)
            return self._skip_block(end)
        return self._skip(end)

    def _end_quotation(self) -> None:
        """Remove the indentation of the lines of an open quotation or poem: it is style there."""
        start = self._quotation
        if start is None or (self._stack and self._stack[-1].start >= start):
            return  # nothing is open, or markup that begins in it
        self._out[start:] = [_INDENTS.sub("\n", "".join(self._out[start:]))]

    def _unknown_tag(self, token: re.Match[str]) -> int:
        """Keep an unknown tag as text, as MediaWiki shows it."""
        if token[10] or token[12]:
            self._out.append(CODE)
        else:
            self._out.append(token[0].translate(PROTECT))
        return token.end()

    def _line_break(self, end: int) -> int:
        out = self._out
        if out and out[-1].isspace() and len(out) > 1:
            out.append("\n\n")  # two in a row end a paragraph
        else:
            out.append(" ")
        indent = _INDENT.match(self._text, end)
        return self._skip(indent.end() if indent else end)

    def _dropped_tag(self, token: re.Match[str], name: str) -> int:
        text, end = self._text, self._delimiters.end_of_tag(name, token.end())
        if name == "ref" and "name" in token[12] and end != NOT_FOUND:
            second = text.find("<ref", token.end(), end)
            if second >= 0 and text.find("\n", token.end(), second) >= 0:
                end = token.end()  # <ref name="x"> for <ref name="x"/>: the text continues
        if end == NOT_FOUND:
            end = self._delimiters.end_of_line(token.end())
        if name in _REASONS:
            self._dropped[_REASONS[name]] += end - token.start()
        if name in _BLOCK_TAGS and (name != "syntaxhighlight" or "inline" not in token[12]):
            self._out.append("\n\n")
        elif name in {"syntaxhighlight", "source"}:
            return self._skip(end, mark=CODE)
        return self._skip_block(end)

    def _formula(self, name: str, position: int) -> int:
        end = self._delimiters.end_of_tag(name, position)
        if end == NOT_FOUND:
            return position
        content = self._text[position : self._text.rfind("<", position, end)]
        content = content.strip()
        plain, mark = (_PLAIN_CODE, CODE) if name == "code" else (_PLAIN_FORMULA, FORMULA)
        self._write(content if plain.fullmatch(content) else mark)
        return end

    def _protected(self, position: int) -> int:
        end = self._delimiters.end_of_tag("nowiki", position)
        if end == NOT_FOUND:
            return position
        content = self._text[position : self._text.rfind("<", position, end)]
        # Several lines with markup in them are an example of it, not text.
        example = "\n" in content and _MARKUP.search(content) is not None
        self._out.append(CODE if example else content.translate(PROTECT))
        return end

    # Lines

    def _end_links(self) -> None:
        while self._is_link_open():
            self._forgive(self._stack.pop())

    def _heading(self, token: re.Match[str]) -> int:
        title, start = _without_comments(token[15]).rstrip(), token.end(14)
        if not title.endswith("="):
            return self._unclosed_heading(token)
        self._unwind()
        self._quotation = None
        self._out.append("\n\n")
        is_closing = title.strip("= '\t").lower() in self._markup.closing_titles
        is_closing |= token.start() < self._end_of_closing
        if is_closing and not self._holds_prose(token.end()):
            return self._skip_closing_section(token, title)
        if "{{" in title or "<" in token[15]:  # open markup may end after this line
            self._out.append("=")
            return start
        self._dropped["heading"] += len(title)
        return token.end()

    def _unclosed_heading(self, token: re.Match[str]) -> int:
        """Continue at the text of a line that begins as a heading, but does not end as one."""
        start = token.end(14)
        if len(token[14]) == 1:
            self._out += ("\n", token[14].translate(PROTECT))
            return start
        self._unwind()
        self._out.append("\n\n")
        heading = _TITLE.match(self._text, start)
        if heading is not None:
            self._dropped["heading"] += heading.end() - token.start()
            start = heading.end()
        return self._skip(start)

    def _skip_closing_section(self, token: re.Match[str], title: str) -> int:
        """Continue at the next heading. The subsections belong to the closing section."""
        level = min(len(token[14]), len(title) - len(title.rstrip("=")))
        next_heading: re.Match[str] | None = None
        for heading in _HEADING.finditer(self._text, token.end()):
            next_heading = next_heading or heading
            if token.start() < self._end_of_closing:
                break
            if len(heading[1]) <= level:
                self._end_of_closing = heading.start()
                break
        else:
            self._end_of_closing = len(self._text)
        end = next_heading.start() if next_heading else len(self._text)
        self._dropped["closing-section"] += end - token.start()
        return end

    def _holds_prose(self, position: int) -> bool:
        """Return whether a section contains text rather than a list of notes, works or links.

        Its subsections are other sections.
        """
        heading = _HEADING.search(self._text, position)
        section = self._text[position : heading.start() if heading else len(self._text)]
        long_line = _LONG_LINE[self._markup.spaceless]
        if long_line.search(section) is None:
            return False
        lines = without_names(Scanner(section, self._markup).run()).split("\n")
        prose = sum(len(line) for line in lines if _is_prose(line))
        listed = sum(len(line) for line in section.split("\n") if line[:1] in _LIST_MARKS)
        return prose > max(listed, _LEAST_PROSE[self._markup.spaceless])

    def _list_lines(self, token: re.Match[str]) -> int:
        self._end_links()
        start, end = token.span(16)
        mark = self._text[start]
        self._out.append(f"\n{mark}")
        if self._stack or self._quotation is not None:  # they may end on this line
            return start + 1
        self._dropped[LINE_REASONS.get(mark, "list")] += end - start
        return end

    def _table(self, token: re.Match[str]) -> int:
        self._end_links()
        self._out.append("\n\n")
        end = self._delimiters.end_of_table(token.end())
        if end == NOT_FOUND:
            end = self._delimiters.end_of_paragraph(token.end())
        self._dropped["table"] += end - token.start()
        return self._skip_block(end)


__all__ = ["UnknownTemplates", "WikiSettings", "clean_wikitext", "is_redirect", "wiki_settings"]

_REDIRECT = re.compile(
    rf"\s*[#＃]\s*(?:{'|'.join(map(re.escape, sorted(REDIRECT_WORDS)))})\s*[:：]?\s*\[\[",
    re.IGNORECASE,
)
_BOLD_LINE = re.compile(r"'''[^'\n]+'''[ \t]*")


def is_redirect(text: str) -> bool:
    """Return whether a page is a redirect (`#REDIRECT [[...]]`, in any language)."""
    return _REDIRECT.match(text) is not None


def clean_wikitext(
    text: str,
    markup: WikiSettings,
    holes: UnknownTemplates | None = None,
    *,
    title: str = "",
    timestamp: str = "",
    dropped: DroppedText | None = None,
) -> list[str]:
    """Return the text passages of one page in order.

    Never raises. Broken markup affects at most its paragraph.

    Args:
        text: Wikitext of a dump's `<text>`, with XML decoded.
        markup: Settings of the wiki (`wiki_settings`).
        holes: Counts of templates within sentences that write nothing.
        title: Title of the page, for templates that write it.
        timestamp: Time of the revision in ISO 8601, for templates that write the current date.
        dropped: Counts of the text that is dropped.

    Returns:
        Non-empty paragraphs without line breaks. They exclude headings, lists, indented lines,
        tables, references, pictures, sentences with formulas, and closing sections.
    """
    dropped = DroppedText() if dropped is None else dropped
    scanned = Scanner(text, markup, title, timestamp, dropped).run().split("\n")
    raws = join_paragraphs(scanned, markup, dropped)
    if len(raws) > 1:
        raws = [raw for raw in raws if not _is_bold_heading(raw, dropped)]
    counted = UnknownTemplates() if holes is None else holes
    language = markup.language
    raws = [
        counted.remove_markers(raw, dropped, language=language) if HOLE in raw else raw
        for raw in raws
    ]
    cleaned = (clean_paragraph(raw, language=language, dropped=dropped) for raw in raws)
    return [paragraph for paragraph in cleaned if paragraph]


def _is_bold_heading(raw: str, dropped: DroppedText) -> bool:
    """Return whether a paragraph is a line in bold, which is a heading, and count it."""
    if raw[:3] != "'''" or not _BOLD_LINE.fullmatch(raw):
        return False
    dropped.characters["heading"] += len(raw)
    return True
