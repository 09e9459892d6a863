"""Suffixes of names count in any case."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archive_builder import epub_bytes, tar_bytes, zip_bytes
from support.dump_builder import compress_7z, dump, page

from pipelines.counters import Counters
from pipelines.mediawiki.multistream import find_index
from pipelines.sources import SOURCES
from schemas.corpus_configs import AnySource, BooksSource, TextSource, WikipediaSource

PROSE = (
    "It was a bright cold morning when the three of them set out along the river bank, and "
    "no one in the village had yet opened so much as a single shutter to see them go."
)
TEXT, DUMP = PROSE.encode(), dump([page(1, PROSE)])


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": [PROSE]}), sink)
    return sink.getvalue().to_pybytes()


JSON = f'{{"text": "{PROSE}"}}\n'.encode()
FILES: dict[str, tuple[type[AnySource], bytes]] = {
    "a.txt": (TextSource, TEXT),
    "a.txt.gz": (TextSource, gzip.compress(TEXT)),
    "a.jsonl": (TextSource, JSON),
    "a.ndjson.bz2": (TextSource, bz2.compress(JSON)),
    "a.parquet": (TextSource, parquet()),
    "a.pq": (TextSource, parquet()),
    "b.txt": (BooksSource, TEXT),
    "b.epub": (BooksSource, epub_bytes({"1.xhtml": f"<p>{PROSE}</p>"})),
    "b.epub.txt": (BooksSource, TEXT),
    "b.html": (BooksSource, f"<p>{PROSE}".encode()),
    "b.htm": (BooksSource, f"<p>{PROSE}".encode()),
    "b.zip": (BooksSource, zip_bytes([("B.TXT", TEXT)])),
    "b.tar.gz": (BooksSource, gzip.compress(tar_bytes([("B.Html", TEXT)]))),
    "b.tgz": (BooksSource, gzip.compress(tar_bytes([("b.txt", TEXT)]))),
    "w.xml": (WikipediaSource, DUMP),
    "w.xml.bz2": (WikipediaSource, bz2.compress(DUMP)),
    "w.xml.7z": (WikipediaSource, compress_7z(DUMP)),
}


@pytest.mark.parametrize("change", [str.upper, str.title], ids=["upper", "title"])
@pytest.mark.parametrize("name", FILES)
def test_file_with_a_suffix_in_any_case_is_read(
    tmp_path: Path, name: str, change: Callable[[str], str]
) -> None:
    kind, data = FILES[name]
    (tmp_path / change(name)).write_bytes(data)
    source = kind(name="s", paths=(str(tmp_path),))
    documents = [
        raw
        for split in SOURCES[source.kind].plan(source)
        for _, raw in SOURCES[source.kind].read(split, source, Counters().count)
    ]
    assert [raw.paragraphs for raw in documents] == [[PROSE]]
    assert ".epub" not in documents[0].title.lower()


@pytest.mark.parametrize("index", ["X-MULTISTREAM-INDEX.TXT.BZ2", "x-multistream-index.txt"])
@pytest.mark.parametrize("name", ["x-multistream.xml.bz2", "X-Multistream.XML.BZ2"])
def test_index_of_a_dump_is_found_in_any_case(tmp_path: Path, name: str, index: str) -> None:
    for each in (name, index):
        (tmp_path / each).write_bytes(b"")
    assert find_index(str(tmp_path / name), name=name) == str(tmp_path / index)
