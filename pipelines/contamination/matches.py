"""Match evaluation texts with documents: pairs, excluded documents, passages and counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.arrays import Bools, Int64s, UInt64s, flat_lists, list_array, offsets_of, ranges
from pipelines.contamination import MATCHES_FILE, NGRAMS_FILE, PASSAGES_FILE
from pipelines.contamination.scan import EvalTexts, SplitFiles
from pipelines.counters import Counters
from pipelines.documents.duplicates import group_starts
from pipelines.documents.exclusions import CONTAMINATED, EXCLUSIONS_FILE
from pipelines.documents.word_hashes import word_window
from pipelines.io.files import write_text_file
from pipelines.io.shards import ShardWriter, open_shard
from schemas.arrow import (
    CONTAMINATION,
    CONTAMINATION_HITS,
    CONTAMINATION_NGRAMS,
    EXAMPLES,
    EXCLUDED_DOCUMENTS,
)
from schemas.manifest import FileEntry


class Matches(NamedTuple):
    """Pairs of a text and a document, for documents of a shard."""

    document: Int64s
    """Row in `documents`."""

    text: Int64s
    found: Int64s
    """Number of n-grams of the text in the document."""

    longest: Int64s
    """Number of words of the longest shared passage."""

    text_word: Int64s
    """First word of the passage in the text."""

    document_word: Int64s
    """First word of the passage in the document."""

    documents: pa.RecordBatch
    """Rows of `CONTAMINATION_HITS`."""


class Matcher:
    """Joins the n-grams of documents with the texts that have them."""

    def __init__(self, texts: EvalTexts, *, common: Int64s) -> None:
        """Ignore the n-grams with the numbers `common`, which too many documents have."""
        self._texts = texts
        ngrams = int(texts.ngrams.max(initial=-1)) + 1
        is_common = np.zeros(ngrams, np.bool_)
        is_common[common] = True
        self.common: Bools = is_common[texts.ngrams]
        """True for each of `texts.ngrams` that is common."""

        # Indices in `texts.ngrams` of each n-gram that is not common.
        rare = np.flatnonzero(~self.common)
        self._places = rare[np.argsort(texts.ngrams[rare], kind="stable")]
        self._bounds = offsets_of(np.bincount(texts.ngrams[rare], minlength=ngrams))
        self._first_words = _first_words(texts)
        self.found: Bools = np.zeros(len(texts.ngrams), np.bool_)
        """True for each of `texts.ngrams` that a document has."""

    def matches(self, hits: str) -> Iterator[Matches]:
        """Yield the pairs of the documents of a shard, given the URL of its hits."""
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
        pairs = np.flatnonzero(group_starts(documents, texts))
        # Passages: n-grams of one pair that begin at consecutive words.
        steps = np.flatnonzero(group_starts(documents, texts, places - np.arange(len(places))))
        ends = np.append(steps, len(places))[1:] - 1
        first_words = self._first_words[places[steps]]
        lengths = self._texts.ends[places[ends]] - first_words
        of_pair = np.searchsorted(pairs, steps, side="right") - 1
        best = np.lexsort((steps, -lengths, of_pair))
        best = best[group_starts(of_pair[best])]
        return Matches(
            document=documents[pairs],
            text=texts[pairs],
            found=np.diff(np.append(pairs, len(places))),
            longest=lengths[best],
            text_word=first_words[best],
            document_word=words[steps[best]],
            documents=batch,
        )


def _first_words(texts: EvalTexts) -> Int64s:
    """Return the index of the first word of each of `texts.ngrams` in its text."""
    counts = np.diff(texts.bounds)
    return np.arange(len(texts.ngrams)) - np.repeat(texts.bounds[:-1], counts)


SHARES = (0.2, 0.5, 0.8)
"""Coverage thresholds with counts of texts."""


def coverage(texts: EvalTexts, found: Bools) -> tuple[Int64s, np.ndarray]:
    """Return the number of n-grams of each text, and the fraction that any document has."""
    runs = np.diff(texts.bounds)
    sums = np.concatenate([[0], np.cumsum(found)])
    counts = sums[texts.bounds[1:]] - sums[texts.bounds[:-1]]
    return runs, counts / np.maximum(runs, 1)


def summary_rows(texts: EvalTexts, found: Bools, common: Bools) -> list[dict[str, Any]]:
    """Return one row per field of each split with texts; marks are of each n-gram of the texts."""
    runs, shares = coverage(texts, found)
    sums = [np.concatenate([[0], np.cumsum(marks)]) for marks in (found, common)]
    rows = []
    for number, place in enumerate(texts.places):
        mine = np.flatnonzero(texts.place == number)
        if not len(mine):  # second texts of single-sentence tasks
            continue
        is_long, touched = runs[mine] > 0, shares[mine] > 0
        first, last = texts.bounds[mine[0]], texts.bounds[mine[-1] + 1]
        split = (place.task, place.split)
        of_texts, of_rows = texts.of_examples.get(split, (mine[:0], mine[:0]))
        here = np.isin(of_texts, mine[touched])
        rows.append(
            {
                **place._asdict(),
                "texts": len(mine),
                "too-short": int(np.sum(~is_long)),
                "clean": int(np.sum(is_long & ~touched)),
                "contaminated": int(np.sum(touched)),
                **{f"found-{share:.0%}": int(np.sum(shares[mine] >= share)) for share in SHARES},
                "ngrams": int(np.sum(runs[mine])),
                "ngrams-found": int(sums[0][last] - sums[0][first]),
                "ngrams-common": int(sums[1][last] - sums[1][first]),
                "examples": texts.examples[split],
                "examples-contaminated": len(np.unique(of_rows[here])),
            }
        )
    return rows


def split_rows(texts: EvalTexts, found: Bools) -> list[dict[str, Any]]:
    """Return one row per split: its examples, and those with a contaminated text."""
    touched = np.flatnonzero(coverage(texts, found)[1] > 0)
    rows = []
    for (task, split), examples in texts.examples.items():
        of_texts, of_rows = texts.of_examples.get((task, split), (touched[:0], touched[:0]))
        count = len(np.unique(of_rows[np.isin(of_texts, touched)]))
        rows.append(
            {"task": task, "split": split, "examples": examples, "examples-contaminated": count}
        )
    return rows


def text_counters(rows: list[dict[str, Any]]) -> Counters:
    """Return the counters of all texts, which are contaminated, clean or too short."""
    column_of = {"texts-in": "texts"}
    column_of |= {f"texts-{kind}": kind for kind in ("contaminated", "clean", "too-short")}
    column_of |= {name: name for name in ("ngrams", "ngrams-found", "ngrams-common")}
    return Counters({name: sum(row[key] for row in rows) for name, key in column_of.items()})


_SHOWN_A_TASK = 10
_SHOWN_CHARACTERS = 2_000


def write_ngrams(runs: Sequence[tuple[int, UInt64s]], *, output: str) -> FileEntry:
    """Write the file that workers memory-map: the n-grams of each weight."""
    kind = CONTAMINATION_NGRAMS.field("hashes").type
    with ShardWriter(NGRAMS_FILE, schema=CONTAMINATION_NGRAMS, output=output) as shard:
        for weight, hashes in runs:
            columns = [pa.array([weight], pa.uint8())]
            columns.append(list_array(hashes, np.array([0, len(hashes)]), kind))
            shard.write(pa.record_batch(columns, schema=CONTAMINATION_NGRAMS))
    return shard.entry()


class Written(NamedTuple):
    """Files of the matches, with counts."""

    files: tuple[FileEntry, ...]
    documents: int
    """Number of documents with any n-gram of a text."""

    excluded: int
    """Number of excluded documents."""


def write_matches(
    matcher: Matcher,
    texts: EvalTexts,
    hits: Iterable[tuple[str, FileEntry]],
    *,
    splits: SplitFiles,
    min_overlap: float,
    output: str,
) -> Written:
    """Write the pairs of texts and documents, the excluded documents, and the longest passages.

    A document is excluded if it has at least the fraction `min_overlap` of a text's n-grams.
    """
    ids, worst = _example_ids(texts, splits), _TopMatches(texts)
    documents = excluded = 0
    with (
        ShardWriter(MATCHES_FILE, schema=CONTAMINATION, output=output) as rows,
        ShardWriter(EXCLUSIONS_FILE, schema=EXCLUDED_DOCUMENTS, output=output) as leave,
    ):
        for shard, entry in hits:
            for found in matcher.matches(f"{output}/{entry.stored_name}"):
                batch = _match_rows(found, texts, ids, shard=shard)
                rows.write(batch)
                leave.write(out := _excluded_rows(found, batch, least=min_overlap))
                documents += len(np.unique(found.document))
                excluded += out.num_rows
                worst.add(found, batch)
    text = json.dumps(worst.passages(splits), ensure_ascii=False, indent=1) + "\n"
    files = (rows.entry(), leave.entry(), write_text_file(PASSAGES_FILE, text, output=output))
    return Written(files, documents, excluded)


def _example_ids(texts: EvalTexts, splits: SplitFiles) -> pa.StringArray:
    """Return the id of the first example with each text."""
    columns: dict[tuple[str, str], pa.ChunkedArray] = {}
    for split, (kind, file) in splits.items():
        with open_shard(file, expected=EXAMPLES[kind], columns=("id",)) as reader:
            columns[split] = reader.read_all().column("id")
    parts = []
    for number, place in enumerate(texts.places):
        rows = texts.row[texts.place == number]
        parts.append(columns[place.task, place.split].take(pa.array(rows)).combine_chunks())
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def _match_rows(
    found: Matches, texts: EvalTexts, ids: pa.StringArray, *, shard: str
) -> pa.RecordBatch:
    text, documents = found.text, found.documents.take(pa.array(found.document))
    places = [texts.places[number] for number in texts.place[text].tolist()]
    runs = np.diff(texts.bounds)[text]
    numbers = (runs, found.found, found.longest, found.text_word, found.document_word)
    columns = [
        *(pa.array(list(names), pa.string()) for names in zip(*places, strict=True)),
        ids.take(pa.array(text)),
        pa.array(texts.used[text], pa.uint32()),
        documents.column("document_id"),
        documents.column("title"),
        pa.array([shard] * len(text), pa.string()),
        documents.column("row"),
        *(pa.array(column, pa.uint32()) for column in numbers),
    ]
    return pa.record_batch(columns, schema=CONTAMINATION)


def _excluded_rows(found: Matches, rows: pa.RecordBatch, *, least: float) -> pa.RecordBatch:
    """Return the documents to exclude, each with the text of the largest overlap."""
    shares = found.found / rows.column("ngrams").to_numpy()
    enough = np.flatnonzero(shares >= least)
    order = enough[np.lexsort((found.text[enough], -shares[enough], found.document[enough]))]
    chosen = order[group_starts(found.document[order])]
    out = rows.take(pa.array(chosen))
    names = (out.column(name).to_pylist() for name in ("task", "split", "example_id", "field"))
    columns = [
        out.column("document_id"),
        out.column("shard"),
        out.column("row"),
        pa.array([CONTAMINATED] * len(chosen), pa.string()),
        pa.array([" ".join(parts) for parts in zip(*names, strict=True)], pa.string()),
    ]
    return pa.record_batch(columns, schema=EXCLUDED_DOCUMENTS)


class _TopMatches:
    """Texts of each task with the longest passages, each with its document."""

    def __init__(self, texts: EvalTexts) -> None:
        self._texts = texts
        self._found: dict[str, dict[int, dict[str, Any]]] = {}

    def add(self, found: Matches, rows: pa.RecordBatch) -> None:
        order = np.lexsort((found.text, -found.longest))
        tasks = rows.column("task").to_pylist()
        added: dict[str, set[int]] = {}
        for at in order.tolist():
            text, mine = int(found.text[at]), added.setdefault(tasks[at], set())
            if len(mine) < _SHOWN_A_TASK and text not in mine:
                mine.add(text)
                row = {**rows.slice(at, 1).to_pylist()[0], "words": int(self._texts.words[text])}
                kept = self._found.setdefault(tasks[at], {})
                if text not in kept or kept[text]["longest_run"] < row["longest_run"]:
                    kept[text] = row
        for task in added:
            best = sorted(self._found[task].items(), key=lambda i: (-i[1]["longest_run"], i[0]))
            self._found[task] = dict(best[:_SHOWN_A_TASK])

    def passages(self, splits: SplitFiles) -> list[dict[str, Any]]:
        """Return rows of CONTAMINATION, each with the shared passage."""
        rows = [
            (text, row) for task in sorted(self._found) for text, row in self._found[task].items()
        ]
        for text, row in rows:
            kind, file = splits[row["task"], row["split"]]
            with open_shard(file, expected=EXAMPLES[kind], columns=(row["field"],)) as reader:
                value = reader.read_all().column(row["field"])[int(self._texts.row[text])].as_py()
            whole = " ".join(value) if isinstance(value, list) else value
            shared = word_window(whole, row["text_word"], row["longest_run"])
            row["passage"] = (whole if row["field"] == "continuations" else shared)[
                :_SHOWN_CHARACTERS
            ]
        return [row for _, row in rows]
