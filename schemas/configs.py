"""Configurations: what a recipe may say, with units and ranges.

Every model is frozen and refuses unknown keys. A field marked `not_identity` says how or where a
stage runs, not what it makes, and so is left out of cache keys.
"""

from __future__ import annotations

import typing
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

FIRST_LEARNT_ID = 104  # [PAD] 0, [unused0..98] 1-99, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103


class Config(BaseModel):
    """Base of every configuration: immutable, no unknown keys, docstrings become descriptions."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_booleans(cls, data: Any) -> Any:
        """Refuse true and false in fields of numbers: pydantic would take them as 1 and 0."""
        for name, value in data.items() if isinstance(data, dict) else ():
            field = cls.model_fields.get(name)
            if field and _has_boolean(value) and not _takes_boolean(field.annotation):
                raise ValueError(f"{name}: expected no true or false, got {value!r:.80}")
        return data

    def identity(self) -> dict[str, Any]:
        """What of this configuration decides the bytes a stage writes, as plain JSON values."""
        fields: dict[str, Any] = _identity(self)
        return fields


def not_identity(default: Any, **constraints: Any) -> Any:
    """A field that says how, where or how fast, not what is made.

    Of models: where it changes the order in which numbers are added, or which draws of dropout a
    token meets (the size of micro-batches), results are as good and not equal to the bit.
    """
    return Field(default, json_schema_extra={"identity": False}, **constraints)


def _has_boolean(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_boolean, value))
    return isinstance(value, bool)


def _takes_boolean(annotation: Any) -> bool:
    """Return True if a type is or has `bool` or `Any`."""
    arguments = typing.get_args(annotation)
    return annotation in (bool, Any) or any(map(_takes_boolean, arguments))


def _identity(value: Any) -> Any:
    if isinstance(value, Config):
        fields = type(value).model_fields
        return {
            name: _identity(getattr(value, name))
            for name, field in fields.items()
            if not _is_left_out(field)
        }
    if isinstance(value, dict):
        return {str(key): _identity(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_identity(item) for item in value]
    return value


def _is_left_out(field: FieldInfo) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, dict) and extra.get("identity") is False


Paths = Annotated[tuple[str, ...], Field(min_length=1)]
SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[a-z0-9]+)*$")]


class SourceConfig(Config):
    """What every kind of source has."""

    name: SourceName
    """Short name of the source; the first part of its documents' ids. Unique in a recipe."""

    paths: Paths = not_identity(...)
    """Files, folders or glob patterns, local or any fsspec URL. Their content is what counts."""

    language: Language = "en"
    """ISO 639 code; decides how sentences are split and which wiki namespace words are known."""

    target_split_bytes: int = Field(default=32 << 20, ge=1 << 10, le=1 << 40)
    """Bytes of raw input (as stored) that one split, and so one document shard, aims at."""


class WikipediaSource(SourceConfig):
    """MediaWiki XML dumps, export 0.3 to 0.11: plain, .bz2 (also multistream), .gz, .zst."""

    kind: Literal["wikipedia"] = "wikipedia"
    """`wikipedia`: MediaWiki dumps."""

    language: Annotated[str, Field(pattern=r"^([a-z]{2,3}(-[a-z0-9]+)*)?$")] = ""
    """ISO 639 code; decides the words of the markup, how templates are written and sentences split.
    "" for what the dump's header says, and English where it says nothing."""

    namespaces: Annotated[tuple[int, ...], Field(min_length=1)] = (0,)
    """Namespace numbers of the pages to keep; 0 holds the articles."""

    on_corrupt: Literal["fail", "keep-whole-pages"] = "fail"
    """What to do with a truncated or damaged file; what was kept is said in the manifest."""

    on_unknown_template: Literal["keep", "drop-sentence"] = "keep"
    """What to do with a sentence in which a template stands that no rule is known for: keep it with
    the hole that is left, or drop it whole. Either way holes are counted by the template's name."""

    verify_checksums: bool = not_identity(True)
    """Compare each file with a `*sha1sums*` or `*md5sums*` list that lies beside it."""

    trust_checksums: bool = not_identity(False)
    """Take a file for what a `*sha256sums*` list beside it says, without reading it first; the
    manifest says so. (By sha256 alone files are known in keys, so no other list will do.)"""


class BooksSource(SourceConfig):
    """One text file a book, in a folder, a .zip or a .tar (also .gz, .bz2, .xz, .zst)."""

    kind: Literal["books"] = "books"
    """`books`: a book a file."""


class BookCorpusSource(SourceConfig):
    """BookCorpus as first given out: one lower-cased, tokenised sentence a line, no book marks."""

    kind: Literal["bookcorpus"] = "bookcorpus"
    """`bookcorpus`: a sentence a line."""

    lines_per_document: int = Field(default=2000, ge=1)
    """Sentences that make up one document."""

    document_start_pattern: str | None = None
    """Regular expression; a line that it matches begins a new document as well."""


class TextSource(SourceConfig):
    """Your own text: .txt (`document` says what ends one), .jsonl and .parquet (a row a document);
    .gz, .bz2 and .zst around .txt and .jsonl."""

    kind: Literal["text"] = "text"
    """`text`: files of your own."""

    document_delimiter: Literal["blank-line", "line", "file"] = "blank-line"
    """What ends a document in a .txt file: a blank line, each line, or only the end of the file.
    Hard-wrapped lines are joined to paragraphs; each other line is a paragraph."""

    max_document_bytes: int = Field(default=8 << 20, ge=1 << 10, le=64 << 20)
    """A longer document, of any form, is cut into several: where a line ends, or a sentence."""

    text_column: str = "text"
    """Column or key that holds the text (.jsonl, .parquet)."""

    id_column: str | None = None
    """Column or key that identifies a row. Without it the file's name and the row's position do:
    its byte offset in .txt and .jsonl, its number in Parquet."""

    title_column: str | None = None
    """Column or key that holds a title."""


AnySource = Annotated[
    WikipediaSource | BooksSource | BookCorpusSource | TextSource, Field(discriminator="kind")
]


class DocumentsConfig(Config):
    """`build-documents`: raw dumps and books become documents of sentences."""

    sources: Annotated[tuple[AnySource, ...], Field(min_length=1)]
    """Where the text comes from. Their order in the recipe does not matter."""

    min_words: int = Field(default=5, ge=1)
    """A document with fewer words (runs of letters and digits) is dropped as too short."""

    min_sentences: int = Field(default=1, ge=1)
    """A document with fewer sentences is dropped as too short."""

    max_sentence_characters: int = Field(default=100_000, ge=1_000)
    """A longer sentence is cut at a space: no sentence grows without bound."""

    max_shard_bytes: int = Field(default=128 << 20, ge=1 << 10)
    """A split with more bytes of text than this is written as several shards, so that the stages
    after this one find pieces of bounded size even where a dump is one indivisible stream."""

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        names = [source.name for source in self.sources]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(
                f"source names must differ, found {', '.join(repeated)} more than once: give each "
                "source in build_documents.sources its own name, or put the paths in one source"
            )
        return self


class VocabularyConfig(Config):
    """`build-vocabulary`: a WordPiece vocabulary is learnt from documents, or taken as given."""

    vocab_file: str | None = not_identity(None)
    """Vocabulary to use instead of learning one: a vocab.txt or a WordPiece tokenizer.json (local
    or any fsspec URL); its content is what counts."""

    vocab_size: int = Field(default=30_522, ge=FIRST_LEARNT_ID + 2, le=1 << 20)
    """Lines of the learnt vocab.txt, special and unused ones included. Exactly so many are made."""

    lowercase: bool = True
    """Uncased (lower-cased, accents stripped) or cased."""

    min_frequency: int = Field(default=2, ge=1)
    """Words seen fewer times are not learnt from."""

    limit_alphabet: int = Field(default=1_000, ge=1)
    """Distinct characters that get a piece of their own, the most frequent first."""

    max_training_words: int = Field(default=200_000_000, ge=1_000)
    """Running words the learner is shown; a larger corpus has its counts scaled down to it."""


class TokensConfig(Config):
    """`build-tokens`: documents without duplicates become WordPiece ids."""

    remove_duplicates: bool = True
    """Leave out the documents that `build-documents` recorded as duplicates."""

    word_cache_size: int = not_identity(1 << 20, ge=1)
    """Distinct words whose ids are remembered before the memory is emptied."""


class NearDuplicatesConfig(Config):
    """`find-near-duplicates`: documents that say nearly the same as another, by MinHash LSH."""

    threshold: float = Field(default=0.8, ge=0.5, le=1.0)
    """Jaccard similarity of two documents' sets of n-grams from which on one is left out."""

    ngram_size: int = Field(default=5, ge=1, le=64)
    """Words of an n-gram; in scripts that put no space between words, characters."""

    num_perm: int = Field(default=128, ge=32, le=1024)
    """Numbers of a document's MinHash signature. Bands and rows follow from it and `threshold`: as
    many rows as let two documents at the threshold meet in some band with a probability of .98."""


class MaskingConfig(Config):
    """Which tokens are chosen for the masked LM, and what replaces them (paper 3.1, C.2)."""

    strategy: Literal["wordpiece", "whole-word", "span", "none"] = "wordpiece"
    """`none` writes unmasked instances, for a loader that draws the masks itself."""

    masked_lm_prob: float = Field(default=0.15, gt=0.0, le=1.0)
    """Share of an instance's tokens that are chosen ([CLS] and [SEP] counted, never chosen)."""

    max_predictions_per_seq: int = Field(default=20, ge=1, le=512)
    """No instance has more chosen tokens. Paper's code: 20 at length 128, 77 to 80 at 512."""

    mask_token_prob: float = Field(default=0.8, ge=0.0, le=1.0)
    """Share of the chosen tokens replaced by [MASK]."""

    unchanged_prob: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of the chosen tokens left as they are."""

    random_token_prob: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of the chosen tokens replaced by a random one, drawn from the whole vocabulary."""

    span_geometric_p: float = Field(default=0.2, gt=0.0, le=1.0)
    """`span` only: span lengths in words are geometric with this parameter (SpanBERT 3.1)."""

    max_span_words: int = Field(default=10, ge=1)
    """`span` only: longer draws are cut to this."""

    @model_validator(mode="after")
    def _rates_sum_to_one(self) -> Self:
        total = self.mask_token_prob + self.unchanged_prob + self.random_token_prob
        if abs(total - 1.0) > 1e-6:
            raise ValueError(
                "mask_token_prob + unchanged_prob + random_token_prob: expected a sum of 1, got "
                f"{total:g}"
            )
        return self


class InstancesConfig(Config):
    """`build-instances`: tokens become `[CLS] A [SEP] B [SEP]` rows (paper 3.1, A.2)."""

    max_seq_length: int = Field(default=128, ge=8, le=65_535)
    """Tokens of the longest instance, [CLS] and [SEP] included."""

    short_seq_prob: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of (document, duplicate) passes with a random shorter target length."""

    dupe_factor: int = Field(default=1, ge=1, le=65_535)
    """Passes over the corpus, each with draws of its own (Google's dupe_factor)."""

    pairing: Literal["nsp", "none"] = "nsp"
    """`nsp`: half the instances have a random B. `none`: full-length text, no B ("no NSP")."""

    random_next_prob: float = Field(default=0.5, ge=0.0, le=1.0)
    """Share of the instances whose B is random."""

    negative_pool_bytes: int = Field(default=16 << 20, ge=1 << 10)
    """Token bytes of *other* shards that random Bs are drawn from, beside the shard's own, in an
    order drawn from what the shards hold; none where none fits and the shard has 128 documents
    itself. A shard's instances are made again when one of its pool changes: a corpus that is
    rebuilt in part wants a small pool. (Held-out documents have pools of their own.)"""

    held_out_fraction: float = Field(default=0.005, ge=0.0, le=0.5)
    """Share of the documents, chosen by their ids alone, that training never sees: the same
    documents at every length, seed and pass. Their instances are in files of their own."""

    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Decides every draw."""

    masking: MaskingConfig = MaskingConfig()
    """Which tokens are masked, and how."""


class WorkerCodeConfig(Config):
    """How the Python workers of an engine get bertloom's code."""

    environment: Literal["process", "external", "docker"] = not_identity("process")
    """`process`: each machine of the engine has the program `worker_command`. `external`: worker
    pools beside the engine's own processes. `docker`: a container image."""

    worker_command: str | None = not_identity(None)
    """`process`: path of the boot program on the engine's machines; None: that of this Python
    (`bertloom-beam-worker`), where the engine is on this machine or the installation is shared."""

    worker_pool: str | None = not_identity(None)
    """`external`: HOST:PORT of the pool, as the engine's processes see it."""

    image: str | None = not_identity(None)
    """`docker`: the container image."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        needs = {"process": "worker_command", "external": "worker_pool", "docker": "image"}
        for environment, field in needs.items():
            is_given = getattr(self, field) is not None
            if is_given and environment != self.environment:
                raise ValueError(
                    f"{field} is for environment {environment}, not {self.environment}"
                )
            if not is_given and environment == self.environment != "process":
                raise ValueError(f"environment {environment} needs {field}")
        return self


class JobServerConfig(WorkerCodeConfig):
    """An engine that is reached through a Beam job server."""

    job_endpoint: str | None = not_identity(None)
    """HOST:PORT of a job server that runs; None: one is started, and ended with this process."""

    job_server: str | None = not_identity(None)
    """Beam's job server: a jar, or a folder of jars. None: what `$BERTLOOM_JOB_SERVERS` names."""

    download: bool = not_identity(False)
    """Get Beam's own job server from Maven Central, once, where there is no other."""

    parallelism: int | None = not_identity(None, ge=1, le=100_000)
    """Pieces that are worked on at once. None: as many as there are free slots, or pieces."""

    @model_validator(mode="after")
    def _one_server(self) -> Self:
        if self.job_endpoint and (self.job_server or self.download):
            raise ValueError(
                "job_endpoint names a job server that runs, job_server and download one that is "
                "to be started: give one of them"
            )
        return self


class FlinkConfig(JobServerConfig):
    """Apache Flink, 1.19 or newer."""

    master: str | None = not_identity(None)
    """HOST:PORT of the cluster's REST interface, or `[local]`: a Flink inside the job server."""

    version: str = not_identity("1.19", pattern=r"^\d+\.\d+$")
    """The cluster's, for a job server that is downloaded."""


class SparkConfig(JobServerConfig):
    """Apache Spark 3."""

    master: str | None = not_identity(None)
    """`spark://HOST:PORT` of a standalone master, or `local[N]`: a Spark inside the job server."""

    home: str | None = not_identity(None)
    """Folder of Spark itself, whose jars a job server in parts needs; None: `$SPARK_HOME`, or that
    of the Python package pyspark."""


class PortableConfig(WorkerCodeConfig):
    """Any portable job service of Beam."""

    job_endpoint: str | None = not_identity(None)
    """HOST:PORT of the job service."""


class DataflowConfig(Config):
    """Google Cloud Dataflow."""

    project: str | None = not_identity(None)
    """Name (id) of the Google Cloud project that jobs run in and are billed to."""

    region: str | None = not_identity(None)
    """Region of the jobs, best that of the buckets, as `europe-west1`."""

    temp_location: str | None = not_identity(None, pattern="^gs://.+")
    """A folder in a bucket, for what Dataflow stages."""

    staging_location: str | None = not_identity(None, pattern="^gs://.+")
    """A folder in a bucket for packages and the graph; None: `temp_location`."""

    service_account_email: str | None = not_identity(None)
    """Email of the account that workers act as."""

    machine_type: str | None = not_identity(None)
    """Type of the workers' machines, as `n2-standard-4`. None: Dataflow's choice."""

    disk_size_gb: int | None = not_identity(None, ge=10, le=65_536)
    """Disk of each worker, in GB."""

    max_num_workers: int | None = not_identity(None, ge=1, le=4_000)
    """Machines at once, at most."""

    number_of_worker_harness_threads: int | None = not_identity(None, ge=1, le=64)
    """Pieces that each of a machine's processes works on at once. None: 1, as there is a process a
    core; more cost memory."""

    network: str | None = not_identity(None)
    """VPC network of the workers. None: the project's default one."""

    subnetwork: str | None = not_identity(None)
    """Subnetwork of the workers, as `regions/REGION/subnetworks/NAME`. None: that of the region."""

    use_public_ips: bool | None = not_identity(None)
    """Whether workers have public addresses. Without, an image brings the code, or there is a NAT
    by which they reach the package index."""

    flexrs_goal: Literal["cost", "speed"] | None = not_identity(None)
    """Flexible scheduling: `cost` starts within six hours, on spot machines among others."""

    image: str | None = not_identity(None)
    """A container image with bertloom in it."""

    packages: tuple[str, ...] = not_identity(())
    """Wheels that workers install, bertloom's among them. Where there is neither such an image nor
    this, `bertloom worker-package` is made for the job."""

    endpoint: str | None = not_identity(None)
    """Of Dataflow's API, where it is another than Google's."""


class ExecutionConfig(Config):
    """Where and how a job runs. Nothing here changes a byte of what is made."""

    runner: str = not_identity("local")
    """A name in `pipelines.runners.launch.RUNNERS`."""

    workers: int = not_identity(1, ge=1, le=4096)
    """Workers on this machine (local runners)."""

    beam_options: tuple[str, ...] = not_identity(())
    """Further Beam options as on its command line, e.g. `--project=P` (remote runners)."""

    @field_validator("beam_options", mode="after")
    @classmethod
    def _one_text_per_option(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        # Beam repeats options that it does not know. A value without its name could not be
        # recognized as a secret there.
        joined: list[str] = []
        for text in options:
            if joined and not text.startswith("--") and "=" not in joined[-1]:
                joined[-1] += f"={text}"
            else:
                joined.append(text)
        return tuple(joined)

    verify_cached: Literal["size", "full"] = not_identity("size")
    """How an artifact that is there already is looked at before it is used: that its files have
    their sizes, or that every byte is as it was."""

    max_parallel_steps: int | None = not_identity(None, ge=1, le=256)
    """Steps that do not need each other and may run at once. None: one where steps share this
    machine (each uses all of it), eight on a remote runner."""

    shared_filesystem: bool = not_identity(False)
    """The store's folder and the input's are the same paths on every machine of the engine."""

    detach: bool = not_identity(False)
    """A run that is stopped leaves its job to the engine; the next run attaches to it."""

    flink: FlinkConfig = not_identity(FlinkConfig())
    """Where Flink is, with `runner: flink`."""

    spark: SparkConfig = not_identity(SparkConfig())
    """Where Spark is, with `runner: spark`."""

    portable: PortableConfig = not_identity(PortableConfig())
    """Where the job service is, with `runner: portable`."""

    dataflow: DataflowConfig = not_identity(DataflowConfig())
    """Whose Dataflow, where and on which machines, with `runner: dataflow`."""
