"""Downloads from a site that fails in every way sites do."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.fake_site import FakeSite, Fault

from flows.fetch import downloads
from flows.fetch.client import Web, check_redirects, checked_address, shown_url, user_agent
from flows.fetch.downloads import (
    LOCK_FILE,
    ORIGINS,
    Fetched,
    Wanted,
    fetch_files,
    locked_folder,
    publish,
)
from flows.fetch.wikipedia import checked_name
from pipelines.telling.progress import Reading, listening
from schemas.errors import ChecksumError, ConfigError, FetchError

pytestmark = pytest.mark.network

DATA = random.Random(7).randbytes(300_000)
OTHER = random.Random(8).randbytes(300_000)
PATH = "/files/part.bz2"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSite]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("BERTLOOM_CONTACT", raising=False)
    with FakeSite() as served:
        served.files[PATH] = DATA
        yield served


class Fetcher:
    """Fetches files, and remembers what was said and how long it would have slept."""

    def __init__(self, site: FakeSite, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.slept: list[float] = []
        self.said: list[str] = []
        self.readings: list[Reading] = []

    def wanted(self, path: str = PATH, data: bytes = DATA, **more: Any) -> Wanted:
        facts: dict[str, Any] = {
            "url": self.site.url + path,
            "name": path.rpartition("/")[2],
            "size": len(data),
            "algorithm": "sha1",
            "digest": hashlib.sha1(data).hexdigest(),
        }
        return Wanted(**(facts | more))

    def __call__(self, *wanted: Wanted, tries: int = 4, connections: int = 2) -> list[Fetched]:
        with (
            listening(self.readings.append),
            locked_folder(self.folder, say=self.said.append),
            closing(Web(say=self.said.append, sleep=self.slept.append, tries=tries)) as web,
        ):
            fetched = fetch_files(
                "files",
                wanted or [self.wanted()],
                self.folder,
                web=web,
                connections=connections,
            )
            publish(fetched, self.folder)
        return fetched

    @property
    def file(self) -> Path:
        return self.folder / "part.bz2"

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} - {LOCK_FILE, ORIGINS}


@pytest.fixture
def fetch(site: FakeSite, tmp_path: Path) -> Fetcher:
    return Fetcher(site, tmp_path / "into")


def test_a_file_comes_whole_and_leaves_nothing_beside_it(fetch: Fetcher, site: FakeSite) -> None:
    (fetched,) = fetch()
    assert fetch.file.read_bytes() == DATA
    assert fetch.names() == {"part.bz2"}
    origins = json.loads((fetch.folder / ORIGINS).read_bytes())
    assert origins == {"part.bz2": shown_url(fetched.wanted.url)}
    assert (fetched.bytes_downloaded, fetched.size, fetched.was_there) == (300_000, 300_000, False)
    assert fetch.readings[-1].done == len(DATA)
    assert (fetch.slept, fetch.said) == ([], [])
    assert site.asked(PATH) == [None]


def test_what_is_there_and_right_is_not_asked_for(fetch: Fetcher, site: FakeSite) -> None:
    fetch()
    (again,) = fetch()
    assert again.was_there
    assert again.bytes_downloaded == 0
    assert len(site.seen) == 1


def test_what_is_there_and_wrong_is_replaced(fetch: Fetcher, site: FakeSite) -> None:
    fetch()
    fetch.file.write_bytes(OTHER)
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert "not what it should be" in "".join(fetch.said)


def test_a_cut_connection_is_gone_on_with_where_it_was(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(cut_after=50_000)]
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert site.asked(PATH) == [None, "bytes=100000-", "bytes=150000-"]
    tags = [request.if_range for request in site.seen]
    assert tags[0] is None
    assert tags[1] == tags[2] == f'"{hashlib.md5(DATA).hexdigest()}"'


def test_a_fetch_that_ended_is_gone_on_with_by_the_next(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(cut_after=120_000), *[Fault(status=503)] * 2]
    with pytest.raises(FetchError) as caught:
        fetch(tries=3)
    text = str(caught.value)
    assert "part.bz2 (120,000 of 300,000 bytes)" in text
    assert "gave up after 3 tries" in text
    assert site.url in text
    assert "run the same command again" in text
    assert fetch.names() == {"part.bz2.partial", "part.bz2.partial.json"}
    (fetched,) = fetch()
    assert site.asked(PATH)[-1] == "bytes=120000-"
    assert fetched.bytes_downloaded == 180_000
    assert fetch.file.read_bytes() == DATA


def test_waits_grow_and_are_spread(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(status=502)] * 5
    fetch(tries=6)
    assert len(fetch.slept) == 5
    for number, seconds in enumerate(fetch.slept):
        assert 2**number / 2 <= seconds <= 2**number
    assert fetch.slept != sorted(2.0**number for number in range(5))


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(fetch: Fetcher, site: FakeSite, status: int) -> None:
    site.faults[PATH] = [Fault(status=status, headers=(("Retry-After", "77"),))]
    fetch()
    assert fetch.slept == [77.0]
    assert fetch.file.read_bytes() == DATA


def test_a_long_retry_after_ends_the_fetch(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(status=429, headers=(("Retry-After", "86400"),))]
    with pytest.raises(FetchError, match=r"left alone for 86,400 s"):
        fetch()
    assert fetch.slept == []


@pytest.mark.parametrize(
    ("status", "text"), [(404, "Correct the name"), (403, "BERTLOOM_CONTACT"), (301, "301")]
)
def test_lasting_refusals_are_not_tried_again(
    fetch: Fetcher, site: FakeSite, status: int, text: str
) -> None:
    site.faults[PATH] = [Fault(status=status)]
    with pytest.raises(FetchError, match=text):
        fetch()
    assert len(site.seen) == 1


def test_a_wrong_checksum_is_refused_with_both_digests(fetch: Fetcher, site: FakeSite) -> None:
    site.files[PATH] = OTHER
    with pytest.raises(ChecksumError) as caught:
        fetch()
    assert hashlib.sha1(DATA).hexdigest() in str(caught.value)
    assert hashlib.sha1(OTHER).hexdigest() in str(caught.value)
    assert fetch.names() == set()


def test_a_server_that_ignores_ranges_begins_anew(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(ignores_range=True)]
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert fetch.readings[-1].done == len(DATA)
    assert "does not go on in the middle" in "".join(fetch.said)


def test_a_file_that_changed_in_between_is_begun_anew(fetch: Fetcher, site: FakeSite) -> None:
    site.files[PATH] = OTHER  # of the same size, and not yet what the site lists
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(status=404)]
    with pytest.raises(FetchError):
        fetch()
    site.files[PATH] = DATA
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert site.asked(PATH)[-1] == "bytes=100000-"  # refused by the tag, and sent whole


def test_a_beginning_that_no_longer_fits_is_begun_anew(fetch: Fetcher, site: FakeSite) -> None:
    site.has_tags = False  # so that only the digest can tell
    site.files[PATH] = OTHER
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(status=404)]
    with pytest.raises(FetchError):
        fetch()
    site.files[PATH] = DATA
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert site.asked(PATH)[-2:] == ["bytes=100000-", None]
    assert "beginning anew" in "".join(fetch.said)


def test_a_partial_of_another_digest_is_not_gone_on_with(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(status=404)]
    with pytest.raises(FetchError):
        fetch(fetch.wanted(data=OTHER))
    fetch()
    assert site.asked(PATH)[-1] is None
    assert fetch.file.read_bytes() == DATA


def test_a_partial_that_is_whole_is_only_verified(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(cut_after=299_999), Fault(status=404)]
    with pytest.raises(FetchError):
        fetch()
    with (fetch.folder / "part.bz2.partial").open("ab") as sink:
        sink.write(DATA[-1:])
    asked = len(site.seen)
    (fetched,) = fetch()
    assert len(site.seen) == asked
    assert fetched.bytes_downloaded == 0


def test_another_mirror_goes_on_with_a_partial(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(status=404)]
    with pytest.raises(FetchError):
        fetch()
    site.files["/mirror/part.bz2"] = DATA
    fetch(fetch.wanted("/mirror/part.bz2"))
    assert site.seen[-1].range == "bytes=100000-"
    assert site.seen[-1].if_range is None  # the tag is the first one's
    assert fetch.file.read_bytes() == DATA


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"digest": 1}'])
def test_damaged_notes_only_cost_the_partial_file(
    fetch: Fetcher, site: FakeSite, garbage: bytes
) -> None:
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(status=404)]
    with pytest.raises(FetchError):
        fetch()
    (fetch.folder / "part.bz2.partial.json").write_bytes(garbage)
    fetch()
    assert site.asked(PATH)[-1] is None
    assert fetch.names() == {"part.bz2"}


def test_a_body_that_goes_on_is_cut_and_refused(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(extra=b"more and more")]
    with pytest.raises(FetchError, match="the body goes on"):
        fetch()
    assert fetch.names() == set()
    assert len(site.seen) == 1


@pytest.mark.parametrize("data", [DATA[:-1], DATA + b"x"])
def test_another_announced_size_is_refused(fetch: Fetcher, site: FakeSite, data: bytes) -> None:
    site.files[PATH] = data
    with pytest.raises(FetchError, match=rf"expected 300,000 bytes.*announces {len(data):,}"):
        fetch()
    assert "part.bz2" not in fetch.names()


def test_a_server_that_cannot_send_parts_ends_in_an_error(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(status=416)] * 9
    with pytest.raises(FetchError, match="from its beginning"):
        fetch()


def test_a_server_that_cuts_and_never_goes_on_ends_in_an_error(
    fetch: Fetcher, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_MUCH", 1000)  # so much is worth another try each time
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(status=416)] * 20
    with pytest.raises(FetchError, match="begun anew 5 times"):
        fetch()
    assert len(site.asked(PATH)) == 12


def test_an_encoded_body_is_refused(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(encoding="gzip")]
    with pytest.raises(FetchError, match="encoded as 'gzip'"):
        fetch()


def test_without_a_digest_what_comes_is_taken_and_told(fetch: Fetcher, site: FakeSite) -> None:
    wanted = fetch.wanted(size=None, digest=None, algorithm="sha256")
    (fetched,) = fetch(wanted)
    assert fetched.digest == hashlib.sha256(DATA).hexdigest()
    assert fetched.size == len(DATA)


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_redirects_lead_only_to_the_web(fetch: Fetcher, site: FakeSite, to: str) -> None:
    site.faults[PATH] = [Fault(status=302, headers=(("Location", to),))]
    with pytest.raises(FetchError, match="neither http nor https"):
        fetch()


def test_redirects_are_followed_but_not_forever(fetch: Fetcher, site: FakeSite) -> None:
    site.files["/elsewhere"] = DATA
    site.faults[PATH] = [Fault(status=302, headers=(("Location", "/elsewhere"),))]
    fetch()
    assert fetch.file.read_bytes() == DATA
    fetch.file.unlink()
    site.faults[PATH] = [Fault(status=302, headers=(("Location", PATH),))] * 30
    with pytest.raises(FetchError, match="redirect"):
        fetch()
    assert len(site.asked(PATH)) < 10


def test_what_began_with_https_does_not_end_without() -> None:
    began = httpx.Response(302, request=httpx.Request("GET", "https://a.example/x"))
    ended = httpx.Response(200, request=httpx.Request("GET", "http://b.example/x"), history=[began])
    with pytest.raises(FetchError, match="https -> http"):
        check_redirects(ended, "https://a.example/x")
    upwards = httpx.Response(200, request=began.request, history=[ended])
    check_redirects(upwards, "http://b.example/x")


def test_a_full_disk_is_noticed_before(
    fetch: Fetcher, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=64_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(FetchError):
        fetch()
    assert site.seen == []


def test_one_failure_stops_the_others_and_names_itself(fetch: Fetcher, site: FakeSite) -> None:
    paths = [f"/files/{number}.bz2" for number in range(6)]
    for path in paths[1:]:
        site.files[path] = DATA
    with pytest.raises(FetchError, match=r"0\.bz2: 404"):
        fetch(*(fetch.wanted(path) for path in paths), connections=1)
    assert len(site.seen) < len(paths)
    assert not [name for name in fetch.names() if name.endswith(".bz2")]


def test_files_get_their_names_together(fetch: Fetcher, site: FakeSite) -> None:
    site.files["/files/second.bz2"] = OTHER
    site.faults["/files/second.bz2"] = [Fault(status=404)]
    both = [fetch.wanted(), fetch.wanted("/files/second.bz2", OTHER)]
    with pytest.raises(FetchError):
        fetch(*both, connections=1)
    assert fetch.names() == {"part.bz2.partial", "part.bz2.partial.json"}
    fetch(*both)
    assert fetch.names() == {"part.bz2", "second.bz2"}
    assert site.asked(PATH) == [None]


def test_two_fetches_at_once_do_not_disturb_each_other(fetch: Fetcher, site: FakeSite) -> None:
    others = [Fetcher(site, fetch.folder) for _ in range(3)]
    threads = [threading.Thread(target=other) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetch.file.read_bytes() == DATA
    assert site.asked(PATH) == [None]
    assert fetch.names() == {"part.bz2"}


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/b", "..", ".", ".hidden", "a\\b", "a\0b", "a\nb", "", "x" * 201]
)
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(FetchError, match="none that may be written"):
        checked_name(name, where="there")


def test_who_asks_is_said(fetch: Fetcher, site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTLOOM_CONTACT", "someone@example.org")
    fetch()
    assert site.seen[0].agent.startswith("bertloom/")
    assert "(+someone@example.org; httpx/" in site.seen[0].agent
    monkeypatch.setenv("BERTLOOM_CONTACT", "x\r\nEvil: header")
    with pytest.raises(ConfigError, match="BERTLOOM_CONTACT"):
        user_agent()


@pytest.mark.parametrize(
    "address", ["file:///tmp", "ftp://a.org", "dumps.wikimedia.org", "https://", "https://a.org/?b"]
)
def test_addresses_are_of_the_web(address: str) -> None:
    with pytest.raises(ConfigError, match="--mirror"):
        checked_address(address, name="--mirror")


def test_secrets_of_addresses_are_not_shown() -> None:
    shown = shown_url("https://user:pass@host.org/a/b?token=1")
    assert shown == "https://host.org/a/b"


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(FetchError, match="expected a folder"),
        locked_folder(tmp_path / "file" / "x", say=print),
    ):
        pass


def test_notes_hold_no_more_than_is_needed(fetch: Fetcher, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(cut_after=10), Fault(status=404)]
    with pytest.raises(FetchError):
        fetch()
    notes = json.loads((fetch.folder / "part.bz2.partial.json").read_text())
    assert set(notes) == {"url", "digest", "tag"}
