"""Cache values in the user's cache folder. They can be deleted at any time.

    $BERTLOOM_CACHE/digests.ndjson    {file, version, digests}: one line per file
    $BERTLOOM_CACHE/WHAT/AA/DIGEST    {value}: value computed from a file with this digest

Digests are cached by the location and version of a file: size, inode and times of a local file,
ETag or generation of an object. Each line is appended with one write, so that
processes can share the file: invalid lines are ignored, and the last line of a file counts. A
damaged or read-only cache only costs time.

`diskcache` is not used: it unpickles values from its database, also with `JSONDisk`, and its
write-ahead log does not work on network file systems.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.io.local_files import write_atomic
from schemas.json_files import load_json

CACHE_VARIABLE = "BERTLOOM_CACHE"
"""Environment variable that names another cache folder."""

# A file that changed more recently may change again without a new modification time.
_SETTLED_NS = 2_000_000_000
_HEX = re.compile(r"[0-9a-f]{64}")
_LOGGER = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the cache folder: $BERTLOOM_CACHE, or a folder in the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "bertloom"


def stat_fingerprint(stat: os.stat_result) -> str:
    """Return the version of a local file."""
    times = f"{stat.st_mtime_ns}/{stat.st_ctime_ns}"
    return f"{stat.st_dev}/{stat.st_ino}/{stat.st_size}/{times}"


def is_settled(stat: os.stat_result) -> bool:
    """Return whether a local file is unchanged for longer than the resolution of its times."""
    return time.time_ns() - stat.st_ctime_ns > _SETTLED_NS


def cached_value(what: str, digest: str) -> Any:
    """Return the cached JSON value of a file with this sha256, or None."""
    try:
        return load_json(_place(what, digest).read_bytes()).get("value")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _LOGGER.info("%s: cannot be read (%s), so it is found again", _place(what, digest), error)
        return None


def cache_value(what: str, digest: str, value: Any) -> None:
    """Cache the JSON value of a file with this sha256."""
    path = _place(what, digest)
    line = json.dumps({"value": value}, separators=(",", ":"))
    try:
        write_atomic(path, line.encode())
    except OSError as error:
        _say_unwritable(path.parents[2], error.strerror)


@functools.cache  # once per process, not per file
def _say_unwritable(folder: Path, why: str) -> None:
    _LOGGER.info("%s: cannot be written (%s); set %s", folder, why, CACHE_VARIABLE)


def _place(what: str, digest: str) -> Path:
    if not _HEX.fullmatch(digest):
        raise ValueError(f"expected the 64 hex digits of a sha256, found {digest!r:.80}")
    return cache_folder() / what / digest[:2] / digest


def digest_cache() -> DigestCache:
    """Return this process's cache of digests, one for all of its threads."""
    with _OPENING:
        return _opened(cache_folder() / "digests.ndjson")


class DigestCache:
    """Digests by file, read once and appended when computed."""

    def __init__(self, path: Path) -> None:
        """Read the cache file if it exists."""
        self._path = path
        self._known: dict[str, tuple[str, dict[str, str]]] = {}
        try:
            lines = [line for line in path.read_bytes().split(b"\n") if line]
        except FileNotFoundError:
            return
        except OSError as error:
            _LOGGER.info("%s: cannot be read (%s); set %s", path, error, CACHE_VARIABLE)
            return
        bad = sum(not self._read(line) for line in lines)
        if bad:
            _LOGGER.warning("%s: %d lines are damaged; their digests are computed again", path, bad)

    def _read(self, line: bytes) -> bool:
        try:
            value = load_json(line)
            digests = {str(name): str(digest) for name, digest in value["digests"].items()}
            self._known[str(value["file"])] = (str(value["version"]), digests)
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        return True

    def get(self, file: str, version: str) -> dict[str, str]:
        """Return hex digests by algorithm; none if the file is unknown or has changed."""
        known, digests = self._known.get(file, ("", {}))
        return dict(digests) if known == version else {}

    def put(self, file: str, version: str, digests: Mapping[str, str]) -> None:
        """Cache the digests of a version of a file."""
        self._known[file] = (version, dict(digests))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as sink:
                sink.write(self._line(file))
        except OSError as error:
            _say_unwritable(self._path.parent, error.strerror)

    def _line(self, file: str) -> bytes:
        version, digests = self._known[file]
        text = json.dumps({"file": file, "version": version, "digests": digests})
        # The line break comes first, so that a line that was cut off damages no other.
        return f"\n{text}".encode()


# Without it, threads that start at the same time would each read a cache, and lose entries.
_OPENING = threading.Lock()
_opened = functools.cache(DigestCache)
