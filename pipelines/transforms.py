"""The steps of the corpus jobs as Beam transforms, for other pipelines.

Elements are pairs of an id and a typed record:

    texts = pipeline | ReadDocuments(WikipediaSource(name="enwiki", paths=("enwiki.xml.bz2",)))
    documents = texts | SplitSentences() | DropDuplicates()
    tokens = documents | Tokenize("vocab.txt")

The transforms call the functions of the jobs, so ids, texts and random draws are the same.
Beam metrics count records, bytes and dropped records by reason.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import RowCoder
from apache_beam.coders.typecoders import registry
from apache_beam.metrics.metric import Metrics

from pipelines.counters import STREAM_PART, Count, Example
from pipelines.documents.build_shard import read_texts
from pipelines.documents.duplicates import NO_REVISION, id_key, repeated_ids, title_key
from pipelines.documents.plan import DocumentItem, plan
from pipelines.documents.records import (
    Document,
    DocumentLimits,
    RawText,
    record_batch,
    split_text,
)
from pipelines.documents.tokens import tokenize_batch
from pipelines.instances import HELD_OUT, TRAINING
from pipelines.instances.build_shard import (
    held_out_documents,
    held_out_rows,
    instance_rows,
    training_documents,
)
from pipelines.instances.masking import VocabularyIds, read_vocabulary_ids
from pipelines.instances.next_sentence_pool import NextSentencePool
from pipelines.instances.pairing import NO_SEGMENT_B, create_instances
from pipelines.io.raw_files import expand_paths
from pipelines.io.shards import ShardWriter
from pipelines.seeds import key_for
from pipelines.sources import SOURCES
from pipelines.wordpiece.text_rules import TextRules, read_text_rules
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from pipelines.wordpiece.vocab_files import read_vocab
from schemas.arrow import DOCUMENTS, instances_schema, tokens_schema
from schemas.corpus_configs import AnySource, DocumentsConfig, InstancesConfig
from schemas.errors import ConfigError, InputError

__all__ = [
    "Document",
    "DropDuplicates",
    "Instance",
    "PairAndMask",
    "RawText",
    "ReadDocuments",
    "SplitSentences",
    "TokenDocument",
    "Tokenize",
    "WriteShards",
    "WrittenShard",
]


class TokenDocument(NamedTuple):
    """The WordPiece ids of a document, without special tokens.

    >>> TokenDocument(token_ids=[7, 8, 9], sentence_lengths=[2, 1]).position
    ''
    """

    token_ids: Sequence[int]
    """Ids of all sentences in order."""

    sentence_lengths: Sequence[int]
    """Number of tokens of each sentence that has any."""

    position: str = ""
    """See `RawText`."""

    split_id: str | None = None
    """Id that decides whether the document is held out. Default: the document's own id."""


class Instance(NamedTuple):
    """`[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, masked, without padding."""

    input_ids: Sequence[int]
    """Ids after masking."""

    segment_b_start: int
    """Index of B's first token; length of `input_ids` without B."""

    masked_lm_positions: Sequence[int]
    """Indices of the masked tokens, ascending."""

    masked_lm_ids: Sequence[int]
    """Ids before masking."""

    next_sentence_label: int
    """0: B follows A. 1: B is random. -1: no B."""

    segment_b_document: str
    """Id of B's document, "" without B. The id of A's document is the key."""

    part: str
    """`training` or `held-out`."""

    dupe_index: int
    """0-based pass over the corpus."""

    number: int
    """0-based number among the instances of A's document in one pass."""

    position: str = ""
    """Position of A's document."""


class WrittenShard(NamedTuple):
    """A shard file."""

    path: str
    """Logical name: `part-00003.arrow`."""

    object: str
    """Name of the file. Retried work may leave other files, which no `WrittenShard` names."""

    rows: int
    size: int
    """Bytes."""

    sha256: str


_Texts = tuple[str, RawText]
_Documents = tuple[str, Document]
_Tokens = tuple[str, TokenDocument]
_Instances = tuple[str, Instance]

for _record in (RawText, Document, TokenDocument, Instance, WrittenShard):
    registry.register_coder(_record, RowCoder)


@functools.cache
def _beam_count(namespace: str) -> Count:
    """Return a function that adds to Beam's counters."""
    counter = functools.cache(functools.partial(Metrics.counter, namespace))

    def count(name: str, amount: int = 1, /, *, example: Example | str = "") -> None:
        del example
        if not name.startswith(STREAM_PART):  # only the job combines checksums of streams
            counter(name).inc(amount)

    return count


def _check_element(element: Any, record_type: type[NamedTuple], field: str) -> tuple[str, Any]:
    """Return an element, if it is a pair of an id and a record with this field, a list.

    The record may be of another class: runners return records of a class with equal fields.
    """
    if isinstance(element, tuple) and len(element) == 2 and isinstance(element[0], str):
        values = getattr(element[1], field, None)
        if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str):
            return element
    name = record_type.__name__
    raise InputError(
        f"expected pairs of an id (text) and a {name} whose {field} are a list, got "
        f"{element!r:.200}. Use beam.Map(lambda row: (ID, {name}([...], ...)))"
    )


def _check_minimum(minimum: int, **values: int) -> None:
    for name, value in values.items():
        if value < minimum:
            raise ConfigError(f"{name}: expected at least {minimum}, got {value}")


class _SourceFn(beam.DoFn):
    """Base of the functions that read a source."""

    def __init__(self, source: AnySource) -> None:
        self._source = source


class _Plan(_SourceFn):
    def process(self, _: bytes) -> Iterator[DocumentItem]:
        yield from plan(DocumentsConfig(sources=(self._source,)))


class _Read(_SourceFn):
    def process(self, item: DocumentItem) -> Iterator[_Texts]:
        texts = read_texts(item.split, self._source, _beam_count("ReadDocuments"))
        for row, (raw, text) in enumerate(texts):
            position = f"{self._source.name}/{item.number:08d}/{row:010d}"
            yield raw.document_id, text._replace(position=position)


@dataclass(kw_only=True, eq=False)
class ReadDocuments(beam.PTransform[Any, Any]):
    """Read the cleaned texts of a source: nothing in, (document id, `RawText`) out.

    A worker lists the files, computes their digests and plans the splits; all workers read them.

    >>> from schemas.corpus_configs import TextSource
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     texts = pipeline | ReadDocuments(TextSource(name="own", paths=("texts.txt",)))
    ...     _ = texts | beam.Map(lambda pair: pair[1].source) | beam.Distinct() | beam.Map(print)
    own

    Args:
        source: Source of `schemas.corpus_configs`, as in a recipe.

    Raises:
        MissingInputError: A path does not exist when the pipeline is built.
        InputError: In the pipeline: a file is damaged or does not match its published checksum.
    """

    source: AnySource = field(kw_only=False)

    def __post_init__(self) -> None:
        if getattr(self.source, "kind", "") not in SOURCES:
            raise ConfigError(
                f"source: expected a source of schemas.corpus_configs, such as WikipediaSource, "
                f"got {type(self.source).__name__}"
            )

    def expand(self, begin: Any) -> Any:
        expand_paths(self.source.paths)
        return (
            begin
            | "Start" >> beam.Impulse()
            | "PlanSplits" >> beam.ParDo(_Plan(self.source))
            | "SpreadSplits" >> beam.Reshuffle()
            | "ReadSplits" >> beam.ParDo(_Read(self.source)).with_output_types(_Texts)
        )


class _Split(beam.DoFn):
    def __init__(self, limits: DocumentLimits) -> None:
        self._limits = limits

    def process(self, element: _Texts) -> Iterator[_Documents]:
        document_id, text = _check_element(element, RawText, "paragraphs")
        document = split_text(text, limits=self._limits, count=_beam_count("SplitSentences"))
        if document is not None:
            yield document_id, document


@dataclass(kw_only=True, eq=False)
class SplitSentences(beam.PTransform[Any, Any]):
    """Split texts into sentences: (document id, `RawText`) in, (document id, `Document`) out.

    Documents that are too short are dropped.

    >>> text = RawText(["Call me Ishmael. Some years ago, never mind how long."])
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     documents = pipeline | beam.Create([("moby", text)]) | SplitSentences()
    ...     _ = documents | beam.MapTuple(lambda name, document: print(name, document.sentences))
    moby ['Call me Ishmael.', 'Some years ago, never mind how long.']

    Args:
        min_words: Minimum number of words of a document.
        min_sentences: Minimum number of sentences of a document.
        max_sentence_characters: Length from which on a sentence is cut. At least 1,000.
    """

    min_words: int = 5
    min_sentences: int = 1
    max_sentence_characters: int = 100_000

    def __post_init__(self) -> None:
        _check_minimum(1, min_words=self.min_words, min_sentences=self.min_sentences)
        _check_minimum(1_000, max_sentence_characters=self.max_sentence_characters)

    def expand(self, texts: Any) -> Any:
        limits = DocumentLimits(self.min_words, self.min_sentences, self.max_sentence_characters)
        return texts | "SplitTexts" >> beam.ParDo(_Split(limits)).with_output_types(_Documents)


def _unique_name(element: _Documents) -> str:
    """Return a text that differs for documents of equal ids, and sorts by position."""
    document_id, document = element
    return f"{document.position}\t{document_id}\t{document.digest.hex()}"


_Named = tuple[str, int, int]  # unique name, title and revision of a document


def _key_by_id(element: _Documents) -> tuple[bytes, _Named]:
    document_id, document = _check_element(element, Document, "sentences")
    key = id_key(document_id, document.page_id, document.revision_id)
    revision = NO_REVISION if document.revision_id is None else document.revision_id
    return key, (_unique_name(element), title_key(document.title), revision)


def _find_repeated_ids(element: tuple[bytes, Iterable[_Named]]) -> Iterator[tuple[str, bool]]:
    group = sorted(element[1])
    for (first, *_), (second, *_) in itertools.pairwise(group):
        if first == second:
            raise InputError(
                f"two documents have one position, id and text: {first!r}. Give each its own id "
                "or position"
            )
    if len(group) > 1:
        names, titles, revisions = zip(*group, strict=True)
        repeated, _ = repeated_ids(
            np.zeros(len(group), np.int64),
            titles=np.array(titles, np.uint32),
            revisions=np.array(revisions, np.int64),
        )
        yield from ((names[row], True) for row in repeated.tolist())


def _key_by_text(element: _Documents) -> tuple[bytes, str]:
    return element[1].digest, element[0]


def _find_equal_texts(element: tuple[bytes, Iterable[str]]) -> Iterator[tuple[str, bool]]:
    yield from ((document_id, True) for document_id in sorted(element[1])[1:])


def _drop_repeated_ids(element: _Documents, repeated: dict[str, bool]) -> Iterator[_Documents]:
    count = _beam_count("DropDuplicates")
    count("documents-in")
    if _unique_name(element) in repeated:
        count("documents-dropped-repeated-id")
    else:
        yield element


def _drop_equal_texts(element: _Documents, equal: dict[str, bool]) -> Iterator[_Documents]:
    count = _beam_count("DropDuplicates")
    if element[0] in equal:
        count("documents-dropped-duplicate")
    else:
        count("documents-kept")
        yield element


@dataclass(kw_only=True, eq=False)
class DropDuplicates(beam.PTransform[Any, Any]):
    """Drop documents with repeated ids or texts: (document id, `Document`) in and out.

    The same documents are kept as in the jobs: the newest revision of a page, the first by
    `position` of other equal ids, and then the smallest id of equal texts. Only digests and ids
    are grouped. The names of dropped documents are a side input.

    >>> texts = [(name, RawText(["It rained for a week."])) for name in ("a", "b")]
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     documents = pipeline | beam.Create(texts) | SplitSentences()
    ...     _ = documents | DropDuplicates() | beam.Keys() | beam.Map(print)
    a
    """

    def expand(self, documents: Any) -> Any:
        dropped = tuple[str, bool]
        repeated = (
            documents
            | "KeyById" >> beam.Map(_key_by_id).with_output_types(tuple[bytes, _Named])
            | "GroupIds" >> beam.GroupByKey()
            | "FindRepeatedIds" >> beam.FlatMap(_find_repeated_ids).with_output_types(dropped)
        )
        unique = documents | "DropRepeatedIds" >> beam.FlatMap(
            _drop_repeated_ids, beam.pvalue.AsDict(repeated)
        ).with_output_types(_Documents)
        equal = (
            unique
            | "KeyByText" >> beam.Map(_key_by_text).with_output_types(tuple[bytes, str])
            | "GroupTexts" >> beam.GroupByKey()
            | "FindEqualTexts" >> beam.FlatMap(_find_equal_texts).with_output_types(dropped)
        )
        return unique | "DropEqualTexts" >> beam.FlatMap(
            _drop_equal_texts, beam.pvalue.AsDict(equal)
        ).with_output_types(_Documents)


_BATCH_SENTENCES = 1 << 14
_TOKENIZER_COLUMNS = pa.schema(
    [DOCUMENTS.field(name) for name in ("document_id", "sentences", "revision_id")]
)


def _num_sentences(element: _Documents) -> int:
    return len(_check_element(element, Document, "sentences")[1].sentences)


class _Tokenize(beam.DoFn):
    def __init__(self, vocab: str, rules: TextRules) -> None:
        self._vocab, self._rules = vocab, rules

    def setup(self) -> None:
        self._tokenizer = WordPieceTokenizer.from_vocab_file(self._vocab, **self._rules)

    def process(self, documents: list[_Documents]) -> Iterator[_Tokens]:
        count = _beam_count("Tokenize")
        count("documents-in", len(documents))
        count("documents-kept", len(documents))
        batch = tokenize_batch(
            record_batch(documents, _TOKENIZER_COLUMNS),
            self._tokenizer,
            count,
            tokens_schema(self._tokenizer.vocab_size),
        )
        for (_, document), row in zip(documents, batch.to_pylist(), strict=True):
            document_id = row.pop("document_id")
            yield document_id, TokenDocument(position=document.position, **row)


@dataclass(kw_only=True, eq=False)
class Tokenize(beam.PTransform[Any, Any]):
    """Tokenize documents: (document id, `Document`) in, (document id, `TokenDocument`) out.

    >>> texts = [("rain", RawText(["The rain fell. The river rose."]))]
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     documents = pipeline | beam.Create(texts) | SplitSentences()
    ...     tokens = documents | Tokenize("vocab.txt")
    ...     _ = tokens | beam.MapTuple(lambda name, row: print(name, row.sentence_lengths))
    rain [4, 4]

    Args:
        vocab: Path or URL of a vocab.txt that every worker can read.
        lowercase: Whether the vocabulary is uncased. The tokenizer.json and tokenizer_config.json
            in its folder, if any, give further rules, such as `strip_accents`.

    Raises:
        VocabularyError: The file is missing or is not a vocabulary, or its folder's tokenizer files
            state another case.
    """

    vocab: str = field(kw_only=False)
    lowercase: bool = True

    def __post_init__(self) -> None:
        read_vocab(self.vocab)
        read_text_rules(self.vocab, lowercase=self.lowercase)

    def expand(self, documents: Any) -> Any:
        batches = beam.BatchElements(
            min_batch_size=_BATCH_SENTENCES,
            max_batch_size=_BATCH_SENTENCES,
            element_size_fn=_num_sentences,
        )
        rules = read_text_rules(self.vocab, lowercase=self.lowercase)
        tokenize = beam.ParDo(_Tokenize(self.vocab, rules)).with_output_types(_Tokens)
        return documents | "BatchDocuments" >> batches | "TokenizeSentences" >> tokenize


def _check_ids(element: _Tokens, *, vocab_size: int) -> None:
    ids = np.array(element[1].token_ids, np.int64)
    foreign = ids[(ids < 0) | (ids >= vocab_size)]
    if len(foreign):
        raise InputError(
            f"document {element[0]!r} has the token id {foreign[0]}, expected ids of a vocabulary "
            f"of {vocab_size:,}. Give PairAndMask the vocab.txt of the tokens"
        )


def _partition(
    element: tuple[str, Any], num_partitions: int, purpose: str
) -> tuple[int, tuple[str, Any]]:
    """Return an element with the number of its partition, which depends only on its id."""
    return key_for(0, purpose, element[0]) % num_partitions, element


def _choose_pool(element: _Tokens, num_pools: int) -> tuple[int, _Tokens]:
    return _partition(_check_element(element, TokenDocument, "token_ids"), num_pools, "pool")


def _sort(elements: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Sort elements by position and id, and the instances of a document by pass and number."""
    return sorted(
        elements,
        key=lambda pair: (
            pair[1].position,
            pair[0],
            *(getattr(pair[1], name, 0) for name in ("part", "dupe_index", "number")),
        ),
    )


class _CreateInstances(beam.DoFn):
    def __init__(self, config: InstancesConfig, vocab: str) -> None:
        self._config, self._vocab = config, vocab

    def setup(self) -> None:
        self._vocabulary = read_vocabulary_ids(self._vocab)

    def process(self, element: tuple[int, Iterable[_Tokens]]) -> Iterator[_Instances]:
        documents = _sort(element[1])
        for document in documents:
            _check_ids(document, vocab_size=self._vocabulary.vocab_size)
        yield from _pool_instances(documents, self._config, vocabulary=self._vocabulary)


def _pool_instances(
    documents: Sequence[_Tokens], config: InstancesConfig, *, vocabulary: VocabularyIds
) -> Iterator[_Instances]:
    """Yield the instances of the documents of a pool."""
    count = _beam_count("PairAndMask")
    schema = instances_schema(vocabulary.vocab_size)
    rows = record_batch(documents, tokens_schema(vocabulary.vocab_size))
    table = pa.Table.from_batches([rows])
    held_out = held_out_rows(table, share=config.held_out_fraction)
    for part, tokens, passes in (
        (TRAINING, training_documents(table, held_out, with_ids=True), config.dupe_factor),
        (HELD_OUT, held_out_documents(table, held_out), 1),
    ):
        for pass_number in range(passes if len(tokens) else 0):
            numbers = Counter[int]()
            batches = create_instances(
                NextSentencePool({0: tokens}),
                config,
                vocabulary=vocabulary,
                pass_number=pass_number,
                count=count,
            )
            for batch in batches:
                count("instances", len(batch))
                count("masked-tokens", len(batch.masked_lm_positions))
                for row in instance_rows(batch, schema).to_pylist():
                    number = numbers[row["document_row"]]
                    numbers[row["document_row"]] += 1
                    yield _instance(row, documents, part=part, number=number)


def _instance(
    row: dict[str, Any], documents: Sequence[_Tokens], *, part: str, number: int
) -> _Instances:
    """Return a row of the instances table with ids of documents in place of rows."""
    document_id, document = documents[row.pop("document_row")]
    segment_b_id, _ = documents[row.pop("segment_b_row")]
    del row["segment_b_shard"]  # a pool is one shard
    has_segment_b = row["next_sentence_label"] != NO_SEGMENT_B
    return document_id, Instance(
        **row,
        segment_b_document=segment_b_id if has_segment_b else "",
        part=part,
        number=number,
        position=document.position,
    )


_TOKEN_BYTES = 2


def _pools_needed(num_tokens: int, pool_bytes: int) -> int:
    return -(-num_tokens * _TOKEN_BYTES // pool_bytes) or 1


@dataclass(kw_only=True, eq=False)
class PairAndMask(beam.PTransform[Any, Any]):
    """Create instances: (document id, `TokenDocument`) in, (document id of A, `Instance`) out.

    Documents are grouped into pools by their ids, and a random B comes from A's own pool. One
    worker holds the tokens of a pool at a time: 2 to 4 bytes per token, about 100 while they are
    grouped. The instances are those that `build-instances` makes of a token shard with the
    documents of a pool.

    >>> tokens = [("rain", TokenDocument([104, 105, 106, 104, 107, 108], [3, 3]))]
    >>> config = InstancesConfig(max_seq_length=16, dupe_factor=1, held_out_fraction=0.0)
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     instances = pipeline | beam.Create(tokens) | PairAndMask(config, vocab="vocab.txt")
    ...     _ = instances | beam.MapTuple(lambda name, instance: print(name, instance.input_ids))
    rain [101, 103, 105, 106, 102, 104, 107, 108, 102]

    Args:
        config: Lengths, pairing, masking, passes and the seed.
        vocab: Path or URL of the vocab.txt of the tokens, which every worker can read.
        num_pools: Number of pools. Default: one per `config.negative_pool_bytes` of tokens, counted
            before the documents are grouped.

    Raises:
        VocabularyError: The file is missing or is not a vocabulary.
    """

    config: InstancesConfig = field(kw_only=False)
    vocab: str
    num_pools: int | None = None

    def __post_init__(self) -> None:
        read_vocab(self.vocab)
        if self.num_pools is not None:
            _check_minimum(1, num_pools=self.num_pools)

    def expand(self, tokens: Any) -> Any:
        choose = beam.Map(_choose_pool, self.num_pools or self._count_pools(tokens))
        create = beam.ParDo(_CreateInstances(self.config, self.vocab))
        return (
            tokens
            | "ChoosePool" >> choose.with_output_types(tuple[int, _Tokens])
            | "GroupPools" >> beam.GroupByKey()
            | "CreateInstances" >> create.with_output_types(_Instances)
        )

    def _count_pools(self, tokens: Any) -> Any:
        """Return the number of pools as a side input."""
        pools = (
            tokens
            | "CountTokens" >> beam.Map(_num_tokens)
            | "SumTokens" >> beam.CombineGlobally(sum).without_defaults()
            | "CountPools" >> beam.Map(_pools_needed, self.config.negative_pool_bytes)
        )
        return beam.pvalue.AsSingleton(pools, default_value=1)


def _num_tokens(element: _Tokens) -> int:
    return len(_check_element(element, TokenDocument, "token_ids")[1].token_ids)


def _choose_shard(element: tuple[str, Any], num_shards: int) -> tuple[int, tuple[str, Any]]:
    is_pair = isinstance(element, tuple) and len(element) == 2 and isinstance(element[0], str)
    if not is_pair or not isinstance(getattr(element[1], "position", None), str):
        raise InputError(
            "WriteShards: expected pairs of an id (text) and a record with a field `position` "
            f"(text), got {element!r:.200}. Rows of one id are written in the order of their "
            'positions; use "" if each id has one row'
        )
    return _partition(element, num_shards, "shard")


_BATCH_ROWS = 1_024


class _Write(beam.DoFn):
    def __init__(self, output: str, schema: pa.Schema, compression: str | None) -> None:
        self._output, self._schema, self._compression = output, schema, compression

    def process(self, element: tuple[int, Iterable[tuple[str, Any]]]) -> Iterator[WrittenShard]:
        number, elements = element
        rows = _sort(elements)
        path = f"part-{number:05d}.arrow"
        with ShardWriter(
            path, schema=self._schema, output=self._output, compression=self._compression
        ) as shard:
            for first in range(0, len(rows), _BATCH_ROWS):
                shard.write(record_batch(rows[first : first + _BATCH_ROWS], self._schema))
        entry = shard.entry()
        count = _beam_count("WriteShards")
        count("rows", shard.rows)
        count("bytes", entry.size_bytes)
        yield WrittenShard(
            entry.path, entry.stored_name, shard.rows, entry.size_bytes, entry.sha256
        )


@dataclass(kw_only=True, eq=False)
class WriteShards(beam.PTransform[Any, Any]):
    """Write Arrow files: (document id, record) in, a `WrittenShard` per file out.

    The id of a document decides its shard, and rows are sorted by position and id. The bytes do not
    depend on the runner or on the order of arrival. One worker holds the rows of a shard at a time.

    >>> schema = pa.schema({"document_id": pa.string(), "title": pa.string()})
    >>> texts = [("b", RawText([], title="Rain")), ("a", RawText([], title="River"))]
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     shards = pipeline | beam.Create(texts) | WriteShards("titles", schema=schema)
    ...     _ = shards | beam.Map(lambda shard: print(shard.path, shard.rows))
    part-00000.arrow 2

    Args:
        output: Path or URL of the folder.
        schema: Schema of the table. Its columns are `document_id`, which is the key, and fields of
            the records. Every record also has a field `position`, text.
        shards: Maximum number of files.
        compression: `zstd`, `lz4`, or None for files that are memory-mapped.
    """

    output: str = field(kw_only=False)
    schema: pa.Schema
    shards: int = 1
    compression: str | None = None

    def __post_init__(self) -> None:
        if not self.output or not isinstance(self.schema, pa.Schema):
            raise ConfigError(
                f"expected a folder and a pyarrow schema, got {self.output!r} and {self.schema!r}"
            )
        if self.compression not in (None, "zstd", "lz4"):
            raise ConfigError(f"compression: expected zstd, lz4 or None, got {self.compression!r}")
        _check_minimum(1, shards=self.shards)

    def expand(self, rows: Any) -> Any:
        keyed = tuple[int, tuple[str, Any]]
        write = beam.ParDo(_Write(self.output, self.schema, self.compression))
        return (
            rows
            | "ChooseShard" >> beam.Map(_choose_shard, self.shards).with_output_types(keyed)
            | "GroupShards" >> beam.GroupByKey()
            | "WriteRows" >> write.with_output_types(WrittenShard)
        )
