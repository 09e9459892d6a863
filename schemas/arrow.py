"""Arrow tables that stages exchange, with name and version in the schema's metadata.

Raise the version of a table if a column is added, removed or changes its meaning. `check_schema`
refuses tables of another name or version.
"""

from __future__ import annotations

import pyarrow as pa

from schemas.errors import ArtifactCorruptError

TABLE_KEY = b"bertloom.table"
VERSION_KEY = b"bertloom.version"


def _table(name: str, version: int, /, **columns: pa.DataType | pa.Field) -> pa.Schema:
    fields = [
        column.with_name(key)
        if isinstance(column, pa.Field)
        else pa.field(key, column, nullable=False)
        for key, column in columns.items()
    ]
    metadata = {TABLE_KEY: name.encode(), VERSION_KEY: str(version).encode()}
    return pa.schema(fields, metadata=metadata)


def _nullable(kind: pa.DataType) -> pa.Field:
    return pa.field("", kind)


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


DOCUMENTS = _table(
    "documents",
    1,
    document_id=pa.string(),  # unique in a corpus, stable over rebuilds
    source=pa.string(),  # name of the source in the recipe
    title=pa.string(),
    sentences=_list(pa.string()),
    digest=pa.binary(16),  # BLAKE2b of the normalized text
    file=pa.string(),  # sha256 of the raw file in the manifest
    byte_start=pa.int64(),  # byte range of its stream or member ...
    byte_end=pa.int64(),  # ... in the raw file as stored
    page_id=_nullable(pa.int64()),  # MediaWiki only
    revision_id=_nullable(pa.int64()),
    timestamp=_nullable(pa.string()),  # time of the revision, ISO 8601
)

DUPLICATES = _table(
    "duplicates",
    2,
    document_id=pa.string(),
    shard=pa.string(),  # logical name of the document shard
    row=pa.uint32(),  # row in that shard
    reason=pa.string(),  # "same-text" or "same-id"
    canonical_document_id=pa.string(),
)

CONTAMINATION_NGRAMS = _table(
    "contamination-ngrams",
    2,
    # In ascending order. The number of an n-gram is the first row that has it.
    weight=pa.uint8(),  # in half words
    hash=pa.uint64(),
)

CONTAMINATION_HITS = _table(
    "contamination-hits",
    2,
    row=pa.uint32(),  # row of the document in its shard
    document_id=pa.string(),
    title=pa.string(),
    ngrams=_list(pa.uint32()),  # distinct numbers (CONTAMINATION_NGRAMS), ascending
)

CONTAMINATION = _table(
    "contamination",
    2,
    task=pa.string(),
    split=pa.string(),
    field=pa.string(),  # column of the examples
    example_id=pa.string(),  # first example with the text
    examples=pa.uint32(),  # number of examples with it
    document_id=pa.string(),
    title=pa.string(),
    shard=pa.string(),  # logical name of the document shard
    row=pa.uint32(),  # row in that shard
    ngrams=pa.uint32(),  # n-grams of the text
    ngrams_found=pa.uint32(),  # n-grams in the document
    longest_run=pa.uint32(),  # words of the longest match
    text_word=pa.uint32(),  # 0-based start of the match in the text
)

EXCLUDED_DOCUMENTS = _table(
    "excluded-documents",
    1,
    document_id=pa.string(),
    shard=pa.string(),  # logical name of the document shard
    row=pa.uint32(),  # row in that shard
    reason=pa.string(),  # as in counters, such as "contaminated"
    matched=pa.string(),  # document or example that it matches
)

MINHASH_SKETCHES = _table(
    "minhash-sketches",
    1,
    document_id=pa.string(),
    row=pa.uint32(),  # row in the document shard of the same number
    time=pa.int64(),  # revision, seconds since 1970; minimum if unknown
    ngrams=_list(pa.uint32()),  # ascending
    bands=_list(pa.uint64()),  # one each
)

WORD_COUNTS = _table("word-counts", 1, word=pa.string(), count=pa.uint64())


def token_type(vocab_size: int) -> pa.DataType:
    """Return the narrowest unsigned type of the ids of a vocabulary: uint16 up to 65,536."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def tokens_schema(vocab_size: int) -> pa.Schema:
    """Return the schema with one row per document: WordPiece ids and sentence lengths."""
    return _table(
        "tokens",
        2,
        document_id=pa.string(),
        token_ids=_list(token_type(vocab_size)),
        sentence_lengths=_list(pa.uint32()),
        # Page id without the revision, by which wiki pages are held out. Null: document_id.
        split_id=_nullable(pa.string()),
    )


def instances_schema(vocab_size: int) -> pa.Schema:
    """Return the schema with one row per instance, `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`."""
    ids = token_type(vocab_size)
    return _table(
        "instances",
        3,
        input_ids=_list(ids),  # after masking, with [CLS] and [SEP]
        # Index of B's first token; length of input_ids without B.
        segment_b_start=pa.uint16(),
        masked_lm_positions=_list(pa.uint16()),  # ascending
        masked_lm_ids=_list(ids),  # ids before masking
        # 0: B follows A. 1: B is random. -1: no B.
        next_sentence_label=pa.int8(),
        document_row=pa.uint32(),  # row of A in the token shard of the same part
        # Token shard of B by its position in the pool in the file's statistics; 0 is A's shard.
        segment_b_shard=pa.uint32(),
        segment_b_row=pa.uint32(),
        dupe_index=pa.uint16(),  # 0-based pass over the corpus
    )


TEXT_EXAMPLES = _table(
    "text-examples",
    1,
    id=pa.string(),  # index in the file if it has one
    text_a=pa.string(),
    text_b=_nullable(pa.string()),  # null for single-sentence tasks
    label=_nullable(pa.string()),  # class name; null if unknown
    score=_nullable(pa.float64()),  # regression; null if unknown
)

CHOICE_EXAMPLES = _table(
    "choice-examples",
    1,
    id=pa.string(),
    context=pa.string(),
    continuations=_list(pa.string()),  # the same number in every row
    label=_nullable(pa.int64()),  # 0-based; null if unknown
)

SPAN_EXAMPLES = _table(
    "span-examples",
    1,
    id=pa.string(),
    title=pa.string(),
    question=pa.string(),
    context=pa.string(),
    answers=_list(pa.string()),  # empty if unanswerable or unknown
    answer_starts=_list(pa.int64()),  # character offsets in context
    is_impossible=_nullable(pa.bool_()),  # null if unknown (no answers key)
)

TAG_EXAMPLES = _table(
    "tag-examples",
    1,
    id=pa.string(),  # id of the document
    sentence_lengths=_list(pa.int64()),  # number of words per sentence
    words=_list(pa.string()),  # words of all sentences
    # One per word in IOB2 (O, B-TYPE, I-TYPE); null if unknown.
    tags=_nullable(_list(pa.string())),
)

ROW_TERMS = _table(
    "row-terms",
    1,
    metric=pa.string(),
    statistic=pa.string(),  # `Statistic` of model.tasks.row_terms
    trial=pa.string(),  # restart; "" for the majority class
    rows=pa.string(),  # sha256 of the examples
    columns=pa.uint8(),  # number of terms of a row
    terms=_list(pa.float64()),  # terms of the first row, of the second row, ...
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
