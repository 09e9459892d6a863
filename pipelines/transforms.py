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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import RowCoder
from apache_beam.coders.typecoders import registry
from apache_beam.metrics.metric import Metrics

from pipelines.arrays import Int64s, offsets_of
from pipelines.beam.pipeline import CreateWorkItems
from pipelines.counters import STREAM_PART, Count, Example
from pipelines.documents.duplicates import NO_REVISION, id_key, repeated_ids, title_key
from pipelines.documents.plan import DocumentPiece, language_of, plan
from pipelines.documents.selection import text_digest, wanted_sentences
from pipelines.instances.creation import InstanceBatch, create_instances
from pipelines.instances.held_out import HELD_OUT, TRAINING, is_held_out, split_id
from pipelines.instances.masking import VocabularyIds
from pipelines.instances.pairing import NO_SEGMENT_B
from pipelines.instances.token_documents import NegativePool, TokenDocuments
from pipelines.instances.vocabulary import read_vocabulary_ids
from pipelines.io.shards import ShardWriter
from pipelines.io.splits import SourceFile
from pipelines.seeds import key_for
from pipelines.sources import SOURCES, RawDocument
from pipelines.sources.unpacked_tars import delete_unpacked
from pipelines.wordpiece.ids import WordPieceTokenizer
from pipelines.wordpiece.vocab_files import read_vocab
from schemas.arrow import token_type
from schemas.corpus_configs import AnySource, DocumentsConfig, InstancesConfig
from schemas.errors import ConfigError, InputError

__all__ = [
    "Document",
    "DropDuplicates",
    "Instance",
    "PairAndMask",
    "ReadDocuments",
    "SplitSentences",
    "Text",
    "TokenDocument",
    "Tokenize",
    "WriteShards",
    "WrittenShard",
]


class Text(NamedTuple):
    """A cleaned text that is not split into sentences yet.

    >>> Text(["Call me Ishmael. Some years ago."], language="en").title
    ''
    """

    paragraphs: Sequence[str]
    """Without line breaks, in order."""

    language: str = "en"
    """ISO 639 code."""

    position: str = ""
    """Where it was read, as text that sorts in the order of the plan. Of documents with one id the
    first stays; of a pool, or a shard, rows are in this order. "" where it does not matter."""

    source: str = ""
    """Name of the source."""

    title: str = ""
    file: str = ""
    """sha256 of the raw file."""

    byte_start: int = 0
    """Where in the raw file, as stored, its stream or member begins ..."""

    byte_end: int = 0
    """... and ends (exclusive)."""

    page_id: int | None = None
    """This and the two below are MediaWiki's."""

    revision_id: int | None = None
    timestamp: str | None = None


class Document(NamedTuple):
    """A text as sentences, with the columns of the table `schemas.arrow.DOCUMENTS`.

    >>> Document(["Call me Ishmael."], digest=text_digest(["Call me Ishmael."])).sentences
    ['Call me Ishmael.']
    """

    sentences: Sequence[str]
    digest: bytes
    """16 bytes, equal for equal text (`pipelines.documents.selection.text_digest`)."""

    position: str = ""
    """As of `Text`."""

    source: str = ""
    title: str = ""
    file: str = ""
    byte_start: int = 0
    byte_end: int = 0
    page_id: int | None = None
    revision_id: int | None = None
    timestamp: str | None = None


class TokenDocument(NamedTuple):
    """The WordPiece ids of a document, without special tokens.

    >>> TokenDocument(token_ids=[7, 8, 9], sentence_lengths=[2, 1]).position
    ''
    """

    token_ids: Sequence[int]
    """The tokens of all sentences, end to end."""

    sentence_lengths: Sequence[int]
    """Tokens of each sentence that has any."""

    position: str = ""
    """As of `Text`."""

    split_id: str | None = None
    """Id that decides whether the document is held out. Default: the document's own id."""


class Instance(NamedTuple):
    """`[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, masked, without padding."""

    input_ids: Sequence[int]
    """After masking."""

    segment_b_start: int
    """Position of B's first token; the length of `input_ids` where there is no B."""

    masked_lm_positions: Sequence[int]
    """Ascending."""

    masked_lm_ids: Sequence[int]
    """What stood there before masking."""

    next_sentence_label: int
    """0 where B really follows A, 1 where it is random, -1 where there is no B."""

    segment_b_document: str
    """Id of B's document; "" where there is no B. A's is the key."""

    part: str
    """`training` or `held-out`."""

    dupe_index: int
    """Number of the pass, from 0."""

    number: int
    """Counts the instances of a pass over A's document, from 0."""

    position: str = ""
    """That of A's document."""


class WrittenShard(NamedTuple):
    """A file that was written."""

    path: str
    """Logical name: `part-00003.arrow`."""

    object: str
    """Name of the file; only the shards that are reported count, not those of retried work."""

    rows: int
    size: int
    """Bytes."""

    sha256: str
    logical: str
    """Digest of the rows, whatever their order (`pipelines.io.row_digest`)."""


for _record in (Text, Document, TokenDocument, Instance, WrittenShard):
    registry.register_coder(_record, RowCoder)


@functools.cache
def _counting(namespace: str) -> Count:
    """Adds to Beam's counters."""
    counter = functools.cache(functools.partial(Metrics.counter, namespace))

    def count(name: str, amount: int = 1, /, *, example: Example | str = "") -> None:
        del example
        if not name.startswith(STREAM_PART):  # which nobody puts together here
            counter(name).inc(amount)

    return count


def _checked(element: Any, expected: type[NamedTuple], *, needs: str) -> tuple[str, Any]:
    """The element, if it is a pair of an id and a record like those of `expected`.

    Not by its class: runners give back records of a class with the same fields.
    """
    if isinstance(element, tuple) and len(element) == 2 and isinstance(element[0], str):
        found = getattr(element[1], needs, None)
        if isinstance(found, Sequence | np.ndarray) and not isinstance(found, str):
            return element
    name = expected.__name__
    raise InputError(
        f"expected pairs of an id (text) and a {name} whose {needs} are a list, found "
        f"{element!r:.200}: make them by beam.Map(lambda row: (ID, {name}([...], ...)))"
    )


def _check_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name}: expected at least {least}, found {value}")


class _Read(beam.DoFn):
    def __init__(self, source: AnySource) -> None:
        self._source = source
        self._read: set[SourceFile] = set()

    def process(self, piece: DocumentPiece) -> Iterator[tuple[str, Text]]:
        split, source = piece.split, self._source
        self._read.add(split.file)
        count = _counting("ReadDocuments")
        language = language_of(split, source)
        for row, raw in enumerate(SOURCES[source.kind].read(split, source, count)):
            position = f"{source.name}/{piece.number:08d}/{row:010d}"
            yield raw.document_id, _text(raw, position, language, piece)

    def teardown(self) -> None:
        # Not after each split: a compressed tar is unpacked once on a machine.
        delete_unpacked(self._read)


def _text(raw: RawDocument, position: str, language: str, piece: DocumentPiece) -> Text:
    return Text(
        paragraphs=raw.paragraphs,
        language=language,
        position=position,
        source=piece.split.source,
        title=raw.title,
        file=raw.file or piece.split.file.sha256,
        byte_start=raw.byte_start,
        byte_end=raw.byte_end,
        page_id=raw.page_id,
        revision_id=raw.revision_id,
        timestamp=raw.timestamp,
    )


@dataclass(kw_only=True, eq=False)
class ReadDocuments(beam.PTransform[Any, Any]):
    """Nothing in; (document id, `Text`) out: the cleaned texts of a source.

    The source is planned when the pipeline is built: its files have to be there by then. A long
    plan goes to workers by a file in the pipeline's `temp_location`, if that is set.

    >>> from schemas.corpus_configs import TextSource
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     texts = pipeline | ReadDocuments(TextSource(name="own", paths=("texts.txt",)))
    ...     _ = texts | beam.Map(lambda pair: pair[1].source) | beam.Distinct() | beam.Map(print)
    own

    Args:
        source: a source of `schemas.corpus_configs`, as a recipe has it.

    Raises:
        InputError: when it is applied: a file is missing, or is not what its checksum says.
    """

    source: AnySource = field(kw_only=False)

    def __post_init__(self) -> None:
        if getattr(self.source, "kind", "") not in SOURCES:
            raise ConfigError(
                f"source: expected a source of schemas.corpus_configs, such as WikipediaSource, "
                f"got {type(self.source).__name__}"
            )

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "PlanSplits" >> CreateWorkItems(plan(DocumentsConfig(sources=(self.source,))))
            | "ReadSplits" >> beam.ParDo(_Read(self.source)).with_output_types(tuple[str, Text])
        )


class _Split(beam.DoFn):
    def __init__(self, limits: SplitSentences) -> None:
        # Not the transform itself, which Beam ties to its pipeline.
        self._limits = DocumentLimits(
            limits.min_words, limits.min_sentences, limits.max_sentence_characters
        )

    def process(self, element: tuple[str, Text]) -> Iterator[tuple[str, Document]]:
        document_id, text = _checked(element, Text, needs="paragraphs")
        sentences = wanted_sentences(
            list(text.paragraphs),
            text.language,
            limits=self._limits,
            count=_counting("SplitSentences"),
        )
        if sentences:
            yield document_id, Document(sentences, text_digest(sentences), *text[2:])


class DocumentLimits(NamedTuple):
    """Which documents are too short, and where a long sentence is cut."""

    min_words: int
    min_sentences: int
    max_sentence_characters: int


@dataclass(kw_only=True, eq=False)
class SplitSentences(beam.PTransform[Any, Any]):
    """(document id, `Text`) in; (document id, `Document`) out, without those that are too short.

    >>> text = Text(["Call me Ishmael. Some years ago, never mind how long."])
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     documents = pipeline | beam.Create([("moby", text)]) | SplitSentences()
    ...     _ = documents | beam.MapTuple(lambda name, found: print(name, found.sentences))
    moby ['Call me Ishmael.', 'Some years ago, never mind how long.']

    Args:
        min_words, min_sentences, max_sentence_characters: as of `DocumentsConfig`.
    """

    min_words: int = 5
    min_sentences: int = 1
    max_sentence_characters: int = 100_000

    def __post_init__(self) -> None:
        _check_at_least(1, min_words=self.min_words, min_sentences=self.min_sentences)
        _check_at_least(1_000, max_sentence_characters=self.max_sentence_characters)

    def expand(self, texts: Any) -> Any:
        return texts | "SplitTexts" >> beam.ParDo(_Split(self)).with_output_types(
            tuple[str, Document]
        )


def _name(element: tuple[str, Document]) -> str:
    """Tells a document from others of its id, and sorts by its position."""
    document_id, document = element
    return f"{document.position}\t{document_id}\t{document.digest.hex()}"


_Named = tuple[str, int, int]  # of a document its name, title and revision


def _by_id(element: tuple[str, Document]) -> tuple[bytes, _Named]:
    document_id, document = _checked(element, Document, needs="sentences")
    key = id_key(document_id, document.page_id, document.revision_id)
    revision = NO_REVISION if document.revision_id is None else document.revision_id
    return key, (_name(element), title_key(document.title), revision)


def _repeated(element: tuple[bytes, Iterable[_Named]]) -> Iterator[tuple[str, bool]]:
    group = sorted(element[1])
    for (first, *_), (second, *_) in itertools.pairwise(group):
        if first == second:
            raise InputError(
                f"two documents have one position, id and text: {first!r}. Give each an id, "
                "or a position, of its own"
            )
    if len(group) > 1:
        names, *keys = zip(*group, strict=True)
        titles, revisions = np.array(keys[0], np.uint32), np.array(keys[1], np.int64)
        groups = np.zeros(len(group), np.int64)
        left_out, _ = repeated_ids(groups, titles=titles, revisions=revisions)
        yield from ((names[row], True) for row in left_out.tolist())


def _by_text(element: tuple[str, Document]) -> tuple[bytes, str]:
    return element[1].digest, element[0]


def _all_but_first(element: tuple[bytes, Iterable[str]]) -> Iterator[tuple[str, bool]]:
    yield from ((document_id, True) for document_id in sorted(element[1])[1:])


class _Drop(beam.DoFn):
    """Passes on what is not among the names of the side input."""

    def __init__(self, reason: str, name: Callable[[tuple[str, Document]], str]) -> None:
        self._reason, self._name = reason, name
        self._is_first = name is _name

    def process(
        self, element: tuple[str, Document], left_out: dict[str, bool]
    ) -> Iterator[tuple[str, Document]]:
        count = _counting("DropDuplicates")
        if self._is_first:
            count("documents-in")
        if self._name(element) in left_out:
            count(f"documents-dropped-{self._reason}")
        else:
            if not self._is_first:
                count("documents-kept")
            yield element


def _id(element: tuple[str, Document]) -> str:
    return element[0]


@dataclass(kw_only=True, eq=False)
class DropDuplicates(beam.PTransform[Any, Any]):
    """(document id, `Document`) in; the same without repeated ids and repeated texts out.

    As the jobs choose: of one page in several revisions the newest stays, of one id otherwise the
    first by its `position`; then of equal texts the smallest id. Only digests and ids are grouped;
    the names of what is left out reach every worker.

    >>> texts = [("a", Text(["It rained for a week."])), ("b", Text(["It rained for a week."]))]
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     documents = pipeline | beam.Create(texts) | SplitSentences()
    ...     _ = documents | DropDuplicates() | beam.Keys() | beam.Map(print)
    a
    """

    def expand(self, documents: Any) -> Any:
        named = tuple[str, bool]
        repeated = (
            documents
            | "KeyById" >> beam.Map(_by_id).with_output_types(tuple[bytes, _Named])
            | "GroupIds" >> beam.GroupByKey()
            | "FindRepeatedIds" >> beam.FlatMap(_repeated).with_output_types(named)
        )
        unique = documents | "DropRepeatedIds" >> beam.ParDo(
            _Drop("repeated-id", _name), beam.pvalue.AsDict(repeated)
        ).with_output_types(tuple[str, Document])
        equal = (
            unique
            | "KeyByText" >> beam.Map(_by_text).with_output_types(tuple[bytes, str])
            | "GroupTexts" >> beam.GroupByKey()
            | "FindEqualTexts" >> beam.FlatMap(_all_but_first).with_output_types(named)
        )
        return unique | "DropEqualTexts" >> beam.ParDo(
            _Drop("duplicate", _id), beam.pvalue.AsDict(equal)
        ).with_output_types(tuple[str, Document])


class _Tokenize(beam.DoFn):
    def __init__(self, vocab: str, lowercase: bool) -> None:
        self._vocab, self._lowercase = vocab, lowercase
        self._tokenizer: WordPieceTokenizer | None = None

    def setup(self) -> None:
        self._tokenizer = WordPieceTokenizer.from_vocab_file(self._vocab, lowercase=self._lowercase)

    def process(self, element: tuple[str, Document]) -> Iterator[tuple[str, TokenDocument]]:
        assert self._tokenizer is not None  # noqa: S101 - Beam calls setup first
        document_id, document = _checked(element, Document, needs="sentences")
        token_ids, lengths = self._tokenizer.encode_sentences(list(document.sentences))
        count = _counting("Tokenize")
        count("documents-in")
        count("documents-kept")
        count("tokens", len(token_ids))
        count("sentences", len(lengths))
        count("unknown-tokens", int(np.count_nonzero(token_ids == self._tokenizer.unk_id)))
        present = lengths[lengths > 0]
        position, split = document.position, split_id(document_id, document.revision_id)
        yield document_id, TokenDocument(token_ids.tolist(), present.tolist(), position, split)


@dataclass(kw_only=True, eq=False)
class Tokenize(beam.PTransform[Any, Any]):
    """(document id, `Document`) in; (document id, `TokenDocument`) out.

    >>> texts = [("rain", Text(["The rain fell. The river rose."]))]
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     documents = pipeline | beam.Create(texts) | SplitSentences()
    ...     tokens = documents | Tokenize("vocab.txt")
    ...     _ = tokens | beam.MapTuple(lambda name, found: print(name, found.sentence_lengths))
    rain [4, 4]

    Args:
        vocab: path or URL of a vocab.txt that every worker can read.
        lowercase: whether the vocabulary is uncased.

    Raises:
        VocabularyError: the file is missing or is no vocabulary.
    """

    vocab: str = field(kw_only=False)
    lowercase: bool = True

    def __post_init__(self) -> None:
        read_vocab(self.vocab)

    def expand(self, documents: Any) -> Any:
        tokenize = beam.ParDo(_Tokenize(self.vocab, self.lowercase))
        return documents | "TokenizeSentences" >> tokenize.with_output_types(
            tuple[str, TokenDocument]
        )


@dataclass
class _Pool:
    """Makes the instances of the documents that were brought together."""

    config: InstancesConfig
    vocabulary: VocabularyIds
    count: Count

    def instances(
        self, documents: Sequence[tuple[str, TokenDocument]], *, part: str, passes: int
    ) -> Iterator[tuple[str, Instance]]:
        flat = _flat(documents, vocab_size=self.vocabulary.vocab_size)
        for pass_number in range(passes if len(flat) else 0):
            batches = create_instances(
                flat,
                NegativePool({0: flat}),
                self.config,
                vocabulary=self.vocabulary,
                pass_number=pass_number,
                own_shard=0,
                count=self.count,
            )
            numbers: dict[int, int] = {}
            for batch in batches:
                self.count("instances", len(batch))
                self.count("masked-tokens", len(batch.masked_lm_positions))
                for row in range(len(batch)):
                    document = int(batch.document_row[row])
                    numbers[document] = number = numbers.get(document, -1) + 1
                    yield _instance(batch, row, documents, part=part, number=number)


def _flat(documents: Sequence[tuple[str, TokenDocument]], *, vocab_size: int) -> TokenDocuments:
    kind = np.dtype(str(token_type(vocab_size)))
    records = [record for _, record in documents]
    sentences = np.array([len(record.sentence_lengths) for record in records], np.int64)
    return TokenDocuments(
        token_ids=np.concatenate(
            [np.empty(0, kind), *(_ids(*pair, vocab_size=vocab_size) for pair in documents)],
            dtype=kind,
            casting="unsafe",  # they fit, as all are below vocab_size
        ),
        sentence_lengths=np.array(
            [length for record in records for length in record.sentence_lengths], np.uint32
        ),
        sentence_offsets=offsets_of(sentences),
        document_ids=[document_id for document_id, _ in documents],
    )


def _ids(document_id: str, record: TokenDocument, *, vocab_size: int) -> Int64s:
    ids = np.array(record.token_ids, np.int64)
    foreign = ids[(ids < 0) | (ids >= vocab_size)]
    if len(foreign):
        raise InputError(
            f"document {document_id!r} has the token id {foreign[0]}, expected ids of a vocabulary "
            f"of {vocab_size:,}: give PairAndMask the vocab.txt that the tokens were made with"
        )
    return ids


def _instance(
    batch: InstanceBatch,
    row: int,
    documents: Sequence[tuple[str, TokenDocument]],
    *,
    part: str,
    number: int,
) -> tuple[str, Instance]:
    tokens = slice(*batch.input_offsets[row : row + 2].tolist())
    masked = slice(*batch.masked_lm_offsets[row : row + 2].tolist())
    document_id, record = documents[int(batch.document_row[row])]
    label = int(batch.next_sentence_label[row])
    return document_id, Instance(
        input_ids=batch.input_ids[tokens].tolist(),
        segment_b_start=int(batch.segment_b_start[row]),
        masked_lm_positions=batch.masked_lm_positions[masked].tolist(),
        masked_lm_ids=batch.masked_lm_ids[masked].tolist(),
        next_sentence_label=label,
        segment_b_document=(
            "" if label == NO_SEGMENT_B else documents[int(batch.segment_b_row[row])][0]
        ),
        part=part,
        dupe_index=int(batch.dupe_index[row]),
        number=number,
        position=record.position,
    )


def _group_of(element: tuple[str, Any], groups: int, purpose: str) -> tuple[int, tuple[str, Any]]:
    """The element with the number of its group, which its id alone decides."""
    if purpose == "pool":
        _checked(element, TokenDocument, needs="token_ids")
    return key_for(0, purpose, element[0]) % groups, element


def _in_order(elements: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """By position and id, whatever order they arrived in; instances of a document in their own."""
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
        self._vocabulary: VocabularyIds | None = None

    def setup(self) -> None:
        self._vocabulary = read_vocabulary_ids(self._vocab)

    def process(
        self, element: tuple[int, Iterable[tuple[str, TokenDocument]]]
    ) -> Iterator[tuple[str, Instance]]:
        assert self._vocabulary is not None  # noqa: S101 - Beam calls setup first
        documents = _in_order(element[1])
        ids = [document.split_id or document_id for document_id, document in documents]
        is_out = is_held_out(ids, share=self._config.held_out_fraction)
        pool = _Pool(self._config, self._vocabulary, _counting("PairAndMask"))
        for part, passes in ((TRAINING, self._config.dupe_factor), (HELD_OUT, 1)):
            chosen = [documents[row] for row in np.flatnonzero(is_out == (part == HELD_OUT))]
            yield from pool.instances(chosen, part=part, passes=passes)


@dataclass(kw_only=True, eq=False)
class PairAndMask(beam.PTransform[Any, Any]):
    """(document id, `TokenDocument`) in; (document id of A, `Instance`) out.

    Documents are brought together in `pools`, by their ids; random Bs come from A's own pool. One
    worker holds the tokens of a pool at a time, 2 to 4 bytes each and about 100 while they are
    brought together. The instances are those that `build-instances` makes of a token shard with a
    pool's documents.

    >>> tokens = [("rain", TokenDocument([104, 105, 106, 104, 107, 108], [3, 3]))]
    >>> config = InstancesConfig(max_seq_length=16, dupe_factor=1, held_out_fraction=0.0)
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     instances = pipeline | beam.Create(tokens) | PairAndMask(config, vocab="vocab.txt")
    ...     _ = instances | beam.MapTuple(lambda name, found: print(name, found.input_ids))
    rain [101, 104, 105, 106, 102, 104, 107, 103, 102]

    Args:
        config: lengths, pairing, masking, passes and the seed; `negative_pool_bytes` is not used.
        vocab: path or URL of the vocab.txt of the tokens, that every worker can read.
        pools: how many.

    Raises:
        VocabularyError: the file is missing or is no vocabulary.
    """

    config: InstancesConfig = field(kw_only=False)
    vocab: str
    pools: int = 1

    def __post_init__(self) -> None:
        read_vocab(self.vocab)
        _check_at_least(1, pools=self.pools)

    def expand(self, tokens: Any) -> Any:
        keyed = tuple[int, tuple[str, TokenDocument]]
        return (
            tokens
            | "ChoosePool" >> beam.Map(_group_of, self.pools, "pool").with_output_types(keyed)
            | "PoolDocuments" >> beam.GroupByKey()
            | "CreateInstances"
            >> beam.ParDo(_CreateInstances(self.config, self.vocab)).with_output_types(
                tuple[str, Instance]
            )
        )


_BATCH_ROWS = 1_024


class _Write(beam.DoFn):
    def __init__(self, output: str, schema: pa.Schema, compression: str | None) -> None:
        self._output, self._schema, self._compression = output, schema, compression

    def process(self, element: tuple[int, Iterable[tuple[str, Any]]]) -> Iterator[WrittenShard]:
        number, elements = element
        rows = _in_order(elements)
        path = f"part-{number:05d}.arrow"
        with ShardWriter(
            path, schema=self._schema, output=self._output, compression=self._compression
        ) as shard:
            for first in range(0, len(rows), _BATCH_ROWS):
                shard.write(self._batch(rows[first : first + _BATCH_ROWS]))
        entry = shard.entry()
        count = _counting("WriteShards")
        count("rows", shard.rows)
        count("bytes", entry.size_bytes)
        yield WrittenShard(
            entry.path,
            entry.stored_name,
            shard.rows,
            entry.size_bytes,
            entry.sha256,
            entry.rows_digest,
        )

    def _batch(self, rows: Sequence[tuple[str, Any]]) -> pa.RecordBatch:
        columns = [_column(field, rows) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _column(field: pa.Field, rows: Sequence[tuple[str, Any]]) -> pa.Array:
    if field.name == "document_id":
        values = [document_id for document_id, _ in rows]
    else:
        lacking = [record for _, record in rows if not hasattr(record, field.name)]
        if lacking:
            raise InputError(
                f"schema: the column {field.name!r} is neither document_id nor a field of "
                f"{lacking[0]!r:.200}"
            )
        values = [getattr(record, field.name) for _, record in rows]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise InputError(
            f"schema: the column {field.name!r} cannot be {field.type}: {error}. Give it a type "
            "that holds the records' values"
        ) from error


@dataclass(kw_only=True, eq=False)
class WriteShards(beam.PTransform[Any, Any]):
    """(document id, record) in; files of a folder, and a `WrittenShard` for each, out.

    A document's rows are in the shard that its id decides, by position and id: the bytes do not
    depend on the runner or on what arrives first. One worker holds a shard's rows at a time.

    >>> schema = pa.schema({"document_id": pa.string(), "title": pa.string()})
    >>> texts = [("b", Text([], title="Rain")), ("a", Text([], title="River"))]
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     shards = pipeline | beam.Create(texts) | WriteShards("titles", schema=schema)
    ...     _ = shards | beam.Map(lambda shard: print(shard.path, shard.rows))
    part-00000.arrow 2

    Args:
        output: path or URL of the folder.
        schema: of the table; its columns are `document_id`, the key, and fields of the records.
        shards: at most how many files.
        compression: `zstd`, `lz4`, or None for files that are read in place.
    """

    output: str = field(kw_only=False)
    schema: pa.Schema
    shards: int = 1
    compression: str | None = None

    def __post_init__(self) -> None:
        if not self.output or not isinstance(self.schema, pa.Schema):
            raise ConfigError(
                f"expected a folder and a pyarrow schema, found {self.output!r} and {self.schema!r}"
            )
        if self.compression not in (None, "zstd", "lz4"):
            raise ConfigError(
                f"compression: expected zstd, lz4 or None, found {self.compression!r}"
            )
        _check_at_least(1, shards=self.shards)

    def expand(self, rows: Any) -> Any:
        return (
            rows
            | "ChooseShard"
            >> beam.Map(_group_of, self.shards, "shard").with_output_types(
                tuple[int, tuple[str, Any]]
            )
            | "GatherRows" >> beam.GroupByKey()
            | "WriteRows"
            >> beam.ParDo(_Write(self.output, self.schema, self.compression)).with_output_types(
                WrittenShard
            )
        )
