"""Downloads from a site that fails in every way that sites do."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tenacity
from support.fake_site import FakeSite, Fault

from flows.fetch.downloads import RemoteFile, download_files
from flows.fetch.http_client import HttpClient
from schemas.errors import ChecksumError, FetchError

pytestmark = pytest.mark.network

DATA = random.Random(7).randbytes(300_000)
OTHER = random.Random(8).randbytes(300_000)
PATH = "/files/part.bz2"
NO_FILE = Fault(status=404)


def remote(url: str, data: bytes = DATA, **fields: Any) -> RemoteFile:
    digest = hashlib.sha1(data).hexdigest()
    return RemoteFile(url, url.rpartition("/")[2], len(data), "sha1", digest)._replace(**fields)


class Downloader:
    """Downloads files of a site into a folder."""

    def __init__(self, site: FakeSite, folder: Path) -> None:
        self.site, self.folder, self.log = site, folder, list[str]()

    def __call__(self, *files: RemoteFile, attempts: int = 4) -> None:
        files = files or (remote(self.site.url + PATH),)
        backoff = tenacity.wait_none()
        with HttpClient(log=self.log.append, max_attempts=attempts, backoff=backoff) as client:
            self.client = client
            download_files("files", files, self.folder, client=client)

    def content(self, name: str = "part.bz2") -> bytes:
        return (self.folder / name).read_bytes()

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name[0] != ".")

    def interrupt(self) -> None:
        """Make a download fail and leave a partial file of 100,000 bytes."""
        self.site.faults[PATH] = [Fault(cut_after=100_000), NO_FILE]
        with pytest.raises(FetchError):
            self()
        assert self.names() == []


@pytest.fixture
def download(site: FakeSite, tmp_path: Path) -> Downloader:
    site.files[PATH] = DATA
    return Downloader(site, tmp_path / "into")


def test_complete_file_is_not_requested_again(download: Downloader, site: FakeSite) -> None:
    download()
    assert download.content() == DATA
    download()
    assert site.ranges(PATH) == [None]
    (download.folder / "part.bz2").write_bytes(OTHER)
    download()
    assert download.content() == DATA


def test_cut_connections_are_resumed(download: Downloader, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(cut_after=50_000)]
    download()
    assert download.content() == DATA
    assert site.ranges(PATH) == [None, "bytes=100000-", "bytes=150000-"]


def test_killed_download_is_resumed(download: Downloader, site: FakeSite) -> None:
    site.faults[PATH] = [
        Fault(cut_after=100_000),
        Fault(status=503, headers=(("Retry-After", "600"),)),
    ]
    process = multiprocessing.get_context("fork").Process(target=download)
    process.start()
    while len(site.requests) < 2:
        time.sleep(0.01)
    process.kill()
    process.join()
    download()
    assert download.content() == DATA
    assert site.ranges(PATH)[2:] == ["bytes=100000-"]


@pytest.mark.parametrize(
    ("partial", "ranges"),
    [(DATA, []), (OTHER, [None]), (DATA + b"x", [None]), (b"", [None]), (b"x", ["bytes=1-", None])],
    ids=["complete", "other", "longer", "empty", "damaged"],
)
def test_partial_file_of_any_content_ends_in_the_right_file(
    download: Downloader, site: FakeSite, partial: bytes, ranges: list[str | None]
) -> None:
    download.interrupt()
    site.requests.clear()
    [path] = download.folder.glob(".*.partial")
    path.write_bytes(partial)
    download()
    assert download.content() == DATA
    assert site.ranges(PATH) == ranges


def test_retry_after_is_obeyed(download: Downloader, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(status=429, headers=(("Retry-After", "1"),))]
    start = time.monotonic()
    download()
    assert time.monotonic() - start >= 1
    assert download.content() == DATA


REDIRECTS = ("file:///etc/passwd", "ftp://127.0.0.1/x", PATH)


@pytest.mark.parametrize(
    "fault",
    [
        *(Fault(status=status) for status in (301, 403, 404)),
        Fault(status=429, headers=(("Retry-After", "86400"),)),
        *(Fault(status=302, headers=(("Location", url),)) for url in REDIRECTS),
    ],
    ids=["301", "403", "404", "tomorrow", "file", "ftp", "circle"],
)
def test_permanent_errors_are_not_retried(
    download: Downloader, site: FakeSite, fault: Fault
) -> None:
    site.faults[PATH] = [fault] * 30
    with pytest.raises(FetchError) as error:
        download()
    is_redirect = fault.status == 302
    assert error.value.status == (0 if is_redirect else fault.status)
    assert len(site.requests) < (10 if is_redirect else 2)


def test_damaged_file_is_deleted(download: Downloader, site: FakeSite) -> None:
    site.files[PATH] = OTHER
    with pytest.raises(ChecksumError) as error:
        download()
    assert error.value.expected == hashlib.sha1(DATA).hexdigest()
    assert error.value.actual == hashlib.sha1(OTHER).hexdigest()
    assert list(download.folder.glob(".*.partial")) == []
    assert download.names() == []


def test_server_that_ignores_range_sends_whole_file(download: Downloader, site: FakeSite) -> None:
    site.faults[PATH] = [Fault(cut_after=100_000), Fault(ignores_range=True)]
    download()
    assert download.content() == DATA
    assert site.ranges(PATH) == [None, "bytes=100000-"]


def test_file_that_changed_starts_over_and_another_mirror_resumes(
    download: Downloader, site: FakeSite
) -> None:
    site.files[PATH] = OTHER
    download.interrupt()
    site.files[PATH] = DATA
    download()
    assert download.content() == DATA
    assert site.ranges(PATH)[2:] == ["bytes=100000-", None]
    (download.folder / "part.bz2").unlink()
    download.interrupt()
    site.files["/mirror/part.bz2"] = DATA
    download(remote(f"{site.url}/mirror/part.bz2"))
    assert site.requests[-1].range == "bytes=100000-"
    assert download.content() == DATA


@pytest.mark.parametrize(
    ("data", "fault"), [(DATA[:-1], Fault()), (DATA + b"x", Fault()), (DATA, Fault(extra=b"more"))]
)
def test_file_of_other_size_is_refused(
    download: Downloader, site: FakeSite, data: bytes, fault: Fault
) -> None:
    site.files[PATH], site.faults[PATH] = data, [fault]
    with pytest.raises(ChecksumError):
        download()
    assert len(site.requests) == 1
    assert download.names() == []


@pytest.mark.parametrize("fault", [Fault(status=416), Fault(cut_after=0), Fault(status=503)])
def test_server_that_never_resumes_ends_download(
    download: Downloader, site: FakeSite, fault: Fault
) -> None:
    site.faults[PATH] = [Fault(cut_after=100_000), *[fault] * 20]
    with pytest.raises(FetchError) as error:
        download()
    assert error.value.url == site.url + PATH
    assert len(site.requests) <= 4


def test_redirects_do_not_give_up_encryption(site: FakeSite, https_site: FakeSite) -> None:
    for first, second in ((site, https_site), (https_site, site)):
        second.files["/to"] = DATA
        first.faults["/from"] = [Fault(status=302, headers=(("Location", f"{second.url}/to"),))]
    with HttpClient(log=print) as client:
        assert client.read(f"{site.url}/from") == DATA
        with pytest.raises(FetchError):
            client.read(f"{https_site.url}/from")


def test_files_appear_together(download: Downloader, site: FakeSite) -> None:
    site.files["/files/second.bz2"] = OTHER
    # One connection waits here, so the other one requests a third file once the first is complete.
    third_is_requested = site.requested["/files/0.bz2"].wait
    site.faults["/files/second.bz2"] = [NO_FILE._replace(wait=lambda: third_is_requested(60))]
    files = [remote(site.url + PATH), remote(f"{site.url}/files/second.bz2", OTHER)]
    more = [remote(f"{site.url}/files/{number}.bz2") for number in range(5)]
    for file in more:
        is_stopped = NO_FILE._replace(wait=lambda: download.client.stopped.wait(300))
        site.faults[f"/files/{file.name}"] = [is_stopped]
    with pytest.raises(FetchError) as error:
        download(*files, *more)
    assert error.value.url == files[1].url
    assert len(site.requests) <= 4  # the first error stops the other downloads
    assert download.names() == []
    download(*files)
    assert download.names() == ["part.bz2", "second.bz2"]
    assert site.ranges(PATH) == [None]


def test_concurrent_commands_share_one_download(download: Downloader, site: FakeSite) -> None:
    threads = [threading.Thread(target=download) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert download.content() == DATA
    assert site.ranges(PATH) == [None]


def test_requests_name_contact_and_no_secret(
    download: Downloader, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTLOOM_CONTACT", "someone@example.org")
    site.faults[PATH] = [Fault(status=503), NO_FILE]
    url = site.url.replace("://", "://user:secret@") + f"{PATH}?token=secret"
    with pytest.raises(FetchError) as error:
        download(remote(url, name="part.bz2"))
    download(remote(url, name="part.bz2"))
    assert site.requests[0].agent.startswith("bertloom/")
    assert "+someone@example.org" in site.requests[0].agent
    records = [path.read_text() for path in download.folder.glob(".*") if path.is_file()]
    assert "secret" not in f"{error.value}{vars(error.value)}{download.log}{records}"
    monkeypatch.setenv("BERTLOOM_CONTACT", "x\r\nEvil: header")
    (download.folder / "part.bz2").unlink()
    site.requests.clear()
    with pytest.raises(FetchError):
        download()
    assert site.requests == []
