"""Wikipedia's dumps from a site that is laid out as the real one: dates, parts, indexes, sums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_site import FakeSite, Fault

from flows.fetch import client
from flows.fetch.wikipedia import (
    JOBS,
    FetchedDump,
    chosen_mirror,
    fetch_wikipedia,
    newest_complete_dump,
    plan_wikipedia,
)
from flows.sample import write_sample
from pipelines.io.checksums import published_checksums
from pipelines.mediawiki.multistream import find_index
from pipelines.sources import wikipedia
from pipelines.telling.progress import Reading, listening
from schemas.configs import WikipediaSource
from schemas.errors import ChecksumError, ConfigError, FetchError

pytestmark = pytest.mark.network

DATE, NEWER, OLDER = "20260101", "20260120", "20251201"
PAGES = "samplewiki-{}-pages-articles-multistream.xml.bz2"
INDEX = "samplewiki-{}-pages-articles-multistream-index.txt.bz2"


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A real dump and its index by `pages` and `index`."""
    folder = tmp_path_factory.mktemp("sample")
    files = write_sample(str(folder), articles=20, tales=0, pages_per_stream=10)
    return {
        "pages": Path(files.pages).read_bytes(),
        "index": Path(files.page_index).read_bytes(),
    }


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, dump: dict[str, bytes]) -> Iterator[FakeSite]:
    """Three dates; the newest is still being made."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(client, "_FIRST_WAIT", 0.0)
    with FakeSite() as served:
        monkeypatch.setenv("BERTLOOM_MIRROR", served.url)
        for date in (OLDER, DATE):
            served.add_dump("samplewiki", date, whole(dump, date))
        served.add_dump("samplewiki", NEWER, {}, status="in-progress")
        yield served


def whole(dump: dict[str, bytes], date: str = DATE) -> dict[str, bytes]:
    return {PAGES.format(date): dump["pages"], INDEX.format(date): dump["index"]}


def in_parts(dump: dict[str, bytes]) -> dict[str, bytes]:
    base = f"samplewiki-{DATE}-pages-articles-multistream"
    return {
        f"{base}{part}.xml-{pages}.bz2": dump["pages"]
        for part, pages in (("10", "p901p1000"), ("2", "p101p900"), ("1", "p1p100"))
    } | {
        f"{base}-index{part}.txt-{pages}.bz2": dump["index"]
        for part, pages in (("10", "p901p1000"), ("2", "p101p900"), ("1", "p1p100"))
    }


def fetch(into: Path, /, **more: Any) -> FetchedDump:
    settings: dict[str, Any] = {"folder": str(into), "say": lambda line: None}
    return fetch_wikipedia("samplewiki", **(settings | more))


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir() if not path.name.startswith("."))


def test_the_newest_complete_dump_comes_as_documents_are_built_from(
    site: FakeSite, tmp_path: Path, dump: dict[str, bytes]
) -> None:
    fetched = fetch(tmp_path)
    assert (fetched.wiki, fetched.date) == ("samplewiki", DATE)
    assert fetched.folder == str(tmp_path / "samplewiki" / DATE)
    assert names(fetched.folder) == sorted([*whole(dump), f"samplewiki-{DATE}-sha1sums.txt"])
    assert [Path(path).read_bytes() for path in fetched.files] == [dump["pages"]]
    assert fetched.bytes_downloaded == len(dump["pages"]) + len(dump["index"])
    assert fetched.files_reused == 0

    source = WikipediaSource(
        kind="wikipedia", name="w", paths=(fetched.folder,), target_split_bytes=4096
    )
    splits = wikipedia.plan(source)
    assert len(splits) > 1
    assert {split.file.name for split in splits} == {PAGES.format(DATE)}
    sha1 = hashlib.sha1(dump["pages"]).hexdigest()
    assert {split.file.checksum for split in splits} == {f"sha1:{sha1}"}
    assert find_index(fetched.files[0], name=PAGES.format(DATE)) is not None


def test_a_second_fetch_brings_nothing(site: FakeSite, tmp_path: Path) -> None:
    first = fetch(tmp_path)
    asked = len(site.seen)
    again = fetch(tmp_path)
    assert again == first._replace(bytes_downloaded=0, files_reused=2)
    assert {request.path.rpartition("/")[2] for request in site.seen[asked:]} == {
        "", "dumpstatus.json",
    }  # fmt: skip


def test_whoever_listens_is_told_how_far_it_is(site: FakeSite, tmp_path: Path) -> None:
    readings: list[Reading] = []
    with listening(readings.append):
        fetched = fetch(tmp_path)
    last = readings[-1]
    assert (last.job, last.unit) == (f"samplewiki {DATE}", "byte")
    assert last.done == last.total == fetched.bytes_downloaded


def test_a_password_of_a_mirror_is_nowhere(
    site: FakeSite, tmp_path: Path, dump: dict[str, bytes]
) -> None:
    said: list[str] = []
    mirror = site.url.replace("://", "://someone:secret@")
    pages = f"/samplewiki/{DATE}/{PAGES.format(DATE)}"
    site.faults[pages] = [Fault(cut_after=10), *[Fault(status=503)] * 5]
    with pytest.raises(FetchError) as caught:
        fetch(tmp_path, mirror=mirror, say=said.append)
    kept = [path.read_bytes() for path in tmp_path.rglob("*.json")]
    assert kept
    assert "secret" not in f"{caught.value}{said}{kept}"
    fetch(tmp_path, mirror=mirror, say=said.append)
    assert site.asked(pages)[-1] == "bytes=10-"
    assert "secret" not in f"{plan_wikipedia('samplewiki', folder='x', mirror=mirror, say=print)}"


def test_a_date_may_be_named(site: FakeSite, tmp_path: Path) -> None:
    assert fetch(tmp_path, date=OLDER).date == OLDER
    assert newest_complete_dump("samplewiki", mirror=site.url) == DATE
    with pytest.raises(FetchError, match="found 'in-progress'"):
        fetch(tmp_path, date=NEWER)
    with pytest.raises(FetchError, match=r"without a dumpstatus\.json"):
        fetch(tmp_path, date="20200101")


def test_without_a_complete_dump_each_date_is_accounted_for(site: FakeSite) -> None:
    for date in (OLDER, DATE):
        site.add_dump("samplewiki", date, {"x": b""}, status="failed")
    with pytest.raises(FetchError) as caught:
        newest_complete_dump("samplewiki", mirror=site.url)
    found = f"{NEWER} 'in-progress', {DATE} 'failed', {OLDER} 'failed'"
    assert found in str(caught.value)


def test_a_wiki_that_is_not_there_is_said(site: FakeSite, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="/nowiki/: 404"):
        newest_complete_dump("nowiki", mirror=site.url)


def test_parts_are_preferred_and_come_in_the_order_of_their_pages(
    site: FakeSite, tmp_path: Path, dump: dict[str, bytes]
) -> None:
    site.files.pop(f"/samplewiki/{DATE}/dumpstatus.json")
    site.add_dump("samplewiki", DATE, whole(dump), job=JOBS[1])
    site.add_dump("samplewiki", DATE, in_parts(dump), job=JOBS[0])
    fetched = fetch(tmp_path)
    assert [Path(path).name.partition("multistream")[2] for path in fetched.files] == [
        "1.xml-p1p100.bz2", "2.xml-p101p900.bz2", "10.xml-p901p1000.bz2",
    ]  # fmt: skip
    assert names(fetched.folder) == sorted([*in_parts(dump), f"samplewiki-{DATE}-sha1sums.txt"])
    for path in fetched.files:
        assert find_index(path, name=Path(path).name) is not None
    assert len(published_checksums(fetched.files)) == 3


def test_the_whole_is_taken_where_parts_are_not_done(
    site: FakeSite, tmp_path: Path, dump: dict[str, bytes]
) -> None:
    site.files.pop(f"/samplewiki/{DATE}/dumpstatus.json")
    site.add_dump("samplewiki", DATE, in_parts(dump), job=JOBS[0], status="waiting")
    site.add_dump("samplewiki", DATE, whole(dump), job=JOBS[1])
    fetched = fetch(tmp_path)
    assert [Path(path).name for path in fetched.files] == [PAGES.format(DATE)]


def test_no_part_has_its_name_until_all_are_there(
    site: FakeSite, tmp_path: Path, dump: dict[str, bytes]
) -> None:
    site.files.pop(f"/samplewiki/{DATE}/dumpstatus.json")
    parts = in_parts(dump)
    site.add_dump("samplewiki", DATE, parts)
    last = f"/samplewiki/{DATE}/samplewiki-{DATE}-pages-articles-multistream10.xml-p901p1000.bz2"
    size = len(dump["pages"])
    site.faults[last] = [Fault(cut_after=size // 2), *[Fault(status=503)] * 5]
    with pytest.raises(FetchError, match="run the same command again"):
        fetch(tmp_path)
    folder = tmp_path / "samplewiki" / DATE
    assert not [name for name in names(str(folder)) if name.endswith(".bz2")]
    fetched = fetch(tmp_path)
    assert site.asked(last)[-1] == f"bytes={size // 2}-"
    assert fetched.bytes_downloaded == size - size // 2
    assert names(fetched.folder) == sorted([*parts, f"samplewiki-{DATE}-sha1sums.txt"])


def test_a_file_that_is_not_what_the_site_lists_is_refused(
    site: FakeSite, tmp_path: Path, dump: dict[str, bytes]
) -> None:
    path = f"/samplewiki/{DATE}/{PAGES.format(DATE)}"
    site.files[path] = bytes(len(dump["pages"]))
    with pytest.raises(ChecksumError) as caught:
        fetch(tmp_path)
    assert hashlib.sha1(dump["pages"]).hexdigest() in str(caught.value)
    assert hashlib.sha1(site.files[path]).hexdigest() in str(caught.value)
    assert PAGES.format(DATE) not in names(str(tmp_path / "samplewiki" / DATE))


@pytest.mark.parametrize(
    "name",
    ["../../x", "/etc/passwd", "..", f"samplewiki-{DATE}-pages-articles-multistream.xml.bz2/../x"],
)
def test_malicious_names_are_refused(site: FakeSite, tmp_path: Path, name: str) -> None:
    site.files.pop(f"/samplewiki/{DATE}/dumpstatus.json")
    site.add_dump("samplewiki", DATE, {name: b"evil"})
    with pytest.raises(FetchError, match="none that may be written"):
        fetch(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_unknown_names_are_not_passed_over(
    site: FakeSite, tmp_path: Path, dump: dict[str, bytes]
) -> None:
    site.files.pop(f"/samplewiki/{DATE}/dumpstatus.json")
    site.add_dump("samplewiki", DATE, whole(dump) | {"samplewiki-new-part.zst": b"x"})
    with pytest.raises(FetchError, match="names its files in a new way"):
        fetch(tmp_path)


@pytest.mark.parametrize(
    "facts",
    [
        {"size": -1}, {"size": True}, {"size": "9"}, {"size": 1 << 60}, {"sha1": None},
        {"sha1": "abc"}, {"sha1": ["a"]},
    ],
)  # fmt: skip
def test_sizes_and_digests_must_be_some(
    site: FakeSite, tmp_path: Path, facts: dict[str, Any]
) -> None:
    path = f"/samplewiki/{DATE}/dumpstatus.json"
    status = json.loads(site.files[path])
    status["jobs"][JOBS[0]]["files"][PAGES.format(DATE)] |= facts
    site.files[path] = json.dumps(status).encode()
    with pytest.raises(FetchError, match="expected its size and sha1"):
        fetch(tmp_path, date=DATE)


@pytest.mark.parametrize("text", [b"<html>", b"[]", b"{}", b'{"jobs": 3}', b"[" * 100_000])
def test_a_status_that_is_none_is_refused(site: FakeSite, tmp_path: Path, text: bytes) -> None:
    site.files[f"/samplewiki/{NEWER}/dumpstatus.json"] = text
    with pytest.raises(FetchError, match=r"dumpstatus\.json: expected"):
        fetch(tmp_path)


def test_a_plan_writes_nothing(site: FakeSite, tmp_path: Path, dump: dict[str, bytes]) -> None:
    planned = plan_wikipedia("samplewiki", folder=str(tmp_path), say=lambda line: None)
    assert planned.date == DATE
    assert {(file.name, file.size, file.bytes_there) for file in planned.files} == {
        (name, len(data), 0) for name, data in whole(dump).items()
    }
    assert list(tmp_path.iterdir()) == []
    fetch(tmp_path)
    planned = plan_wikipedia("samplewiki", folder=str(tmp_path), say=lambda line: None)
    assert all(file.bytes_there == file.size for file in planned.files)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"date": "yesterday"}, "--date"),
        ({"date": "20261340"}, "--date"),
        ({"folder": "s3://bucket/x"}, "--folder"),
        ({"mirror": "file:///dumps"}, "--mirror"),
        ({"connections": 0}, "connections"),
    ],
)
def test_wrong_arguments_are_named(
    site: FakeSite, tmp_path: Path, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        fetch(tmp_path, **arguments)


@pytest.mark.parametrize("wiki", ["../enwiki", "Enwiki", "en wiki", "", "a" * 99])
def test_names_of_wikis_are_checked(site: FakeSite, wiki: str) -> None:
    with pytest.raises(ConfigError, match="--wiki"):
        newest_complete_dump(wiki)
    assert site.seen == []


def test_the_mirror_is_chosen_and_remarked_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setenv("BERTLOOM_MIRROR", "https://mirror.example/dumps/")
    assert chosen_mirror(None, say=said.append) == "https://mirror.example/dumps"
    assert said == []
    assert chosen_mirror("http://m.example", say=said.append) == "http://m.example"
    assert "not encrypted" in said.pop()
    monkeypatch.delenv("BERTLOOM_MIRROR")
    monkeypatch.delenv("BERTLOOM_CONTACT", raising=False)
    assert chosen_mirror(None, say=said.append) == "https://dumps.wikimedia.org"
    assert "BERTLOOM_CONTACT" in said.pop()
