"""Accuracy and speed of sentence splitting next to bare sentencex.

    python -m benchmarks.bench_sentences [--data DIR]

Compares boundaries within paragraphs, ignoring white space:

* written: `segmented_text.txt`, in the genres of UD English-GUM, split as that splits;
* wikigold: Wikipedia with sentence boundaries marked by hand (its words are joined again);
* QNLI in SQuAD: paragraphs of SQuAD with the one sentence that QNLI has of them (CoreNLP's);
* dates: `segmented_dates.txt`, dates, ordinals and eras in many languages, by language.

precision = correct boundaries / our boundaries; recall = correct boundaries / gold boundaries.
Speed is measured on whole novels: a document is split in one call.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import sentencex

from benchmarks.bench_books_cleaning import BY_HAND, members
from benchmarks.timing import add_data_option, cpu_seconds, parser_for, take_turns
from pipelines.documents.sentences import split_sentences

WRITTEN = Path(__file__).parent / "segmented_text.txt"
DATES = Path(__file__).parent / "segmented_dates.txt"
_ROUNDS = 5
_LONGEST = 100_000
_TAKES_NO_SPACE = re.compile(r" (?=[,.;:!?%)\]]|n't\b|'(?:s|re|ve|ll|d|m)\b)|(?<=[(\[$£]) ")

Split = Callable[[str, str], list[str]]
"""Splits the text of a language."""


class Gold(NamedTuple):
    """A paragraph and the boundaries known in it."""

    text: str
    ends: frozenset[int]
    """Ends of sentences, counted in characters without white space."""

    first: int
    last: int
    """Between these, inclusive, every boundary is known."""

    language: str = "en"


class Score(NamedTuple):
    """Numbers of boundaries: correct ones, those of a splitter, those of the gold standard."""

    both: int
    ours: int
    gold: int

    @property
    def precision(self) -> float:
        return self.both / max(1, self.ours)

    @property
    def recall(self) -> float:
        return self.both / max(1, self.gold)

    @property
    def f1(self) -> float:
        return 2 * self.both / max(1, self.ours + self.gold)


def ends_of(sentences: list[str]) -> frozenset[int]:
    """Return the ends of sentences, counted in characters without white space."""
    at, ends = 0, []
    for sentence in sentences:
        at += len("".join(sentence.split()))
        ends.append(at)
    return frozenset(ends)


def paragraph_of(sentences: list[str], language: str = "en") -> Gold:
    """Return a paragraph with all its boundaries. The end of the paragraph is not one of them."""
    ends = ends_of(sentences)
    return Gold(" ".join(sentences), ends, 1, max(ends) - 1, language)


def score(paragraphs: list[Gold], split: Split) -> Score:
    """Counts of a splitter's boundaries and of the gold boundaries."""
    both = ours = gold = 0
    for paragraph in paragraphs:
        judged = range(paragraph.first, paragraph.last + 1)
        ends = {end for end in ends_of(split(paragraph.text, paragraph.language)) if end in judged}
        known = {end for end in paragraph.ends if end in judged}
        both, ours, gold = both + len(ends & known), ours + len(ends), gold + len(known)
    return Score(both, ours, gold)


def written(path: Path = WRITTEN) -> list[Gold]:
    """The text written for this project."""
    return _paragraphs(path.read_text("utf-8"), "en")


def dates(path: Path = DATES) -> dict[str, list[Gold]]:
    """Return paragraphs with dates, ordinals and eras, by language."""
    _, *parts = re.split(r"^# language: (\w+)\n", path.read_text("utf-8"), flags=re.M)
    languages, texts = parts[::2], parts[1::2]
    return {
        language: _paragraphs(text, language)
        for language, text in zip(languages, texts, strict=True)
    }


def _paragraphs(text: str, language: str) -> list[Gold]:
    paragraphs = re.split(r"\n\s*\n", re.sub(r"^#.*\n", "", text, flags=re.M))
    return [
        paragraph_of(lines, language)
        for paragraph in paragraphs
        if (lines := paragraph.strip().splitlines())
    ]


def wikigold(data: Path) -> list[Gold]:
    """Documents of wikigold, a paragraph each."""
    text = (data / "ner" / "wikigold" / "data" / "wikigold.conll.txt").read_text("utf-8")
    documents = []
    for document in text.split("-DOCSTART- O"):
        sentences = [_put_together(block) for block in document.split("\n\n") if block.strip()]
        if sentences:
            documents.append(paragraph_of(sentences))
    return documents


def _put_together(block: str) -> str:
    """A sentence of its words; quotes open and close in turn, a last one closes."""
    words = [line.split(" ", 1)[0] for line in block.strip().splitlines()]
    text, opens = "", True
    for number, word in enumerate(words):
        if word != '"':
            text += f"{word} "
        elif opens and number < len(words) - 1:
            text, opens = text + word, False
        else:
            text, opens = f"{text.rstrip()}{word} ", True
    return _TAKES_NO_SPACE.sub("", text).strip()


def qnli(data: Path) -> list[Gold]:
    """Paragraphs of SQuAD with a sentence that QNLI took from them."""
    contexts = {}
    for name in ("train", "dev"):
        with gzip.open(data / "squad" / f"{name}-v1.1.json.gz") as file:
            for article in json.load(file)["data"]:
                for paragraph in article["paragraphs"]:
                    for question in paragraph["qas"]:
                        contexts[question["question"].strip()] = paragraph["context"]
    rows = (data / "glue" / "QNLI" / "dev.tsv").read_text("utf-8").splitlines()[1:]
    pairs = dict.fromkeys(
        (contexts.get(row.split("\t")[1].strip(), ""), row.split("\t")[2]) for row in rows
    )
    return [gold for text, sentence in pairs if (gold := _around(text, sentence)) is not None]


def _around(text: str, sentence: str) -> Gold | None:
    at = text.find(sentence)
    if at < 0:
        return None
    start = len("".join(text[:at].split()))
    end = start + len("".join(sentence.split()))
    inner = len("".join(text.split())) - 1
    return Gold(text, frozenset((start, end)), max(1, start), min(end, inner))


def bare(text: str, language: str) -> list[str]:
    """Return the sentences of sentencex alone."""
    return list(sentencex.segment(language, text))


def ours(text: str, language: str) -> list[str]:
    """Return the sentences of bertloom."""
    return split_sentences([text], language, max_characters=_LONGEST)


def speed(documents: list[list[str]]) -> dict[str, float]:
    """Return megabytes per second of CPU time, the best of interleaved rounds.

    Args:
        documents: The paragraphs of each document.
    """
    splitters: dict[str, Callable[[list[str]], object]] = {
        "sentencex": lambda paragraphs: [bare(paragraph, "en") for paragraph in paragraphs],
        "ours": lambda paragraphs: split_sentences(paragraphs, "en", max_characters=_LONGEST),
    }
    size = sum(len(paragraph.encode()) for document in documents for paragraph in document)
    sides = {
        name: lambda split=split: cpu_seconds(lambda: [split(each) for each in documents])
        for name, split in splitters.items()
    }
    rounds = take_turns(sides, repeat=_ROUNDS, warmup=0)
    return {name: size / 1e6 / min(seconds) for name, seconds in rounds.items()}


def _books(data: Path) -> Iterator[list[str]]:
    for number, (_, content) in enumerate(members(data / "books" / BY_HAND)):
        if number % 10 == 0:
            text = content.decode("utf-8-sig").replace("\r", "")
            yield [" ".join(block.split()) for block in re.split(r"\n\s*\n", text)]


def main() -> None:
    """Print the table."""
    parser = parser_for(__doc__)
    add_data_option(parser)
    data = parser.parse_args().data
    by_language = dates()
    sources = {
        "written": written(),
        "wikigold": wikigold(data),
        "QNLI in SQuAD": qnli(data),
        "dates": [gold for paragraphs in by_language.values() for gold in paragraphs],
        **{f"dates, {language}": paragraphs for language, paragraphs in by_language.items()},
    }
    print(f"{'':22} {'boundaries':>10}   {'sentencex':>26}   {'ours':>26}")
    for name, paragraphs in sources.items():
        peer, own = score(paragraphs, bare), score(paragraphs, ours)
        print(
            f"{name:22} {own.gold:10,}   P {peer.precision:.4f} R {peer.recall:.4f} "
            f"F {peer.f1:.4f}   P {own.precision:.4f} R {own.recall:.4f} F {own.f1:.4f}"
        )
    rates = speed(list(_books(data)))
    print(
        "speed, novels, processor time: " + ", ".join(f"{n} {r:.1f} MB/s" for n, r in rates.items())
    )


if __name__ == "__main__":
    main()
