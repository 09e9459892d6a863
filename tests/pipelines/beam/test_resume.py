"""An item whose worker was stopped resumes after its complete files, with the same result."""

from __future__ import annotations

import collections
import functools
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.dump_builder import COMPRESS, dump, page

from pipelines.beam.item_cache import CachingShardFn, ItemCache, ItemCheckpointer
from pipelines.beam.shard_work import WorkResult
from pipelines.counters import check_balance
from pipelines.documents import build_shard
from pipelines.documents.build_shard import BuildDocumentShard, document_batches
from pipelines.documents.plan import DocumentItem, plan
from pipelines.io import compression
from pipelines.mediawiki import pages
from pipelines.sources import books, text
from schemas.corpus_configs import (
    AnySource,
    BooksSource,
    DocumentsConfig,
    TextSource,
    WikipediaSource,
)
from schemas.errors import CorruptInputError

_SAID = "The town of {0} is {{{{odd {1}}}}} large. It lies by the sea, and it is {0} years old. "


def _pages(*, malformed: bool = True) -> list[str]:
    """Pages of each kind that is kept, counted or dropped, in turn."""
    written = []
    for number in range(1, 51):
        said = _SAID.format(number, number % 7) * 8
        kinds: dict[int, dict[str, Any]] = {
            1: {"text": "#REDIRECT [[Page 2]]"},
            3: {"text": "{{only|a template}}"},
            5: {"text": said, "namespace": 1},
            6: {"text": said, "inside": "    <revision><id>5</id></revision>\n"},
            8: {"text": "Short."},
        }
        whole = page(number, **kinds.get(number % 10, {"text": said}))
        is_whole = number % 20 != 9 or not malformed
        written.append(whole if is_whole else whole.replace("</title>", "</tilte>"))
    return written


class _Died(BaseException):
    """Exception that ends a worker: no code catches it."""


class _Job(NamedTuple):
    """The one piece of a source, in a folder laid out as a store."""

    root: Path
    config: DocumentsConfig

    @property
    def piece(self) -> DocumentItem:
        (piece,) = plan(self.config)
        return piece

    def run(self, attempt: str, *, store: str = "store", pieces: bool = True) -> WorkResult:
        """Process the item; `attempt` names the output folder."""
        root = self.root / store
        output, records = root / f"artifacts/build-documents/{attempt}/data", self.records(store)
        for folder in (output, records):
            folder.mkdir(parents=True, exist_ok=True)
        inner = BuildDocumentShard(self.config, str(output))
        cache = ItemCache(str(records), str(output))
        work = CachingShardFn(inner, cache) if pieces else inner
        work.setup()
        report = work.process(self.piece)
        for entry in report.files:
            assert (output / entry.stored_name).stat().st_size == entry.size_bytes
        return report

    def records(self, store: str = "store") -> Path:
        return self.root / store / "pieces/build-documents/0"

    def left(self, store: str = "store") -> list[str]:
        """Names of the records, by what they are of."""
        names = (path.name for path in self.records(store).glob("*/*"))
        return sorted(name.partition(".")[2] for name in names)


def _said(report: WorkResult) -> Any:
    """All that a report says as it reaches the launching process, but for names and reuse."""
    stored = json.loads(report.to_json())
    del stored["reused"]
    for entry in stored["files"]:
        del entry["stored_name"]
    return stored, report.blobs


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    small = functools.partial(document_batches, batch_characters=1_500)
    monkeypatch.setattr(build_shard, "document_batches", small)


def _interrupt(job: _Job, number: int, attempt: str = "first", *, store: str = "store") -> None:
    """Run a job whose worker dies after it has recorded its file of this number, from 1."""
    save = ItemCheckpointer.save

    def save_and_die(self: ItemCheckpointer, result: WorkResult) -> None:
        save(self, result)
        if len(result.files) == number:
            raise _Died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ItemCheckpointer, "save", save_and_die)
        with pytest.raises(_Died):
            job.run(attempt, store=store)


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """Count how often each page, book or row was cleaned."""
    found: collections.Counter[str] = collections.Counter()

    def count_calls(module: Any, name: str) -> None:
        clean = getattr(module, name)

        def counted(item: Any, *args: Any, **options: Any) -> Any:
            found[str(item)] += 1
            return clean(item, *args, **options)

        monkeypatch.setattr(module, name, counted)

    count_calls(pages, "clean_page")
    count_calls(books, "_document")
    count_calls(text, "_document")
    return found


def _wikipedia(folder: Path, suffix: str = ".gz", **options: Any) -> WikipediaSource:
    path = folder / f"xxwiki.xml{suffix}"
    path.write_bytes(COMPRESS[suffix](dump(_pages())))
    options = {"on_corrupt": "keep-whole-pages"} | options
    return WikipediaSource(name="wiki", paths=(str(path),), **options)


def _job(folder: Path, source: AnySource, *, max_shard_bytes: int = 3_000) -> _Job:
    return _Job(
        folder, DocumentsConfig(sources=(source,), max_shard_bytes=max_shard_bytes, min_words=3)
    )


def test_item_survives_the_death_of_each_of_its_workers(
    tmp_path: Path, cleaned: collections.Counter[str]
) -> None:
    job = _job(tmp_path, _wikipedia(tmp_path, ".zst"))
    whole = job.run("whole", store="alone", pieces=False)
    once = collections.Counter(cleaned)
    assert set(once.values()) == {1}
    cleaned.clear()
    for number in range(1, len(whole.files)):
        _interrupt(job, number, f"attempt-{number % 3}")
    assert _said(job.run("last")) == _said(whole)
    assert cleaned == once


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("what", "damage", "part"),
    [
        ("record", Path.unlink, 0),
        ("record", _cut, 2),
        ("file", Path.unlink, 2),
        ("file", _cut, 0),
    ],
)
def test_damaged_part_and_those_after_it_are_built_again(
    tmp_path: Path,
    cleaned: collections.Counter[str],
    damage: Callable[[Path], None],
    what: str,
    part: int,
) -> None:
    job = _job(tmp_path, _wikipedia(tmp_path))
    whole = job.run("whole", store="alone", pieces=False)
    _interrupt(job, 4)
    found = {
        "record": sorted(job.records().glob("*/*.json")),
        "file": sorted((tmp_path / "store/artifacts/build-documents/first/data").iterdir()),
    }
    damage(found[what][part])
    cleaned.clear()
    assert _said(job.run("second")) == _said(whole)
    rows = sum(entry.rows or 0 for entry in whole.files[part:])
    assert sum(cleaned.values()) >= rows > sum(entry.rows or 0 for entry in whole.files[part + 1 :])
    assert job.left() == ["json"]


def _with_wrong_byte(data: bytes, at: float) -> bytes:
    place = int(len(data) * at)
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) * 3 // 4],
        lambda data: data[:-8] + b"\0" * 8,  # the checksum and the size at the very end
        lambda data: _with_wrong_byte(data, 0.9),
    ],
    ids=["cut off", "checksum", "wrong byte"],
)
@pytest.mark.parametrize("on_corrupt", ["fail", "keep-whole-pages"])
def test_damage_after_resumption_is_reported_as_without(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[bytes], bytes],
    on_corrupt: str,
) -> None:
    monkeypatch.setattr(compression, "_READ", 512)
    source = _wikipedia(tmp_path, on_corrupt=on_corrupt)
    pages_of_dump = _pages(malformed=on_corrupt != "fail")
    Path(source.paths[0]).write_bytes(change(gzip.compress(dump(pages_of_dump))))
    job = _job(tmp_path, source)

    def outcome(attempt: str, **options: Any) -> Any:
        try:
            return _said(job.run(attempt, **options))
        except CorruptInputError as error:
            return str(error), error.offset, error.last_record

    whole = outcome("whole", store="alone", pieces=False)
    _interrupt(job, 2)
    assert outcome("second") == whole
    assert outcome("third") == whole


def test_dump_that_became_shorter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _job(tmp_path, _wikipedia(tmp_path))
    piece = job.piece
    monkeypatch.setattr(_Job, "piece", piece)
    _interrupt(job, 4)
    Path(piece.split.file.uri).write_bytes(gzip.compress(dump(_pages()[:15])))
    with pytest.raises(CorruptInputError, match=r"cannot resume at record \d+, the file has \d+"):
        job.run("second")


def test_rare_template_names_are_dropped_at_the_same_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.mediawiki import cleaning

    monkeypatch.setattr(cleaning, "MOST_NAMES", 5)
    monkeypatch.setattr(cleaning, "_LEAST_ROOM", 20)
    told = "It is {{{{name {0}}}}} here, {{{{name {1}}}}} there, and this is all of it. "
    written = [page(n, told.format(n, n % 9) * 9) for n in range(1, 40)]
    path = tmp_path / "xxwiki.xml.gz"
    path.write_bytes(gzip.compress(dump(written)))
    job = _job(tmp_path, WikipediaSource(name="wiki", paths=(str(path),)))
    whole = job.run("whole", store="alone", pieces=False)
    assert len(whole.details[1]) == 5
    for number in range(1, len(whole.files)):
        _interrupt(job, number, store=str(number))
        assert _said(job.run("second", store=str(number))) == _said(whole)


def _books() -> Iterator[tuple[str, bytes]]:
    prose = "It was a dark night, and the sea was loud. Nobody went out, for they were afraid.\n\n"
    for number in range(30):
        name = f"tale {number}.txt"
        yield name, b"\0" if number % 7 == 3 else f"Tale {number}.\n\n{prose * 40}".encode()
        yield f"picture {number}.png", b"\x89PNG"


def _tar(folder: Path) -> AnySource:
    with tarfile.open(folder / "books.tar.gz", "w:gz") as archive:
        for name, data in _books():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return BooksSource(name="tales", paths=(str(folder / "books.tar.gz"),))


def _loose(folder: Path) -> AnySource:
    for name, data in _books():
        (folder / name).write_bytes(data)
    return BooksSource(name="tales", paths=(str(folder),))


_LINES = [f"This is the sentence of number {number}, and one more word." for number in range(900)]


def _jsonl(folder: Path) -> AnySource:
    rows = [json.dumps({"text": " ".join(_LINES[n : n + 30])}) for n in range(0, 900, 10)]
    rows[5::11] = ["{"] * len(rows[5::11])
    (folder / "own.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    path = str(folder / "own.jsonl.gz")
    return TextSource(name="own", paths=(path,), max_document_bytes=1 << 10)


def _parquet(folder: Path) -> AnySource:
    table = pa.table({"text": [" ".join(_LINES[n : n + 30]) for n in range(0, 900, 10)]})
    pq.write_table(table, folder / "own.parquet", row_group_size=10)
    return TextSource(name="own", paths=(str(folder / "own.parquet"),))


def _lines_of_books(folder: Path) -> AnySource:
    lines = [line if number % 11 else " " for number, line in enumerate(_LINES)]
    (folder / "books_large.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    path = str(folder / "books_large.txt.gz")
    return TextSource(name="books", paths=(path,), rows_per_document=7)


_SOURCES: dict[str, tuple[Callable[[Path], AnySource], int]] = {
    **{
        f"dump{suffix}": (functools.partial(_wikipedia, suffix=suffix), 3_000)
        for suffix in COMPRESS
    },
    "tar": (_tar, 20_000),
    "loose books": (_loose, 20_000),
    "jsonl": (_jsonl, 30_000),
    "parquet": (_parquet, 30_000),
    "lines of books": (_lines_of_books, 9_000),
}
"""Sources, and a size of shards that makes a few."""


@pytest.mark.parametrize("name", _SOURCES)
def test_item_resumes_after_each_file_and_cleans_nothing_twice(
    tmp_path: Path, cleaned: collections.Counter[str], name: str
) -> None:
    write, max_shard_bytes = _SOURCES[name]
    (tmp_path / "raw").mkdir()
    job = _job(tmp_path, write(tmp_path / "raw"), max_shard_bytes=max_shard_bytes)
    whole = job.run("whole", store="alone", pieces=False)
    once = collections.Counter(cleaned)
    plain = {counter: n for counter, n in whole.counters.items() if "@" not in counter}
    for things in ("pages", "books", "rows", "documents"):
        check_balance(plain, things, where=name)
    assert 3 < len(whole.files) < 8
    for number in range(1, len(whole.files)):
        store = f"store-{number}"
        cleaned.clear()
        _interrupt(job, number, store=store)
        assert job.left(store) == [f"part-{part:05d}.json" for part in range(number)]
        assert _said(job.run("second", store=store)) == _said(whole)
        assert cleaned == once
        assert job.left(store) == ["json"]
    assert _said(job.run("third", store="alone")) == _said(whole)  # no worker died
