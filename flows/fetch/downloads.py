"""Files from the web into a folder: resumed where they stopped, bounded, verified, named together.

A file grows under `NAME.partial`, with what is known of it in `NAME.partial.json` (where it comes
from, the digest it shall have, and the tag that the server gave it). It gets its name with all
others of its fetch, when these are whole and verified: see `publish`.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from flows.fetch.client import PassingFault, Say, Web, shown_url
from flows.fetch.folders import (
    FILE_NAME,
    check_space,
    drop_partial,
    hash_of,
    hasher,
    notes_of,
    partial_of,
    sync_folder,
    write_text,
)
from schemas.errors import ChecksumError, ConfigError, FetchError

_MUCH = 1 << 20
"""Bytes that a connection must have brought for its cut to be no failed try."""

_MOST_BEGINNINGS = 5
"""How often what has arrived of a file may be given up before its fetch ends."""

_UNANNOUNCED = 512 << 20
"""The most bytes of a file whose size nobody announces."""

_ANOTHER = "Use another mirror"
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Wanted(NamedTuple):
    """A file to fetch."""

    url: str
    name: str
    """In the folder; no path."""
    size: int | None
    """Bytes; None where nobody says."""
    algorithm: str
    """Of the digest: md5, sha1 or sha256."""
    digest: str | None
    """Hexadecimal, lower case. None: whatever comes is taken, and its digest returned."""


class Fetched(NamedTuple):
    """A file that is there, whole, and not yet published unless it was reused."""

    wanted: Wanted
    digest: str
    size: int
    bytes_downloaded: int
    was_there: bool
    """Under its final name, and right."""


def checked_name(name: str, *, where: str) -> str:
    """A name that a site says, if it is one of a file in one folder and nothing else.

    Raises:
        FetchError: it has a slash, begins with a dot, or has other characters no such file has.
    """
    if not FILE_NAME.fullmatch(name):
        raise FetchError(
            f"{where}: expected names of files, found {name!r}, which is none that may be written. "
            "Do not trust this mirror; use another"
        )
    return name


def fetch_files(
    wanted: Sequence[Wanted],
    folder: Path,
    *,
    web: Web,
    connections: int,
    say: Say,
    arrived: Callable[[int], None],
) -> list[Fetched]:
    """Bring all of them into the folder, which the caller has locked; in the order of `wanted`.

    None is published: see `publish`.

    Args:
        wanted: of different names.
        folder: is there.
        web: makes the requests.
        connections: at most so many downloads at once.
        say: prints a line.
        arrived: called in any thread with the number of bytes that are there; negative if some
            were given up.

    Raises:
        FetchError: one could not be fetched. Those under way stop, and keep what has arrived.
        ChecksumError: one is not what its digest says.
        ConfigError: `connections` is less than 1.
    """
    if connections < 1:
        raise ConfigError(f"connections: expected 1 or more, found {connections}")
    check_space(folder, sum((item.size or 0) - bytes_there(item, folder) for item in wanted))
    downloads = [_Download(item, folder, web=web, say=say, arrived=arrived) for item in wanted]
    with ThreadPoolExecutor(connections, thread_name_prefix="fetch") as pool:
        under_way = [pool.submit(item.fetch) for item in downloads]
        failed = under_way  # unless the wait ends without an interrupt
        try:
            done, _ = wait(under_way, return_when=FIRST_EXCEPTION)
            failed = [task for task in under_way if task in done and task.exception() is not None]
        finally:
            if failed:
                web.stopping.set()
                for task in under_way:
                    task.cancel()
    for task in failed:
        task.result()  # raises
    return [task.result() for task in under_way]


def publish(fetched: Sequence[Fetched], folder: Path) -> None:
    """Move what has been fetched to its final names, in the given order."""
    for item in fetched:
        if not item.was_there:
            path = folder / item.wanted.name
            partial_of(path).replace(path)
            drop_partial(path)
    sync_folder(folder)


def bytes_there(item: Wanted, folder: Path) -> int:
    """How many bytes of a file are in the folder, whole or partial; nothing is verified."""
    path = folder / item.name
    if path.is_file() and item.size in (None, path.stat().st_size):
        return path.stat().st_size
    if not partial_of(path).is_file():
        return 0
    size = partial_of(path).stat().st_size
    return size if item.size is None else min(size, item.size)


class _Download:
    """One wanted file and what of it is on the disk. `fetch` is called once."""

    def __init__(
        self, wanted: Wanted, folder: Path, *, web: Web, say: Say, arrived: Callable[[int], None]
    ) -> None:
        self._wanted, self._web, self._say, self._arrived = wanted, web, say, arrived
        self._path = folder / wanted.name
        self._partial = partial_of(self._path)
        self._shown = shown_url(wanted.url)
        self._notes: dict[str, Any] = {}
        self._hash, self._have, self._total = hasher(wanted.algorithm), 0, wanted.size
        self._downloaded = self._beginnings = 0
        self._is_resumed = False

    def fetch(self) -> Fetched:
        """Bring the file, whole and verified, to its partial name, if it is not there already.

        Raises:
            FetchError: it cannot be had; what has arrived is kept where it may be of use.
            ChecksumError: it is not what its digest says; nothing is kept.
        """
        wanted = self._wanted
        if (digest := self._final_digest()) is not None:
            size = self._path.stat().st_size
            self._arrived(size)
            return Fetched(wanted, digest, size, 0, was_there=True)
        self._take_up()
        while True:
            while self._have != self._total or not self._partial.is_file():
                self._web.patiently(wanted.url, self._request, what=self._what)
            digest = self._hash.hexdigest()
            if wanted.digest in (None, digest):
                return Fetched(wanted, digest, self._have, self._downloaded, was_there=False)
            is_ours = self._is_resumed and not self._beginnings
            self._begin_anew("what was there of it did not fit the rest" if is_ours else "")
            if not is_ours:
                raise ChecksumError(
                    f"{self._shown}: expected {wanted.algorithm} {wanted.digest}, found "
                    f"{digest}. Nothing was kept of it: run the command again later, or use "
                    "another mirror"
                )

    def _final_digest(self) -> str | None:
        wanted, path = self._wanted, self._path
        if wanted.digest is None or not path.is_file():
            return None
        is_as_long = wanted.size in (None, path.stat().st_size)
        if is_as_long and hash_of(path, wanted.algorithm).hexdigest() == wanted.digest:
            return wanted.digest
        self._say(f"{path}: is there, and is not what it should be; fetching it again")
        return None

    def _take_up(self) -> None:
        """Continue from the partial file, if it can be one of this very file."""
        if not self._partial.is_file():
            return
        try:
            notes = json.loads(notes_of(self._path).read_bytes())
            # Another mirror may go on with a file of this digest, which decides in the end.
            is_known = notes["digest"] == self._wanted.digest and (
                self._wanted.digest is not None or notes["url"] == self._shown
            )
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            is_known = False
        have = self._partial.stat().st_size
        if not is_known or (self._total is not None and have > self._total):
            drop_partial(self._path)
            return
        self._notes = notes
        self._hash = hash_of(self._partial, self._wanted.algorithm)
        self._move_to(have)

    def _move_to(self, have: int) -> None:
        self._arrived(have - self._have)
        self._have = have

    def _begin_anew(self, why: str) -> None:
        """Give up what has arrived.

        Raises:
            FetchError: too often.
        """
        if why:
            self._say(f"{self._wanted.name}: {why}; beginning anew")
        drop_partial(self._path)
        self._move_to(0)
        self._hash, self._total = hasher(self._wanted.algorithm), self._wanted.size
        self._is_resumed = False
        self._beginnings += 1
        if self._beginnings > _MOST_BEGINNINGS:
            raise FetchError(
                f"{self._shown}: begun anew {_MOST_BEGINNINGS} times, each time cut off and not "
                f"gone on with. {_ANOTHER}"
            )

    def _what(self) -> str:
        total = "?" if self._total is None else f"{self._total:,}"
        return f"{self._wanted.name} ({self._have:,} of {total} bytes)"

    def _request(self) -> bool:
        """One request, from where the file is; False if it was cut after much had arrived."""
        before = self._have
        headers = {}
        if self._have:
            headers["Range"] = f"bytes={self._have}-"
            if self._notes.get("tag") and self._notes.get("url") == self._shown:
                headers["If-Range"] = str(self._notes["tag"])
        try:
            with self._web.get(self._wanted.url, headers=headers) as response:
                if self._is_answer_to(response):
                    self._write(response)
        except PassingFault:
            if self._have - before < _MUCH:
                raise
            return False
        return True

    def _is_answer_to(self, response: httpx.Response) -> bool:
        """Whether the body goes on where the file is; else what has arrived is given up."""
        url = self._shown
        if response.status_code == 206:
            if not self._have:
                raise FetchError(f"{url}: expected the whole file, found a part of it. {_ANOTHER}")
            match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if match is None or int(match[1]) != self._have or match[3] == "*":
                self._begin_anew(f"{url} sent another range")
                return False
            self._announced(int(match[3]))
            self._is_resumed = True
            return True
        if response.status_code == 416:
            if not self._have:
                raise FetchError(f"{url}: refuses to give the file from its beginning. {_ANOTHER}")
            self._begin_anew("")
            return False
        if self._have:
            self._begin_anew(f"{url} does not go on in the middle")
        length = response.headers.get("Content-Length", "")
        if length.isascii() and length.isdigit():
            self._announced(int(length))
        self._partial.unlink(missing_ok=True)
        tag = response.headers.get("ETag", "")
        if not tag or tag.startswith("W/"):  # weak ones say nothing of single bytes
            tag = response.headers.get("Last-Modified", "")
        self._notes = {"url": url, "digest": self._wanted.digest, "tag": tag}
        write_text(notes_of(self._path), json.dumps(self._notes, indent=2) + "\n")
        return True

    def _announced(self, size: int) -> None:
        if self._wanted.size not in (None, size):
            raise FetchError(
                f"{self._shown}: expected {self._wanted.size:,} bytes, and the server announces "
                f"{size:,}: it has another file. Run the command again later, or use another mirror"
            )
        self._total = size

    def _write(self, response: httpx.Response) -> None:
        most = _UNANNOUNCED if self._total is None else self._total
        try:
            with self._partial.open("ab") as sink:
                for chunk in response.iter_raw():
                    if self._have + len(chunk) > most:
                        drop_partial(self._path)
                        raise FetchError(
                            f"{self._shown}: expected {most:,} bytes at most, and the body goes "
                            "on. Nothing was kept of it: do not trust this mirror; use another"
                        )
                    sink.write(chunk)
                    self._hash.update(chunk)
                    self._downloaded += len(chunk)
                    self._move_to(self._have + len(chunk))
                    if self._web.stopping.is_set():
                        return
                sink.flush()
                os.fsync(sink.fileno())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise FetchError(
                f"{self._what()}: {error.strerror}. Make room, and run again"
            ) from error
        if self._total is None:
            self._total = self._have  # the body ended as bodies do that announce nothing
        elif self._have < self._total:
            raise PassingFault("the connection ended early")
