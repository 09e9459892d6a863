"""One file from the web: resumed where it stopped, bounded by what is announced, verified.

It grows under `NAME.partial`, with what is known of it in `NAME.partial.json` (the tag that the
server gave it), and gets its name only when the whole fetch is done.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from flows.fetch.local_files import digest_of, hasher, notes_of, partial_of, write_text
from flows.fetch.web import PassingFault, Web, shown_url
from schemas.errors import ChecksumError, FetchError

_CHUNK = 1 << 20
_MUCH = 1 << 20
_MOST_BEGINNINGS = 5
"""Bytes that a connection must have brought for its cut to be no failed try."""

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
    """Of the digest: sha1 or sha256."""
    digest: str | None
    """Hexadecimal, lower case. None: whatever comes is taken, and its digest told."""


class Fetched(NamedTuple):
    """A file that is there, whole, and not yet published unless it was reused."""

    wanted: Wanted
    digest: str
    size: int
    bytes_downloaded: int
    was_there: bool
    """Under its final name, and right."""


class Download:
    """One wanted file and what of it is on the disk. `fetch` is called once."""

    def __init__(
        self,
        wanted: Wanted,
        folder: Path,
        *,
        web: Web,
        say: Callable[[str], None],
        arrived: Callable[[int], None],
    ) -> None:
        self._wanted, self._web, self._say, self._arrived = wanted, web, say, arrived
        self._path = folder / wanted.name
        self._partial, self._notes = partial_of(self._path), notes_of(self._path)
        self._shown = shown_url(wanted.url)
        self._begun_anew = 0
        self._hash = hasher(wanted.algorithm)
        self._have = 0
        self._counted = 0
        self._downloaded = 0
        self._total = wanted.size
        self._is_resumed = False
        self._may_restart = True

    def fetch(self) -> Fetched:
        """Bring the file, whole and verified, to its partial name, if it is not there already.

        Raises:
            FetchError: it cannot be had; what has arrived is kept where it may be of use.
            ChecksumError: it is not what its digest says; nothing is kept.
        """
        wanted = self._wanted
        if (digest := self._final_digest()) is not None:
            self._arrived(self._path.stat().st_size)
            return Fetched(wanted, digest, self._path.stat().st_size, 0, was_there=True)
        self._take_up()
        while True:
            self._download()
            digest = self._hash.hexdigest()
            if wanted.digest in (None, digest):
                return Fetched(wanted, digest, self._have, self._downloaded, was_there=False)
            self._drop()
            if not self._is_resumed or not self._may_restart:
                raise ChecksumError(
                    f"{self._shown}: expected {wanted.algorithm} {wanted.digest}, found "
                    f"{digest}. Nothing was kept of it: run the command again later, or use "
                    "another mirror"
                )
            self._say(f"{wanted.name}: what was there of it did not fit the rest; beginning anew")
            self._is_resumed = self._may_restart = False

    def _final_digest(self) -> str | None:
        wanted, path = self._wanted, self._path
        if wanted.digest is None or not path.is_file():
            return None
        size = path.stat().st_size
        if wanted.size in (None, size):
            digest = digest_of(path, wanted.algorithm)
            if digest == wanted.digest:
                return digest
        self._say(f"{path}: is there, and is not what it should be; fetching it again")
        return None

    def _take_up(self) -> None:
        """Continue from the partial file, if it can be one of this very file."""
        if not self._partial.is_file():
            return
        have = self._partial.stat().st_size
        notes = self._read_notes()
        # A file of this digest may be gone on with from another mirror; the digest decides at last.
        is_known = notes.get("digest") == self._wanted.digest and (
            self._wanted.digest is not None or notes.get("url") == self._shown
        )
        if not is_known or (self._total is not None and have > self._total):
            self._drop()
            return
        with self._partial.open("rb") as source:
            while chunk := source.read(_CHUNK):
                self._hash.update(chunk)
        self._have = have
        self._count()

    def _read_notes(self) -> dict[str, Any]:
        try:
            notes = json.loads(self._notes.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return notes if isinstance(notes, dict) else {}

    def _drop(self) -> None:
        """Give up what has arrived."""
        self._partial.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)
        self._restart()

    def _restart(self) -> None:
        self._have = 0
        self._hash = hasher(self._wanted.algorithm)
        self._total = self._wanted.size
        self._count()

    def _count(self) -> None:
        if self._have != self._counted:
            self._arrived(self._have - self._counted)
            self._counted = self._have

    @property
    def _what(self) -> str:
        total = "?" if self._total is None else f"{self._total:,}"
        return f"{self._wanted.name} ({self._have:,} of {total} bytes)"

    def _download(self) -> None:
        while not self._is_whole():
            self._web.patiently(self._wanted.url, self._request, what=lambda: self._what)

    def _is_whole(self) -> bool:
        return self._total is not None and self._have == self._total and self._partial.is_file()

    def _request(self) -> bool:
        before = self._have
        headers = {}
        if self._have:
            headers["Range"] = f"bytes={self._have}-"
            notes = self._read_notes()
            if notes.get("tag") and notes.get("url") == self._shown:
                headers["If-Range"] = str(notes["tag"])
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
        """Whether the body goes on where we are; else what we have is given up."""
        url = self._shown
        if response.status_code == 206:
            match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if not self._have:
                raise FetchError(f"{url}: expected the whole file, found a part of it. {_ANOTHER}")
            if match is None or int(match[1]) != self._have or match[3] == "*":
                self._say(f"{self._wanted.name}: {url} sent another range; beginning anew")
                self._begin_anew(url)
                return False
            self._announced(int(match[3]), url=url)
            self._is_resumed = True
            return True
        if response.status_code == 416:
            if not self._have:
                raise FetchError(f"{url}: refuses to give the file from its beginning. {_ANOTHER}")
            self._begin_anew(url)
            return False
        if self._have:
            self._say(f"{self._wanted.name}: {url} does not go on in the middle; beginning anew")
        self._restart()
        length = response.headers.get("Content-Length", "")
        if length.isascii() and length.isdigit():
            self._announced(int(length), url=url)
        self._partial.unlink(missing_ok=True)
        write_text(self._notes, json.dumps(self._as_notes(response), indent=2) + "\n")
        return True

    def _begin_anew(self, url: str) -> None:
        self._drop()
        self._begun_anew += 1
        if self._begun_anew > _MOST_BEGINNINGS:
            raise FetchError(
                f"{url}: begun anew {_MOST_BEGINNINGS} times, each time cut off and not gone on "
                f"with. {_ANOTHER}"
            )

    def _announced(self, size: int, *, url: str) -> None:
        if self._wanted.size not in (None, size):
            raise FetchError(
                f"{url}: expected {self._wanted.size:,} bytes, and the server announces {size:,}: "
                "it has another file. Run the command again later, or use another mirror"
            )
        self._total = size

    def _as_notes(self, response: httpx.Response) -> dict[str, Any]:
        tag = response.headers.get("ETag", "")
        if not tag or tag.startswith("W/"):  # weak ones say nothing of single bytes
            tag = response.headers.get("Last-Modified", "")
        return {"url": self._shown, "digest": self._wanted.digest, "tag": tag}

    def _write(self, response: httpx.Response) -> None:
        most = _UNANNOUNCED if self._total is None else self._total
        try:
            with self._partial.open("ab") as sink:
                for chunk in response.iter_raw():
                    if self._have + len(chunk) > most:
                        self._refuse_longer(most)
                    sink.write(chunk)
                    self._hash.update(chunk)
                    self._have += len(chunk)
                    self._downloaded += len(chunk)
                    self._count()
                    if self._web.stopping.is_set():
                        return
                sink.flush()
                os.fsync(sink.fileno())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise FetchError(f"{self._what}: {error.strerror}. Make room, and run again") from error
        if self._total is None:
            self._total = self._have  # the body ended as bodies do that announce nothing
        elif self._have < self._total:
            raise PassingFault("the connection ended early")

    def _refuse_longer(self, most: int) -> None:
        self._drop()
        raise FetchError(
            f"{self._shown}: expected {most:,} bytes at most, and the body goes "
            "on. Nothing was kept of it: do not trust this mirror; use another"
        )
