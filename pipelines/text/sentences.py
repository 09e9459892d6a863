# ruff: noqa: RUF001 - quotes of many languages are what this is about
"""Paragraphs become sentences: `sentencex` (Wikimedia's segmenter, in Rust), and quoted speech.

sentencex knows the abbreviations and the full stops of many languages, but never splits what stands
in quotes or brackets. `pipelines.text.quotations` finds the ends in there. Here both are put
together, and what is no sentence by itself (a number of a list, a lone bracket) joins its
neighbour.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import sentencex

from pipelines.text.quotations import find_inner_ends, goes_on

# sentencex compares every full stop of its text with every quotation, so its time grows with the
# square of what it is given at once. A longer paragraph goes through it in overlapping windows.
_WINDOW = 5_000
_LETTER = re.compile(r"[^\W\d_]")
_LIST_NUMBER = re.compile(r"\W*\d[\d.,:]*\W*")
_OPENS_NEXT = re.compile(r"\s([\"'“„‘‚«‹([{]+)\Z")
_NOTE = re.compile(
    r"\[[^\[\]]{0,40}\]"
)  # set to the full stop without a space: "[citation needed]"
_CLOSES_LAST = re.compile(r"[』」》〉】）]+|\s*(?:[\"'”’»›)\]}]+(?=[\s.,;:!?]|\Z)[.,;:!?]*)+")


def split_sentences(paragraphs: list[str], language: str, *, max_characters: int) -> list[str]:
    """The sentences of a document, in order, without white space around them and none empty.

    No character but white space is lost. What has no letter is no sentence: the number of a list
    goes to what follows it, anything else to what stands before it. A document without any letter
    is one sentence.

    >>> split_sentences(["He came at 3 p.m. today. “Who?” she asked."], "en", max_characters=1000)
    ['He came at 3 p.m. today.', '“Who?” she asked.']

    Args:
        paragraphs: cleaned text, without line breaks.
        language: ISO 639 code; an unknown one is split by the general rules of sentencex.
        max_characters: a longer sentence is cut at a space (or, without one, right there).
    """
    sentences: list[list[str]] = []  # each in the parts that were put together
    waiting: list[str] = []  # without letters, for the next sentence
    for paragraph in paragraphs:
        first = len(sentences)
        for sentence in _sentences(paragraph, language):
            if _LETTER.search(sentence) is not None:
                sentences.append([*waiting, sentence])
                waiting = []
            elif sentences and not waiting and _LIST_NUMBER.fullmatch(sentence) is None:
                sentences[-1].append(sentence)
            else:
                waiting.append(sentence)
        if waiting and len(sentences) > first:
            sentences[-1] += waiting
            waiting = []
    if waiting:
        sentences[-1:] = [[*(sentences[-1] if sentences else ()), *waiting]]
    joined = map(" ".join, sentences)
    return [part for sentence in joined for part in _cut(sentence, max_characters)]


def _sentences(paragraph: str, language: str) -> Iterator[str]:
    """The sentences of one paragraph, without white space around them and none empty."""
    start = 0
    while start < len(paragraph):
        text = paragraph[start : _window_end(paragraph, start)]
        ends = _ends(text, language)
        if start + len(text) < len(paragraph) and len(ends) > 1:
            ends.pop()  # the window's last sentence may go on behind it
        last = 0
        for end in ends:
            if sentence := text[last:end].strip():
                yield sentence
            last = end
        start += last


def _window_end(paragraph: str, start: int) -> int:
    """Where the window from `start` on ends: at a space of its second half, where it has one."""
    end = start + _WINDOW
    if end >= len(paragraph):
        return len(paragraph)
    space = paragraph.rfind(" ", start + _WINDOW // 2, end)
    return end if space < 0 else space


def _ends(text: str, language: str) -> list[int]:
    """Offsets at which the sentences of a text end; the last is the text's own end."""
    ends: list[int] = []
    at = 0
    for segment in sentencex.segment(language, text):
        ends.extend(at + end for end in find_inner_ends(segment, language))
        at += len(segment)
        ends.append(at)
    kept: list[int] = []
    last = 0
    for end in ends[:-1]:
        plain = text[end - 1].isspace() and text[end].isalnum()
        moved = end if plain else _beside_quotes(text, last, end)
        if last < moved < len(text) and not goes_on(text, last, moved, language=language):
            kept.append(moved)
            last = moved
    return [*kept, len(text)]


def _beside_quotes(text: str, start: int, end: int) -> int:
    """A sentence's end, with its closing quotes and brackets, without the next one's opening."""
    opening = _OPENS_NEXT.search(text, max(start, end - 8), end)
    if opening is not None and not text[end : end + 1].isspace():
        return opening.start(1)
    if not text[end - 1].isspace() and (note := _NOTE.match(text, end)):
        return note.end()
    if closing := _CLOSES_LAST.match(text, end):
        return closing.end()
    return end


def _cut(text: str, longest: int) -> Iterator[str]:
    """Parts of a text that has no white space around it; what is not yet cut is not copied."""
    start = 0
    while len(text) - start > longest:
        space = text.rfind(" ", start + 1, start + longest + 1)
        end = space if space > 0 else start + longest
        yield text[start:end].strip()
        start = end
        while text[start].isspace():
            start += 1
    if text:
        yield text[start:]


def normalised_text(sentences: list[str]) -> str:
    """What has to be equal for two documents to be duplicates: NFC, case folded, single spaces.

    >>> normalised_text(["Call  me", "ISHMAEL."])
    'call me ishmael.'
    """
    return " ".join(unicodedata.normalize("NFC", " ".join(sentences)).casefold().split())
