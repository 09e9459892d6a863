"""Showing the first rows of a shard as a person reads them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from flows.lineage.resolution import artifact_of_file, resolve
from flows.store.artifacts import ArtifactStore
from pipelines.instances.plan import pool_numbers
from pipelines.io.file_systems import file_system
from pipelines.io.shards import open_shard
from pipelines.wordpiece.vocab_files import VOCAB_FILE, read_vocab
from schemas.arrow import TABLE_KEY
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.manifest import FileEntry, InputRef, Manifest

_LABELS = {0: "B follows A (0)", 1: "B is random (1)", -1: "no B (-1)"}

_SHOWN_SENTENCES = 12
_SHOWN_CHARACTERS = 500
_LINES = (".txt", ".tsv", ".csv", ".jsonl", ".json", ".md")
_TABLES_FILE = "tables.txt"


class Shard(NamedTuple):
    """A shard, and what is known of it."""

    url: str
    path: str
    """Logical name; the file's own where it is in no artifact."""

    manifest: Manifest | None
    store: ArtifactStore | None
    is_any: bool = False
    """Whether an artifact was asked for without saying which of its shards."""


class Mark(NamedTuple):
    """A piece of text with what it is: `plain`, `special`, `a`, `b`, `masked`, `dim`."""

    text: str
    style: str = "plain"


def find_shard(text: str, *, open_store: Any) -> Shard:
    """The shard that a path, a URL or `ARTIFACT[:part]` names.

    Args:
        text: as the user gave it; without a part, an artifact's first shard.
        open_store: called without arguments for the store to look artifacts up in.

    Raises:
        ArtifactNotFoundError: there is none.
    """
    if (found := artifact_of_file(text)) is not None:
        manifest, store, path = found
        return _shard(manifest, store, path)
    if text.endswith((".arrow", ".txt")) and ":" not in text.replace("://", ""):
        return Shard(text, text.rpartition("/")[2], None, None)
    store = open_store()
    name, colon, part = text, "", ""
    if ":" in text.replace("://", "   "):
        name, colon, part = text.rpartition(":")
    manifest = resolve(name, store=store)
    shard = _shard(manifest, store, _part(manifest, part if colon else ""))
    return shard._replace(is_any=not (colon and part))


def at_row(shard: Shard, row: int) -> tuple[Shard, int]:
    """The shard that holds a row, and the row's number in it.

    Args:
        shard: that of `find_shard`. Where an artifact was asked for, its shards follow each other.
        row: from 0.

    Raises:
        ArtifactNotFoundError: the artifact has fewer rows.
    """
    manifest, store = shard.manifest, shard.store
    if not shard.is_any or manifest is None or store is None:
        return shard, row
    first = 0
    parts = _parts(manifest)
    for entry in parts:
        if row < first + (entry.rows or 0):
            return _shard(manifest, store, entry.path), row - first
        first += entry.rows or 0
    if not first:  # no shards with rows, but a file of another kind
        return shard, row
    raise ArtifactNotFoundError(
        f"artifact {manifest.artifact_id} has no row {row:,}: its {len(parts):,} shards have "
        f"{first:,}, counted from 0"
    )


def _shard(manifest: Manifest, store: ArtifactStore, path: str) -> Shard:
    entry = manifest.file(path)
    if entry is None:
        raise ArtifactNotFoundError(f"artifact {manifest.artifact_id} has no file {path!r}")
    return Shard(store.url(f"{manifest.data}/{entry.object}"), path, manifest, store)


def _parts(manifest: Manifest) -> list[FileEntry]:
    return [entry for entry in manifest.files if entry.path.startswith("part-")]


def _part(manifest: Manifest, part: str) -> str:
    """The logical name of a part: itself, its number among the shards, or "" for the first."""
    paths = [entry.path for entry in manifest.files]
    shards = [entry.path for entry in _parts(manifest)]
    # A file in a folder of its own, such as held-out shards, is known by its name alone too.
    named = [path for path in paths if path == part or path.endswith(f"/{part}")] if part else []
    if named:
        return named[0]
    if not part:
        with_rows = [entry.path for entry in _parts(manifest) if entry.rows != 0]
        found = [*with_rows, *shards, *_readable(paths)]
        return found[0] if found else paths[0]
    parts = shards or paths
    if part.isdigit() and int(part) < len(parts):
        return parts[int(part)]
    shown = ", ".join(paths[:6]) + (" ..." if len(paths) > 6 else "")
    raise ArtifactNotFoundError(
        f"artifact {manifest.artifact_id} has no part {part!r}: expected a number below "
        f"{len(parts)}, or one of {shown}"
    )


def _readable(paths: Sequence[str]) -> list[str]:
    """The files that have rows or lines to show, those that say most of an artifact first."""
    best = [path for path in paths if path in (VOCAB_FILE, _TABLES_FILE)]
    return best + [path for path in paths if path.endswith((".arrow", *_LINES))]


def head(
    shard: Shard, *, rows: int, start: int = 0, vocab: str | None = None
) -> Iterator[list[Mark]]:
    """The first rows of a shard, a list of marks a line.

    Raises:
        ConfigError: the vocabulary that it needs cannot be found.
        ArtifactCorruptError: it is no Arrow file.
    """
    if shard.path.endswith(_LINES):
        yield from _text_lines(shard, rows=rows, start=start)
        return
    if not shard.path.endswith(".arrow"):
        raise ConfigError(
            f"{shard.path}: expected a shard (.arrow) or a file of lines ({', '.join(_LINES)}); "
            f"another kind of file is to be read by what it is made for: {shard.url}"
        )
    with open_shard(shard.url) as reader:
        table = (reader.schema.metadata or {}).get(TABLE_KEY, b"").decode()
        render = _RENDERERS.get(table, _render_row)
        words = _words(shard, vocab) if table in ("tokens", "instances") else []
        names = _document_ids(shard) if table == "instances" else _NoNames()
        for number, row in _rows(reader, start=start, count=rows):
            yield [Mark(f"{shard.path} row {number}", "dim")]
            yield from render(row, words, names)
            yield []


def _text_lines(shard: Shard, *, rows: int, start: int) -> Iterator[list[Mark]]:
    yield [Mark(f"{shard.path} from line {start}", "dim")]
    fs, path = file_system(shard.url)
    with fs.open(path, "rt", encoding="utf-8", errors="replace") as source:
        for number, line in enumerate(itertools.islice(source, start, start + rows), start=start):
            shown = line.rstrip("\r\n")
            more = " ..." if len(shown) > _SHOWN_CHARACTERS else ""
            yield [Mark(f"{number:>7,}  ", "dim"), Mark(shown[:_SHOWN_CHARACTERS] + more)]


def _rows(reader: Any, *, start: int, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    first = 0
    for index in range(reader.num_record_batches):
        batch = reader.get_batch(index)
        low, high = max(start - first, 0), min(start + count - first, batch.num_rows)
        if low < high:
            rows = batch.slice(low, high - low).to_pylist()
            yield from enumerate(rows, start=first + low)
        first += batch.num_rows
        if first >= start + count:
            return


def _words(shard: Shard, vocab: str | None) -> list[str]:
    """The vocabulary that a shard's ids mean: the one given, or the one of its lineage."""
    if vocab is not None:
        return list(read_vocab(vocab))
    found = _input(shard, "vocabulary")
    if found is None or shard.store is None or (entry := found.file(VOCAB_FILE)) is None:
        raise ConfigError(
            f"{shard.url}: no vocabulary can be found by its manifest; name one with --vocab"
        )
    return list(read_vocab(shard.store.url(f"{found.data}/{entry.object}")))


def _input(shard: Shard, name: str) -> Manifest | None:
    if shard.manifest is None or shard.store is None:
        return None
    ref: InputRef | None = shard.manifest.input(name)
    return shard.store.read_manifest(ref.manifest) if ref else None


class _NoNames:
    """Rows of token shards as they are: nothing says which documents they are."""

    def name(self, place: int, row: int) -> str:
        """The document at a row of the token shard that has this place in the pool; 0 is A's."""
        return f"row {row}" if place == 0 else f"row {row} of token shard {place} of the pool"


class _TokenRows(_NoNames):
    """The documents that rows of token shards are."""

    def __init__(self, tokens: Manifest, store: ArtifactStore, *, pool: Sequence[int]) -> None:
        self._tokens, self._store = tokens, store
        self._entries = [tokens.files[number] for number in pool]
        self._columns: dict[str, list[str]] = {}

    def name(self, place: int, row: int) -> str:
        entry = self._entries[place]
        path = entry.path
        if path not in self._columns:
            with open_shard(self._store.url(f"{self._tokens.data}/{entry.object}")) as reader:
                ids = reader.read_all().column("document_id")
                self._columns[path] = ids.to_pylist()
        return self._columns[path][row]


def _document_ids(shard: Shard) -> _NoNames:
    tokens = _input(shard, "tokens")
    entry = shard.manifest.file(shard.path) if shard.manifest else None
    if tokens is None or shard.store is None or entry is None:
        return _NoNames()
    if "pool" not in entry.statistics:  # version 1 of the table
        return _NoNames()
    return _TokenRows(tokens, shard.store, pool=pool_numbers(entry))


def _render_instance(
    row: dict[str, Any], words: Sequence[str], names: _NoNames
) -> Iterator[list[Mark]]:
    ids, border, label = row["input_ids"], row["segment_b_start"], row["next_sentence_label"]
    original = dict(zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True))
    pieces = [
        _piece(words, token, original.get(position), style="a" if position < border else "b")
        for position, token in enumerate(ids)
    ]
    facts = f"document {names.name(0, row['document_row'])}, duplicate {row['duplicate']}"
    yield [Mark(f"{_LABELS.get(label, str(label))}; {facts}; ", "dim"), Mark(
        f"{len(ids)} tokens, {len(original)} masked", "dim")]  # fmt: skip
    if label == 1:
        other = names.name(row["segment_b_shard"], row["segment_b_row"])
        yield [Mark(f"B from document {other}", "dim")]
    yield [Mark("A: ", "dim"), *join_pieces(pieces[:border])]
    if border < len(ids):
        yield [Mark("B: ", "dim"), *join_pieces(pieces[border:])]


def _piece(words: Sequence[str], token: int, original: int | None, *, style: str) -> Mark:
    shown = word(words, token)
    if original is not None:
        masked = "MASK" if shown == "[MASK]" else shown
        return Mark(f"[{masked}→{word(words, original)}]", "masked")
    return Mark(shown, "special" if shown in ("[CLS]", "[SEP]") else style)


def word(words: Sequence[str], token: int) -> str:
    """A piece of the vocabulary, or `<id>` where the vocabulary has no such id."""
    return words[token] if token < len(words) else f"<{token}>"


def join_pieces(pieces: Sequence[Mark]) -> list[Mark]:
    """Pieces with spaces between words; `##` goes where nothing is marked."""
    marks: list[Mark] = []
    for index, piece in enumerate(pieces):
        joins = (
            index > 0 and piece.text.startswith("##") and piece.style not in ("masked", "special")
        )
        text = piece.text[2:] if joins else (" " if index else "") + piece.text
        marks.append(Mark(text, piece.style))
    return marks


def _render_tokens(
    row: dict[str, Any], words: Sequence[str], _names: _NoNames
) -> Iterator[list[Mark]]:
    yield [Mark(f"document {row['document_id']}; {len(row['token_ids'])} tokens", "dim")]
    start = 0
    for length in row["sentence_lengths"][:_SHOWN_SENTENCES]:
        ids = row["token_ids"][start : start + length]
        yield [Mark("  "), *join_pieces([Mark(word(words, token), "a") for token in ids])]
        start += length
    yield from _more(len(row["sentence_lengths"]))


def _more(sentences: int) -> Iterator[list[Mark]]:
    """Says what is not shown: a row may be a novel."""
    if sentences > _SHOWN_SENTENCES:
        yield [Mark(f"  and {sentences - _SHOWN_SENTENCES:,} more sentences", "dim")]


def _render_document(
    row: dict[str, Any], _words: Sequence[str], _names: _NoNames
) -> Iterator[list[Mark]]:
    yield [
        Mark(f"document {row['document_id']}; source {row['source']}; ", "dim"),
        Mark(row["title"]),
    ]
    for sentence in row["sentences"][:_SHOWN_SENTENCES]:
        yield [Mark(f"  {sentence}")]
    yield from _more(len(row["sentences"]))


def _render_row(
    row: dict[str, Any], _words: Sequence[str], _names: _NoNames
) -> Iterator[list[Mark]]:
    for name, value in row.items():
        shown = value.hex() if isinstance(value, bytes) else value
        yield [Mark(f"  {name}: {shown}")]


_RENDERERS = {
    "documents": _render_document,
    "tokens": _render_tokens,
    "instances": _render_instance,
}
