"""Remembers the digests of source files, so that a run that changes nothing parses nothing.

A digest is taken for a file as it is: by its path, inode, size and times, as those of raw files are
(`pipelines.io.raw_files`). The memory is one small file in the user's cache and may be deleted.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import platform
import tempfile
import time
from pathlib import Path

from pipelines.io.raw_files import cache_folder
from schemas.fingerprint import source_file_digest

_LOGGER = logging.getLogger(__name__)
# A file that was written just now may be written again within the resolution of its times.
_SETTLED_NS = 2_000_000_000


class CodeMemory:
    """Digests by file, read once and written back at the end of the process if there are more."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = _read(file)
        self._is_changed = False

    def digest(self, path: Path) -> str:
        """`source_digest` of a file, computed where it is not known of the file as it is.

        Raises:
            FingerprintError: it cannot be read or parsed.
        """
        stat = path.stat()
        version = f"{stat.st_ino}/{stat.st_size}/{stat.st_mtime_ns}/{stat.st_ctime_ns}"
        known = self._known.get(str(path))
        if known is not None and known[0] == version:
            return known[1]
        digest = source_file_digest(path)
        if time.time_ns() - stat.st_ctime_ns > _SETTLED_NS:
            self._known[str(path)] = (version, digest)
            self._is_changed = True
        return digest

    def write(self) -> None:
        """Write what was learnt, if anything; another process's file is replaced whole."""
        if not self._is_changed:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=self._file.parent, suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as sink:
                json.dump(self._known, sink)
            Path(part).replace(self._file)
        except OSError as error:
            _LOGGER.info("%s: cannot be written (%s); code is parsed again", self._file, error)
        self._is_changed = False


def _read(file: Path) -> dict[str, tuple[str, str]]:
    try:
        stored = json.loads(file.read_bytes())
        return {str(path): (str(entry[0]), str(entry[1])) for path, entry in stored.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, IndexError) as error:
        _LOGGER.warning("%s: not a memory of code (%s); it is made anew", file, error)
        return {}


@functools.cache
def code_memory() -> CodeMemory:
    """This process's memory. Syntax trees are told apart by Python's minor version."""
    minor = ".".join(platform.python_version_tuple()[:2])
    memory = CodeMemory(cache_folder() / f"code-{minor}.json")
    atexit.register(memory.write)
    return memory
