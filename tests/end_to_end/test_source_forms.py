"""The forms that books and dumps have, each from a file to instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archive_builder import epub_bytes
from support.corpus_builder import run_corpus
from support.dump_builder import compress_7z, dump, page

from pipelines.io.shards import open_shard
from schemas.corpus_configs import (
    AnySource,
    BooksSource,
    DocumentsConfig,
    InstancesConfig,
    MaskingConfig,
    TextSource,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.recipe import Recipe


class Form(NamedTuple):
    """A file, its source, and a word that only its text has."""

    file: str
    write: Callable[[Path, list[str]], object]
    source: Callable[[str], AnySource]
    documents: int
    word: str


def sentences(word: str) -> list[str]:
    return [
        f"The {word} {animal} walked to the {place} and looked at the water for {number} hours."
        for number in ("two", "three", "seven")
        for animal in ("cat", "heron", "miller", "ferryman")
        for place in ("river", "harbor", "lake")
    ]


def chapter(number: int, texts: list[str]) -> str:
    own = texts[number * 12 :][:12]
    paragraphs = (f"<p>{' '.join(own[at : at + 3])}</p>" for at in range(0, 12, 3))
    return f"<h2>CHAPTER {number}</h2>{''.join(paragraphs)}"


def write_epub(path: Path, texts: list[str]) -> None:
    path.write_bytes(epub_bytes({f"{n}.xhtml": chapter(n, texts) for n in range(3)}))


def write_html(path: Path, texts: list[str]) -> None:
    chapters = "".join(chapter(n, texts) for n in range(3))
    path.write_text(f"<title>A Walk</title><style>p {{}}</style><nav>Contents</nav>{chapters}")


def write_parquet(path: Path, texts: list[str]) -> None:
    rows = [text.lower().replace(".", " .") for text in texts]
    pq.write_table(pa.table({"text": rows}), path, row_group_size=7)


def write_dump(path: Path, texts: list[str]) -> None:
    pages = [page(n, " ".join(texts[n * 12 :][:12])) for n in range(3)]
    path.write_bytes(compress_7z(dump(pages)))


FORMS = {
    "epub": Form(
        "walk.epub", write_epub, lambda path: BooksSource(name="epub", paths=(path,)), 1, "old"
    ),
    "html": Form(
        "walk.html", write_html, lambda path: BooksSource(name="html", paths=(path,)), 1, "young"
    ),
    "hub": Form(
        "bookcorpus.parquet",
        write_parquet,
        lambda path: TextSource(name="hub", paths=(path,), rows_per_document=12),
        3,
        "tired",
    ),
    "7z": Form(
        "wiki.xml.7z", write_dump, lambda path: WikipediaSource(name="7z", paths=(path,)), 3, "rich"
    ),
}


class Corpus(NamedTuple):
    counters: Mapping[str, int]
    tokens: set[str]
    """Tokens of all instances."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A corpus of one file of each form."""
    folder = tmp_path_factory.mktemp("forms")
    for form in FORMS.values():
        form.write(folder / form.file, sentences(form.word))
    sources = tuple(form.source(str(folder / form.file)) for form in FORMS.values())
    instances = InstancesConfig(
        max_seq_length=64, held_out_fraction=0.0, masking=MaskingConfig(max_predictions_per_seq=10)
    )
    recipe = Recipe(
        name="forms",
        build_documents=DocumentsConfig(sources=sources),
        build_vocabulary=VocabularyConfig(vocab_size=212, min_frequency=1),
        build_instances={"length-64": instances},
    )
    outputs = run_corpus(recipe, folder / "out")
    (stored,) = [e for e in outputs["build-vocabulary"].files if e.path == "vocab.txt"]
    vocabulary = (folder / "out/build-vocabulary" / stored.stored_name).read_text().split("\n")
    ids = set[int]()
    for entry in outputs["build-instances.length-64"].files:
        path = f"{folder}/out/build-instances.length-64/{entry.stored_name}"
        with open_shard(path, columns=("input_ids",)) as shard:
            for value in shard.read_all().column("input_ids").to_pylist():
                ids.update(value)
    tokens = {vocabulary[number] for number in ids}
    return Corpus(outputs["build-documents"].counters, tokens)


@pytest.mark.parametrize("name", FORMS)
def test_form_is_read_from_its_file_to_instances(corpus: Corpus, name: str) -> None:
    form = FORMS[name]
    assert corpus.counters[f"documents-kept@{name}"] == form.documents
    assert corpus.counters[f"sentences@{name}"] == len(sentences(form.word))
    assert form.word in corpus.tokens
