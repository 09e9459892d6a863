"""DOC"""

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
from schemas.errors import CountMismatchError
from schemas.manifest import FileEntry


class Matches(NamedTuple):
    """Pairs of a text and a document, of some documents of a shard."""

    document: Int64s
    """Row of `documents`."""

    text: Int64s
    found: Int64s
    """NGrams of the text that the document has."""

    longest: Int64s
    """Words of the longest word_window of such runs."""

    text_word: Int64s
    """Where that begins in the text."""

    document_word: Int64s
    """And where its first run does in the document."""

    documents: pa.RecordBatch
    """Rows of `CONTAMINATION_HITS`."""


class Matcher:
    """Joins the runs that documents have with the texts that have them."""

    def __init__(self, texts: EvalTexts, *, common: Int64s) -> None:
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
        pairs = np.flatnonzero(group_starts(documents, texts)) if len(places) else places
        # Stretches: runs of one pair that begin one word after the other.
        steps = (
            np.flatnonzero(group_starts(documents, texts, places - np.arange(len(places))))
            if len(places)
            else places
        )
        ends = np.append(steps, len(places))[1:] - 1
        first_words = self._first_words[places[steps]]
        lengths = self._texts.ends[places[ends]] - first_words
        of_pair = np.searchsorted(pairs, steps, side="right") - 1
        best = np.lexsort((steps, -lengths, of_pair))
        best = best[group_starts(of_pair[best])] if len(best) else best
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
    """For each of `texts.ngrams`, the word of its text that it begins with."""
    counts = np.diff(texts.bounds)
    return np.arange(len(texts.ngrams)) - np.repeat(texts.bounds[:-1], counts)


SHARES = (0.2, 0.5, 0.8)
"""EvalTexts of whose runs at least so much was found are counted by themselves."""


def coverage(texts: EvalTexts, found: Bools) -> tuple[Int64s, np.ndarray]:
    """How many runs each text has, and the share of them that any document has."""
    runs = np.diff(texts.bounds)
    sums = np.concatenate([[0], np.cumsum(found)])
    counts = sums[texts.bounds[1:]] - sums[texts.bounds[:-1]]
    return runs, counts / np.maximum(runs, 1)


def summary_rows(texts: EvalTexts, found: Bools, common: Bools) -> list[dict[str, Any]]:
    """A row for each field of each split of a task that has any text.

    Args:
        texts: all of them.
        found: for each of their runs, whether a document has it.
        common: whether too many have.
    """
    runs, shares = coverage(texts, found)
    sums = [np.concatenate([[0], np.cumsum(marks)]) for marks in (found, common)]
    rows = []
    for number, place in enumerate(texts.places):
        mine = np.flatnonzero(texts.place == number)
        if not len(mine):  # as the second texts of a task of single ones
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
    """A row for each split: its examples, and those with any text that was found."""
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
    """The counters of all texts together.

    Raises:
        CountMismatchError: the texts are not those found, clean and too short.
    """
    kinds = [f"texts-{kind}" for kind in ("in", "contaminated", "clean", "too-short")]
    counters = Counters(dict.fromkeys([*kinds, "ngrams", "ngrams-found", "ngrams-common"], 0))
    for row in rows:
        counters.count("texts-in", row["texts"])
        for kind in ("contaminated", "clean", "too-short"):
            counters.count(f"texts-{kind}", row[kind])
        for kind in ("", "-found", "-common"):
            counters.count(f"ngrams{kind}", row[f"ngrams{kind}"])
    came_in, *came_out = (counters[kind] for kind in kinds)
    if came_in != sum(came_out):
        listed = ", ".join(f"{kind} {counters[kind]}" for kind in kinds)
        raise CountMismatchError(f"find-contamination: texts do not add up: {listed}")
    return counters


_SHOWN_A_TASK = 10
_SHOWN_CHARACTERS = 2_000


def write_ngrams(runs: Sequence[tuple[int, UInt64s]], *, output: str) -> FileEntry:
    """The file that workers map: the runs of each weight."""
    kind = CONTAMINATION_NGRAMS.field("hashes").type
    with ShardWriter(NGRAMS_FILE, schema=CONTAMINATION_NGRAMS, output=output) as shard:
        for weight, hashes in runs:
            columns = [pa.array([weight], pa.uint8())]
            columns.append(list_array(hashes, np.array([0, len(hashes)]), kind))
            shard.write(pa.record_batch(columns, schema=CONTAMINATION_NGRAMS))
    return shard.entry()


class Written(NamedTuple):
    """What was written of the matches."""

    files: tuple[FileEntry, ...]
    documents: int
    """That have anything of a text."""

    left_out: int
    """Of those the ones that are to be left out."""


def write_matches(
    matcher: Matcher,
    texts: EvalTexts,
    hits: Iterable[tuple[str, FileEntry]],
    *,
    splits: SplitFiles,
    min_overlap: float,
    output: str,
) -> Written:
    """Write the pairs of texts and documents, the documents to leave out, and the worst passages.

    Args:
        matcher: of the texts; it knows then which of their runs were found.
        texts: all of them.
        hits: by the document shard's name its file of CONTAMINATION_HITS.
        splits: the files of the examples.
        min_overlap: of a text's runs, from which on a document is to be left out.
        output: URL of the folder of all these files.
    """
    ids, worst = _example_ids(texts, splits), _TopMatches(texts)
    documents = left_out = 0
    with (
        ShardWriter(MATCHES_FILE, schema=CONTAMINATION, output=output) as rows,
        ShardWriter(EXCLUSIONS_FILE, schema=EXCLUDED_DOCUMENTS, output=output) as leave,
    ):
        for shard, entry in hits:
            for found in matcher.matches(f"{output}/{entry.stored_name}"):
                batch = _match_rows(found, texts, ids, shard=shard)
                rows.write(batch)
                leave.write(out := _left_out_rows(found, batch, least=min_overlap))
                documents += len(np.unique(found.document))
                left_out += out.num_rows
                worst.add(found, batch)
    text = json.dumps(worst.passages(splits), ensure_ascii=False, indent=1) + "\n"
    files = (rows.entry(), leave.entry(), write_text_file(PASSAGES_FILE, text, output=output))
    return Written(files, documents, left_out)


def _example_ids(texts: EvalTexts, splits: SplitFiles) -> pa.StringArray:
    """For each text the id of the first example that has it."""
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


def _left_out_rows(found: Matches, rows: pa.RecordBatch, *, least: float) -> pa.RecordBatch:
    """The documents with enough of a text; of several texts the one with the largest share."""
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
    """Of each task the texts with the longest stretches, each with the document that has it."""

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
        """Rows of CONTAMINATION, each with the words that text and document share."""
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
