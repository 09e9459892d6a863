"""The stages over all the real data: what is promised, checked on what others wrote."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.corpus_builder import run_corpus

from pipelines.counters import check_balance
from pipelines.documents.exclusions import document_shards
from pipelines.documents.job import build_documents
from pipelines.io.shards import open_shard
from pipelines.wordpiece.tokenizer import WordPieceTokenizer, bert_tokenizer
from schemas.corpus_configs import (
    BooksSource,
    DocumentsConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput
from schemas.recipe import Recipe

pytestmark = pytest.mark.slow

_BOOKS = {
    "novels": "english-novels-100.tar.gz",
    "gutenberg": "gutenberg-raw-children-73.tar.gz",
    "children": "gutenberg-clean-children-71.tar.gz",
}
English = tuple[Path, StageOutput]


@pytest.fixture(scope="module")
def english(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> English:
    """Build the documents of all English sources; return their folder and output."""
    wikipedia = WikipediaSource(
        name="enwiki",
        paths=(str(real_data / "wikipedia" / "en-*.bz2"),),
        on_corrupt="keep-whole-pages",
    )
    wikibooks = WikipediaSource(name="enwikibooks", paths=(str(real_data / "wikibooks" / "*.bz2"),))
    books = [
        BooksSource(name=name, paths=(str(real_data / "books" / archive),))
        for name, archive in _BOOKS.items()
    ]
    folder = tmp_path_factory.mktemp("english")
    config = DocumentsConfig(sources=(wikipedia, wikibooks, *books))
    execution = ExecutionConfig(workers=2)
    return folder, build_documents(config, inputs={}, output=str(folder), execution=execution)


def _documents(english: English) -> Iterator[pa.RecordBatch]:
    folder, output = english
    made = StageInput(name="documents", artifact_id="x", data="", files=output.files)
    for entry in document_shards(made):
        with open_shard(str(folder / entry.stored_name)) as reader:
            yield from reader.read_all().to_batches()


def test_every_page_and_book_is_counted(english: English) -> None:
    output = english[1]
    counters = output.counters
    assert counters["pages-in@enwiki"] == 232 + 132 + 27 + 5 + 361
    assert counters["pages-in@enwikibooks"] == 24_000
    assert counters["books-in"] == counters["books-kept"] == 100 + 73 + 71
    _check_pages(output, truncated=1)
    repeated = counters["documents-dropped-repeated-id"]  # rows that the table of duplicates names
    rows = sum(batch.num_rows for batch in _documents(english))
    assert rows == counters["documents-kept"] + repeated


def _check_pages(output: StageOutput, *, truncated: int) -> None:
    """Check that no page or document is lost without a counter."""
    counters = {name: count for name, count in output.counters.items() if "@" not in name}
    for records in ("pages", "documents"):
        check_balance(counters, records, where="test")
    assert counters.get("pages-dropped-malformed", 0) == 0
    assert counters.get("files-truncated", 0) == truncated
    assert any(f"{truncated} truncated" in note for note in output.notes) == (truncated > 0)


def test_ids_equal_those_of_tokenizers_for_every_sentence(
    english: English, real_data: Path
) -> None:
    path = str(real_data / "vocab" / "bert-base-uncased" / "vocab.txt")
    ours = WordPieceTokenizer.from_vocab_file(path, lowercase=True)
    library = bert_tokenizer(ours.vocab, lowercase=True)
    compared = 0
    for batch in _documents(english):
        sentences = batch.column("sentences").flatten().to_pylist()
        ids, lengths = ours.encode_sentences(sentences)
        expected = [found.ids for found in library.encode_batch_fast(sentences)]
        assert lengths.tolist() == list(map(len, expected))
        assert ids.tolist() == list(itertools.chain.from_iterable(expected))
        compared += len(sentences)
    assert compared > 1_000_000


@pytest.mark.parametrize(
    ("wiki", "language", "pages", "truncated"), [("it-*", "it", 747, 0), ("ja-*", "ja", 262, 1)]
)
def test_other_languages_go_through(
    real_data: Path, tmp_path: Path, wiki: str, language: str, pages: int, truncated: int
) -> None:
    recipe = Recipe(
        name=language,
        build_documents=DocumentsConfig(
            sources=(
                WikipediaSource(
                    name=f"{language}wiki",
                    paths=(str(real_data / "wikipedia" / wiki),),
                    language=language,
                    on_corrupt="keep-whole-pages",
                ),
            )
        ),
        build_vocabulary=VocabularyConfig(vocab_size=8000, lowercase=False, limit_alphabet=3000),
    )
    outputs = run_corpus(recipe, tmp_path)
    assert outputs["build-documents"].counters["pages-in"] == pages
    _check_pages(outputs["build-documents"], truncated=truncated)
    tokens = outputs["build-tokens"].counters
    assert tokens["unknown-tokens"] / tokens["tokens"] < 0.005
    assert outputs["build-instances.length-128"].counters["instances"] > 3000
