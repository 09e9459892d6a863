"""Sentences to ids next to the `tokenizers` library, on text where both are equal.

    python -m benchmarks.bench_wordpiece [--data DIR] [--megabytes 50] [--repeat 5]

The text is real: paragraphs of 100 novels and 73 children's books from Project Gutenberg, and lines
of raw wikitext, in turn. Before timing, compares the ids of every line with those of
`encode_batch_fast`, for the published uncased and cased vocabularies; a difference ends the
program.

Each repeat times, one after another in one thread, on the same batches of about 4 MB:

* cold: a new `WordPieceTokenizer` with an empty cache;
* warm: the same tokenizer again;
* library: `encode_batch_fast` of a `tokenizers` tokenizer without special tokens, one thread
  (reading the ids from its encodings is not included).

Prints CPU seconds of the process: medians, with ratios taken within each repeat.
"""

from __future__ import annotations

import bz2
import itertools
import os
import resource
import statistics
import tarfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from benchmarks.timing import add_data_option, cpu_seconds, parser_for, ratio
from pipelines.wordpiece.tokenizer import WordPieceTokenizer, bert_tokenizer

BOOKS = ("english-novels-100.tar.gz", "gutenberg-raw-children-73.tar.gz")
BATCH_BYTES = 4 << 20
T = TypeVar("T")


def book_paragraphs(archive: Path) -> Iterator[str]:
    """The paragraphs of each book, lines joined; what is not UTF-8 becomes U+FFFD."""
    with tarfile.open(archive) as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is None:
                continue
            text = stream.read().decode("utf-8", "replace").replace("\r\n", "\n")
            for paragraph in text.split("\n\n"):
                if joined := " ".join(paragraph.split("\n")).strip():
                    yield joined


def wikitext_lines(folder: Path) -> Iterator[str]:
    """The lines of MediaWiki dumps, XML and markup included: much that is no plain prose."""
    paths = sorted([*folder.glob("wikipedia/*.xml.bz2"), *folder.glob("wikibooks/*.xml.bz2")])
    for path in paths:
        decompressor = bz2.BZ2Decompressor()  # a truncated dump gives what it has
        text = decompressor.decompress(path.read_bytes()).decode("utf-8", "replace")
        yield from filter(None, text.split("\n"))


def real_batches(folder: Path, *, megabytes: float) -> list[list[str]]:
    """Return batches with at least `megabytes` of text, a third of each kind while it lasts."""
    sources = [book_paragraphs(folder / "books" / name) for name in BOOKS]
    blocks = [_blocks(lines) for lines in (*sources, wikitext_lines(folder))]
    batches: list[list[str]] = []
    missing = megabytes * 1e6
    for block in filter(None, itertools.chain.from_iterable(itertools.zip_longest(*blocks))):
        if missing <= 0:
            break
        batches.append(block)
        missing -= sum(len(line.encode()) for line in block)
    return batches


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    block: list[str] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line.encode())
        if size >= BATCH_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def assert_equal_ids(
    tokenizer: WordPieceTokenizer, library: Tokenizer, batches: list[list[str]]
) -> int:
    """Compare the ids of every line; returns the number of tokens."""
    tokens = 0
    for batch in batches:
        ids, lengths = tokenizer.encode_sentences(pa.array(batch, pa.string()))
        ends = np.cumsum(lengths)
        encodings = library.encode_batch_fast(batch, add_special_tokens=False)
        for line, encoding, start, end in zip(batch, encodings, ends - lengths, ends, strict=True):
            if encoding.ids != ids[start:end].tolist():
                raise SystemExit(f"different ids for {line!r}")
        tokens += len(ids)
    return tokens


def for_each(batches: Iterable[T], encode: Callable[[T], object]) -> None:
    for batch in batches:
        encode(batch)


def compare(vocab_file: Path, batches: list[list[str]], *, lowercase: bool, repeat: int) -> None:
    """Check and time one vocabulary, and print what was found."""
    arrays = [pa.array(batch, pa.string()) for batch in batches]
    megabytes = sum(len(line.encode()) for batch in batches for line in batch) / 1e6
    lines = sum(map(len, batches))

    def new() -> WordPieceTokenizer:
        return WordPieceTokenizer.from_vocab_file(str(vocab_file), lowercase=lowercase)

    library = bert_tokenizer(new().vocab, lowercase=lowercase)
    encode_by_library = partial(library.encode_batch_fast, add_special_tokens=False)
    tokens = assert_equal_ids(new(), library, batches)
    print(f"{vocab_file.parent.name}: {lines:,} lines, {tokens:,} tokens: all ids equal")
    times: dict[str, list[float]] = {"cold": [], "warm": [], "library": []}
    for _ in range(repeat):
        tokenizer = new()
        for name in ("cold", "warm"):
            times[name].append(cpu_seconds(partial(for_each, arrays, tokenizer.encode_sentences)))
        times["library"].append(cpu_seconds(partial(for_each, batches, encode_by_library)))
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        print(
            f"  {name:8} {tokens / middle / 1e6:6.2f} M tokens/s {megabytes / middle:6.1f} MB/s "
            f"{ratio(seconds, times['library'])}"
        )


def main() -> None:
    parser = parser_for(__doc__, repeat=5)
    add_data_option(parser)
    parser.add_argument("--megabytes", type=float, default=50)
    arguments = parser.parse_args()
    # Read by the library at its first batch: one thread, so that cores are compared with cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    batches = real_batches(arguments.data, megabytes=arguments.megabytes)
    for case in ("uncased", "cased"):
        vocab_file = arguments.data / "vocab" / f"bert-base-{case}" / "vocab.txt"
        compare(vocab_file, batches, lowercase=case == "uncased", repeat=arguments.repeat)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of all of this, text included: {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
