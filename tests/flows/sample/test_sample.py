"""The sample's files: prose that cleaning returns exactly, a dump, books, what the stages find."""

from __future__ import annotations

import bz2
import hashlib
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.ipc as ipc
import pytest
from support.cli_runner import Cli
from support.paths import ROOT

import bertloom
from flows.running import run_recipe
from flows.sample import write_sample
from flows.sample.pages import Page, make_pages
from flows.sample.task_datasets import SETS, Row, content_words, make_rows
from flows.sample.world import Words
from model.build_examples import build_examples
from pipelines.documents.exclusions import EXCLUSIONS_FILE
from pipelines.mediawiki.languages import wiki_settings
from pipelines.mediawiki.wikitext import clean_wikitext
from schemas.corpus_configs import (
    DecontaminateConfig,
    DocumentsConfig,
    NearDuplicatesConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.errors import ConfigError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import ExamplesConfig
from schemas.recipe import Recipe

GOLDEN = "ec838819104e27136e184bad9dd02d727292e6c4ffc7733052ec88172c5a684f"
"""Digest of the default sample's files: any change of them fails a test."""

DUMP = "samplewiki-20260101-pages-articles-multistream"
EXPORT = "{http://www.mediawiki.org/xml/export-0.11/}"
KINDS = {"article", "duplicate", "near-duplicate", "contaminated", "malformed", "redirect", "other"}


def pages_of(seed: int, *, articles: int = 400) -> list[Page]:
    return list(make_pages(Words.of_world(seed), seed=seed, articles=articles))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 100 articles and two books."""
    folder = tmp_path_factory.mktemp("sample")
    write_sample(str(folder), articles=100, tales=2, pages_per_stream=25)
    return folder


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file, unpacked: compressed bytes differ between libraries."""
    sha256s = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        data = bz2.decompress(data) if path.suffix == ".bz2" else data
        sha256s[str(path.relative_to(folder))] = hashlib.sha256(data).hexdigest()
    return sha256s


# Pages


@pytest.mark.parametrize("seed", [0, 1])
def test_cleaning_returns_exactly_the_paragraphs_of_each_page(seed: int) -> None:
    markup = wiki_settings("en", {})
    for page in pages_of(seed):
        if page.paragraphs:
            assert clean_wikitext(page.text, markup) == page.paragraphs, page.title
        if page.kind not in ("redirect", "other", "contaminated"):
            assert "unread" in page.text.lower()
            assert "unread" not in " ".join(page.paragraphs).lower(), page.title


def test_pages_have_every_kind_and_namespace() -> None:
    pages = pages_of(0)
    assert {page.kind for page in pages} == KINDS
    assert sum(page.kind == "article" for page in pages) == 400
    assert {page.namespace for page in pages} == {0, 1, 2, 4, 6, 10, 14, 828}
    assert max(Counter((page.namespace, page.title) for page in pages).values()) == 1


# Files


def test_files_depend_on_the_seed_alone(folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys\nfrom flows.sample import write_sample\n"
        "write_sample(sys.argv[1], articles=100, tales=2, pages_per_stream=25)"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "again")],
        check=True, cwd=ROOT, env={"PYTHONHASHSEED": "77"}, timeout=60,
    )  # fmt: skip
    assert digests(tmp_path / "again") == digests(folder)
    write_sample(str(tmp_path / "other"), articles=100, tales=2, pages_per_stream=25, seed=1)
    other = digests(tmp_path / "other")
    assert other.keys() == digests(folder).keys()
    same = {name for name, digest in digests(folder).items() if other[name] == digest}
    assert same == {f"tasks/{task}/data-label.txt" for task in SETS}


def test_default_sample_is_unchanged(tmp_path: Path) -> None:
    write_sample(str(tmp_path))
    sha256s = digests(tmp_path)
    del sha256s["samplewiki-20260101-sha1sums.txt"]  # of compressed bytes
    del sha256s[f"{DUMP}-index.txt.bz2"]
    digest = hashlib.sha256(json.dumps(sha256s, sort_keys=True).encode()).hexdigest()
    assert digest == GOLDEN, f"the sample has changed: if that is meant, GOLDEN is {digest}"


def test_texts_are_plain_files_and_their_topics_take_turns(folder: Path) -> None:
    files = sorted((folder / "texts").iterdir(), key=lambda file: file.stem.rpartition("-")[2])
    assert len(files) == 100 // 11
    topics = [file.stem.rpartition("-")[0] for file in files]
    assert len(set(topics[:4])) == 4
    assert topics[4:8] == topics[:4]
    texts = [file.read_text(encoding="utf-8") for file in files]
    assert all(text.count("\n\n") == 2 and text.count(".") == 30 for text in texts)
    assert len(set(texts)) == len(texts)


def test_dump_is_multistream_and_its_index_names_each_page(folder: Path) -> None:
    data = (folder / f"{DUMP}.xml.bz2").read_bytes()
    index = bz2.decompress((folder / f"{DUMP}-index.txt.bz2").read_bytes()).decode()
    entries = [line.split(":", 2) for line in index.splitlines()]
    offsets = sorted({int(offset) for offset, _, _ in entries})
    assert len(offsets) > 4
    header = bz2.BZ2Decompressor()
    assert header.decompress(data).endswith(b"</siteinfo>\n")
    assert len(data) - len(header.unused_data) == offsets[0]
    for offset in offsets:
        stream = bz2.BZ2Decompressor()
        root = ElementTree.fromstring(b"<x>" + stream.decompress(data[offset:]) + b"</x>")
        pages = [(page.findtext("id"), page.findtext("title")) for page in root]
        assert pages == [(number, title) for at, number, title in entries if int(at) == offset]
        assert len(pages) <= 25
    assert bz2.decompress(stream.unused_data) == b"</mediawiki>\n"


def test_dump_holds_the_pages_and_checksums_those_of_the_files(folder: Path) -> None:
    root = ElementTree.fromstring(bz2.decompress((folder / f"{DUMP}.xml.bz2").read_bytes()))
    assert root.attrib["version"] == "0.11"
    texts = list(root.iter(f"{EXPORT}text"))
    assert [text.text or "" for text in texts] == [page.text for page in pages_of(0, articles=100)]
    for text in texts:
        data = (text.text or "").encode()
        assert int(text.attrib["bytes"]) == len(data)
        assert int(text.attrib["sha1"], 36) == int(hashlib.sha1(data).hexdigest(), 16)
    lines = (folder / "samplewiki-20260101-sha1sums.txt").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums == {
        path.name: hashlib.sha1(path.read_bytes()).hexdigest() for path in folder.glob("*.bz2")
    }


def test_command_writes_the_same_files(tmp_path: Path, cli: Cli) -> None:
    result = cli("sample", str(tmp_path / "cli"), "--articles", "3", "--books", "1", "--seed", "2")
    assert result.code == 0, result.err
    sample = write_sample(str(tmp_path / "python"), articles=3, tales=1, seed=2)
    assert digests(tmp_path / "cli") == digests(tmp_path / "python")
    assert f"{sample.page_count} pages" in result.out


@pytest.mark.parametrize("arguments", [
    {"articles": 0}, {"tales": -1}, {"pages_per_stream": 0},
])  # fmt: skip
def test_arguments_out_of_range_are_refused(arguments: Mapping[str, Any], tmp_path: Path) -> None:
    (name,) = arguments
    with pytest.raises(ConfigError, match=name):
        write_sample(str(tmp_path), **arguments)
    assert not list(tmp_path.iterdir())


def test_stages_find_duplicates_near_duplicates_and_quoted_rows(tmp_path: Path) -> None:
    sample = write_sample(str(tmp_path / "sample"), articles=200, tales=0)
    data = ExamplesConfig(task="conll-2003", data_dir=f"{sample.tasks}/conll-2003")
    recipe = Recipe(
        name="search",
        store=str(tmp_path / "store"),
        build_documents=DocumentsConfig(
            sources=(WikipediaSource(name="wiki", paths=(sample.pages,)),)
        ),
        build_examples={"conll-2003": data},
        decontaminate=DecontaminateConfig(tasks=("conll-2003",)),
        find_near_duplicates=NearDuplicatesConfig(),
        build_vocabulary=VocabularyConfig(vocab_size=300),
    )
    run_recipe(recipe, log=lambda _: None, engine="local")
    store = bertloom.open_store(recipe.store)
    documents = store.artifact("build-documents").load().to_table(["document_id", "title"])
    titles = dict(zip(*(column.to_pylist() for column in documents.columns), strict=True))

    def read_titles(stage: str, path: str) -> set[str]:
        """Return the titles of the documents that a table of a stage names."""
        with ipc.open_file(store.artifact(stage).file(path)) as reader:
            return {titles[name] for name in reader.read_all()["document_id"].to_pylist()}

    made: dict[str, set[str]] = defaultdict(set)
    for page in pages_of(0, articles=200):
        made[page.kind].add(page.title)
    copies = read_titles("build-documents", "__duplicates__/duplicates.arrow")
    assert copies == made["duplicate"] | made["malformed"]
    # The newer document of a pair is kept, so either page may be the dropped one.
    retold = [
        t.removesuffix(" (retold)") for t in read_titles("find-near-duplicates", EXCLUSIONS_FILE)
    ]
    assert sorted(retold) == sorted(t.removesuffix(" (retold)") for t in made["near-duplicate"])
    assert read_titles("find-contamination", EXCLUSIONS_FILE) == made["contaminated"]


WORLD = Words.of_world(0)


def texts_of(row: Row) -> list[str]:
    return [text for key, text in row.items() if key not in ("label", "mark")]


def content_of(rows: Iterable[Row]) -> set[str]:
    """Return the nouns, verbs and adjectives of all rows."""
    return {word for row in rows for text in texts_of(row) for word in content_words(text, WORLD)}


# Files of the labeled sets


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_sample(str(tmp_path_factory.mktemp("sets")), articles=1, tales=0).tasks


@pytest.mark.parametrize("task", SETS)
def test_official_files_are_read_without_a_dropped_row(
    task: str, tasks: str, tmp_path: Path
) -> None:
    official = task.removesuffix("-particle")
    made = build_examples(
        ExamplesConfig(task=official, data_dir=f"{tasks}/{task}", max_invalid_fraction=0.0),
        inputs={}, output=str(tmp_path), execution=ExecutionConfig(),
    )  # fmt: skip
    counts = {split: len(rows) for split, rows in make_rows(task, WORLD, 0).items()}
    assert made.statistics["splits"] == counts
    assert made.counters["rows-in"] == made.counters["rows-kept"] == sum(counts.values())
    assert made.statistics["task"] == official


# Words of the labeled sets


@pytest.mark.parametrize("task", SETS)
def test_train_rows_share_no_content_word_with_dev_and_test_rows(task: str) -> None:
    train, *others = make_rows(task, WORLD, 0).values()
    assert content_of(train)
    for rows in others:
        assert content_of(rows)
        assert not content_of(train) & content_of(rows)
    texts = [tuple(texts_of(row)) for rows in (train, *others) for row in rows]
    assert len(set(texts)) == len(texts)
