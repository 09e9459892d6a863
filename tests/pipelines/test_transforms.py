"""Transforms give the output and counts of the jobs, and refuse invalid elements."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from apache_beam.testing.util import assert_that, equal_to
from support.corpus_builder import run_corpus, small_sample
from support.paths import PYTHONPATH

from pipelines.documents.duplicates import DUPLICATES_FILE
from pipelines.documents.records import text_digest
from pipelines.io.shards import open_shard
from pipelines.runners.registry import get_runner
from pipelines.transforms import (
    Document,
    DropDuplicates,
    PairAndMask,
    RawText,
    ReadDocuments,
    SplitSentences,
    TokenDocument,
    Tokenize,
    WriteShards,
)
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, vocab_text
from schemas.arrow import DOCUMENTS, tokens_schema
from schemas.corpus_configs import (
    BooksSource,
    DocumentsConfig,
    InstancesConfig,
    MaskingConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.errors import ConfigError, InputError, MissingInputError, VocabularyError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageOutput
from schemas.recipe import Recipe

INSTANCES = InstancesConfig(
    max_seq_length=64,
    dupe_factor=2,
    held_out_fraction=0.2,
    masking=MaskingConfig(max_predictions_per_seq=10),
)


class Job:
    """Outputs of the jobs of a recipe."""

    def __init__(self, folder: Path, *sources: Any) -> None:
        self.folder, self.sources = folder, sources
        self.recipe = Recipe(
            name="test",
            build_documents=DocumentsConfig(sources=sources),
            build_vocabulary=VocabularyConfig(vocab_size=400),
            build_instances={"x": INSTANCES},
        )
        self.made = run_corpus(self.recipe, folder)
        self.vocab = self.path("build-vocabulary", "vocab.txt")

    def path(self, stage: str, name: str) -> str:
        entry = next(entry for entry in self.made[stage].files if entry.path == name)
        return str(self.folder / stage / entry.stored_name)

    def rows(self, stage: str) -> Counter[str]:
        """Rows of a stage's shards."""
        entries = (entry for entry in self.made[stage].files if entry.path != DUPLICATES_FILE)
        return count_rows(self.folder / stage, [entry.stored_name for entry in entries])

    def texts(self, pipeline: beam.Pipeline) -> Any:
        read = [pipeline | f"Read {item.name}" >> ReadDocuments(item) for item in self.sources]
        return read | beam.Flatten()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Two sources in several splits, one of them read twice under different names."""
    folder = tmp_path_factory.mktemp("corpus")
    sample = small_sample(folder / "sample")
    return Job(
        folder / "made",
        WikipediaSource(name="wiki", paths=(sample.pages,), target_split_bytes=4 << 10),
        WikipediaSource(name="again", paths=(sample.pages,), target_split_bytes=8 << 10),
        BooksSource(name="tales", paths=(sample.books,), target_split_bytes=32 << 10),
    )


@pytest.fixture(scope="module")
def one_shard(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A dump in one split, whose token shard is the pool of `PairAndMask`."""
    folder = tmp_path_factory.mktemp("one-shard")
    sample = small_sample(folder / "sample")
    return Job(folder / "made", WikipediaSource(name="wiki", paths=(sample.pages,)))


def run(build: Callable[[beam.Pipeline], object]) -> Any:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    build(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    return result


def collect(build: Callable[[beam.Pipeline], Any], path: Path) -> tuple[list[Any], Any]:
    """Run a pipeline. Return the elements that it builds, by way of a file, and its result."""
    result = run(lambda pipeline: build(pipeline) | beam.ParDo(_Keep(path)))
    return _Keep.read(path), result


def counted(result: Any, namespace: str) -> dict[str, int]:
    """Each counter over all steps."""
    query = beam.metrics.MetricsFilter().with_namespace(namespace)
    total: Counter[str] = Counter()
    for found in result.metrics().query(query)["counters"]:
        total[found.key.metric.name] += found.committed
    return dict(total)


def written_rows(folder: Path, shards: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in shards:
        with open_shard(str(folder / name)) as reader:
            rows += reader.read_all().to_pylist()
    return rows


class _Keep(beam.DoFn):
    """Appends elements to a file, because another process may see them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, element: Any) -> Iterator[Any]:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(element, default=bytes.hex) + "\n")
        yield element

    @staticmethod
    def read(path: Path) -> list[Any]:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def count_rows(folder: Path, shards: list[str]) -> Counter[str]:
    return Counter(map(repr, written_rows(folder, shards)))


def test_documents_equal_those_of_the_job(corpus: Job, tmp_path: Path) -> None:
    def build(pipeline: beam.Pipeline) -> Any:
        documents = corpus.texts(pipeline) | SplitSentences()
        return documents | WriteShards(str(tmp_path), schema=DOCUMENTS, shards=3)

    shards, result = collect(build, tmp_path / "shards")
    rows = count_rows(tmp_path, [name for _, name, *_ in shards])
    assert rows.total() == sum(number for _, _, number, *_ in shards)
    assert rows == corpus.rows("build-documents")
    table = ds.dataset(tmp_path, format="ipc", exclude_invalid_files=True)
    assert table.count_rows() == rows.total()
    counters = Counter(corpus.made["build-documents"].counters)
    for name, number in list(counters.items()):
        if name.startswith("template-"):  # counted per source: template-dropped:NAME@SOURCE
            counters[name.partition("@")[0]] += number
    for namespace in ("ReadDocuments", "SplitSentences"):
        own = counted(result, namespace)
        assert own
        assert {name: n for name, n in own.items() if counters.get(name) != n} == {}
    assert counted(result, "WriteShards")["rows"] == rows.total()


def test_tokens_without_duplicates_equal_those_of_the_job(corpus: Job, tmp_path: Path) -> None:
    def build(pipeline: beam.Pipeline) -> Any:
        documents = corpus.texts(pipeline) | SplitSentences() | DropDuplicates()
        tokens = documents | Tokenize(corpus.vocab)
        return tokens | WriteShards(str(tmp_path), schema=tokens_schema(400), shards=2)

    shards, result = collect(build, tmp_path / "shards")
    assert count_rows(tmp_path, [name for _, name, *_ in shards]) == corpus.rows("build-tokens")
    counters = corpus.made["build-tokens"].counters
    own = counted(result, "Tokenize")
    assert {name: own[name] for name in ("tokens", "sentences", "documents-kept")} == {
        name: counters[name] for name in ("tokens", "sentences", "documents-kept")
    }
    dropped = counted(result, "DropDuplicates")["documents-dropped-duplicate"]
    assert dropped == counters["documents-dropped-duplicate"] > 0


def _job_instances(job: Job) -> Iterator[tuple[Any, ...]]:
    """Rows of `build-instances` as `PairAndMask` gives them: ids in place of rows."""
    ids = [document_id for document_id, _ in _job_tokens(job)]
    made: StageOutput = job.made["build-instances.x"]
    for entry in made.files:
        assert entry.statistics["pool"] == "0"
        for row in written_rows(job.folder / "build-instances.x", [entry.stored_name]):
            label = row["next_sentence_label"]
            yield (
                ids[row["document_row"]],
                tuple(row["input_ids"]),
                row["segment_b_start"],
                row["masked_lm_positions"],
                row["masked_lm_ids"],
                label,
                "" if label == -1 else ids[row["segment_b_row"]],
                str(entry.statistics["part"]),
                row["dupe_index"],
            )


def _job_tokens(job: Job) -> list[tuple[str, TokenDocument]]:
    """Return the documents of the only token shard of a job."""
    (entry,) = job.made["build-tokens"].files
    return [
        (row["document_id"], TokenDocument(row["token_ids"], row["sentence_lengths"]))
        for row in written_rows(job.folder / "build-tokens", [entry.stored_name])
    ]


def _instances(tokens: list[Any], step: PairAndMask, path: Path) -> list[Any]:
    instances, _ = collect(lambda pipeline: pipeline | beam.Create(tokens) | step, path)
    return sorted(instances, key=str)


def test_pools_depend_on_the_number_of_tokens_and_not_on_their_order(
    one_shard: Job, tmp_path: Path
) -> None:
    tokens = _job_tokens(one_shard)
    size = 2 * sum(len(document.token_ids) for _, document in tokens)
    config = INSTANCES.model_copy(update={"negative_pool_bytes": size // 3 + 1})
    default, three, one = (
        _instances(
            tokens[::order],
            PairAndMask(config, vocab=one_shard.vocab, num_pools=num_pools),
            tmp_path / f"pools-{num_pools}",
        )
        for order, num_pools in ((1, None), (-1, 3), (1, 1))
    )
    assert default == three != one
    random = [(key, record[5]) for key, record in default if record[4] == 1]
    assert random
    assert all(a != b for a, b in random)  # no random B is from A's own document


def document(text: str, **more: Any) -> Document:
    return Document([text], text_digest([text]), **more)


def test_newest_revision_or_first_document_of_an_id_is_kept() -> None:
    given = [
        ("w:1:10", document("old", title="A", page_id=1, revision_id=10, position="a/1")),
        ("w:1:12", document("new", title="A", page_id=1, revision_id=12, position="a/2")),
        ("own", document("first", position="b/1")),
        ("own", document("second", position="b/2")),
        ("z", document("The same.", position="a/3")),
        ("y", document("the  SAME.", position="a/4")),
        # Its duplicate is dropped for its id, so this one is kept.
        ("x", document("old", position="a/5")),
    ]
    pipeline = beam.Pipeline(runner="FnApiRunner")
    kept = pipeline | beam.Create(given) | DropDuplicates() | beam.Map(lambda pair: pair[0])
    texts = equal_to(["w:1:12", "own", "y", "x"])
    assert_that(kept, texts)
    result = pipeline.run()
    result.wait_until_finish()
    assert counted(result, "DropDuplicates") == {
        "documents-dropped-repeated-id": 2,
        "documents-dropped-duplicate": 1,
        "documents-in": 7,
        "documents-kept": 4,
    }


def test_equal_documents_at_one_position_are_refused() -> None:
    given = [("own", document("one")), ("own", document("one"))]
    with pytest.raises(InputError, match="one position, id and text"):
        run(lambda pipeline: pipeline | beam.Create(given) | DropDuplicates())


def _write_vocab(path: Path) -> str:
    path.write_text(vocab_text(FIXED_TOKENS), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda vocab: Tokenize(f"{vocab}x"), VocabularyError, r"vocab\.txtx"),
        (lambda vocab: PairAndMask(INSTANCES, vocab=f"{vocab}x"), VocabularyError, r"vocab\.txtx"),
        (lambda vocab: PairAndMask(INSTANCES, vocab=vocab, num_pools=0), ConfigError, "num_pools"),
        (lambda _: SplitSentences(min_words=0), ConfigError, r"min_words: .* 0"),
        (lambda _: WriteShards("x", schema=DOCUMENTS, shards=0), ConfigError, "shards"),
        (lambda _: WriteShards("x", schema=DOCUMENTS, compression="gzip"), ConfigError, "gzip"),
        (lambda _: ReadDocuments("enwiki.xml.bz2"), ConfigError, r"source: .* str"),
    ],
)
def test_invalid_argument_is_refused_when_the_pipeline_is_built(
    tmp_path: Path, build: Callable[[str], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(_write_vocab(tmp_path / "vocab.txt"))


def test_files_of_a_source_are_looked_up_at_once_and_read_by_workers(tmp_path: Path) -> None:
    missing = WikipediaSource(name="x", paths=(str(tmp_path / "x.xml"),))
    with pytest.raises(MissingInputError):
        beam.Pipeline(runner="FnApiRunner") | ReadDocuments(missing)
    dump = tmp_path / "wiki.xml"
    dump.write_text("This is not a dump.", encoding="utf-8")
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = pipeline | ReadDocuments(WikipediaSource(name="wiki", paths=(str(dump),)))
    with pytest.raises(InputError, match=r"wiki\.xml"):
        pipeline.run().wait_until_finish()


class Title(NamedTuple):
    title: str


TITLED = pa.schema([("document_id", pa.string()), ("name", pa.string())])
NARROW = pa.schema([("document_id", pa.string()), ("token_ids", pa.list_(pa.uint16()))])


@pytest.mark.parametrize(
    ("element", "step", "message"),
    [
        (("a", RawText("One sentence.")), SplitSentences(), "RawText whose paragraphs"),
        (("a", RawText(["One sentence."])), DropDuplicates(), "Document whose sentences"),
        ((1, RawText(["One sentence."])), SplitSentences(), "pairs of an id"),
        (
            ("a", TokenDocument([1 << 16], [1])),
            WriteShards("x", schema=NARROW),
            "token_ids",
        ),
        (("a", Title("x")), WriteShards("x", schema=TITLED), "position.*Title"),
    ],
)
def test_invalid_element_is_shown_in_the_error(
    element: Any, step: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        run(lambda pipeline: pipeline | beam.Create([element]) | step)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (TokenDocument([99_999], [1]), r"'a' .* 99999.* 104"),
        (RawText(["One sentence."]), "TokenDocument whose token_ids"),
    ],
)
def test_tokens_of_another_vocabulary_are_refused(
    record: Any, message: str, tmp_path: Path
) -> None:
    step = PairAndMask(InstancesConfig(), vocab=_write_vocab(tmp_path / "vocab.txt"))
    with pytest.raises(InputError, match=message):
        run(lambda pipeline: pipeline | beam.Create([("a", record)]) | step)


def test_worker_processes_give_the_tokens_and_instances_of_the_job(
    one_shard: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)

    def build(pipeline: beam.Pipeline) -> None:
        documents = one_shard.texts(pipeline) | SplitSentences() | DropDuplicates()
        tokens = documents | Tokenize(one_shard.vocab)
        shards = tokens | WriteShards(str(tmp_path), schema=tokens_schema(400), shards=2)
        _ = shards | "Keep shards" >> beam.ParDo(_Keep(tmp_path / "shards"))
        instances = tokens | PairAndMask(INSTANCES, vocab=one_shard.vocab)
        _ = instances | "Keep instances" >> beam.ParDo(_Keep(tmp_path / "instances"))

    get_runner(ExecutionConfig(workers=2)).run("transforms", build)
    shards = _Keep.read(tmp_path / "shards")
    assert count_rows(tmp_path, [name for _, name, *_ in shards]) == one_shard.rows("build-tokens")
    instances = _Keep.read(tmp_path / "instances")
    found = [(key, tuple(record[0]), *record[1:6], *record[6:8]) for key, record in instances]
    assert Counter(map(str, found)) == Counter(map(str, _job_instances(one_shard)))
    assert {record[-2] for record in found} == {"training", "held-out"}
