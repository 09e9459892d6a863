"""Join the hits of document shards with the evaluation texts: matches and excluded documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Bools, Int64s, flat_lists, joined, ranges
from pipelines.contamination import MATCHES_FILE, PASSAGES_FILE
from pipelines.contamination.texts import TEXT_COLUMNS, EvalTexts, TextNgrams
from pipelines.documents.duplicates import group_starts
from pipelines.documents.exclusions import CONTAMINATED, EXCLUSIONS_FILE
from pipelines.documents.word_hashes import normalized_words, word_window
from pipelines.io.files import write_text_file
from pipelines.io.shards import ShardWriter, open_shard
from schemas.arrow import CONTAMINATION, CONTAMINATION_HITS, EXCLUDED_DOCUMENTS
from schemas.manifest import FileEntry

Hits = Sequence[tuple[str, str]]
"""Logical name of each document shard, and the URL of its hits."""


def read_hits(url: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table `CONTAMINATION_HITS`."""
    with open_shard(url, expected=CONTAMINATION_HITS) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def count_documents(ngrams: TextNgrams, hits: Hits) -> Int64s:
    """Return the number of documents with each n-gram, for each row of `ngrams`."""
    counts = np.zeros(len(ngrams.hashes), np.int64)
    for _, url in hits:
        for batch in read_hits(url):
            np.add.at(counts, batch.column("ngrams").flatten().to_numpy(), 1)
    is_first = ngrams.repeats > 0
    return np.repeat(counts[is_first], ngrams.repeats[is_first])


class Pairs(NamedTuple):
    """Pairs of a document and a text that share an n-gram, in this order."""

    documents: Int64s
    """Row in the batch of hits."""

    texts: Int64s
    ngrams: Int64s
    """Number of n-grams of the text in the document."""

    longest: Int64s
    """Number of words of the longest shared passage."""

    text_words: Int64s
    """First word of the passage in the text."""


def match_texts(hits: pa.RecordBatch, ngrams: TextNgrams, is_found: Bools) -> Pairs:
    """Return the pairs of the documents in a batch of hits.

    `is_found` marks the rows of `ngrams` that hits have and that are not common.
    """
    documents, rows = _shared_ngrams(hits, ngrams, is_found)
    texts, words, ends = ngrams.texts[rows], ngrams.words[rows], ngrams.ends[rows]
    pairs = np.flatnonzero(group_starts(documents, texts))
    counts = np.diff(np.append(pairs, len(rows)))
    # A passage: n-grams of a pair that begin at consecutive words.
    firsts = np.flatnonzero(group_starts(documents, texts, words - np.arange(len(words))))
    lengths = ends[np.append(firsts, len(rows))[1:] - 1] - words[firsts]
    pair = np.searchsorted(pairs, firsts, side="right")
    order = np.lexsort((-lengths, pair))
    longest = order[group_starts(pair[order])]
    return Pairs(documents[pairs], texts[pairs], counts, lengths[longest], words[firsts][longest])


def _shared_ngrams(
    hits: pa.RecordBatch, ngrams: TextNgrams, is_found: Bools
) -> tuple[Int64s, Int64s]:
    """Return pairs of a document and the row of an n-gram, sorted by document, text and word."""
    values, bounds = flat_lists(hits.column("ngrams"))
    numbers = values.to_numpy().astype(np.int64)
    documents = np.repeat(np.arange(len(hits)), np.diff(bounds))
    keep = is_found[numbers]
    numbers, documents = numbers[keep], documents[keep]
    repeats = ngrams.repeats[numbers]
    rows, documents = ranges(numbers, repeats), np.repeat(documents, repeats)
    order = np.lexsort((ngrams.words[rows], ngrams.texts[rows], documents))
    return documents[order], rows[order]


class Matches(NamedTuple):
    """Files of the matches, with a count."""

    table: FileEntry
    excluded: FileEntry
    passages: FileEntry
    documents: int
    """Number of documents with any n-gram of a text."""


def write_matches(
    texts: EvalTexts, hits: Hits, *, is_found: Bools, min_overlap: float, output: str
) -> Matches:
    """Write the pairs of texts and documents, the excluded documents, and the longest passages.

    A document is excluded if it has at least the fraction `min_overlap` of a text's n-grams.
    """
    documents = 0
    numbers, longest = list[Int64s](), list[Int64s]()
    with (
        ShardWriter(MATCHES_FILE, schema=CONTAMINATION, output=output) as matches,
        ShardWriter(EXCLUSIONS_FILE, schema=EXCLUDED_DOCUMENTS, output=output) as excluded,
    ):
        for shard, url in hits:
            for batch in read_hits(url):
                pairs = match_texts(batch, texts.ngrams, is_found)
                if len(pairs.texts):
                    rows = _match_rows(pairs, texts, batch, shard=shard)
                    matches.write(rows)
                    excluded.write(_excluded_rows(pairs, rows, min_overlap=min_overlap))
                    documents += len(np.unique(pairs.documents))
                    numbers.append(pairs.texts)
                    longest.append(pairs.longest)
    table = matches.entry()
    url = f"{output}/{table.stored_name}"
    passages = _read_passages(url, texts, joined(numbers), joined(longest))
    content = json.dumps(passages, ensure_ascii=False, indent=1) + "\n"
    file = write_text_file(PASSAGES_FILE, content, output=output)
    return Matches(table, excluded.entry(), file, documents)


def _match_rows(
    pairs: Pairs, texts: EvalTexts, hits: pa.RecordBatch, *, shard: str
) -> pa.RecordBatch:
    """Return rows of `CONTAMINATION`."""
    described = texts.table.select(TEXT_COLUMNS).take(pa.array(pairs.texts))
    documents = hits.take(pa.array(pairs.documents))
    columns = {
        **{name: described.column(name).combine_chunks() for name in TEXT_COLUMNS},
        **{name: documents.column(name) for name in ("document_id", "title", "row")},
        "shard": pa.repeat(shard, len(documents)),
        "ngrams_found": pairs.ngrams,
        "longest_run": pairs.longest,
        "text_word": pairs.text_words,
    }
    return pa.RecordBatch.from_pydict(columns, schema=CONTAMINATION)


def _excluded_rows(pairs: Pairs, rows: pa.RecordBatch, *, min_overlap: float) -> pa.RecordBatch:
    """Return the documents to exclude, each with the text of the largest overlap."""
    overlaps = pairs.ngrams / rows.column("ngrams").to_numpy()
    enough = np.flatnonzero(overlaps >= min_overlap)
    order = enough[np.lexsort((-overlaps[enough], pairs.documents[enough]))]
    chosen = rows.take(pa.array(order[group_starts(pairs.documents[order])]))
    names = [chosen.column(name) for name in ("task", "split", "example_id", "field")]
    columns = {
        **{name: chosen.column(name) for name in ("document_id", "shard", "row")},
        "reason": pa.repeat(CONTAMINATED, len(chosen)),
        "matched": pc.binary_join_element_wise(*names, " "),
    }
    return pa.RecordBatch.from_pydict(columns, schema=EXCLUDED_DOCUMENTS)


_SHOWN_PER_TASK = 10
_SHOWN_CHARACTERS = 2_000


def _read_passages(
    url: str, texts: EvalTexts, numbers: Int64s, longest: Int64s
) -> list[dict[str, Any]]:
    """Return the matches with the longest passages, one per text, each with its passage.

    Args:
        url: URL of the table `CONTAMINATION`.
        texts: All texts.
        numbers: Number of the text of each match.
        longest: Number of words of the longest passage of each match.
    """
    order = np.lexsort((numbers, -longest))
    _, firsts = np.unique(numbers[order], return_index=True)
    best = order[np.sort(firsts)]
    tasks = texts.table.column("task").take(pa.array(numbers[best])).to_numpy()
    shown = joined([best[tasks == task][:_SHOWN_PER_TASK] for task in np.unique(tasks)])
    with open_shard(url, expected=CONTAMINATION) as reader:
        rows: list[dict[str, Any]] = reader.read_all().take(pa.array(shown)).to_pylist()
    whole = texts.table.column("text").take(pa.array(numbers[shown])).to_pylist()
    for row, text in zip(rows, whole, strict=True):
        passage = word_window(text, row["text_word"], row["longest_run"])
        row["words"] = len(normalized_words(text))
        row["passage"] = passage[:_SHOWN_CHARACTERS]
    return rows
