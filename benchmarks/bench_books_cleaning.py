"""Agreement of the book cleaner with books that were cleaned by hand, and its speed.

    python -m benchmarks.bench_books_cleaning [--data DIR]

Cleans each raw children's book of Project Gutenberg and aligns its words with the same book cleaned
by hand (birmingham-ccr/corpora). Words are runs of letters and digits, compared without case.
Prints two results, micro-averaged over all books:

* as it is: every word of the hand-cleaned file counts;
* headings set aside: ignores what a corpus of text passages omits on purpose (BERT paper 3.1). The
  rule reads the hand-cleaned file only: its first two lines (title and author, added by hand),
  paragraphs that begin with a heading word (`CHAPTER 1.`, `BOOK I.`, `PREFACE.`, ...), and
  paragraphs in square brackets that are not footnotes (captions).

recall = matching words / words by hand; precision = matching words / our words.
"""

from __future__ import annotations

import collections
import difflib
import re
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.timing import add_data_option, parser_for
from pipelines.books.clean_book import clean_books
from pipelines.sources.books import decode_book
from schemas.errors import InputError

RAW = "gutenberg-raw-children-73.tar.gz"
BY_HAND = "gutenberg-clean-children-71.tar.gz"
_RUN = 8  # words
_WORDS = re.compile(r"[^\W_]+")
_MADE_UNIFORM = re.compile(
    r"(?:CHAPTER|BOOK|PART|VOLUME|PREFACE|INTRODUCTION|PRELUDE|PROLOGUE|EPILOGUE|CONCLUSION"
    r"|APPENDIX|DEDICATION)\b[^a-z]"
)


_CAPTION = re.compile(r"\[(?!Footnote).*\]", re.DOTALL)


class Score(NamedTuple):
    """Words of one book, by hand and ours, and how many agree."""

    name: str
    by_hand: int
    ours: int
    agreeing: int

    @property
    def recall(self) -> float:
        return self.agreeing / max(1, self.by_hand)

    @property
    def precision(self) -> float:
        return self.agreeing / max(1, self.ours)


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The text files of an archive, by name."""
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name.removeprefix("./"), content.read()


class Result(NamedTuple):
    """Scores of every book, and what cleaning them took."""

    as_it_is: list[Score]
    set_aside: list[Score]
    seconds: float
    """Processor time of decoding and cleaning."""

    raw_bytes: int


def words_of(text: str) -> list[str]:
    """Runs of letters and digits, in small letters."""
    return _WORDS.findall(text.lower())


def set_headings_aside(text: str) -> str:
    """The hand-cleaned text without title, author, headings and captions."""
    paragraphs = re.split(r"\n\s*\n", text.split("\n", 2)[2].replace("\r", ""))
    return "\n\n".join(
        paragraph
        for paragraph in paragraphs
        if not _MADE_UNIFORM.match(paragraph.strip()) and not _CAPTION.fullmatch(paragraph.strip())
    )


def agreeing_words(ours: list[str], by_hand: list[str], *, align: bool) -> int:
    """Count words in both: in the same order with `align`, otherwise as multisets.

    Multisets are faster and detect the same missing and extra text, but ignore its order.
    """
    if not align:
        return (collections.Counter(ours) & collections.Counter(by_hand)).total()
    return sum(block.size for block in _matches(ours, by_hand))


def _matches(ours: list[str], by_hand: list[str]) -> Iterator[difflib.Match]:
    """Runs of agreeing words, in order.

    difflib on all words of a novel would take hours. Runs of words that occur once in both texts
    part them into pieces first, and difflib aligns what is between.
    """
    at, there = 0, 0
    for start, other in (*_anchors(ours, by_hand), (len(ours), len(by_hand))):
        if start < at or other < there:
            continue
        left, right = ours[at:start], by_hand[there:other]
        matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
        yield from matcher.get_matching_blocks()
        size = 0
        while (
            start + size < len(ours)
            and other + size < len(by_hand)
            and ours[start + size] == by_hand[other + size]
        ):
            size += 1
        yield difflib.Match(start, other, size)
        at, there = start + size, other + size


def _anchors(ours: list[str], by_hand: list[str]) -> Iterator[tuple[int, int]]:
    """Places of runs of `_RUN` words that are unique in both, ascending in both."""
    mine, theirs = _unique_runs(ours), _unique_runs(by_hand)
    last = -1
    for run, place in mine.items():
        other = theirs.get(run, -1)
        if other > last:
            last = other
            yield place, other


def _unique_runs(words: list[str]) -> dict[tuple[str, ...], int]:
    places: dict[tuple[str, ...], int] = {}
    for place in range(len(words) - _RUN + 1):
        run = tuple(words[place : place + _RUN])
        places[run] = -1 if run in places else place
    return {run: place for run, place in places.items() if place >= 0}


def total(scores: list[Score]) -> Score:
    """The words of all books together."""
    return Score(
        "all",
        sum(score.by_hand for score in scores),
        sum(score.ours for score in scores),
        sum(score.agreeing for score in scores),
    )


def measure(folder: Path, *, align: bool) -> Result:
    """Clean the raw books in `folder` and compare them with those cleaned by hand."""
    by_hand = dict(members(folder / BY_HAND))
    result = Result([], [], 0.0, 0)
    for name, data in members(folder / RAW):
        if name not in by_hand:
            continue
        start = time.process_time()
        decoded = decode_book(data)
        if decoded is None:
            raise InputError(f"{folder / RAW}: {name} cannot be decoded")
        books = list(clean_books(decoded.text))
        seconds = result.seconds + time.process_time() - start
        result = result._replace(seconds=seconds, raw_bytes=result.raw_bytes + len(data))
        ours = words_of(" ".join(p for book in books for p in book.paragraphs))
        expected = by_hand[name].decode("utf-8-sig")
        both = ((result.as_it_is, expected), (result.set_aside, set_headings_aside(expected)))
        for scores, text in both:
            words = words_of(text)
            agreeing = agreeing_words(ours, words, align=align)
            scores.append(Score(name, len(words), len(ours), agreeing))
    return result


def report(title: str, scores: list[Score]) -> None:
    """Print the totals and the ten books that agree least."""
    every = total(scores)
    print(
        f"{title}: {len(scores)} books, {every.by_hand:,} words by hand, {every.ours:,} ours: "
        f"precision {every.precision:.4%}, recall {every.recall:.4%}"
    )
    for score in sorted(scores, key=lambda score: min(score.precision, score.recall))[:10]:
        print(
            f"    {score.name:20} {score.by_hand:8,} by hand {score.ours:8,} ours"
            f"  precision {score.precision:.3%}  recall {score.recall:.3%}"
        )


def main() -> None:
    """Measure, and print."""
    parser = parser_for(__doc__)
    add_data_option(parser)
    result = measure(parser.parse_args().data / "books", align=True)
    report("as it is", result.as_it_is)
    report("headings set aside", result.set_aside)
    words = total(result.as_it_is).ours
    print(
        f"speed: {words / result.seconds:,.0f} words/s, "
        f"{result.raw_bytes / result.seconds / 1e6:.1f} MB/s of raw text, one core"
    )


if __name__ == "__main__":
    main()
