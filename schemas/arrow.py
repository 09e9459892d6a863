"""Arrow tables that stages exchange, with name and version in the schema's metadata.

Raise the version of a table if a column is added, removed or changes its meaning. `check_schema`
refuses tables of another name or version.
"""

from __future__ import annotations

import pyarrow as pa

from schemas.errors import ArtifactCorruptError

TABLE_KEY = b"bertloom.table"
VERSION_KEY = b"bertloom.version"


def _table(name: str, version: int, fields: list[pa.Field]) -> pa.Schema:
    metadata = {TABLE_KEY: name.encode(), VERSION_KEY: str(version).encode()}
    return pa.schema(fields, metadata=metadata)


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


DOCUMENTS = _table(
    "documents",
    1,
    [
        _required("document_id", pa.string()),  # unique in a corpus, stable over rebuilds
        _required("source", pa.string()),  # name of the source in the recipe
        _required("title", pa.string()),
        _required("sentences", pa.list_(pa.field("item", pa.string(), nullable=False))),
        _required("digest", pa.binary(16)),  # BLAKE2b of the normalized text
        _required("file", pa.string()),  # sha256 of the raw file in the manifest
        _required("byte_start", pa.int64()),  # byte range of its stream or member ...
        _required("byte_end", pa.int64()),  # ... in the raw file as stored
        pa.field("page_id", pa.int64()),  # MediaWiki only
        pa.field("revision_id", pa.int64()),
        pa.field("timestamp", pa.string()),  # time of the revision, ISO 8601
    ],
)

DUPLICATES = _table(
    "duplicates",
    1,
    [
        _required("document_id", pa.string()),
        _required("shard", pa.string()),  # logical name of the document shard
        _required("row", pa.uint32()),  # row in that shard
        _required("reason", pa.string()),  # "same-text" or "same-id"
        _required("kept_document_id", pa.string()),
    ],
)

CONTAMINATION_NGRAMS = _table(
    "contamination-ngrams",
    1,
    [
        _required("weight", pa.uint8()),  # in half words, ascending
        # Hashes of the distinct n-grams of this weight, ascending. Their order numbers them.
        _required("hashes", pa.list_(pa.field("item", pa.uint64(), nullable=False))),
    ],
)

CONTAMINATION_HITS = _table(
    "contamination-hits",
    1,
    [
        _required("row", pa.uint32()),  # row of the document in its shard
        _required("document_id", pa.string()),
        _required("title", pa.string()),
        # Distinct n-gram numbers (CONTAMINATION_NGRAMS) and the first word of each in the document.
        _required("ngrams", pa.list_(pa.field("item", pa.uint32(), nullable=False))),
        _required("words", pa.list_(pa.field("item", pa.uint32(), nullable=False))),
    ],
)

CONTAMINATION = _table(
    "contamination",
    1,
    [
        _required("task", pa.string()),
        _required("split", pa.string()),
        _required("field", pa.string()),  # column of the examples
        _required("example_id", pa.string()),  # first example with the text
        _required("examples", pa.uint32()),  # number of examples with it
        _required("document_id", pa.string()),
        _required("title", pa.string()),
        _required("shard", pa.string()),  # logical name of the document shard
        _required("row", pa.uint32()),  # row in that shard
        _required("ngrams", pa.uint32()),  # n-grams of the text
        _required("ngrams_found", pa.uint32()),  # n-grams in the document
        _required("longest_run", pa.uint32()),  # words of the longest match
        _required("text_word", pa.uint32()),  # 0-based start of the match in the text
        _required("document_word", pa.uint32()),  # and in the document
    ],
)

LEFT_OUT = _table(
    "left-out",
    1,
    [
        _required("document_id", pa.string()),
        _required("shard", pa.string()),  # logical name of the document shard
        _required("row", pa.uint32()),  # row in that shard
        _required("reason", pa.string()),  # as in counters, such as "contaminated"
        _required("because", pa.string()),  # document or example that it matches
    ],
)

SKETCHES = _table(
    "sketches",
    1,
    [
        _required("document_id", pa.string()),
        _required("row", pa.uint32()),  # row in the document shard of the same number
        _required("time", pa.int64()),  # revision, seconds since 1970; minimum if unknown
        _required("ngrams", pa.list_(pa.field("item", pa.uint32(), nullable=False))),  # ascending
        _required("bands", pa.list_(pa.field("item", pa.uint64(), nullable=False))),  # one each
    ],
)

WORD_COUNTS = _table(
    "word-counts", 1, [_required("word", pa.string()), _required("count", pa.uint64())]
)


def token_type(vocab_size: int) -> pa.DataType:
    """Return the narrowest unsigned type of the ids of a vocabulary: uint16 up to 65,536."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


def tokens_schema(vocab_size: int) -> pa.Schema:
    """Return the schema with one row per document: WordPiece ids and sentence lengths."""
    return _table(
        "tokens",
        2,
        [
            _required("document_id", pa.string()),
            _required("token_ids", _list(token_type(vocab_size))),
            _required("sentence_lengths", _list(pa.uint32())),
            # Page id without the revision, by which wiki pages are held out. Null: document_id.
            pa.field("split_id", pa.string()),
        ],
    )


def instances_schema(vocab_size: int) -> pa.Schema:
    """Return the schema with one row per instance, `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`."""
    ids = token_type(vocab_size)
    return _table(
        "instances",
        2,
        [
            _required("input_ids", _list(ids)),  # after masking, with [CLS] and [SEP]
            # Index of B's first token; length of input_ids without B.
            _required("segment_b_start", pa.uint16()),
            _required("masked_lm_positions", _list(pa.uint16())),  # ascending
            _required("masked_lm_ids", _list(ids)),  # ids before masking
            # 0: B follows A. 1: B is random. -1: no B.
            _required("next_sentence_label", pa.int8()),
            _required("document_row", pa.uint32()),  # row of A in the token shard of the same part
            # Token shard of B by its position in the pool in the file's statistics; 0 is A's shard.
            _required("segment_b_shard", pa.uint32()),
            _required("segment_b_row", pa.uint32()),
            _required("duplicate", pa.uint16()),  # 0-based pass over the corpus
        ],
    )


TEXT_EXAMPLES = _table(
    "text-examples",
    1,
    [
        _required("id", pa.string()),  # index in the file if it has one
        _required("text_a", pa.string()),
        pa.field("text_b", pa.string()),  # null for single-sentence tasks
        pa.field("label", pa.string()),  # class name; null if unknown
        pa.field("score", pa.float64()),  # regression; null if unknown
    ],
)

CHOICE_EXAMPLES = _table(
    "choice-examples",
    1,
    [
        _required("id", pa.string()),
        _required("context", pa.string()),
        _required("continuations", _list(pa.string())),  # the same number in every row
        pa.field("label", pa.int64()),  # 0-based; null if unknown
    ],
)

SPAN_EXAMPLES = _table(
    "span-examples",
    1,
    [
        _required("id", pa.string()),
        _required("title", pa.string()),
        _required("question", pa.string()),
        _required("context", pa.string()),
        _required("answers", _list(pa.string())),  # empty if unanswerable or unknown
        _required(
            "answer_starts", _list(pa.int64())
        ),  # character offsets in context, one per answer
        pa.field("is_impossible", pa.bool_()),  # null if unknown (no answers key)
    ],
)

TAG_EXAMPLES = _table(
    "tag-examples",
    1,
    [
        _required("id", pa.string()),  # id of the document
        _required("sentence_lengths", _list(pa.int64())),  # number of words per sentence
        _required("words", _list(pa.string())),  # words of all sentences
        # One per word in IOB2 (O, B-TYPE, I-TYPE); null if unknown.
        pa.field("tags", _list(pa.string())),
    ],
)

EXAMPLES = {
    "classification": TEXT_EXAMPLES,
    "regression": TEXT_EXAMPLES,
    "choice": CHOICE_EXAMPLES,
    "span": SPAN_EXAMPLES,
    "tagging": TAG_EXAMPLES,
}
"""Tables of fine-tuning examples by task type."""


def check_schema(schema: pa.Schema, expected: pa.Schema, *, where: str) -> None:
    """Check that a table is the expected one.

    Raises:
        ArtifactCorruptError: The name, the version or a column differs.
    """
    keys = (TABLE_KEY, VERSION_KEY)
    old, new = schema.metadata or {}, expected.metadata or {}
    is_same_table = all(old.get(key) == new.get(key) for key in keys)
    if is_same_table and schema.equals(expected, check_metadata=False):
        return
    raise ArtifactCorruptError(
        f"{where}: expected table {_describe(expected)}, got {_describe(schema)}. Rebuild the stage"
    )


def _describe(schema: pa.Schema) -> str:
    metadata = schema.metadata or {}
    name = metadata.get(TABLE_KEY, b"?").decode()
    version = metadata.get(VERSION_KEY, b"?").decode()
    columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return f"{name!r} version {version} ({columns})"
