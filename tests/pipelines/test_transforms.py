"""Transforms give the output and counts of the jobs, and refuse invalid elements."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from support.corpus_builder import run_corpus, small_sample
from support.paths import PYTHONPATH

from pipelines.io.shards import open_shard
from pipelines.runners.registry import get_runner
from pipelines.transforms import RawText, ReadDocuments, SplitSentences, TokenDocument, Tokenize
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, vocab_text
from schemas.corpus_configs import BooksSource, DocumentsConfig, VocabularyConfig, WikipediaSource
from schemas.errors import ConfigError, InputError, MissingInputError, VocabularyError
from schemas.execution_configs import ExecutionConfig
from schemas.recipe import Recipe


class Job:
    """Outputs of the jobs of a recipe."""

    def __init__(self, folder: Path, *sources: Any) -> None:
        self.folder, self.sources = folder, sources
        recipe = Recipe(
            name="test",
            build_documents=DocumentsConfig(sources=sources),
            build_vocabulary=VocabularyConfig(vocab_size=400),
        )
        self.made = run_corpus(recipe, folder)
        (vocab,) = (e for e in self.made["build-vocabulary"].files if e.path == "vocab.txt")
        self.vocab = str(folder / "build-vocabulary" / vocab.stored_name)

    def rows(self, stage: str) -> dict[str, dict[str, Any]]:
        """Return the rows of a stage's shards by document id, as JSON values."""
        rows: list[dict[str, Any]] = []
        for entry in self.made[stage].files:
            if entry.path.startswith("part-"):
                with open_shard(str(self.folder / stage / entry.stored_name)) as reader:
                    rows += reader.read_all().to_pylist()
        return {row["document_id"]: json.loads(json.dumps(row, default=bytes.hex)) for row in rows}

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


def run(build: Callable[[beam.Pipeline], object]) -> Any:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    build(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    return result


def collect(
    build: Callable[[beam.Pipeline], Any], path: Path
) -> tuple[dict[str, dict[str, Any]], Any]:
    """Run a pipeline. Return its records by document id, by way of a file, and its result."""
    result = run(lambda pipeline: build(pipeline) | beam.ParDo(_Keep(path)))
    return _Keep.read(path), result


def counted(result: Any, namespace: str) -> dict[str, int]:
    """Each counter over all steps."""
    query = beam.metrics.MetricsFilter().with_namespace(namespace)
    total: Counter[str] = Counter()
    for counter in result.metrics().query(query)["counters"]:
        total[counter.key.metric.name] += counter.committed
    return dict(total)


class _Keep(beam.DoFn):
    """Appends elements to a file, because another process may see them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, element: tuple[str, Any]) -> Iterator[tuple[str, Any]]:
        document_id, record = element
        row = {"document_id": document_id, **record._asdict()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, default=bytes.hex) + "\n")
        yield element

    @staticmethod
    def read(path: Path) -> dict[str, dict[str, Any]]:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        by_id = {row.pop("document_id"): row for row in rows}
        assert len(by_id) == len(rows)
        return by_id


def check_rows(records: dict[str, dict[str, Any]], rows: dict[str, dict[str, Any]]) -> None:
    """Check that each row has its record, and that they agree in the columns of both."""
    assert rows
    for document_id, row in rows.items():
        record = records[document_id]
        shared = row.keys() & record.keys()
        assert len(shared) >= 2
        assert {name: record[name] for name in shared} == {name: row[name] for name in shared}


def test_documents_equal_those_of_the_job(corpus: Job, tmp_path: Path) -> None:
    documents, result = collect(
        lambda pipeline: corpus.texts(pipeline) | SplitSentences(), tmp_path / "documents"
    )
    rows = corpus.rows("build-documents")
    check_rows(documents, rows)
    assert documents.keys() == rows.keys()
    counters = Counter(corpus.made["build-documents"].counters)
    for name, number in list(counters.items()):
        if name.startswith("template-"):  # counted per source: template-dropped:NAME@SOURCE
            counters[name.partition("@")[0]] += number
    for namespace in ("ReadDocuments", "SplitSentences"):
        own = counted(result, namespace)
        assert own
        assert {name: n for name, n in own.items() if counters.get(name) != n} == {}


def test_worker_processes_give_the_tokens_of_the_job(
    corpus: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)

    def build(pipeline: beam.Pipeline) -> None:
        tokens = corpus.texts(pipeline) | SplitSentences() | Tokenize(corpus.vocab)
        _ = tokens | "Keep tokens" >> beam.ParDo(_Keep(tmp_path / "tokens"))

    get_runner(ExecutionConfig(workers=2)).run("transforms", build)
    tokens = _Keep.read(tmp_path / "tokens")
    check_rows(tokens, corpus.rows("build-tokens"))
    assert tokens.keys() == corpus.rows("build-documents").keys()  # the job drops duplicates


def test_tokens_are_counted(corpus: Job, tmp_path: Path) -> None:
    texts = [("a", RawText(["It rained. Then it was dry."])), ("b", RawText(["It rained."]))]
    tokens, result = collect(
        lambda pipeline: pipeline | beam.Create(texts) | SplitSentences() | Tokenize(corpus.vocab),
        tmp_path / "tokens",
    )
    own = counted(result, "Tokenize")
    assert tokens.keys() == {"a"}  # the other has too few words
    assert (own["documents-in"], own["documents-kept"], own["sentences"]) == (1, 1, 2)
    assert own["tokens"] == len(tokens["a"]["token_ids"]) == sum(tokens["a"]["sentence_lengths"])


def _write_vocab(path: Path) -> str:
    path.write_text(vocab_text(FIXED_TOKENS), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda vocab: Tokenize(f"{vocab}x"), VocabularyError, r"vocab\.txtx"),
        (lambda _: SplitSentences(min_words=0), ConfigError, r"min_words: .* 0"),
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


@pytest.mark.parametrize(
    ("element", "step", "message"),
    [
        (("a", RawText("One sentence.")), lambda _: SplitSentences(), "RawText whose paragraphs"),
        (("a", RawText(["One sentence."])), Tokenize, "Document whose sentences"),
        ((1, RawText(["One sentence."])), lambda _: SplitSentences(), "pairs of an id"),
        (("a", TokenDocument([7], [1])), Tokenize, "Document whose sentences"),
    ],
)
def test_invalid_element_is_shown_in_the_error(
    element: Any, step: Callable[[str], Any], message: str, tmp_path: Path
) -> None:
    transform = step(_write_vocab(tmp_path / "vocab.txt"))
    with pytest.raises(InputError, match=message):
        run(lambda pipeline: pipeline | beam.Create([element]) | transform)
