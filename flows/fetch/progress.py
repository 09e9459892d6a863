"""How far a fetch is: a bar in a terminal, elsewhere a plain line now and then; and readings."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from flows.fetch.client import Say
from flows.fetch.downloads import Wanted, bytes_there
from flows.formats import byte_text, time_text
from pipelines.telling.progress import Listeners, Reading

_LINE_SECONDS, _READING_SECONDS = 15.0, 1.0


@contextlib.contextmanager
def counted(
    name: str, wanted: Sequence[Wanted], folder: Path, *, say: Say
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
        reading = Reading(name, done, total, "byte", bytes=done, seconds=seconds, first=first)
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
                shown = f"{byte_text(max(done, 0))} of {byte_text(total)}"
                say(f"{name}: {shown} after {time_text(now - started)}")

    bar = tqdm(
        total=total, desc=name, unit="B", unit_scale=True, leave=False, disable=not in_terminal
    )
    with bar:
        try:
            yield arrived
        finally:
            tell()
