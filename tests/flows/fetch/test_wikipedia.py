"""Dumps from a site with the layout of the real one: dates, parts, indexes, checksums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from support.fake_site import FakeSite

from flows.fetch.http_client import HttpClient
from flows.fetch.wikipedia import JOB, WikipediaDump, fetch_dump, find_dump
from flows.sample import write_sample
from pipelines.io.checksums import published_checksums
from pipelines.mediawiki.multistream import find_index
from pipelines.sources import wikipedia
from schemas.corpus_configs import WikipediaSource
from schemas.errors import ConfigError, FetchError

pytestmark = pytest.mark.network

DATE, NEWER, OLDER = "20260101", "20260120", "20251201"
BASE = f"samplewiki-{DATE}-pages-articles-multistream"
PARTS = ("1{}-p1p100.bz2", "2{}-p101p900.bz2", "10{}-p901p1000.bz2")


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Content of a dump and of its index."""
    folder = str(tmp_path_factory.mktemp("sample"))
    sample = write_sample(folder, articles=20, tales=0, pages_per_stream=10)
    return Path(sample.pages).read_bytes(), Path(sample.page_index).read_bytes()


@pytest.fixture
def wiki_site(site: FakeSite, dump: tuple[bytes, bytes]) -> FakeSite:
    """A site with two complete dumps and a newer incomplete one."""
    for date in (OLDER, DATE):
        site.add_dump("samplewiki", date, one_file(dump, date))
    site.add_dump("samplewiki", NEWER, {}, status="in-progress")
    return site


def one_file(dump: tuple[bytes, bytes], date: str = DATE) -> dict[str, bytes]:
    base = f"samplewiki-{date}-pages-articles-multistream"
    return {f"{base}.xml.bz2": dump[0], f"{base}-index.txt.bz2": dump[1]}


def in_parts(dump: tuple[bytes, bytes]) -> dict[str, bytes]:
    articles = {f"{BASE}{part.format('.xml')}": dump[0] for part in reversed(PARTS)}
    return articles | {f"{BASE}-index{part.format('.txt')}": dump[1] for part in PARTS}


def replace_dump(site: FakeSite, files: dict[str, bytes], **fields: str) -> None:
    site.files.pop(f"/samplewiki/{DATE}/dumpstatus.json")
    site.add_dump("samplewiki", DATE, files, **fields)


def fetch(folder: Path, **arguments: Any) -> list[str]:
    """Fetch a dump to a folder, and return the paths of its files with articles."""
    with HttpClient(log=lambda line: None) as client:
        dump = find_dump("samplewiki", client=client, **arguments)
        fetch_dump(dump, folder, client=client)
    return dump.list_articles(folder)


def find(wiki: str = "samplewiki", **arguments: Any) -> WikipediaDump:
    with HttpClient(log=lambda line: None) as client:
        return find_dump(wiki, client=client, **arguments)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.bz2"))


def test_newest_complete_dump_is_what_documents_are_built_from(
    wiki_site: FakeSite, tmp_path: Path, dump: tuple[bytes, bytes]
) -> None:
    fetched = fetch(tmp_path)
    assert find().date == DATE
    assert names(tmp_path) == sorted(one_file(dump))
    assert [Path(path).read_bytes() for path in fetched] == [dump[0]]
    source = WikipediaSource(
        kind="wikipedia", name="w", paths=(str(tmp_path),), target_split_bytes=4096
    )
    splits = wikipedia.plan(source)
    assert len(splits) > 1
    sha1 = hashlib.sha1(dump[0]).hexdigest()
    assert {split.file.checksum for split in splits} == {f"sha1:{sha1}"}
    assert find_index(fetched[0], name=f"{BASE}.xml.bz2") is not None
    wiki_site.requests.clear()
    assert fetch(tmp_path) == fetched
    assert not any(request.path.endswith(".bz2") for request in wiki_site.requests)


def test_date_can_be_chosen_and_incomplete_dumps_are_refused(
    wiki_site: FakeSite, tmp_path: Path
) -> None:
    assert find(date=OLDER).date == OLDER
    for date in (NEWER, "20200101"):
        with pytest.raises(FetchError):
            fetch(tmp_path, date=date)
    for date in (OLDER, DATE):
        wiki_site.add_dump("samplewiki", date, {"x": b""}, status="failed")
    with pytest.raises(FetchError) as error:
        find()
    assert all(date in str(error.value) for date in (NEWER, DATE, OLDER))
    with pytest.raises(FetchError) as error:
        find("nowiki")
    assert error.value.status == 404


def test_parts_are_sorted_by_page(
    wiki_site: FakeSite, tmp_path: Path, dump: tuple[bytes, bytes]
) -> None:
    replace_dump(wiki_site, in_parts(dump))
    wiki_site.add_dump("samplewiki", DATE, one_file(dump), job="articlesmultistreamdumprecombine")
    fetched = fetch(tmp_path)
    assert [Path(path).name for path in fetched] == [
        f"{BASE}{part.format('.xml')}" for part in PARTS
    ]
    assert len(names(tmp_path)) == 2 * len(PARTS)
    for path in fetched:
        assert find_index(path, name=Path(path).name) is not None
    assert len(published_checksums(fetched)) == len(PARTS)


@pytest.mark.parametrize("name", ["../../x", f"{BASE}.xml.bz2/../x", "samplewiki-new-part.zst"])
def test_unknown_names_are_refused(
    wiki_site: FakeSite, tmp_path: Path, dump: tuple[bytes, bytes], name: str
) -> None:
    replace_dump(wiki_site, one_file(dump) | {name: b"data"})
    with pytest.raises(FetchError):
        fetch(tmp_path)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "change",
    [
        *({"size": -1}, {"size": True}, {"size": "9"}, {"sha1": "abc"}),
        *(b"<html>", b'{"jobs": 3}', b"[" * 100_000),
    ],
    ids=["negative", "boolean", "text", "checksum", "html", "jobs", "deep"],
)
def test_invalid_status_is_refused(wiki_site: FakeSite, change: Any) -> None:
    path = f"/samplewiki/{DATE}/dumpstatus.json"
    status = json.loads(wiki_site.files[path])
    if isinstance(change, dict):
        status["jobs"][JOB]["files"][f"{BASE}.xml.bz2"] |= change
        change = json.dumps(status).encode()
    wiki_site.files[path] = change
    with pytest.raises(FetchError) as error:
        find(date=DATE)
    assert error.value.url == wiki_site.url + path


@pytest.mark.parametrize(
    "arguments",
    [
        *({"date": date} for date in ("yesterday", "20261340")),
        *({"mirror": mirror} for mirror in ("file:///dumps", "a.org", "https://")),
        *({"wiki": wiki} for wiki in ("../enwiki", "Enwiki", "a" * 99)),
    ],
)
def test_invalid_arguments_are_refused(wiki_site: FakeSite, arguments: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as error:
        find(**arguments)
    assert f"--{next(iter(arguments))}" in str(error.value)
    assert wiki_site.requests == []
