"""The files of a search: what is looked for, what was found where, what to leave out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.arrays import UInt64s, list_array
from pipelines.contamination.matches import Matcher, Matches
from pipelines.contamination.names import MATCHES_FILE, NGRAMS_FILE, PASSAGES_FILE
from pipelines.contamination.texts import SplitFiles, Texts
from pipelines.documents.duplicates import run_starts
from pipelines.documents.left_out import CONTAMINATED, LEFT_OUT_FILE
from pipelines.documents.words import stretch
from pipelines.io.files import write_text_file
from pipelines.io.shards import ShardWriter, open_shard
from schemas.arrow import CONTAMINATION, CONTAMINATION_NGRAMS, EXAMPLES, EXCLUDED_DOCUMENTS
from schemas.manifest import FileEntry

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
    texts: Texts,
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
    ids, worst = _example_ids(texts, splits), _Worst(texts)
    documents = left_out = 0
    with (
        ShardWriter(MATCHES_FILE, schema=CONTAMINATION, output=output) as rows,
        ShardWriter(LEFT_OUT_FILE, schema=EXCLUDED_DOCUMENTS, output=output) as leave,
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


def _example_ids(texts: Texts, splits: SplitFiles) -> pa.StringArray:
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


def _match_rows(found: Matches, texts: Texts, ids: pa.StringArray, *, shard: str) -> pa.RecordBatch:
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
    chosen = order[run_starts(found.document[order])]
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


class _Worst:
    """Of each task the texts with the longest stretches, each with the document that has it."""

    def __init__(self, texts: Texts) -> None:
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
            shared = stretch(whole, row["text_word"], row["longest_run"])
            row["passage"] = (whole if row["field"] == "continuations" else shared)[
                :_SHOWN_CHARACTERS
            ]
        return [row for _, row in rows]
