"""Agreement of the book cleaner with books that were cleaned by hand, and its speed.

    python -m benchmarks.bench_books_cleaning [--data DIR] [--all]

Cleans each raw children's book of Project Gutenberg and aligns its words with the same book cleaned
by hand (birmingham-ccr/corpora). Words are runs of letters and digits, compared without case.
Prints two results, micro-averaged over all books:

* as it is: every word of the hand-cleaned file counts;
* headings set aside: ignores what a corpus of text passages omits on purpose (BERT paper 3.1). The
  rule reads the hand-cleaned file only: its first two lines (title and author, added by hand),
  paragraphs that begin with a heading word (`CHAPTER 1.`, `BOOK I.`, `PREFACE.`, ...), and
  paragraphs in square brackets that are not footnotes (captions).

recall = matching words / words by hand; precision = matching words / our words.

Each is printed for words in the same order, and as multisets (the order is ignored).

`--all` cleans all books of the folder instead. It prints the words by reason, and how many hyphens
at line ends are wrong. A hyphen is decidable if all books together have the word at least
`MIN_FORMS` times elsewhere, and `MIN_SHARE` of these with a hyphen or without.
"""

from __future__ import annotations

import bisect
import collections
import difflib
import re
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.timing import add_data_option, parser_for
from pipelines.books.clean_book import clean_book
from pipelines.books.gutenberg import split_books
from pipelines.books.layout import LineJoiner
from pipelines.io.encodings import normalise
from pipelines.sources.book_files import extract_text

RAW = "gutenberg-raw-children-73.tar.gz"
BY_HAND = "gutenberg-clean-children-71.tar.gz"
_RUN = 8  # words
MIN_FORMS = 3
MIN_SHARE = 0.9
_CUT = re.compile(r"(?<![^\W\d_])(?P<left>[^\W\d_]+)-[ \t]*\n[ \t]*(?P<right>[^\W\d_A-ZÀ-Þ]+)")
_FORM = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
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
    """Places of runs of `_RUN` words that are unique in both: most that ascend in both.

    A list of contents has the words of headings that come much later, and must not be one of them.
    """
    mine, theirs = _unique_runs(ours), _unique_runs(by_hand)
    places = [(position, theirs[run]) for run, position in mine.items() if run in theirs]
    lasts: list[int] = []  # of the best chain of each length: its last place by hand ...
    chains: list[int] = []  # ... and the number of that place
    before: list[int] = []  # number of the place before each place in its chain
    for number, (_, other) in enumerate(places):
        length = bisect.bisect_left(lasts, other)
        before.append(chains[length - 1] if length else -1)
        lasts[length : length + 1] = [other]
        chains[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    number = chains[-1] if chains else -1
    while number >= 0:
        chain.append(places[number])
        number = before[number]
    yield from reversed(chain)


def _unique_runs(words: list[str]) -> dict[tuple[str, ...], int]:
    positions: dict[tuple[str, ...], int] = {}
    for position in range(len(words) - _RUN + 1):
        run = tuple(words[position : position + _RUN])
        positions[run] = -1 if run in positions else position
    return {run: position for run, position in positions.items() if position >= 0}


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
        extracted = extract_text(data, name=name)
        books = list(map(clean_book, split_books(extracted.text)))
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


class Hyphens(NamedTuple):
    """Hyphens at line ends of many books."""

    decidable: int
    wrongly_removed: int
    wrongly_kept: int


def count_wrong_hyphens(texts: list[str]) -> Hyphens:
    """Compare the hyphens that `LineJoiner` keeps with the words of all books."""
    forms = collections.Counter[str]()
    for text in texts:
        forms.update(_FORM.findall(_CUT.sub(" ", text.lower())))
    decidable = removed = kept = 0
    for text in texts:
        joiner = LineJoiner(text)
        for match in _CUT.finditer(text):
            left, right = match["left"], match["right"]
            hyphenated, joined = forms[f"{left}-{right}".lower()], forms[(left + right).lower()]
            most = max(hyphenated, joined)
            if hyphenated + joined < MIN_FORMS or most < MIN_SHARE * (hyphenated + joined):
                continue
            decidable += 1
            has_hyphen = "-" in joiner.join([f"{left}-", right])
            removed += not has_hyphen and hyphenated > joined
            kept += has_hyphen and joined > hyphenated
    return Hyphens(decidable, removed, kept)


def measure_all(folder: Path) -> None:
    """Clean all books in `folder`, and print words by reason, wrong hyphens and the speed."""
    texts, seconds, bodies = list[str](), 0.0, 0
    words, kept, dropped = 0, 0, collections.Counter[str]()
    for archive in sorted(folder.glob("*.tar.gz")):
        for name, data in members(archive):
            start = time.process_time()
            extracted = extract_text(data, name=name)
            books = list(map(clean_book, split_books(extracted.text)))
            seconds += time.process_time() - start
            texts.append(normalise(extracted.text))
            bodies += len(books)
            words += sum(book.words for book in books)
            kept += sum(book.kept_words for book in books)
            for book in books:
                dropped.update(book.dropped_words)
    characters = sum(map(len, texts))
    print(f"{len(texts)} files, {bodies} books, {words:,} words: {kept:,} kept, dropped:")
    for reason, number in dropped.most_common():
        print(f"    {reason:14}{number:10,}  {number / words:.3%}")
    print(f"speed: {seconds:.1f} s, {characters / seconds / 1e6:.1f} M characters/s, one core")
    hyphens = count_wrong_hyphens(texts)
    print(
        f"hyphens at line ends: {hyphens.decidable:,} decidable, {hyphens.wrongly_removed} wrongly "
        f"removed, {hyphens.wrongly_kept} wrongly kept"
    )


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
    parser.add_argument("--all", action="store_true", help="Clean all books, count hyphens.")
    arguments = parser.parse_args()
    if arguments.all:
        measure_all(arguments.data / "books")
        return
    for order, align in (("in order", True), ("multisets", False)):
        result = measure(arguments.data / "books", align=align)
        report(f"as it is, {order}", result.as_it_is)
        report(f"headings set aside, {order}", result.set_aside)
    words = total(result.as_it_is).ours
    print(
        f"speed: {words / result.seconds:,.0f} words/s, "
        f"{result.raw_bytes / result.seconds / 1e6:.1f} MB/s of raw text, one core"
    )


if __name__ == "__main__":
    main()
