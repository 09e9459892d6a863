# ruff: noqa: RUF001 - quotes of many languages are what this is about
"""Where sentences end within quoted speech and within brackets.

"I will not. You know that," he said. -> "I will not. | You know that," he said.

Treebanks (Universal Dependencies) split speech like this, and leave a title in quotes whole, as
they do with a bracket in mid-sentence. The reporting clause behind a question or an exclamation
belongs to it: "Where?" Tom asked.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import sentencex

_DOUBLE = '"“”„‟«»‹›'
_SINGLE = "'‘’‚‛`"
_QUOTES = _DOUBLE + _SINGLE
_STOPS = ".!?…‽।॥؟۔։።"
_MARK = re.compile(rf"(?<!\w)[{_SINGLE}]|[{_SINGLE}](?!\w)|[{_DOUBLE}()\[\]{{}}¿¡]")
_END = re.compile(
    rf"[{_STOPS}](?<![{_STOPS}].)[{_STOPS}]*[{_QUOTES})\]}}]*(?:\s[»›](?=\s))?(\s+)"
    rf"(?!\[\d)(?=[{_QUOTES}(\[{{¿¡]*\s?(\w))"
)
_NO_QUOTES = "()[]{}¿¡"
_OPENING = " \t\u00a0\u202f([{¿¡" + _QUOTES
_CLOSING = " \t\u00a0\u202f)]}" + _QUOTES
_BEFORE_OPENER = frozenset(" \t\u00a0\u202f([{-–—" + _QUOTES)
_BEFORE_SPEECH = ",:;-–—"  # or the sentence's begin
_SPEECH_ENDS = _STOPS + ",;-–—"
_ASKED = re.compile(rf"(?:[!?…]|\.\.)[{_QUOTES}]+\s*\Z")
_QUOTED = re.compile(rf"[{_STOPS}][{_QUOTES}]+\s*\Z")
_NEXT_WORD = re.compile(r"\s*[-–—]*\s*(\w)(\w?)")
_FIRST_LETTER = re.compile(r"[^\W\d_]")
_LOOK_BACK = 12
_LOOK_AHEAD = 80

# Languages whose reporting clauses may begin with a capital: a name and then a verb of saying. In
# others the verb comes first, in small letters, which needs no list.
_REPORTS: dict[str, re.Pattern[str]] = {
    "en": re.compile(
        r"(?!(?:Nobody|No|None|Neither|Everyone|Everybody)\b)"
        r"(?:(?:I|We|You|He|She|They|One)|(?:The|My|His|Her|Our|Their|One|An?)(?: [\w’'-]+){1,3}"
        r"|(?:(?:Mr|Mrs|Ms|Dr|St|Prof|Capt|Col|Gen|Lt|Sir)\.? )?[^\W\d_a-z]\w*"
        r"(?:[ -](?:[^\W\d_a-z][\w’'-]*\.?|of|the|de|von|van)){0,3})"
        r" (?:(?:\w+ly|had|have|has|at last|then|again) )?"
        r"(?:said|says|say|asked|asks|cried|cries|replied|replies|answered|answers|exclaimed|shouted"
        r"|called|whispered|muttered|murmured|demanded|inquired|enquired|added|repeated|returned"
        r"|yelled|screamed|observed|remarked|continued|declared|wondered|begged|pleaded|sighed"
        r"|gasped|snapped|laughed|groaned|growled|roared|interrupted|retorted|responded|urged"
        r"|insisted|thought|told|wrote|writes|ejaculated|faltered|sobbed|stammered|went on)\b"
    )
}


# Short forms of books and of measuring that a number follows; sentencex knows some of them.
_BEFORE_NUMBER: dict[str, re.Pattern[str]] = {
    "en": re.compile(
        r"\b(?:[Aa]pp|approx|[Aa]rt|[Bb]k|ca?|cf|[Cc]hs?|[Cc]haps?|cols?|[Ee]d|[Ee]qs?|[Ee]x|[Ff]igs?"
        r"|[Ff]ol|ll|[Nn]os?|[Oo]p|pp?|[Pp]ls?|[Pp]ts?|[Rr]efs?|[Ss]ects?|[Ss]er|[Tt]ab|vv?|[Vv]ers?"
        r"|[Vv]ols?|et al|§)\.\s*\Z"
    )
}


class _Span(NamedTuple):
    start: int
    end: int
    """Offset of the closing mark."""


def find_inner_ends(segment: str, language: str) -> list[int]:
    """Offsets in a segment of sentencex at which sentences end within its quotes and brackets.

    sentencex itself judges the candidates, on the segment without its quotes and brackets, so that
    its abbreviations and rules hold in there, too. The segment's own end is not among them.

    Args:
        segment: as sentencex gives it, white space and all.
        language: ISO 639 code.
    """
    if _END.search(segment) is None:
        return []
    candidates = [match for match in _END.finditer(segment) if not match[2].islower()]
    marks = [match.start() for match in _MARK.finditer(segment)]
    if not marks or not candidates:
        return []
    starts = _plain_starts(segment, language)
    quotes, brackets = _quotes(segment, marks), _brackets(segment, marks)
    ends: list[int] = []
    begin = 0
    for match, quote, bracket in zip(
        candidates, _around(candidates, quotes), _around(candidates, brackets), strict=True
    ):
        after = match.start(2)
        if after - bisect_left(marks, after) not in starts:
            continue
        if quote and not _is_speech(segment, quote, begin, stop=segment[match.start()]):
            continue
        if bracket and not _is_whole(segment, bracket, begin, match):
            continue
        begin = match.end(1)
        ends.append(begin)
    return ends


def _plain_starts(segment: str, language: str) -> frozenset[int]:
    """Where sentences start in the segment without its quotes and brackets, counted in that."""
    starts, at = [], 0
    for plain in sentencex.segment(language, _MARK.sub("", segment)):
        starts.append(at + len(plain) - len(plain.lstrip()))
        at += len(plain)
    return frozenset(starts)


def _quotes(segment: str, marks: list[int]) -> list[_Span]:
    """Quotations that are closed, by their starts; what opens or closes is told by the spaces."""
    spans: list[_Span] = []
    opened: list[int] = []
    for at in marks:
        mark = segment[at]
        if mark in _NO_QUOTES:
            continue
        if _opens(segment, at):
            opened.append(at)
            continue
        family = _DOUBLE if mark in _DOUBLE else _SINGLE
        kept = len(opened)
        while kept and segment[opened[kept - 1]] not in family:
            kept -= 1
        if kept and family is _DOUBLE:
            spans.append(_Span(opened[kept - 1], at))
            del opened[kept - 1 :]
        elif opened and kept == len(opened):  # an apostrophe closes no double quote
            spans.append(_Span(opened.pop(), at))
    return sorted(spans)


def _opens(segment: str, at: int) -> bool:
    mark, after = segment[at], segment[at + 1 : at + 2]
    before = segment[at - 1] if at else " "
    if mark in "«‹" and after.isspace():
        return True  # as French sets it
    return before in _BEFORE_OPENER and after != "" and not after.isspace()


def _brackets(segment: str, marks: list[int]) -> list[_Span]:
    spans: list[_Span] = []
    opened: list[int] = []
    for at in marks:
        if segment[at] in "([{":
            opened.append(at)
        elif segment[at] in ")]}" and opened:
            spans.append(_Span(opened.pop(), at))
    return sorted(spans)


def _around(candidates: list[re.Match[str]], spans: list[_Span]) -> Iterator[_Span | None]:
    """The innermost span around each candidate."""
    waiting = deque(spans)
    inside: list[_Span] = []
    for match in candidates:
        while waiting and waiting[0].start < match.start():
            span = waiting.popleft()
            while inside and inside[-1].end < span.start:
                inside.pop()
            inside.append(span)
        while inside and inside[-1].end < match.start():
            inside.pop()
        yield inside[-1] if inside else None


def _is_speech(segment: str, quote: _Span, begin: int, *, stop: str) -> bool:
    """Whether a quotation holds sentences, where a title, `"Help! I Am Here"`, is a name.

    Args:
        segment: the segment.
        quote: the quotation.
        begin: where the sentence begins that ends in the quotation.
        stop: the mark that ends it.
    """
    last = segment[max(begin, quote.end - _LOOK_BACK) : quote.end].rstrip(_CLOSING)[-1:]
    behind = segment[quote.end + 1 : quote.end + _LOOK_BACK].lstrip(_QUOTES + ")]")
    if last not in _SPEECH_ENDS:
        return stop in ".।" and behind[:1] in ("", *_SPEECH_ENDS)
    before = segment[begin : quote.start].strip(_OPENING)
    word = _NEXT_WORD.match(behind)
    goes_on = word is not None and word[1].islower()
    return not before or before[-1] in _BEFORE_SPEECH or not goes_on


def _is_whole(segment: str, bracket: _Span, begin: int, end: re.Match[str]) -> bool:
    """Whether a sentence that ends in a bracket is all in there, or ends where that closes."""
    if bracket.end < end.start(1):
        return end[0][0] == "."
    if segment[begin : bracket.start].strip(_OPENING):
        return False
    last = segment[max(begin, bracket.end - _LOOK_BACK) : bracket.end].rstrip(_CLOSING)[-1:]
    return last in _STOPS or segment[bracket.end + 1 : bracket.end + 2] in _STOPS


def goes_on(text: str, start: int, end: int, *, language: str) -> bool:
    """Whether a sentence that seems to end goes on.

    It does with a small letter, but where the writer begins sentences so; with a number that a
    short form asks for, `Vol. 2`; and with a clause that says who spoke.

    Args:
        text: some text.
        start: where the sentence before `end` begins.
        end: where sentencex ends it.
        language: ISO 639 code.
    """
    before = text[max(start, end - _LOOK_BACK) : end]
    word = _NEXT_WORD.match(text, end)
    if word is not None and word[1].islower() and not word[2].isupper():
        first = _FIRST_LETTER.search(text, start, end)
        return _QUOTED.search(before) is not None or first is None or not first[0].islower()
    numbered = _BEFORE_NUMBER.get(language)
    if numbered is not None and text[end : end + 1].isdigit() and numbered.search(before):
        return True
    reports = _REPORTS.get(language)
    if reports is None or _ASKED.search(before) is None:
        return False
    return reports.match(text, end, end + _LOOK_AHEAD) is not None
