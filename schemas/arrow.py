"""The Arrow tables that stages exchange, each with its name and version in the schema's metadata.

A table's version is raised when a column is added, removed or changes its meaning. Readers refuse
a table of another name or version (`check_schema`), so that no stage ever guesses.
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
        _required("digest", pa.binary(16)),  # BLAKE2b of the normalised text
        _required("file", pa.string()),  # sha256 of the raw file, which the manifest names
        _required("byte_start", pa.int64()),  # where in the raw file (as stored) ...
        _required("byte_end", pa.int64()),  # ... its stream or member lies
        pa.field("page_id", pa.int64()),  # MediaWiki only
        pa.field("revision_id", pa.int64()),
        pa.field("timestamp", pa.string()),  # of the revision, ISO 8601
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
        _required("weight", pa.uint8()),  # in half words; ascending
        # Of the distinct runs of that weight, ascending. Runs are numbered in this order.
        _required("hashes", pa.list_(pa.field("item", pa.uint64(), nullable=False))),
    ],
)

CONTAMINATION_HITS = _table(
    "contamination-hits",
    1,
    [
        _required("row", pa.uint32()),  # of the document in its shard
        _required("document_id", pa.string()),
        _required("title", pa.string()),
        # Numbers of runs of CONTAMINATION_NGRAMS, each once, and the word of the document that it
        # begins with first.
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
        _required("example_id", pa.string()),  # the first that has the text
        _required("examples", pa.uint32()),  # how many have it
        _required("document_id", pa.string()),
        _required("title", pa.string()),
        _required("shard", pa.string()),  # logical name of the document shard
        _required("row", pa.uint32()),  # row in that shard
        _required("ngrams", pa.uint32()),  # runs of words of the text
        _required("ngrams_found", pa.uint32()),  # those that the document has
        _required("longest_run", pa.uint32()),  # words of the longest stretch of such runs
        _required("text_word", pa.uint32()),  # where in the text that begins, from 0
        _required("document_word", pa.uint32()),  # and where in the document
    ],
)

LEFT_OUT = _table(
    "left-out",
    1,
    [
        _required("document_id", pa.string()),
        _required("shard", pa.string()),  # logical name of the document shard
        _required("row", pa.uint32()),  # row in that shard
        _required("reason", pa.string()),  # as counters call it, such as "contaminated"
        _required("because", pa.string()),  # what it is too much like: a document, an example
    ],
)

SKETCHES = _table(
    "sketches",
    1,
    [
        _required("document_id", pa.string()),
        _required("row", pa.uint32()),  # in the document shard of the same number
        _required("time", pa.int64()),  # of the revision, seconds since 1970; least where unknown
        _required("ngrams", pa.list_(pa.field("item", pa.uint32(), nullable=False))),  # ascending
        _required("bands", pa.list_(pa.field("item", pa.uint64(), nullable=False))),  # one each
    ],
)

WORD_COUNTS = _table(
    "word-counts", 1, [_required("word", pa.string()), _required("count", pa.uint64())]
)


def token_type(vocab_size: int) -> pa.DataType:
    """The narrowest unsigned type that holds every id of a vocabulary: uint16 up to 65,536."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


def tokens_schema(vocab_size: int) -> pa.Schema:
    """One row a document: its WordPiece ids end to end, and how many of them each sentence has."""
    return _table(
        "tokens",
        2,
        [
            _required("document_id", pa.string()),
            _required("token_ids", _list(token_type(vocab_size))),
            _required("sentence_lengths", _list(pa.uint32())),
            # Decides whether a wiki page is held out: its id without the revision. Null: the
            # document_id decides.
            pa.field("split_id", pa.string()),
        ],
    )


def instances_schema(vocab_size: int) -> pa.Schema:
    """One row an instance, `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, without padding."""
    ids = token_type(vocab_size)
    return _table(
        "instances",
        2,
        [
            _required("input_ids", _list(ids)),  # after masking, with [CLS] and [SEP]
            # Index of B's first token; equal to the length of input_ids where there is no B.
            _required("segment_b_start", pa.uint16()),
            _required("masked_lm_positions", _list(pa.uint16())),  # ascending
            _required("masked_lm_ids", _list(ids)),  # what stood there before masking
            # 0: B really follows A. 1: B is random. -1: there is no B.
            _required("next_sentence_label", pa.int8()),
            _required("document_row", pa.uint32()),  # of A, in the token shard of the same part
            # Token shard that B comes from, by its position in the pool, which the file's
            # statistics list; 0 is A's own. And the row there.
            _required("segment_b_shard", pa.uint32()),
            _required("segment_b_row", pa.uint32()),
            _required("duplicate", pa.uint16()),  # which pass over the corpus, from 0
        ],
    )


TEXT_EXAMPLES = _table(
    "text-examples",
    1,
    [
        _required("id", pa.string()),  # the row's own index where the file has one
        _required("text_a", pa.string()),
        pa.field("text_b", pa.string()),  # null in every row of a single-sentence task
        pa.field("label", pa.string()),  # name of a class; null where not known
        pa.field("score", pa.float64()),  # regression in place of label; null where not known
    ],
)

CHOICE_EXAMPLES = _table(
    "choice-examples",
    1,
    [
        _required("id", pa.string()),
        _required("context", pa.string()),
        _required("continuations", _list(pa.string())),  # as many in every row
        pa.field("label", pa.int64()),  # which one, from 0; null where not known
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
        _required("answers", _list(pa.string())),  # empty where unanswerable or not known
        _required("answer_starts", _list(pa.int64())),  # characters into context, one an answer
        pa.field("is_impossible", pa.bool_()),  # null where not known (no answers key in the file)
    ],
)

TAG_EXAMPLES = _table(
    "tag-examples",
    1,
    [
        _required("id", pa.string()),  # of the document
        _required("sentence_lengths", _list(pa.int64())),  # words of each sentence
        _required("words", _list(pa.string())),  # all sentences end to end
        # One a word, IOB2 whatever the file had (O, B-TYPE, I-TYPE); null where not known.
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
"""Tables of fine-tuning examples by the type of the task (`schemas.task_configs.TaskTypeName`)."""


def check_schema(found: pa.Schema, expected: pa.Schema, *, where: str) -> None:
    """Refuse a table that is not the one expected.

    Raises:
        ArtifactCorruptError: the name, the version or a column differs.
    """
    if found.equals(expected, check_metadata=False):
        wanted, got = expected.metadata or {}, found.metadata or {}
        if all(got.get(key) == wanted.get(key) for key in (TABLE_KEY, VERSION_KEY)):
            return
    raise ArtifactCorruptError(
        f"{where}: expected the table {_describe(expected)}, found {_describe(found)}. "
        "It was written by another version or is another kind of file; rebuild the stage."
    )


def _describe(schema: pa.Schema) -> str:
    metadata = schema.metadata or {}
    name = metadata.get(TABLE_KEY, b"?").decode()
    version = metadata.get(VERSION_KEY, b"?").decode()
    columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return f"{name!r} version {version} ({columns})"
