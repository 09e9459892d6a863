"""The first rows of a shard as a person reads them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from flows.lineage.shards import (
    LABELS,
    LINES,
    Shard,
    at_row,
    open_columns,
    read_rows,
    table_of,
)
from flows.store.artifact import Artifact
from pipelines.instances.plan import pool_numbers
from pipelines.io.file_systems import file_system
from pipelines.wordpiece.vocab_files import VOCAB_FILE, read_vocab
from schemas.errors import ConfigError

_SHOWN_SENTENCES = 12
_SHOWN_CHARACTERS = 500

DocumentName = Callable[[int, int], str]
"""Names the document at a row of the token shard that has a position in the pool; 0 is A's."""


class Mark(NamedTuple):
    """A piece of text with what it is: `plain`, `special`, `a`, `b`, `masked`, `dim`."""

    text: str
    style: str = "plain"


def head(
    shard: Shard, *, rows: int, start: int = 0, vocab: str | None = None
) -> Iterator[list[Mark]]:
    """The first rows of a shard, a list of marks a line.

    Args:
        shard: of `find_shard`.
        rows: how many.
        start: the first, from 0; of an artifact's shards where it was asked for as a whole.
        vocab: a vocabulary's file, in place of the one the artifact was made with.

    Raises:
        ArtifactNotFoundError: the artifact has fewer rows.
        ConfigError: the vocabulary that it needs cannot be found.
        ArtifactCorruptError: it is no Arrow file.
    """
    shard, start = at_row(shard, start)
    if shard.path.endswith(LINES):
        yield from _text_lines(shard, rows=rows, start=start)
        return
    if not shard.path.endswith(".arrow"):
        raise ConfigError(
            f"{shard.path}: expected a shard (.arrow) or a file of lines ({', '.join(LINES)}); "
            f"another kind of file is to be read by what it is made for: {shard.url}"
        )
    with open_columns(shard.url) as reader:
        render = _renderer(table_of(reader), shard, vocab)
    for number, row in read_rows(shard.url, start=start, count=rows):
        yield [Mark(f"{shard.path} row {number}", "dim")]
        yield from render(row)
        yield []


def _renderer(
    table: str, shard: Shard, vocab: str | None
) -> Callable[[dict[str, Any]], Iterator[list[Mark]]]:
    if table == "documents":
        return _document
    if table not in ("tokens", "instances"):
        return _any_row
    words = _words(shard, vocab)
    if table == "tokens":
        return lambda row: _tokens(row, words)
    name = _document_name(shard)
    return lambda row: _instance(row, words, name)


def _text_lines(shard: Shard, *, rows: int, start: int) -> Iterator[list[Mark]]:
    yield [Mark(f"{shard.path} from line {start}", "dim")]
    fs, path = file_system(shard.url)
    with fs.open(path, "rt", encoding="utf-8", errors="replace") as source:
        for number, line in enumerate(itertools.islice(source, start, start + rows), start=start):
            shown = line.rstrip("\r\n")
            more = " ..." if len(shown) > _SHOWN_CHARACTERS else ""
            yield [Mark(f"{number:>7,}  ", "dim"), Mark(shown[:_SHOWN_CHARACTERS] + more)]


# What the numbers of a row mean


def _words(shard: Shard, vocab: str | None) -> list[str]:
    """The vocabulary that a shard's ids mean: the one given, or the one of its lineage."""
    if vocab is not None:
        return list(read_vocab(vocab))
    found = words_of(shard.artifact) if shard.artifact else []
    if not found:
        raise ConfigError(
            f"{shard.url}: no vocabulary can be found by its manifest; name one with --vocab"
        )
    return found


def words_of(artifact: Artifact) -> list[str]:
    """The vocabulary that an artifact of tokens or instances was made with; empty for none."""
    vocabulary = artifact.input("vocabulary")
    if vocabulary is None or VOCAB_FILE not in vocabulary.files:
        return []
    return list(read_vocab(vocabulary.url(VOCAB_FILE)))


def _document_name(shard: Shard) -> DocumentName:
    """Names the documents of an instance by their ids, or by their rows where nothing tells."""
    tokens, entry = shard.artifact.input("tokens") if shard.artifact else None, shard.entry
    if tokens is None or entry is None or "pool" not in entry.statistics:
        # Version 1 of the table has no pool.
        return lambda at, row: f"row {row}" + (f" of token shard {at} of the pool" if at else "")
    urls = [tokens.url(tokens.manifest.files[number].path) for number in pool_numbers(entry)]
    known: dict[int, list[str]] = {}

    def name(at: int, row: int) -> str:
        if at not in known:
            with open_columns(urls[at], columns=["document_id"]) as reader:
                known[at] = reader.read_all().column(0).to_pylist()
        return known[at][row]

    return name


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


# Rows of each table


def _instance(
    row: dict[str, Any], words: Sequence[str], name: DocumentName
) -> Iterator[list[Mark]]:
    ids, border, label = row["input_ids"], row["segment_b_start"], row["next_sentence_label"]
    original = dict(zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True))
    pieces = [
        _piece(words, token, original.get(position), style="a" if position < border else "b")
        for position, token in enumerate(ids)
    ]
    facts = f"document {name(0, row['document_row'])}, duplicate {row['duplicate']}"
    meaning = f"{LABELS[label]} ({label})" if label in LABELS else str(label)
    yield [Mark(f"{meaning}; {facts}; {len(ids)} tokens, {len(original)} masked", "dim")]
    if label == 1:
        yield [Mark(f"B from document {name(row['segment_b_shard'], row['segment_b_row'])}", "dim")]
    yield [Mark("A: ", "dim"), *join_pieces(pieces[:border])]
    if border < len(ids):
        yield [Mark("B: ", "dim"), *join_pieces(pieces[border:])]


def _piece(words: Sequence[str], token: int, original: int | None, *, style: str) -> Mark:
    shown = word(words, token)
    if original is not None:
        masked = "MASK" if shown == "[MASK]" else shown
        return Mark(f"[{masked}→{word(words, original)}]", "masked")
    return Mark(shown, "special" if shown in ("[CLS]", "[SEP]") else style)


def _tokens(row: dict[str, Any], words: Sequence[str]) -> Iterator[list[Mark]]:
    yield [Mark(f"document {row['document_id']}; {len(row['token_ids'])} tokens", "dim")]
    ends = itertools.accumulate(row["sentence_lengths"][:_SHOWN_SENTENCES], initial=0)
    for start, end in itertools.pairwise(ends):
        ids = row["token_ids"][start:end]
        yield [Mark("  "), *join_pieces([Mark(word(words, token), "a") for token in ids])]
    yield from _more(len(row["sentence_lengths"]))


def _document(row: dict[str, Any]) -> Iterator[list[Mark]]:
    facts = f"document {row['document_id']}; source {row['source']}; "
    yield [Mark(facts, "dim"), Mark(row["title"])]
    for sentence in row["sentences"][:_SHOWN_SENTENCES]:
        yield [Mark(f"  {sentence}")]
    yield from _more(len(row["sentences"]))


def _more(sentences: int) -> Iterator[list[Mark]]:
    """Says what is not shown: a row may be a novel."""
    if sentences > _SHOWN_SENTENCES:
        yield [Mark(f"  and {sentences - _SHOWN_SENTENCES:,} more sentences", "dim")]


def _any_row(row: dict[str, Any]) -> Iterator[list[Mark]]:
    for name, value in row.items():
        yield [Mark(f"  {name}: {value.hex() if isinstance(value, bytes) else value}")]
