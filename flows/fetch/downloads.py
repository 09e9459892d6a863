"""Files from the web into a folder: resumed where they stopped, bounded, verified, named together.

A file grows under `NAME.partial`, with what is known of it in `NAME.partial.json` (where it comes
from, the digest it shall have, and the tag that the server gave it). It gets its name with all
others of its fetch, when these are whole and verified: see `publish`. One fetch at a time writes
to a folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from tqdm import tqdm

from flows.fetch.client import PassingFault, Say, Web, shown_url
from flows.formatting import format_bytes, format_duration
from pipelines.io.local_files import file_lock, sync_folder, write_whole
from pipelines.telling.progress import Listeners, Reading
from schemas.errors import ChecksumError, ConfigError, FetchError

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""A file in one folder: no slash, no dot at its beginning."""

LOCK_FILE = ".fetch.lock"
ORIGINS = ".origins.json"
"""Where each file of a folder was fetched from, by its name; see `publish`."""

_SPARE = 64 << 20
"""Bytes of the disk that a fetch leaves free."""

_MUCH = 1 << 20
"""Bytes that a connection must have brought for its cut to be no failed try."""

_MOST_BEGINNINGS = 5
"""How often what has arrived of a file may be given up before its fetch ends."""

_UNANNOUNCED = 512 << 20
"""The most bytes of a file whose size nobody announces."""

_LINE_SECONDS, _READING_SECONDS = 15.0, 1.0
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
    """How the digest is made: md5, sha1 or sha256."""
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


def fetch_files(
    what: str, wanted: Sequence[Wanted], folder: Path, *, web: Web, connections: int
) -> list[Fetched]:
    """Bring files into a folder, which the caller has locked; in the order of `wanted`.

    None is published: see `publish`. How far it is shows as a bar in a terminal, elsewhere as a
    line now and then.

    Args:
        what: they are, for these lines.
        wanted: of different names.
        folder: is there.
        web: makes the requests.
        connections: at most so many downloads at once.

    Raises:
        FetchError: one could not be fetched. Those under way stop, and keep what has arrived.
        ChecksumError: one is not what its digest says.
        ConfigError: `connections` is less than 1.
    """
    if connections < 1:
        raise ConfigError(f"connections: expected 1 or more, found {connections}")
    check_space(folder, sum((item.size or 0) - bytes_there(item, folder) for item in wanted))
    with (
        _counted(what, wanted, folder, say=web.say) as arrived,
        ThreadPoolExecutor(connections, thread_name_prefix="fetch") as pool,
    ):
        downloads = [_Download(item, folder, web=web, arrived=arrived) for item in wanted]
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
    """Move what has been fetched to its final names, in the given order.

    Where it is from stands in ORIGINS beside it, without what may be secret of a URL.
    """
    origins = {item.wanted.name: shown_url(item.wanted.url) for item in fetched}
    known: Any = {}
    with contextlib.suppress(FileNotFoundError, ValueError):  # none yet, or none that can be read
        known = json.loads((folder / ORIGINS).read_bytes())
    both = (known if isinstance(known, dict) else {}) | origins
    if origins and both != known:
        text = json.dumps(both, indent=2, sort_keys=True) + "\n"
        write_whole(folder / ORIGINS, text.encode())
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


# The folder


def local_folder(folder: str) -> Path:
    """The folder's absolute path.

    Raises:
        ConfigError: it is none of this machine.
    """
    if "://" in folder or not folder:
        raise ConfigError(
            f"--folder: expected a folder of this machine, found {folder!r}. Fetch to a local "
            "folder, then copy it to where the recipe reads"
        )
    return Path(folder).absolute()


@contextlib.contextmanager
def locked_folder(folder: Path, *, say: Callable[[str], None]) -> Iterator[None]:
    """Make the folder and hold it until the block ends; wait while another fetch holds it.

    Raises:
        FetchError: it cannot be made, written to or locked.
    """

    def say_why() -> None:
        say(f"{folder}: another fetch is writing here; waiting for it")

    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / LOCK_FILE, before_waiting=say_why))
        except OSError as error:
            raise FetchError(
                f"{folder}: expected a folder that can be written to and locked, found: "
                f"{error.strerror}. Name another folder"
            ) from error
        yield


def partial_of(path: Path) -> Path:
    """Where a file grows until it is whole and verified."""
    return path.with_name(path.name + ".partial")


def notes_of(path: Path) -> Path:
    """What is known of a partial file."""
    return path.with_name(path.name + ".partial.json")


def drop_partial(path: Path) -> None:
    """Delete what has arrived of a file."""
    partial_of(path).unlink(missing_ok=True)
    notes_of(path).unlink(missing_ok=True)


def digest_of(path: Path, algorithm: str) -> str:
    """The digest of a local file; sha1 is what dumps are published with, and protects nothing."""
    with path.open("rb") as source:
        return hashlib.file_digest(
            source, lambda: hashlib.new(algorithm, usedforsecurity=algorithm != "sha1")
        ).hexdigest()


def check_space(folder: Path, needed: int) -> None:
    """See that the disk of a folder has room for so many bytes more.

    Raises:
        FetchError: it has not.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE:
        raise FetchError(
            f"{folder}: not enough disk space: {format_bytes(needed)} to download, "
            f"{format_bytes(free)} free, {format_bytes(_SPARE)} of them reserved. Free space, or "
            "name another folder"
        )


# Downloads


@contextlib.contextmanager
def _counted(
    what: str, wanted: Sequence[Wanted], folder: Path, *, say: Say
) -> Iterator[Callable[[int], None]]:
    """Yields a function to be called, in any thread, with the number of bytes that arrived.

    Those that are in the folder already are among them; negative: some were given up.
    """
    total = sum(item.size or 0 for item in wanted)
    first = sum(bytes_there(item, folder) for item in wanted)
    in_terminal, listeners, lock = sys.stderr.isatty(), Listeners(), threading.Lock()
    started = said = read = time.monotonic()
    done = 0

    def tell() -> None:
        seconds = time.monotonic() - started
        reading = Reading(what, done, total, "byte", bytes=done, seconds=seconds, first=first)
        listeners.tell(reading)

    def arrived(size: int) -> None:
        nonlocal done, said, read
        with lock:
            done += size
            bar.update(size)
            now = time.monotonic()
            if listeners and now - read >= _READING_SECONDS:
                read = now
                tell()
            if not in_terminal and now - said >= _LINE_SECONDS:
                said = now
                shown = f"{format_bytes(max(done, 0))} of {format_bytes(total)}"
                say(f"{what}: {shown} after {format_duration(now - started)}")

    bar = tqdm(
        total=total, desc=what, unit="B", unit_scale=True, leave=False, disable=not in_terminal
    )
    with bar:
        try:
            yield arrived
        finally:
            tell()


class _Download:
    """One wanted file and what of it is on the disk. `fetch` is called once."""

    def __init__(
        self, wanted: Wanted, folder: Path, *, web: Web, arrived: Callable[[int], None]
    ) -> None:
        self._wanted, self._web, self._arrived = wanted, web, arrived
        self._path = folder / wanted.name
        self._partial = partial_of(self._path)
        self._shown = shown_url(wanted.url)
        self._notes: dict[str, Any] = {}
        self._have, self._total = 0, wanted.size
        self._downloaded = self._beginnings = 0
        self._is_resumed = False

    def fetch(self) -> Fetched:
        """Bring the file, whole and verified, to its partial name, if it is not there already.

        Raises:
            FetchError: it cannot be had; what has arrived is kept where it may be of use.
            ChecksumError: it is not what its digest says; nothing is kept.
        """
        wanted = self._wanted
        if self._is_there():
            size = self._path.stat().st_size
            self._arrived(size)
            return Fetched(wanted, str(wanted.digest), size, 0, was_there=True)
        self._resume()
        while True:
            while self._have != self._total or not self._partial.is_file():
                self._web.patiently(wanted.url, self._request, what=self._what)
            digest = digest_of(self._partial, wanted.algorithm)
            if wanted.digest in (None, digest):
                return Fetched(wanted, digest, self._have, self._downloaded, was_there=False)
            may_be_the_rest = self._is_resumed and not self._beginnings
            self._begin_anew("what was there of it did not fit the rest" if may_be_the_rest else "")
            if not may_be_the_rest:
                raise ChecksumError(
                    f"{self._shown}: expected {wanted.algorithm} {wanted.digest}, found {digest}. "
                    "Nothing was kept of it: run the command again later, or use another mirror"
                )

    def _is_there(self) -> bool:
        """Whether it has its final name, and is right."""
        wanted, path = self._wanted, self._path
        if wanted.digest is None or not path.is_file():
            return False
        is_as_long = wanted.size in (None, path.stat().st_size)
        if is_as_long and digest_of(path, wanted.algorithm) == wanted.digest:
            return True
        self._web.say(f"{path}: is there, and is not what it should be; fetching it again")
        return False

    def _resume(self) -> None:
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
            self._web.say(f"{self._wanted.name}: {why}; beginning anew")
        drop_partial(self._path)
        self._move_to(0)
        self._total, self._is_resumed = self._wanted.size, False
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
        url, status = self._shown, response.status_code
        if status == 200:
            if self._have:
                self._begin_anew(f"{url} does not go on in the middle")
            self._note(response)
            return True
        if not self._have:
            found = "a part of it" if status == 206 else f"that the site refuses it ({status})"
            expected = "expected the whole file from its beginning"
            raise FetchError(f"{url}: {expected}, found {found}. {_ANOTHER}")
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if status == 416:
            self._begin_anew("")
        elif match is None or int(match[1]) != self._have or match[3] == "*":
            self._begin_anew(f"{url} sent another range")
        else:
            self._announced(int(match[3]))
            self._is_resumed = True
            return True
        return False

    def _note(self, response: httpx.Response) -> None:
        """Begin the partial file, and note what it takes to go on with it."""
        length = response.headers.get("Content-Length", "")
        if length.isascii() and length.isdigit():
            self._announced(int(length))
        self._partial.unlink(missing_ok=True)
        tag = response.headers.get("ETag", "")
        if not tag or tag.startswith("W/"):  # weak ones say nothing of single bytes
            tag = response.headers.get("Last-Modified", "")
        self._notes = {"url": self._shown, "digest": self._wanted.digest, "tag": tag}
        write_whole(notes_of(self._path), f"{json.dumps(self._notes, indent=2)}\n".encode())

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
