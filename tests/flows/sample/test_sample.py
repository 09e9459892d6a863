"""The sample's files: prose that cleaning returns exactly, a dump, books, what the stages find."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import fsspec
import pytest
from support.cli_runner import Cli
from support.paths import ROOT

from flows.running import run_recipe
from flows.sample import write_sample
from flows.sample.books import make_book
from flows.sample.pages import Page, make_pages
from flows.sample.world import Words
from flows.store.artifacts import ArtifactStore
from pipelines.documents.exclusions import EXCLUSIONS_FILE
from pipelines.io.shards import open_shard
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
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import Manifest
from schemas.recipe import Recipe

GOLDEN = "175d8ca95055eeb2a8bbce3f5add3396e1cd53f472cf373d63d7fd3cf69ca6e7"
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
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        data = bz2.decompress(data) if path.suffix == ".bz2" else data
        found[str(path.relative_to(folder))] = hashlib.sha256(data).hexdigest()
    return found


# Pages


@pytest.mark.parametrize("seed", [0, 1])
def test_cleaning_returns_exactly_the_paragraphs_of_each_page(seed: int) -> None:
    markup = wiki_settings("en", {})
    for page in pages_of(seed):
        if page.paragraphs:
            assert clean_wikitext(page.text, markup) == page.paragraphs, page.title


def test_unread_text_is_in_each_article_and_cleaning_removes_it() -> None:
    markup = wiki_settings("en", {})
    for page in pages_of(0):
        if page.kind not in ("redirect", "other", "contaminated"):
            assert "unread" in page.text.lower()
            assert "unread" not in " ".join(clean_wikitext(page.text, markup)).lower(), page.title


def test_pages_have_every_kind_and_namespace() -> None:
    pages = pages_of(0)
    assert {page.kind for page in pages} == KINDS
    assert sum(page.kind == "article" for page in pages) == 400
    assert {page.namespace for page in pages} == {0, 1, 2, 4, 6, 10, 14, 828}
    assert any(page.text == "" for page in pages)
    assert all(page.redirect for page in pages if page.kind == "redirect")
    assert max(Counter((page.namespace, page.title) for page in pages).values()) == 1


@pytest.mark.parametrize("markup", [
    "[[", "]]", "|", "''", "\n== ", "\n* ", "{{Infobox ", "{{convert|", "{{reflist", "{{Navbox ",
    "{{sfn|", "{{citation needed", "{{DEFAULTSORT:", "{{Short description|", "<ref>", '<ref name="',
    "<ref group=note>", "<!--", "<gallery ", "{| class=", "|+ ", "[[File:", "[[Category:", "[[de:",
    "[https://", "#REDIRECT", "#redirect", "{{disambiguation}}", "<includeonly>",
])  # fmt: skip
def test_markup_occurs(markup: str) -> None:
    assert any(markup in page.text for page in pages_of(0))


# Files


def test_files_depend_on_the_seed_alone(folder: Path, tmp_path: Path) -> None:
    options = ["--articles=100", "--books=2", "--pages-per-stream=25"]
    subprocess.run(
        [sys.executable, "-m", "flows", "sample", str(tmp_path / "again"), *options],
        check=True, cwd=ROOT, env={"PYTHONHASHSEED": "77"}, timeout=60,
    )  # fmt: skip
    assert digests(tmp_path / "again") == digests(folder)
    write_sample(str(tmp_path / "other"), articles=100, tales=2, pages_per_stream=25, seed=1)
    other = digests(tmp_path / "other")
    assert other.keys() == digests(folder).keys()
    assert all(other[name] != digest for name, digest in digests(folder).items())


def test_default_sample_is_unchanged(tmp_path: Path) -> None:
    write_sample(str(tmp_path), compresslevel=1)
    found = digests(tmp_path)
    del found["samplewiki-20260101-sha1sums.txt"]  # of compressed bytes
    del found[f"{DUMP}-index.txt.bz2"]
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    assert digest == GOLDEN, f"the sample has changed: if that is meant, GOLDEN is {digest}"


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


def test_xml_holds_the_pages_with_their_sizes_and_sums(folder: Path) -> None:
    root = ElementTree.fromstring(bz2.decompress((folder / f"{DUMP}.xml.bz2").read_bytes()))
    assert root.attrib["version"] == "0.11"
    texts = list(root.iter(f"{EXPORT}text"))
    assert [text.text or "" for text in texts] == [page.text for page in pages_of(0, articles=100)]
    for text in texts:
        data = (text.text or "").encode()
        assert int(text.attrib["bytes"]) == len(data)
        assert int(text.attrib["sha1"], 36) == int(hashlib.sha1(data).hexdigest(), 16)
    redirects = sum(page.kind == "redirect" for page in pages_of(0, articles=100))
    assert len(list(root.iter(f"{EXPORT}redirect"))) == redirects > 0


def test_checksums_are_those_of_the_files(folder: Path) -> None:
    lines = (folder / "samplewiki-20260101-sha1sums.txt").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums == {
        path.name: hashlib.sha1(path.read_bytes()).hexdigest() for path in folder.glob("*.bz2")
    }


def test_books_are_printed_as_project_gutenberg_prints_them(folder: Path) -> None:
    data = gzip.decompress((folder / "books.tar.gz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        books = [tar.extractfile(member).read() for member in tar]  # type: ignore[union-attr]
    assert [book.startswith(b"\xef\xbb\xbf") for book in books] == [True, False]
    for number, book in enumerate(books):
        text = book.decode("utf-8-sig")
        assert text.count("\r\n") == text.count("\n")
        start, end = (
            text.index(f"*** {edge} OF THE PROJECT GUTENBERG") for edge in ("START", "END")
        )
        body = " ".join(text[start:end].split())
        chapters = make_book(Words.of_world(0), seed=0, number=number).chapters
        assert all(paragraph in body for chapter in chapters for paragraph in chapter)
        assert any('."' in paragraph for chapter in chapters for paragraph in chapter)


def test_size_of_a_dump_may_be_given_in_mb(tmp_path: Path, cli: Cli) -> None:
    options = ["--size-mb", "0.5", "--books", "0", "--pages-per-stream", "25"]
    said = cli("sample", str(tmp_path), *options, "--compresslevel", "1")
    assert said.code == 0
    size = len(bz2.decompress((tmp_path / f"{DUMP}.xml.bz2").read_bytes()))
    assert 500_000 <= size < 550_000
    assert f"{size / 1e6:.1f} MB of XML" in said.out


def test_sample_is_written_to_any_file_system() -> None:
    files = write_sample("memory://sample-corpus", articles=3, tales=1)
    fs = fsspec.filesystem("memory")
    assert files.tasks == "memory:///sample-corpus/tasks"
    for url in (files.pages, files.page_index, files.books, f"{files.tasks}/cola/dev.tsv"):
        assert fs.exists(url)
    fs.rm("/sample-corpus", recursive=True)


@pytest.mark.parametrize("arguments", [
    {"articles": 0}, {"tales": -1}, {"date": "2026"}, {"size_mb": -1}, {"pages_per_stream": 0},
    {"compresslevel": 12},
])  # fmt: skip
def test_arguments_out_of_range_are_refused(arguments: Mapping[str, Any], tmp_path: Path) -> None:
    (name,) = arguments
    with pytest.raises(ConfigError, match=name):
        write_sample(str(tmp_path), **arguments)
    assert not list(tmp_path.iterdir())


def test_options_out_of_range_end_the_command(cli: Cli, tmp_path: Path) -> None:
    said = cli("sample", str(tmp_path), "--compresslevel", "12")
    assert said.code == 1
    assert "compresslevel" in said.err


# What the stages find


class Search:
    """Duplicates, near-duplicates and quoted dev rows that the stages find in a sample."""

    def __init__(self, folder: Path) -> None:
        sample = write_sample(str(folder / "sample"), articles=200, tales=0)
        dump = WikipediaSource(name="wiki", paths=(sample.pages,))
        data = ExamplesConfig(task="conll-2003", data_dir=f"{sample.tasks}/conll-2003")
        recipe = Recipe(
            name="search",
            store=str(folder / "store"),
            build_documents=DocumentsConfig(sources=(dump,)),
            build_examples={"conll-2003": data},
            decontaminate=DecontaminateConfig(tasks=("conll-2003",)),
            find_near_duplicates=NearDuplicatesConfig(),
            build_vocabulary=VocabularyConfig(vocab_size=300),
        )
        results = run_recipe(recipe, log=lambda _: None, engine="local")
        self._store = ArtifactStore(recipe.store)
        self._manifests = {result.manifest.stage: result.manifest for result in results}
        documents = self._manifests["build-documents"]
        shards = [entry.path for entry in documents.files if entry.path.startswith("part-")]
        self._titles = {
            row["document_id"]: row["title"]
            for path in shards
            for row in self._rows(documents, path)
        }

    def _rows(self, manifest: Manifest, path: str) -> list[dict[str, Any]]:
        entry = manifest.file(path)
        assert entry is not None
        with open_shard(self._store.url(f"{manifest.data_path}/{entry.stored_name}")) as reader:
            rows: list[dict[str, Any]] = reader.read_all().to_pylist()
        return rows

    def titles(self, stage: str, path: str) -> set[str]:
        """Return the titles of the documents that a table of a stage names."""
        return {
            self._titles[row["document_id"]] for row in self._rows(self._manifests[stage], path)
        }

    def counters(self, stage: str) -> Mapping[str, int]:
        return self._manifests[stage].counters


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    return Search(tmp_path_factory.mktemp("search"))


def titles_of(*kinds: str) -> set[str]:
    return {page.title for page in pages_of(0, articles=200) if page.kind in kinds}


def test_copies_are_found_as_duplicates(search: Search) -> None:
    copies = search.titles("build-documents", "__duplicates__/duplicates.arrow")
    assert copies == titles_of("duplicate", "malformed")


def test_retold_pages_are_found_as_near_duplicates(search: Search) -> None:
    """The newer document of a pair is kept, so either page may be the dropped one."""
    pairs = {title.removesuffix(" (retold)") for title in titles_of("near-duplicate")}
    found = search.titles("find-near-duplicates", EXCLUSIONS_FILE)
    assert {title.removesuffix(" (retold)") for title in found} == pairs
    assert len(found) == len(pairs)


def test_quoted_rows_are_found_as_contamination(search: Search) -> None:
    assert search.titles("find-contamination", EXCLUSIONS_FILE) == titles_of("contaminated")
    assert search.counters("find-contamination")["texts-contaminated"] == 10
    assert search.counters("build-tokens")["documents-dropped-contaminated"] == 1
