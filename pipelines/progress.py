"""Progress of a running job, as far as a folder that fills with shards can tell it.

A bar in a terminal; elsewhere a plain log line now and then. It looks from outside, so it works the
same for a runner in this process, in others, or in a data centre, and costs the workers nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from types import TracebackType
from typing import Self

import fsspec
from tqdm import tqdm

_LOGGER = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_LINE_SECONDS = 15.0


class Progress:
    """Watches `folder` until the block ends; `total` shards are expected."""

    def __init__(self, job: str, *, fs: fsspec.AbstractFileSystem, folder: str, total: int) -> None:
        self._job, self._fs, self._folder, self._total = job, fs, folder, total
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"progress-{job}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _finished(self) -> int:
        try:
            names = self._fs.ls(self._folder, detail=False)
        except OSError as error:  # a store that is slow to answer must not stop the job
            _LOGGER.debug("%s: cannot list %s: %s", self._job, self._folder, error)
            return -1
        return sum(name.endswith(".arrow") for name in names)

    def _watch(self) -> None:
        in_terminal = sys.stderr.isatty()
        started = said = time.monotonic()
        with tqdm(
            total=self._total, desc=self._job, unit="shard", leave=False, disable=not in_terminal
        ) as bar:
            while not self._stop.wait(_LOOK_SECONDS):
                done = self._finished()
                if done < 0:
                    continue
                bar.n = min(done, self._total)
                bar.refresh()
                now = time.monotonic()
                if not in_terminal and now - said >= _LINE_SECONDS:
                    said = now
                    _LOGGER.info(
                        "%s: %d of %d shards after %.0f s",
                        self._job,
                        min(done, self._total),
                        self._total,
                        now - started,
                    )
