"""Configurations of the corpus stages, from the sources to the instances."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from schemas.base_configs import (
    Config,
    Fraction,
    Language,
    Paths,
    Seed,
    SourceName,
    content_in_key,
    not_in_key,
)

FIRST_LEARNED_ID = 104  # [PAD] 0, [unused0..98] 1-99, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103


class SourceConfig(Config):
    """Fields of every kind of source."""

    name: SourceName
    """Short name of the source, unique in a recipe. Document ids start with it."""

    paths: Paths = content_in_key(...)
    """Files, folders or glob patterns, local or any fsspec URL."""

    language: Language = "en"
    """ISO 639 code. Selects the sentence splitter and the words of wiki markup."""

    target_split_bytes: int | None = Field(default=None, ge=1 << 10, le=1 << 40)
    """Target size of one split of the stored input. A split becomes one document shard. If not set:
    the largest power of two from 1 MiB to 32 MiB that gives at least 64 splits, or 1 MiB."""


class WikipediaSource(SourceConfig):
    """MediaWiki XML dumps, export 0.3 to 0.11: plain, .bz2 (also multistream), .gz, .zst,
    .7z."""

    kind: Literal["wikipedia"] = "wikipedia"
    """`wikipedia`: MediaWiki dumps."""

    language: Annotated[str, Field(pattern=r"^([a-z]{2,3}(-[a-z0-9]+)*)?$")] = ""
    """ISO 639 code. Selects the words of wiki markup, the template rules and the sentence splitter.
    "": the language in the dump's header, or English."""

    namespaces: Annotated[tuple[int, ...], Field(min_length=1)] = (0,)
    """Namespace numbers of the pages to keep; 0 holds the articles."""

    on_corrupt: Literal["fail", "keep-whole-pages"] = "fail"
    """Handling of truncated or corrupt files. The manifest notes how much was kept."""

    on_unknown_template: Literal["keep", "drop-sentence"] = "keep"
    """Handling of sentences with a template that has no rule: keep them without the template, or
    drop them. Both are counted by template name."""

    verify_checksums: bool = not_in_key(True)
    """Compare each file with a `*sha1sums*` or `*md5sums*` list in the same folder."""


class BooksSource(SourceConfig):
    """.txt, .html and .epub files of books, in a folder, a .zip or a .tar (also .gz, .bz2, .xz,
    .zst)."""

    kind: Literal["books"] = "books"
    """`books`: files of one book, or of several between Project Gutenberg's marks."""


class TextSource(SourceConfig):
    """Your own text: .txt, .jsonl or .parquet; .txt and .jsonl also as .gz, .bz2 and .zst. A row is
    a document, or with `rows_per_document` or `document_start_pattern` a paragraph of one."""

    kind: Literal["text"] = "text"
    """`text`: your files."""

    document_delimiter: Literal["blank-line", "line", "file"] = "blank-line"
    """End of a document in a .txt file: a blank line, the end of a line or the end of the file.
    Hard-wrapped lines are joined to paragraphs; each other line is a paragraph."""

    max_document_bytes: int = Field(default=8 << 20, ge=1 << 10, le=64 << 20)
    """Maximum size of a document. Longer ones are split at the end of a line or sentence."""

    text_column: str = "text"
    """Column or key of the text (.jsonl, .parquet)."""

    rows_per_document: int | None = Field(default=None, ge=1)
    """Number of rows per document, for files with one sentence per row, such as BookCorpus. A row
    is a line in a .txt file. Rows without text count."""

    document_start_pattern: str | None = None
    """Regular expression. A row whose text it matches anywhere starts a new document."""

    id_column: str | None = None
    """Column or key that identifies a row. None: the file name with the row's byte offset (.txt,
    .jsonl) or row number (.parquet)."""

    title_column: str | None = None
    """Column or key of the title."""

    @property
    def joins_rows(self) -> bool:
        """True if a document can have several rows."""
        return self.rows_per_document is not None or self.document_start_pattern is not None

    def _problems(self) -> Iterator[str]:
        try:
            re.compile(self.document_start_pattern or "")
        except re.error as error:
            got = f"{error} in {self.document_start_pattern!r}"
            yield f"document_start_pattern: expected a regular expression, got {got}"
        for name in ("id_column", "title_column") if self.joins_rows else ():
            if getattr(self, name) is not None:
                yield f"{name}: expected none, because a document has several rows"


AnySource = Annotated[WikipediaSource | BooksSource | TextSource, Field(discriminator="kind")]


class DocumentsConfig(Config):
    """`build-documents`: raw dumps and books become documents of sentences."""

    sources: Annotated[tuple[AnySource, ...], Field(min_length=1)]
    """Sources of the text. Their order does not matter."""

    min_words: int = Field(default=5, ge=1)
    """Minimum number of words (runs of letters and digits) of a document."""

    min_sentences: int = Field(default=1, ge=1)
    """Minimum number of sentences of a document."""

    max_sentence_characters: int = Field(default=100_000, ge=1_000)
    """Maximum length of a sentence. Longer ones are split at a space."""

    max_shard_bytes: int = Field(default=128 << 20, ge=1 << 10)
    """Maximum bytes of text per shard. Splits with more text become several shards, so that later
    stages have work items of bounded size even if a dump is one indivisible stream."""

    def _problems(self) -> Iterator[str]:
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            yield f"sources: expected distinct names, got {', '.join(names)}"


class VocabularyConfig(Config):
    """`build-vocabulary`: learn a WordPiece vocabulary or read it from a file."""

    vocab_file: str | None = content_in_key(None)
    """vocab.txt or WordPiece tokenizer.json (local or any fsspec URL) to use; or the name of a
    step, RECIPE/build-vocabulary. None: learn one."""

    vocab_size: int = Field(default=30_522, ge=FIRST_LEARNED_ID + 2, le=1 << 20)
    """Exact number of lines of the learned vocab.txt, special and unused ones included."""

    lowercase: bool = True
    """Uncased (lower-cased, accents stripped) or cased."""

    min_frequency: int = Field(default=2, ge=1)
    """Minimum count of words to learn from."""

    limit_alphabet: int = Field(default=1_000, ge=1)
    """Maximum number of single-character word pieces, the most frequent characters."""

    max_training_words: int = Field(default=200_000_000, ge=1_000)
    """Maximum total of word counts to learn from. Larger counts are scaled down, and always to
    at most 1,000 per distinct word on average."""


class TokensConfig(Config):
    """`build-tokens`: documents without duplicates become WordPiece ids."""

    remove_duplicates: bool = True
    """Remove the documents that `build-documents` recorded as duplicates."""

    word_cache_size: int = not_in_key(1 << 20, ge=1)
    """Maximum number of words whose ids are cached."""


class NearDuplicatesConfig(Config):
    """`find-near-duplicates`: find nearly equal documents by MinHash LSH."""

    threshold: float = Field(default=0.8, ge=0.5, le=1.0)
    """Minimum Jaccard similarity of the n-gram sets of two near-duplicates."""

    ngram_size: int = Field(default=5, ge=1, le=64)
    """Number of words of an n-gram; characters in scripts without spaces between words."""

    num_perm: int = Field(default=128, ge=32, le=1024)
    """Number of hashes of a MinHash signature. It and `threshold` determine the LSH bands, so that
    two documents at the threshold share a band with probability 0.98."""


class ContaminationRules(Config):
    """Definition of a text that is in the corpus and of a document to exclude."""

    splits: tuple[str, ...] = ()
    """Splits whose texts to search for. []: all except `train` and `augmentation`."""

    ngram_size: int = Field(default=13, ge=4, le=100)
    """Number of consecutive words that a text and a document share. In scripts without spaces
    between words, a character counts as half a word."""

    min_text_words: int = Field(default=8, ge=1)
    """Minimum number of words of a text. Texts with fewer than `ngram_size` words are searched for
    as a whole; texts with fewer than this are counted as too short."""

    max_document_frequency: int = Field(default=10, ge=1)
    """Maximum number of documents with an n-gram. More frequent ones are common phrases."""

    min_overlap: float = Field(default=0.2, gt=0.0, le=1.0)
    """Fraction of a text's n-grams that a document to exclude contains."""

    def _problems(self) -> Iterator[str]:
        if self.min_text_words > self.ngram_size:
            values = f"{self.ngram_size}, got {self.min_text_words}"
            yield f"min_text_words: expected at most ngram_size, {values}"


class ContaminationConfig(ContaminationRules):
    """`find-contamination`: search the documents for evaluation texts."""

    remove_duplicates: bool = True
    """Skip duplicate documents, as `build-tokens` does."""


class DecontaminateConfig(ContaminationRules):
    """Removal of documents that contain evaluation texts."""

    tasks: Annotated[tuple[SourceName, ...], Field(min_length=1)] = content_in_key(...)
    """Entries of build_examples whose texts to search for."""


class MaskingConfig(Config):
    """Selection and replacement of tokens for the masked LM (paper 3.1, C.2)."""

    strategy: Literal["wordpiece", "whole-word", "span", "none"] = "wordpiece"
    """Unit of selection. `none`: write unmasked instances for a loader that masks dynamically."""

    masked_lm_prob: float = Field(default=0.15, gt=0.0, le=1.0)
    """Fraction of an instance's tokens to select. [CLS] and [SEP] count, but are never selected."""

    max_predictions_per_seq: int = Field(default=20, ge=1, le=512)
    """Maximum number of selected tokens. Paper's code: 20 at length 128, 77 to 80 at 512."""

    mask_token_prob: Fraction = 0.8
    """Fraction of the selected tokens to replace by [MASK]."""

    unchanged_prob: Fraction = 0.1
    """Fraction of the selected tokens to keep."""

    random_token_prob: Fraction = 0.1
    """Fraction of the selected tokens to replace by a random token of the vocabulary."""

    span_geometric_p: float = Field(default=0.2, gt=0.0, le=1.0)
    """`span` only: parameter of the geometric distribution of span lengths (SpanBERT 3.1)."""

    max_span_words: int = Field(default=10, ge=1)
    """`span` only: maximum length of a span."""

    def _problems(self) -> Iterator[str]:
        total = self.mask_token_prob + self.unchanged_prob + self.random_token_prob
        if abs(total - 1.0) > 1e-6:
            names = "mask_token_prob, unchanged_prob and random_token_prob"
            yield f"expected {names} with a sum of 1, got {total:g}"


class InstancesConfig(Config):
    """`build-instances`: tokens become `[CLS] A [SEP] B [SEP]` rows (paper 3.1, A.2)."""

    max_seq_length: int = Field(default=128, ge=8, le=65_535)
    """Maximum number of tokens of an instance, [CLS] and [SEP] included."""

    short_seq_prob: Fraction = 0.1
    """Fraction of (document, pass) pairs with a random shorter target length."""

    dupe_factor: int = Field(default=1, ge=1, le=65_535)
    """Number of passes over the corpus, each with its own random draws."""

    pairing: Literal["nsp", "none"] = "nsp"
    """`nsp`: half of the instances have a random B. `none`: full-length text without B."""

    random_next_prob: Fraction = 0.5
    """Fraction of the instances whose B is random."""

    negative_pool_bytes: int = Field(default=16 << 20, ge=1 << 10)
    """Token bytes of *other* shards to draw random Bs from, in addition to the shard's own. No
    other shard is read if none fits and the shard has at least 128 documents. If a shard of the
    pool changes, the instances are rebuilt: use a small pool for corpora that change in part."""

    held_out_fraction: float = Field(default=0.005, ge=0.0, le=0.5)
    """Fraction of the documents held out of training, selected by document id: the same documents
    at every length, seed and pass. Their instances are in separate files."""

    seed: Seed = 0
    """Seed of all random draws."""

    masking: MaskingConfig = MaskingConfig()
    """Selection and replacement of masked tokens."""
