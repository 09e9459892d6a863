"""Rows are traced to the documents and the bytes of the raw file that they were built from."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from support.archive_builder import write_books
from support.corpus_builder import small_recipe, small_sample

from flows.lineage.raw_source import read_raw, web_root
from flows.lineage.row_trace import DocumentTrace, Trace, segment_ids, trace_row
from flows.lineage.shards import Shard, find_shard, read_row
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from pipelines.counters import Counters
from pipelines.documents.duplicates import DUPLICATES_FILE
from pipelines.io.splits import files_of_group
from pipelines.sources import books, text
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.corpus_configs import BooksSource, TextSource
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError, ConfigError
from schemas.manifest import Manifest, RawInput

Traces = list[tuple[dict[str, Any], Trace]]


class Corpus:
    """A corpus in a store."""

    def __init__(self, folder: Path) -> None:
        sample = small_sample(folder / "sample")
        recipe = small_recipe(sample).model_copy(update={"store": str(folder / "store")})
        results = run_recipe(recipe, log=lambda _: None, engine="local")
        self.store = ArtifactStore(recipe.store)
        self.made = {result.label: result.manifest for result in results}
        vocabulary = self.made["build-vocabulary"]
        self.tokenizer = WordPieceTokenizer.from_vocab_file(
            self.store.artifact(vocabulary).url(VOCAB_FILE), lowercase=True
        )

    @property
    def instances(self) -> Manifest:
        return self.made["build-instances.length-64"]

    def table(self, manifest: Manifest, path: str) -> ds.Dataset:
        return self.store.artifact(manifest).table([path])

    def shard(self, label: str, path: str) -> Shard:
        name = f"test/{label}:{path}"
        return find_shard(name, open_store=lambda: self.store)

    def encode(self, sentences: list[str]) -> np.ndarray:
        ids, _ = self.tokenizer.encode_sentences(pa.array(sentences, pa.string()))
        return np.asarray(ids, np.int64)

    def document(self, trace: DocumentTrace) -> dict[str, Any]:
        """Return the row of documents that a trace names."""
        documents = self.made["build-documents"]
        row = read_row(self.table(documents, trace.document.shard), trace.document.row)
        assert row["document_id"] == trace.document_id
        return row

    def document_tokens(self, trace: DocumentTrace) -> np.ndarray:
        return self.encode(self.document(trace)["sentences"])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("tracing"))


@pytest.fixture(scope="module")
def traces(corpus: Corpus) -> Traces:
    """Random rows of instances, training and held-out, with their traces."""
    rng = random.Random(7)
    pairs = []
    for part in ("part-", "__held-out__/"):
        entries = [entry for entry in corpus.instances.files if entry.path.startswith(part)]
        for entry in rng.choices(entries, [entry.rows or 0 for entry in entries], k=25):
            number = rng.randrange(entry.rows or 1)
            row = read_row(corpus.table(corpus.instances, entry.path), number)
            shard = corpus.shard("build-instances.length-64", entry.path)
            pairs.append((row, trace_row(shard, number, raw=True)))
    return pairs


def _has_run(whole: np.ndarray, run: np.ndarray) -> bool:
    windows = np.lib.stride_tricks.sliding_window_view(whole, len(run))
    return bool((windows == run).all(axis=1).any())


def test_segments_are_in_their_documents_and_sentences(corpus: Corpus, traces: Traces) -> None:
    for row, trace in traces:
        assert trace.segments.keys() == ({"a", "b"} if trace.label != -1 else {"a"})
        is_one = len({document.document_id for document in trace.segments.values()}) == 1
        assert is_one == (trace.label != 1)
        for name, document in trace.segments.items():
            segment = segment_ids(row)[name]
            assert _has_run(corpus.document_tokens(document), segment)
            if document.sentences is not None:
                first, last = document.sentences
                text = corpus.document(document)["sentences"][first : last + 1]
                assert list(document.text) == text
                assert _has_run(corpus.encode(text), segment)
                # Without its first sentence, it is not all there.
                rest = corpus.encode(text[1:])
                assert len(rest) < len(segment) or not _has_run(rest, segment)
    assert {0, 1} <= {trace.label for _, trace in traces}
    assert sum(d.sentences is not None for _, t in traces for d in t.segments.values()) > 20


def test_bytes_raw_text_and_urls_are_those_of_the_document(traces: Traces) -> None:
    documents = [document for _, trace in traces for document in trace.segments.values()]
    for document in documents:
        raw, text = document.raw_file, document.raw
        assert raw is not None
        assert text is not None
        data = Path(raw.uri).read_bytes()
        assert hashlib.sha256(data).hexdigest() == raw.sha256 == document.file_sha256
        assert 0 <= document.byte_start < document.byte_end <= len(data)
        words = set(re.findall(r"\w{5,}", " ".join(document.text)))
        assert len(words & set(re.findall(r"\w{5,}", text.text))) >= 0.6 * len(words)
        assert f"  {text.text.splitlines()[0]}" in "\n".join(document.lines())
        if document.source != "samplewiki":
            assert (document.page_id, document.page_url) == (None, "")
            assert text.member.endswith(".txt")
            assert "Project Gutenberg" in text.text
            continue
        url = "https://sample.example.org/"
        assert document.page_url == f"{url}?curid={document.page_id}"
        assert document.revision_url == f"{url}?oldid={document.revision_id}"
        assert raw.checksum == f"sha1:{hashlib.sha1(data).hexdigest()}"
        xml = bz2.decompress(data[document.byte_start : document.byte_end]).decode()
        pages = re.findall("<page>.*?</page>", xml, flags=re.DOTALL)
        (page,) = [page for page in pages if f"<id>{document.revision_id}</id>" in page]
        for fact in (f"<id>{document.page_id}</id>", document.timestamp, document.title):
            assert str(fact) in page
    assert len({document.source for document in documents}) == 2


def test_missing_or_changed_raw_file_is_a_problem(tmp_path: Path, corpus: Corpus) -> None:
    documents = corpus.made["build-documents"]
    for entry in documents.shards:
        row = read_row(corpus.table(documents, entry.path), 0)
        listed = next(raw for raw in documents.raw_inputs if raw.sha256 == row["file"])
        copy = tmp_path / listed.name
        copy.write_bytes(Path(listed.uri).read_bytes())
        raw = listed.model_copy(update={"uri": str(copy)})
        same = read_raw(documents, raw, row)
        assert same.text
        assert same.problem == ""
        with copy.open("ab") as file:
            file.write(b"more")
        assert f"{raw.size_bytes + 4:,}" in read_raw(documents, raw, row).problem
        copy.unlink()
        assert raw.uri in read_raw(documents, raw, row).problem


@pytest.mark.parametrize("form", ["books", "books.zip", "books.tar.gz"])
@pytest.mark.parametrize("name", ["all.txt", "all#2.txt"])
def test_each_book_of_a_file_is_traced_to_its_own_text(
    tmp_path: Path, form: str, name: str
) -> None:
    end = "*** END OF THE PROJECT GUTENBERG EBOOK ***\n"
    start = "*** START OF THE PROJECT GUTENBERG EBOOK ***\n"
    texts = [f"Title: Book {number}\n{start}\nOnce upon a time.\n\n{end}" for number in (1, 2)]
    write_books(tmp_path / form, {name: "".join(texts).encode(), "b.txt": b"One book. It ends."})
    source = BooksSource(name="s", paths=(str(tmp_path / form),))
    shown = {}
    for split in books.plan(source):
        files = {file.sha256: file for file in files_of_group(split) or [split.file]}
        for document_id, document in books.read(split, source, Counters().count):
            file = files[document.file or split.file.sha256]
            raw = RawInput(name=file.name, uri=file.uri, size_bytes=file.size, sha256=file.sha256)
            documents = SimpleNamespace(config={"sources": [{"name": "s", "kind": "books"}]})
            row = {**document._asdict(), "source": "s", "document_id": document_id}
            shown[document_id] = read_raw(cast(Manifest, documents), raw, row).text
    stem = name.removesuffix(".txt")
    assert shown == {f"s:{stem}": texts[0], f"s:{stem}#2": texts[1], "s:b": "One book. It ends."}


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("zh_yuewiki-latest-pages-articles.xml.bz2", "https://zh-yue.wikipedia.org"),
        ("dumps/dewikibooks-20240101-p.xml", "https://de.wikibooks.org"),
        ("samplewiki-20260101-pages.xml", ""),
    ],
)
def test_wiki_of_missing_dump_is_known_by_its_name(name: str, root: str) -> None:
    raw = RawInput(name=name, uri=f"/nowhere/{name}", size_bytes=1, sha256="0" * 64)
    assert web_root(raw) == root


@pytest.mark.parametrize("base", ["javascript:alert(1)", 'https://a.org"onclick=1/x', ""])
def test_invalid_base_of_dump_gives_no_url(tmp_path: Path, base: str) -> None:
    file = tmp_path / "pages.xml"
    file.write_text(f"<mediawiki><siteinfo><base>{base}</base></siteinfo>\n<page></page>")
    raw = RawInput(
        name=file.name, uri=str(file), size_bytes=file.stat().st_size, sha256=f"{len(base):064d}"
    )
    assert web_root(raw) == ""


def test_rows_of_tokens_and_documents(corpus: Corpus) -> None:
    tokens, locations = corpus.made["build-tokens"], []
    for entry in tokens.files:
        for number in range(entry.rows or 0):
            trace = trace_row(corpus.shard("build-tokens", entry.path), number)
            (document,) = trace.segments.values()
            locations.append(document.document)
            if number:
                continue
            row = read_row(corpus.table(tokens, entry.path), number)
            assert document.document_id == row["document_id"]
            assert document.tokens == trace.location
            assert corpus.document_tokens(document).tolist() == row["token_ids"]
            again = trace_row(
                corpus.shard("build-documents", document.document.shard), document.document.row
            )
            (same,) = again.segments.values()
            assert same.document_id == document.document_id
            assert same.tokens is None
    # Documents with equal ids have their own traces.
    assert len(locations) == len(set(locations)) > 0


def test_damaged_record_batch_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "part.arrow"
    table = pa.table({"text": [random.Random(n).randbytes(2000).hex() for n in range(30)]})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=10)
    shard = Shard("", None, location=str(path))
    assert read_row(shard.table(), 15) == {"text": table["text"][15].as_py()}
    data = bytearray(path.read_bytes())
    frame = data.rfind(b"\x28\xb5\x2f\xfd", 0, len(data) // 2)
    data[frame : frame + 4] = bytes(4)
    path.write_bytes(data)
    with pytest.raises(ArtifactCorruptError):
        read_row(shard.table(), 15)


def test_rows_without_a_trace_are_errors(corpus: Corpus) -> None:
    entry = corpus.instances.files[0]
    shard = corpus.shard("build-instances.length-64", entry.path)
    with pytest.raises(ArtifactNotFoundError):
        trace_row(shard, 1_000_000)
    vocabulary = corpus.made["build-vocabulary"]
    url = corpus.store.artifact(corpus.instances).url(entry.path)
    alone = Shard(entry.path, None, location=url)
    for other in (
        corpus.shard("build-vocabulary", vocabulary.files[0].path),
        corpus.shard("build-documents", DUPLICATES_FILE),
        alone,
    ):
        with pytest.raises(ConfigError):
            trace_row(other, 0)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "koi8-r", "utf-16"])
def test_text_in_any_encoding_is_traced_to_its_place(
    tmp_path: Path, name: str, encoding: str
) -> None:
    written = [f"{number}: старик вышел из дома и медленно пошёл к реке." for number in range(9)]
    data = "\n\n".join(written).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    source = TextSource(name="t", paths=(str(tmp_path / name),))
    (split,) = text.plan(source)
    raw = RawInput(
        name=name, uri=split.file.uri, size_bytes=split.file.size, sha256=split.file.sha256
    )
    documents = SimpleNamespace(config={"sources": [{"name": "t", "kind": "text"}]})
    texts = text.read(split, source, Counters().count)
    for (document_id, row), paragraph in zip(texts, written, strict=True):
        document = {**row._asdict(), "source": "t", "document_id": document_id}
        raw_text = read_raw(cast(Manifest, documents), raw, document)
        assert raw_text.text.startswith(paragraph)
