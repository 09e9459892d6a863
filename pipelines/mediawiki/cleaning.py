"""Clean a paragraph of a page: apostrophes, entities, invisible characters, and the remains of
dropped markup ("()", " ,", doubled spaces).

`pipelines.mediawiki.wikitext` marks dropped markup with Unicode noncharacters, which no text has.

A template within a sentence that writes nothing leaves a mark with its name. It is *dropped* if a
reader sees no text there (a footnote, an icon, a request for a source) or if it is a pronunciation
in brackets. Every other one is *unknown*: its text is missing in its sentence. `UnknownTemplates`
counts and removes the marks, where the sentence around them is known. A template after the end of a
sentence is not counted.
"""

# ruff: noqa: RUF001 - punctuation of several scripts
from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Set

from pipelines.counters import DROPPED_TEMPLATE, UNKNOWN_TEMPLATE
from pipelines.mediawiki.dropped_text import DroppedText
from pipelines.white_space import collapse_spaces

DROPPED = "\ufdd0"
"""Replaces a template."""

FORMULA = "\ufdd1"
"""Replaces a formula. Its sentence is dropped."""

CODE = "\ufde9"
"""Replaces code. Its sentence is dropped."""

DISPLAY = "\ufded"
"""Replaces a formula on a separate line. A sentence may end before or after it."""

HOLE = "\ufdeb"
"""Mark before and after the name of a template that wrote nothing."""

LOST = "\ufdea"
"""Replaces an unknown template whose sentence is dropped."""

_INCOMPLETE = frozenset({FORMULA, DISPLAY, CODE})

LINK_TEXT = "\ufdee"
"""Start of the label of a web link. The closing bracket after it is removed."""

# Characters of <nowiki> that look like markup are replaced by noncharacters from U+FDD2.
_PROTECTED = "|'*#:;={}[]<_ !-"
PROTECT = {ord(character): 0xFDD2 + i for i, character in enumerate(_PROTECTED)}
_RESTORE: dict[int, str] = dict.fromkeys(range(0xFDD1, 0xFDF0), "")  # remaining marks are removed
_RESTORE |= {private: chr(character) for character, private in PROTECT.items()}

_APOSTROPHES = re.compile(r"(''+)")
_SIMPLE_RUNS = frozenset({2, 3, 5})
_ENTITY = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,7}|[A-Za-z][A-Za-z0-9]{1,30});")
# Soft hyphen, zero-width space, direction marks, word joiner, byte-order mark. The joiners U+200C
# and U+200D spell words in Arabic and Indic scripts and stay there.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]")
_STRAY_JOINER = re.compile("(?<![\u0600-\u0dff])[\u200c\u200d]")
_PRIVATE = re.compile("[\ufdd1-\ufdef]")
_URL = re.compile(
    r"(?:https?|ftp)://[^\s<>\[\]{}|\"“”„«»。、，；：！？（）「」『』【】《》\ufdd0-\ufdef]++"
)
_AFTER_URL = ",;.:!?'\\"  # the last characters of an address belong to its sentence
_LINK_TEXT = re.compile("\ufdee([^]\n\ufdee]*)]?")
_WORD = re.compile(r"[^\W_]")
_INDENT = re.compile(r"^[^\S\n]*+:++", re.MULTILINE)  # colons that begin a line
_SWITCH = re.compile(
    "__(?:(?:NO|FORCE)?TOC|NOEDITSECTION|(?:NO)?NEWSECTIONLINK|NOGALLERY|HIDDENCAT|(?:NO)?INDEX"
    "|NOCONTENTCONVERT|NOTITLECONVERT|NOCC|NOTC|DISAMBIG|STATICREDIRECT|EXPECTUNUSEDCATEGORY"
    "|目次(?:強制|非表示)?|節編集非表示|索引|KEIN_INHALTSVERZEICHNIS|INHALTSVERZEICHNIS|INDICE|NOINDICE"
    "|SOMMAIRE|AUCUNSOMMAIRE|ОГЛ|БЕЗОГЛ|ОГЛАВЛЕНИЕ|БЕЗ_ОГЛ|TDC|NOTDC|SEMTDC|BEZSPISU|SPIS)__"
)

# A sentence ends here: a mark, closing quotes, and a space with no lower-case letter after it.
_SENTENCE_END = re.compile(
    r"[.!?…؟۔।॥](?<![ (.][A-Za-z].)(?<!e\.g.)(?<!i\.e.)(?<! cf.)(?<! vs.)(?<! Fig.)(?<! Eq.)"
    r"(?<! ca.)(?<! al.)(?<!\A\d.)(?<!\A\d\d.)[\"”’»)\]\ufdd0]*[ \u00a0\n]+"
    rf"(?![a-zà-ÿа-я\ufdd0{FORMULA}{CODE}(])|[。！？][」』）\ufdd0]*"
)
# Languages that write ordinals as a number with a full stop.
_ORDINAL_LANGUAGES = re.compile(
    "bs|cs|da|de|dsb|et|eu|fi|fo|hr|hsb|hu|is|lb|lv|nb|nn|no|pl|sh|sk|sl|sr|tr"
)
_ORDINAL = re.compile(r"(?<![\d.,])\d{1,2}\.[ \u00a0\n]+")

_BLANK = r"\s\ufdd0"
# “ closes a quotation in „...“, so it opens one only after a blank or an opening bracket.
_BEHIND_OPENING = r"(?<=[(（\[「『“])(?<![^\s(（\[「『]“)"
_SUSPECT = re.compile(
    "[,;:.!?)\\]、。，；」』）(（\\[「『“\ufdd0]"
    rf"(?:(?<=[{_BLANK},;、，；].)(?<![(（\[「『“])|{_BEHIND_OPENING}[{_BLANK},;:、，；)）\]」』”]"
    "|(?<=\ufdd0))"
)
_NO_BEGINNING = frozenset(",;:.)、。，；）」』]\ufdd0")
_LONE_AFTER = frozenset(".!?…) ")  # an unopened closing bracket after this is not text
# Words that introduced dropped markup: (pronounced: ..., ), (... or ...).
_LABEL = re.compile(r"(?<=[(（,;、；])\s*[^\s(),;:（）、；：]+(?: [^\s(),;:]+)? ?[:：]\s*\ufdd0")
_LINKING = re.compile(r"\ufdd0\s*(?:or|and|o|e|ou|et|oder|und|y|または)\s*\ufdd0")
# A run of blanks is matched once, from its start: a page can have 100,000 in a row.
_EMPTY = re.compile(
    rf"(?<![{_BLANK}])[{_BLANK}]*+(?:\([{_BLANK},;:./–—-]*+\)|（[{_BLANK},;:、，；・]*+）)"
)
_EMPTY_OTHER = re.compile(
    rf"\[[{_BLANK}]+\]|\[\ufdd0+\]|「[{_BLANK}]*」|『[{_BLANK}]*』|“[{_BLANK}]*”"
)
_CALL = re.compile(r"(?<=[A-Za-z0-9_])\(\)")
_AFTER_OPENING = re.compile(rf"{_BEHIND_OPENING}[{_BLANK},;:、，；]+")
_BEFORE_CLOSING = re.compile(rf"(?<![{_BLANK},;、，；])[{_BLANK},;、，；]++([)）\]」』])")
_REPEATED = re.compile(rf"([,;、，；])(?:[{_BLANK}]*+[,;、，；])++")
_BLANKS = rf"(?<![{_BLANK}])[{_BLANK}]++"
_BEFORE_MARK = re.compile(rf"{_BLANKS}(?=[,、。，]|[.;:!?](?:[{_BLANK}\"'”’)]|$))")
_BEFORE_MARK_FRENCH = re.compile(rf"{_BLANKS}(?=,|\.(?:[{_BLANK}\"'”’)]|$))")
_COMMA_STOP = re.compile(rf"[,;][{_BLANK}]*+(?=\.(?:\s|$))|[、，](?=。)")
_LEADING = re.compile(rf"^(?:[{_BLANK},;:)、。，；）」』\]]|\.(?=\s|$)|(?<=\ufdd0)[{_BLANK}–—-]+)+")


def clean_paragraph(raw: str, *, language: str = "en", dropped: DroppedText | None = None) -> str:
    """Return the clean text of a paragraph without links, tags or templates, or "" if none is left.

    Args:
        raw: Text with apostrophes of bold and italics, entities, line breaks, bare URLs, and the
            marks of this module.
        language: ISO 639 code; French keeps the spaces before its tall punctuation.
        dropped: Counts of the sentences that are dropped because of a formula or code.
    """
    if "''" in raw:
        raw = remove_quotes(raw)
    if LINK_TEXT in raw:
        raw = _LINK_TEXT.sub(r"\1", raw)
    if FORMULA in raw or DISPLAY in raw or CODE in raw:
        dropped = DroppedText() if dropped is None else dropped
        raw = _drop_incomplete_sentences(raw, language, dropped)
    if "&" in raw:
        raw = decode_entities(raw)
    if "__" in raw:
        raw = _SWITCH.sub(DROPPED, raw)
    if not raw.isascii():
        raw = _INVISIBLE.sub("", raw)
        if "\u200c" in raw or "\u200d" in raw:
            raw = _STRAY_JOINER.sub("", raw)
        if _PRIVATE.search(raw):
            raw = raw.translate(_RESTORE)
    if "://" in raw:
        raw = _URL.sub(_after_url, raw)
    if ":" in raw:
        raw = _INDENT.sub("", raw)
    text = collapse_spaces(raw)
    if text[:1] in _NO_BEGINNING or _SUSPECT.search(text):
        text = _mend(text, french=language == "fr")
        text = collapse_spaces(text.replace(DROPPED, ""))
    if text.count(")") > text.count("("):
        text = _without_lone_brackets(text)
    return text if _WORD.search(text) else ""


def _after_url(url: re.Match[str]) -> str:
    """Return the mark of a dropped address, and the punctuation after it.

    A closing bracket belongs to the address if its opening bracket does.
    """
    text, end = url[0], len(url[0])
    unopened = text.count(")") - text.count("(")
    while text[end - 1] in _AFTER_URL or (text[end - 1] == ")" and unopened > 0):
        unopened -= text[end - 1] == ")"
        end -= 1
    return DROPPED + text[end:]


def _without_lone_brackets(text: str) -> str:
    """Remove unopened closing brackets after the end of a sentence."""
    kept: list[str] = []
    depth = 0
    for character in text:
        depth += character == "("
        if character == ")":
            depth -= 1
            if depth < 0:
                depth = 0
                if kept and kept[-1] in _LONE_AFTER:
                    continue
        kept.append(character)
    return collapse_spaces("".join(kept))


def _mend(text: str, *, french: bool) -> str:
    calls = "()" in text and _CALL.search(text) is not None
    if calls:  # main() is a name: its brackets are empty on purpose
        text = _CALL.sub("\ufdef", text)
    if DROPPED in text:
        text = _LABEL.sub(DROPPED, _LINKING.sub(DROPPED, text))
    text = _REPEATED.sub(r"\1", text)
    text = _EMPTY_OTHER.sub("", _EMPTY.sub("", text))
    text = _BEFORE_CLOSING.sub(r"\1", _AFTER_OPENING.sub("", text))
    text = _EMPTY_OTHER.sub("", _EMPTY.sub("", text))
    text = (_BEFORE_MARK_FRENCH if french else _BEFORE_MARK).sub("", text)
    text = _LEADING.sub("", _COMMA_STOP.sub("", _REPEATED.sub(r"\1", text)))
    return text.replace("\ufdef", "()") if calls else text


def decode_entities(text: str) -> str:
    """Replace entities such as `&nbsp;` and `&#160;`, twice because dumps escape some twice."""
    for _ in range(2):
        decoded = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
        if decoded == text:
            break
        text = decoded
    return text


def remove_quotes(text: str) -> str:
    """Remove the apostrophes of ''italics'' and '''bold''' line by line, as MediaWiki does.

    A run of four has one apostrophe of text, a run of more than five has all but five. If both bold
    and italics are unclosed, one bold mark is read as an apostrophe and an italic mark.
    """
    return "\n".join(
        _remove_line_quotes(line) if "''" in line else line for line in text.split("\n")
    )


def _remove_line_quotes(line: str) -> str:
    pieces = _APOSTROPHES.split(line)
    parts, runs = pieces[::2], list(map(len, pieces[1::2]))
    bold = len(runs) - runs.count(2)
    italic = sum(1 for run in runs if run == 2 or run >= 5)
    ends_open = bold % 2 == 1 and italic % 2 == 1
    if not ends_open and _SIMPLE_RUNS.issuperset(runs):
        return "".join(parts)
    kept = [_literal_apostrophes(run) for run in runs]
    if ends_open:
        mistaken = _mistaken_bold(parts, runs)
        if mistaken is not None:
            kept[mistaken] += "'"
    return parts[0] + "".join(
        apostrophes + part for apostrophes, part in zip(kept, parts[1:], strict=True)
    )


def _literal_apostrophes(run: int) -> str:
    return "'" if run == 4 else "'" * (run - 5) if run > 5 else ""


def _mistaken_bold(parts: list[str], runs: list[int]) -> int | None:
    """Return the index of the bold mark that is an apostrophe: preferably after a one-letter word
    (l'), then after a word, then after a space."""
    ranked = []
    for index, run in enumerate(runs):
        if run not in (3, 4):
            continue
        before = parts[index]
        if before[-1:] == " ":
            rank = 2
        elif before[-2:-1] == " ":
            rank = 0
        else:
            rank = 1
        ranked.append((rank, index))
    return min(ranked)[1] if ranked else None


def _drop_incomplete_sentences(text: str, language: str, dropped: DroppedText) -> str:
    """Drop and count the sentences with a formula or code."""
    text, sentences = drop_marked_sentences(text, _INCOMPLETE, language=language)
    for sentence in sentences:
        has_formula = FORMULA in sentence or DISPLAY in sentence
        dropped.add_sentence("formula" if has_formula else "code", sentence)
    return text


def drop_marked_sentences(text: str, marks: Set[str], *, language: str) -> tuple[str, list[str]]:
    """Drop the sentences that contain a mark.

    Returns:
        The remaining text, and the dropped sentences. Marks without words are no sentence.
    """
    kept, dropped, start = list[str](), list[str](), 0
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    if _ORDINAL_LANGUAGES.fullmatch(language):
        ordinals = {match.end() for match in _ORDINAL.finditer(text)}
        ends = [end for end in ends if end not in ordinals]
    for end in (*ends, len(text)):
        sentence = text[start:end]
        if marks.isdisjoint(sentence):
            kept.append(sentence)
        elif _WORD.search(sentence):
            dropped.append(sentence.strip())
        start = end
    return "".join(kept), dropped


def is_in_brackets(before: str) -> bool:
    """Return whether a bracket is open at the end of `before`."""
    return max(before.rfind("("), before.rfind("（")) > max(before.rfind(")"), before.rfind("）"))


MOST_NAMES = 200
"""Unknown and dropped names that one split reports, the most frequent of each."""

_LEAST_ROOM = 20 * MOST_NAMES  # names that are counted before the rarest are forgotten
_PREFIXES = (UNKNOWN_TEMPLATE, DROPPED_TEMPLATE)
_LONGEST_NAME = 60
_UNPROTECT = {private: character for character, private in PROTECT.items()}
_MARK = re.compile(f"{HOLE}([{DROPPED}{LOST}]?)([^{HOLE}]*){HOLE}")
_CLOSING = frozenset('"”’»」』)）')
STOPS = frozenset(".!?…。！？؟۔।")
_HIRAGANA = ("\u3041", "\u309f")


def template_marker(name: str, kind: str = "") -> str:
    """Return the mark that replaces the template `name` in the text.

    Args:
        name: Name of the template.
        kind: `DROPPED` if it shows no text, `LOST` if its sentence is dropped with it, or "".
    """
    name = name[:_LONGEST_NAME].replace(HOLE, "").replace(DROPPED, "").replace(LOST, "")
    return f"{HOLE}{kind}{name.translate(PROTECT)}{HOLE}"


def first_gap(text: str) -> str:
    """Return the first mark of a template whose text is missing, or ""."""
    marks = _MARK.finditer(text) if HOLE in text else ()
    return next((mark[0] for mark in marks if mark[1] != DROPPED), "")


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
        self._names = Counter[str]() if names is None else names
        self._drops = drop_sentences

    def most_common(self, prefix: str = UNKNOWN_TEMPLATE) -> list[tuple[str, int]]:
        """Return the names with this prefix of their counter, the most frequent first."""
        names = (item for item in self._names.items() if item[0].startswith(prefix))
        ranked = sorted(names, key=lambda item: (-item[1], item[0]))[:MOST_NAMES]
        return [(name.removeprefix(prefix), number) for name, number in ranked]

    def remove_markers(self, text: str, dropped: DroppedText, *, language: str) -> str:
        """Count the marks of a paragraph and replace them by those of dropped markup, or drop and
        count the sentences with holes."""
        parts: list[str] = []
        before, end = "", 0
        for match in _MARK.finditer(text):
            plain = text[end : match.start()]
            before = _last_mark(plain) or before
            end = match.end()
            is_inside = before not in STOPS or text[end : end + 2].lstrip()[:1].islower()
            is_hole = is_inside and not match[1]
            is_lost = is_inside and match[1] == LOST
            if is_inside:
                self.total += is_hole
                self.templates_dropped += not is_hole
                self._count_name(_PREFIXES[not is_hole] + match[2].translate(_UNPROTECT))
            parts += (plain, LOST if is_lost or (is_hole and self._drops) else DROPPED)
        text = "".join((*parts, text[end:]))
        if LOST in text:
            text, sentences = drop_marked_sentences(text, frozenset(LOST), language=language)
            for sentence in sentences:
                dropped.add_sentence("unknown-template", sentence)
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
