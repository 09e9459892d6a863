"""What was found put together: which text is in which document, and how much of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.arrays import Bools, Int64s, flat_lists, offsets_of, ranges
from pipelines.contamination.texts import Texts
from pipelines.documents.duplicates import run_starts
from pipelines.io.shards import open_shard
from schemas.arrow import CONTAMINATION_HITS


class Matches(NamedTuple):
    """Pairs of a text and a document, of some documents of a shard."""

    document: Int64s
    """Row of `documents`."""

    text: Int64s
    found: Int64s
    """Runs of the text that the document has."""

    longest: Int64s
    """Words of the longest stretch of such runs."""

    text_word: Int64s
    """Where that begins in the text."""

    document_word: Int64s
    """And where its first run does in the document."""

    documents: pa.RecordBatch
    """Rows of `CONTAMINATION_HITS`."""


class Matcher:
    """Joins the runs that documents have with the texts that have them."""

    def __init__(self, texts: Texts, *, common: Int64s) -> None:
        """`common`: numbers of the runs that too many documents have."""
        self._texts = texts
        ngrams = int(texts.ngrams.max(initial=-1)) + 1
        is_common = np.zeros(ngrams, np.bool_)
        is_common[common] = True
        self.common: Bools = is_common[texts.ngrams]
        """For each of `texts.ngrams`."""

        # Where each run stands in the texts; those that are common stand nowhere.
        rare = np.flatnonzero(~self.common)
        self._places = rare[np.argsort(texts.ngrams[rare], kind="stable")]
        self._bounds = offsets_of(np.bincount(texts.ngrams[rare], minlength=ngrams))
        self._first_words = _first_words(texts)
        self.found: Bools = np.zeros(len(texts.ngrams), np.bool_)
        """For each of `texts.ngrams`, whether any document has it."""

    def matches(self, hits: str) -> Iterator[Matches]:
        """The pairs of the documents of a shard, whose hits have this URL."""
        with open_shard(hits, expected=CONTAMINATION_HITS) as reader:
            for number in range(reader.num_record_batches):
                found = self._of(reader.get_batch(number))
                if len(found.text):
                    yield found

    def _of(self, batch: pa.RecordBatch) -> Matches:
        values, bounds = flat_lists(batch.column("ngrams"))
        numbers = values.to_numpy().astype(np.int64)
        at_words = flat_lists(batch.column("words"))[0].to_numpy().astype(np.int64)
        starts = self._bounds[numbers]
        counts = self._bounds[numbers + 1] - starts
        places = self._places[ranges(starts, counts)]
        documents = np.repeat(np.repeat(np.arange(batch.num_rows), np.diff(bounds)), counts)
        words = np.repeat(at_words, counts)
        order = np.lexsort((places, documents))
        places, documents, words = places[order], documents[order], words[order]
        self.found[places] = True
        texts = np.searchsorted(self._texts.bounds, places, side="right") - 1
        pairs = np.flatnonzero(run_starts(documents, texts)) if len(places) else places
        # Stretches: runs of one pair that begin one word after the other.
        steps = (
            np.flatnonzero(run_starts(documents, texts, places - np.arange(len(places))))
            if len(places)
            else places
        )
        ends = np.append(steps, len(places))[1:] - 1
        first_words = self._first_words[places[steps]]
        lengths = self._texts.ends[places[ends]] - first_words
        of_pair = np.searchsorted(pairs, steps, side="right") - 1
        best = np.lexsort((steps, -lengths, of_pair))
        best = best[run_starts(of_pair[best])] if len(best) else best
        return Matches(
            document=documents[pairs],
            text=texts[pairs],
            found=np.diff(np.append(pairs, len(places))),
            longest=lengths[best],
            text_word=first_words[best],
            document_word=words[steps[best]],
            documents=batch,
        )


def _first_words(texts: Texts) -> Int64s:
    """For each of `texts.ngrams`, the word of its text that it begins with."""
    counts = np.diff(texts.bounds)
    return np.arange(len(texts.ngrams)) - np.repeat(texts.bounds[:-1], counts)
