"""The steps of the corpus jobs as Beam transforms, for other pipelines.

Elements are pairs of an id and a typed record:

    texts = pipeline | ReadDocuments(WikipediaSource(name="enwiki", paths=("enwiki.xml.bz2",)))
    tokens = texts | SplitSentences() | Tokenize("vocab.txt")

The transforms call the functions of the jobs, so ids and texts are the same.
Beam metrics count records, bytes and dropped records by reason.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import RowCoder
from apache_beam.coders.typecoders import registry
from apache_beam.metrics.metric import Metrics

from pipelines.counters import Count
from pipelines.documents.build_shard import read_texts
from pipelines.documents.plan import DocumentItem, plan
from pipelines.documents.records import (
    Document,
    DocumentLimits,
    record_batch,
    split_text,
)
from pipelines.io.raw_files import expand_paths
from pipelines.io.splits import RawText
from pipelines.sources import SOURCES
from pipelines.tokens.build_shard import tokenize_batch
from pipelines.wordpiece.text_rules import TextRules, read_text_rules
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from pipelines.wordpiece.vocab_files import read_vocab
from schemas.arrow import DOCUMENTS, tokens_schema
from schemas.corpus_configs import AnySource, DocumentsConfig
from schemas.errors import ConfigError, InputError

__all__ = [
    "Document",
    "RawText",
    "ReadDocuments",
    "SplitSentences",
    "TokenDocument",
    "Tokenize",
]


class TokenDocument(NamedTuple):
    """The WordPiece ids of a document, without special tokens.

    >>> TokenDocument(token_ids=[7, 8, 9], sentence_lengths=[2, 1]).sentence_lengths
    [2, 1]
    """

    token_ids: Sequence[int]
    """Ids of all sentences in order."""

    sentence_lengths: Sequence[int]
    """Number of tokens of each sentence that has any."""

    split_id: str | None = None
    """Id that decides whether the document is held out. Default: the document's own id."""


_Texts = tuple[str, RawText]
_Documents = tuple[str, Document]
_Tokens = tuple[str, TokenDocument]

for _record in (RawText, Document, TokenDocument):
    registry.register_coder(_record, RowCoder)


@functools.cache
def _beam_count(namespace: str) -> Count:
    """Return a function that adds to Beam's counters."""
    counter = functools.cache(functools.partial(Metrics.counter, namespace))

    def count(name: str, amount: int = 1, /, *, where: str = "") -> None:
        del where
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


def _plan_splits(_: bytes, source: AnySource) -> list[DocumentItem]:
    return plan(DocumentsConfig(sources=(source,)))


def _read_split(item: DocumentItem, source: AnySource) -> Iterator[_Texts]:
    return read_texts(item.split, source, _beam_count("ReadDocuments"))


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
            | "PlanSplits" >> beam.FlatMap(_plan_splits, self.source)
            | "SpreadSplits" >> beam.Reshuffle()
            | "ReadSplits" >> beam.FlatMap(_read_split, self.source).with_output_types(_Texts)
        )


def _split_text(element: _Texts, limits: DocumentLimits) -> Iterator[_Documents]:
    document_id, text = _check_element(element, RawText, "paragraphs")
    document = split_text(text, limits=limits, count=_beam_count("SplitSentences"))
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
        split_texts = beam.FlatMap(_split_text, limits).with_output_types(_Documents)
        return texts | "SplitTexts" >> split_texts


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
        for row in batch.to_pylist():
            document_id = row.pop("document_id")
            yield document_id, TokenDocument(**row)


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
