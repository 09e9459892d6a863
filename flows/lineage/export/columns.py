"""What the columns of each table mean, and which columns of which input they are made from.

`schemas.arrow` says what the tables are; these texts go into lineage events, which are written in
runs that open no table, where loading Arrow would cost more than all else. A test holds the two
together.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

_IDS = "{ids}"

Kind = Literal["IDENTITY", "TRANSFORMATION", "AGGREGATION", "FILTER", "CONDITIONAL"]
"""As OpenLineage names them; the first three are direct."""

DIRECT: frozenset[Kind] = frozenset({"IDENTITY", "TRANSFORMATION", "AGGREGATION"})


class Source(NamedTuple):
    """A column of an input, and how it is used."""

    column: str
    kind: Kind = "TRANSFORMATION"


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    """As Arrow prints it; `{ids}` stands for the type of token ids, which the vocabulary
    decides."""

    description: str
    sources: tuple[Source, ...] = ()
    """Columns of the table's `made_from` that its values come from."""


class Table(NamedTuple):
    """A table as an artifact holds it."""

    columns: tuple[Column, ...]
    made_from: str = ""
    """The stage's name of the input whose columns the sources are; "" for none."""

    decided_by: tuple[Source, ...] = ()
    """Columns of that input that decide which rows there are."""


def id_type(vocab_size: int) -> str:
    """Arrow's name of the type that `schemas.arrow.token_type` gives."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def _list(kind: str) -> str:
    return f"list<item: {kind} not null>"


_DOCUMENTS = Table(
    (
        Column("document_id", "string", "Unique in a corpus, stable over rebuilds."),
        Column("source", "string", "Name of the source in the recipe."),
        Column("title", "string", "Of the page or book."),
        Column("sentences", _list("string"), "The document's text, sentence by sentence."),
        Column("digest", "fixed_size_binary[16]", "BLAKE2b of the normalised text."),
        Column("file", "string", "sha256 of the raw file, which the manifest names."),
        Column("byte_start", "int64", "Where in the raw file, as stored, its stream begins."),
        Column("byte_end", "int64", "Where that stream ends."),
        Column("page_id", "int64", "MediaWiki's; null elsewhere."),
        Column("revision_id", "int64", "MediaWiki's; null elsewhere."),
        Column("timestamp", "string", "Of the revision, ISO 8601; null elsewhere."),
    )
)

_SENTENCES = (Source("sentences"),)
_NO_DUPLICATES = (Source("document_id", "FILTER"), Source("digest", "FILTER"))

_WORD_COUNTS = Table(
    (
        Column("word", "string", "A word of the corpus.", _SENTENCES),
        Column("count", "uint64", "How often it occurs.", (Source("sentences", "AGGREGATION"),)),
    ),
    made_from="documents",
    decided_by=_NO_DUPLICATES,
)

_TOKENS = Table(
    (
        Column("document_id", "string", "Of the document.", (Source("document_id", "IDENTITY"),)),
        Column("token_ids", _list(_IDS), "WordPiece ids, end to end.", _SENTENCES),
        Column("sentence_lengths", _list("uint32"), "Tokens of each sentence.", _SENTENCES),
    ),
    made_from="documents",
    decided_by=_NO_DUPLICATES,
)

_TOKEN_IDS = (Source("token_ids"),)
_CUT = (Source("token_ids"), Source("sentence_lengths"))
_DRAWN = (Source("document_id", "CONDITIONAL"), Source("sentence_lengths", "CONDITIONAL"))

_INSTANCES = Table(
    (
        Column("input_ids", _list(_IDS), "Ids after masking, with [CLS] and [SEP].", _CUT),
        Column("segment_b_start", "uint16", "Index of B's first token, or the length.", _CUT),
        Column("masked_lm_positions", _list("uint16"), "What to predict; ascending.", _TOKEN_IDS),
        Column("masked_lm_ids", _list(_IDS), "What stood there before masking.", _TOKEN_IDS),
        Column("next_sentence_label", "int8", "0: B follows A. 1: random. -1: no B.", _DRAWN),
        Column("document_row", "uint32", "Row of A in the token shard of the same part."),
        Column("segment_b_shard", "uint32", "Place in the pool of the shard B comes from."),
        Column("segment_b_row", "uint32", "Row of B in that shard."),
        Column("duplicate", "uint16", "Which pass over the corpus, from 0."),
    ),
    made_from="tokens",
    decided_by=_DRAWN,
)

_TEXT_EXAMPLES = Table(
    (
        Column("id", "string", "The row's own index where the file has one."),
        Column("text_a", "string", "The text, or the first of a pair."),
        Column("text_b", "string", "The second of a pair; else null."),
        Column("label", "string", "Name of a class; null where not known."),
        Column("score", "double", "Regression in place of label; null where not known."),
    )
)

_CHOICE_EXAMPLES = Table(
    (
        Column("id", "string", "The row's own index where the file has one."),
        Column("context", "string", "What is to be continued."),
        Column("continuations", _list("string"), "As many in every row."),
        Column("label", "int64", "Which one, from 0; null where not known."),
    )
)

_SPAN_EXAMPLES = Table(
    (
        Column("id", "string", "Of the question."),
        Column("title", "string", "Of the article."),
        Column("question", "string", "The question."),
        Column("context", "string", "The paragraph that is read."),
        Column("answers", _list("string"), "Empty where unanswerable or not known."),
        Column("answer_starts", _list("int64"), "Characters into context, one an answer."),
        Column("is_impossible", "bool", "Null where not known."),
    )
)

_TAG_EXAMPLES = Table(
    (
        Column("id", "string", "Of the document."),
        Column("sentence_lengths", _list("int64"), "Words of each sentence."),
        Column("words", _list("string"), "All sentences end to end."),
        Column("tags", _list("string"), "One a word, IOB2; null where not known."),
    )
)

TABLES: dict[str, Table] = {
    "documents": _DOCUMENTS,
    "vocabulary": _WORD_COUNTS,  # the vocabulary itself is text; its table are the words counted
    "tokens": _TOKENS,
    "instances": _INSTANCES,
    "text-examples": _TEXT_EXAMPLES,
    "choice-examples": _CHOICE_EXAMPLES,
    "span-examples": _SPAN_EXAMPLES,
    "tag-examples": _TAG_EXAMPLES,
}
"""By `Manifest.table`."""


def table_of(name: str, *, vocab_size: int | None) -> Table | None:
    """A table with its types filled in; None for one without columns, or of no known size.

    Args:
        name: `Manifest.table`.
        vocab_size: of the vocabulary that token ids belong to, if it is known.
    """
    table = TABLES.get(name)
    if table is None:
        return None
    if vocab_size is None:
        return table if all(_IDS not in column.type for column in table.columns) else None
    ids = id_type(vocab_size)
    columns = (column._replace(type=column.type.replace(_IDS, ids)) for column in table.columns)
    return table._replace(columns=tuple(columns))
