# ruff: noqa: RUF001 - brackets of Chinese and Japanese
"""Split the paragraphs of a document into sentences with `sentencex`, Wikimedia's segmenter."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator

import sentencex

from pipelines.documents.ordinals import ordinal_rules
from pipelines.white_space import collapse_spaces

# The time of sentencex grows with the square of the quotations in a text. A longer paragraph is
# split in windows.
_WINDOW = 5_000
# sentencex 1.0.32 panics at white space of several bytes between a capital letter and a full stop.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f](?=\.)")
_WORD_CHARACTER = re.compile(r"[^\W_]")
_ATTACHED = re.compile(r"(?:\[[^\[\]]{0,40}\]|[』」》〉】）])+")
_SPACELESS_LANGUAGES = frozenset({"ja", "zh"})


def split_sentences(paragraphs: list[str], language: str, *, max_characters: int) -> list[str]:
    """Return the sentences of a document in order, without white space around them.

    No character except white space is lost. A sentence without a letter or digit is joined to the
    sentence before it, or to the next one if it is the first.

    >>> split_sentences(["He came at 3 p.m. today. “Who?” she asked."], "en", max_characters=1000)
    ['He came at 3 p.m. today.', '“Who?” she asked.']

    Args:
        paragraphs: Cleaned text without line breaks.
        language: ISO 639 code. An unknown language is split by the general rules of sentencex.
        max_characters: Maximum length of a sentence. A longer one is split at a space, or at this
            length if it has none.
    """
    sentences: list[str] = []
    marks: list[str] = []  # parts without a letter or digit after the last sentence
    rules = ordinal_rules(language)
    ordinary, continuing = rules.ordinary, rules.continuing
    for paragraph in paragraphs:
        if len(paragraph) <= _WINDOW:
            segments = _segments(paragraph, language)
        else:
            segments = _window_segments(paragraph, language)
        if "[" in paragraph or language in _SPACELESS_LANGUAGES:
            segments = _with_attached(segments)
        number, has_capitals = 0, False
        for segment in segments:
            sentence = segment.strip()
            if not sentence:
                continue
            first = sentence[0]
            if first not in ordinary:
                if first in continuing:
                    # In text without capital letters, a lower-case word begins sentences, too.
                    has_capitals = has_capitals if number else not paragraph.islower()
                    # Equal segments begin alike, so this is the next of them.
                    number = segments.index(segment, number) + 1
                    if has_capitals and sentences and not marks:
                        gap = rules.find_gap(segments, number - 1)
                        if gap is not None and len(sentences[-1]) < max_characters:
                            sentences[-1] += gap + sentence
                            continue
                if not (first.isalpha() or _WORD_CHARACTER.search(sentence)):
                    marks.append(sentence)
                    continue
            if marks:
                sentence = _join_marks(sentences, marks, sentence)
                marks = []
            sentences.append(sentence)
    if marks:
        sentences[-1:] = [" ".join([*sentences[-1:], *marks])]
    if max(map(len, sentences), default=0) <= max_characters:
        return sentences
    return [part for sentence in sentences for part in _parts(sentence, max_characters)]


def _join_marks(sentences: list[str], marks: list[str], sentence: str) -> str:
    """Join marks to the last sentence, or to `sentence` if it is the first. Return `sentence`."""
    if not sentences:
        return " ".join([*marks, sentence])
    sentences[-1] = " ".join([sentences[-1], *marks])
    return sentence


def _segments(text: str, language: str) -> list[str]:
    """Return the segments of a text, which together are the text."""
    plain = text if text.isascii() else _WIDE_SPACE.sub(" ", text)
    segments: list[str] = sentencex.segment(language, plain)
    if plain == text:
        return segments
    ends = itertools.accumulate(map(len, segments))
    return [text[end - len(segment) : end] for segment, end in zip(segments, ends, strict=True)]


def _window_segments(paragraph: str, language: str) -> list[str]:
    """Return the segments of a long paragraph. The last segment of a window begins the next one."""
    segments: list[str] = []
    start = 0
    while start < len(paragraph):
        end = _window_end(paragraph, start)
        window = _segments(paragraph[start:end], language)
        if end < len(paragraph) and len(window) > 1:
            window.pop()
        segments += window
        start += sum(map(len, window))
    return segments


def _window_end(paragraph: str, start: int) -> int:
    """Return the end of a window: at the last space of its second half, if there is one."""
    end = start + _WINDOW
    if end >= len(paragraph):
        return len(paragraph)
    space = paragraph.rfind(" ", start + _WINDOW // 2, end)
    return end if space < 0 else space


def _with_attached(segments: list[str]) -> list[str]:
    """Move `[citation needed]` and closing brackets of Chinese and Japanese to the sentence before.

    They belong to it if no white space separates them.
    """
    moved: list[str] = []
    for segment in segments:
        is_attached = bool(moved) and not moved[-1][-1:].isspace()
        if is_attached and (attached := _ATTACHED.match(segment)):
            moved[-1] += attached[0]
            segment = segment[attached.end() :]
        moved.append(segment)
    return moved


def _parts(text: str, max_characters: int) -> Iterator[str]:
    """Yield parts of a text that has no white space around it."""
    start = 0
    while len(text) - start > max_characters:
        space = text.rfind(" ", start + 1, start + max_characters + 1)
        end = space if space > 0 else start + max_characters
        yield text[start:end].strip()
        start = end
        while text[start].isspace():
            start += 1
    yield text[start:]


def normalize_text(sentences: list[str]) -> str:
    """Return the text by which duplicates are found: NFC, case folded, single spaces.

    >>> normalize_text(["Call  me", "ISHMAEL."])
    'call me ishmael.'
    """
    return collapse_spaces(unicodedata.normalize("NFC", " ".join(sentences)).casefold())
