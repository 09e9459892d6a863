"""Temporary folders that are locked while their owner lives, so that others can be removed."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "bertloom-tmp-"
_MIN_AGE_SECONDS = 60.0
"""Age of folders that can be removed: a new one may not be locked yet."""

_LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[str]:
    """Yield a new folder that is deleted after the block.

    Args:
        purpose: Part of the folder's name, such as `reports`.
    """
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{purpose}-") as folder:
        # The system frees the lock when the process ends, however it ends.
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield folder
        finally:
            os.close(lock)


def remove_abandoned_folders() -> None:
    """Remove the temporary folders of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, locked, or already removed
            if time.time() - folder.stat().st_mtime < _MIN_AGE_SECONDS:
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
                _LOGGER.info("removed %s, which a killed process left", folder)
            finally:
                os.close(lock)
