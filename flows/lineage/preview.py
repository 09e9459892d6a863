"""Rows of a shard in readable form."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.text import Text

from flows.lineage.shards import LINES, Shard, at_row, read_rows, table_name
from pipelines.instances import LABELS
from pipelines.instances.plan import pool_numbers
from pipelines.io.file_systems import file_system
from pipelines.wordpiece.vocab_files import VOCAB_FILE, read_vocab
from schemas.errors import ConfigError
from schemas.redaction import escape_control_characters

_MAX_SENTENCES = 12
_MAX_CHARACTERS = 500
_SEGMENT_A, _SEGMENT_B, _MASKED, _SPECIAL = "cyan", "yellow", "bold magenta", "dim"

Row = dict[str, Any]


def head(shard: Shard, *, rows: int, start: int = 0, vocab: str | None = None) -> Iterator[Text]:
    """Yield the first rows of a shard as styled lines; control characters are escaped.

    Args:
        shard: Shard, see `find_shard`.
        rows: Number of rows.
        start: Number of the first row. If the user named only the artifact, rows are counted
            across its shards.
        vocab: Vocabulary file. None: the vocabulary that the artifact was built with.

    Raises:
        ArtifactNotFoundError: The artifact has fewer rows.
        ConfigError: The file has no rows or lines, or its vocabulary is unknown.
        ArtifactCorruptError: It is not a valid Arrow file.
    """
    shard, start = at_row(shard, start)
    if shard.path.endswith(LINES):
        yield from _preview_lines(shard, rows=rows, start=start)
        return
    if not shard.path.endswith(".arrow"):
        raise ConfigError(
            f"{shard.path}: expected a shard (.arrow) or a file of lines ({', '.join(LINES)}). "
            f"Open the file with its own program: {shard.url}"
        )
    table = shard.table()
    preview = _previews(table_name(table), shard, vocab)
    for number, row in enumerate(read_rows(table, start=start, count=rows), start):
        yield _text(f"{shard.path} row {number}", "dim")
        yield from preview(row)
        yield Text()


def _text(text: str, style: str = "") -> Text:
    return Text(escape_control_characters(text), style)


def _previews(table: str, shard: Shard, vocab: str | None) -> Callable[[Row], Iterator[Text]]:
    """Return the function that previews a row of a table."""
    if table == "tokens":
        return functools.partial(_preview_tokens, _read_words(shard, vocab))
    if table == "instances":
        words, find_id = _read_words(shard, vocab), _document_ids(shard)
        return functools.partial(_preview_instance, words, find_id)
    return _preview_document if table == "documents" else _preview_values


def _preview_lines(shard: Shard, *, rows: int, start: int) -> Iterator[Text]:
    yield _text(f"{shard.path} from line {start}", "dim")
    fs, path = file_system(shard.url)
    with fs.open(path, "rt", encoding="utf-8", errors="replace") as source:
        for number, line in enumerate(itertools.islice(source, start, start + rows), start=start):
            text = line.rstrip("\r\n")
            more = " ..." if len(text) > _MAX_CHARACTERS else ""
            yield _text(f"{number:>7,}  ", "dim") + _text(text[:_MAX_CHARACTERS] + more)


# Vocabulary and document ids


def _read_words(shard: Shard, vocab: str | None) -> list[str]:
    if vocab is None:
        vocabulary = shard.artifact.input("vocabulary") if shard.artifact else None
        if vocabulary is None:
            raise ConfigError(f"{shard.url}: unknown vocabulary. Set --vocab")
        vocab = vocabulary.url(VOCAB_FILE)
    return list(read_vocab(vocab))


def _document_ids(shard: Shard) -> Callable[[int, int], str]:
    """Return a function that finds the id of a document by token shard and row.

    Its first argument is the position of the token shard in the pool of an instance shard.
    """
    tokens = shard.artifact.input("tokens") if shard.artifact else None
    if shard.artifact is None or tokens is None:
        return lambda position, row: f"row {row} of token shard {position} of the pool"
    shards, pool = tokens.manifest.shards, pool_numbers(shard.artifact.entry(shard.path))

    @functools.cache
    def read_ids(position: int) -> list[str]:
        rows = tokens.table([shards[pool[position]].path]).to_table(columns=["document_id"])
        ids: list[str] = rows.column(0).to_pylist()
        return ids

    return lambda position, row: read_ids(position)[row]


# Rows of each table


def _word(words: Sequence[str], token: int) -> str:
    return words[token] if token < len(words) else f"<{token}>"


def _join_pieces(pieces: Iterable[tuple[str, str]]) -> Text:
    """Join word pieces with their styles. Masked and special tokens are separate words."""
    line = Text()
    for piece, style in pieces:
        if line and piece.startswith("##") and style not in (_MASKED, _SPECIAL):
            line += _text(piece[2:], style)
        else:
            line += _text(f" {piece}" if line else piece, style)
    return line


def _preview_instance(
    words: Sequence[str], find_id: Callable[[int, int], str], row: Row
) -> Iterator[Text]:
    ids, border, label = row["input_ids"], row["segment_b_start"], row["next_sentence_label"]
    original = dict(zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True))
    pieces = []
    for position, token in enumerate(ids):
        piece, style = _word(words, token), _SEGMENT_A if position < border else _SEGMENT_B
        if position in original:
            shown = "MASK" if piece == "[MASK]" else piece
            piece = f"[{shown}→{_word(words, original[position])}]"
            style = _MASKED
        elif piece in ("[CLS]", "[SEP]"):
            style = _SPECIAL
        pieces.append((piece, style))
    facts = f"document {find_id(0, row['document_row'])}, pass {row['dupe_index']}"
    meaning = f"{LABELS[label]} ({label})" if label in LABELS else str(label)
    yield _text(f"{meaning}; {facts}; {len(ids)} tokens, {len(original)} masked", "dim")
    if label == 1:
        other = find_id(row["segment_b_shard"], row["segment_b_row"])
        yield _text(f"B from document {other}", "dim")
    yield _text("A: ", "dim") + _join_pieces(pieces[:border])
    if border < len(ids):
        yield _text("B: ", "dim") + _join_pieces(pieces[border:])


def _preview_tokens(words: Sequence[str], row: Row) -> Iterator[Text]:
    yield _text(f"document {row['document_id']}; {len(row['token_ids'])} tokens", "dim")
    ends = itertools.accumulate(row["sentence_lengths"][:_MAX_SENTENCES], initial=0)
    for start, end in itertools.pairwise(ends):
        ids = row["token_ids"][start:end]
        yield _text("  ") + _join_pieces((_word(words, token), _SEGMENT_A) for token in ids)
    yield from _more_sentences(len(row["sentence_lengths"]))


def _preview_document(row: Row) -> Iterator[Text]:
    facts = f"document {row['document_id']}; source {row['source']}; "
    yield _text(facts, "dim") + _text(row["title"])
    for sentence in row["sentences"][:_MAX_SENTENCES]:
        yield _text(f"  {sentence}")
    yield from _more_sentences(len(row["sentences"]))


def _more_sentences(num_sentences: int) -> Iterator[Text]:
    if (more := num_sentences - _MAX_SENTENCES) > 0:
        yield _text(f"  and {more:,} more sentences", "dim")


def _preview_values(row: Row) -> Iterator[Text]:
    for name, value in row.items():
        yield _text(f"  {name}: {value.hex() if isinstance(value, bytes) else value}")
