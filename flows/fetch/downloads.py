"""Many files from the web into a folder, a few at a time, named together when all are there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from flows.fetch.local_files import check_space, notes_of, partial_of, sync_folder
from flows.fetch.one_download import Download, Fetched, Wanted
from flows.fetch.web import Web
from schemas.errors import ConfigError, FetchError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def checked_name(name: str, *, where: str) -> str:
    """A name that a site says, if it is one of a file in one folder and nothing else.

    Raises:
        FetchError: it has a slash, begins with a dot, or has other characters no such file has.
    """
    if not _NAME.fullmatch(name):
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
    say: Callable[[str], None],
    arrived: Callable[[int], None],
) -> list[Fetched]:
    """Bring all of them into the folder, which the caller has locked; in the order of `wanted`.

    None is published: see `publish`.

    Args:
        connections: at most so many downloads at once.
        arrived: is told of bytes that are there, in any thread; negative if some were given up.

    Raises:
        FetchError: one could not be fetched. Those under way stop, and keep what has arrived.
        ChecksumError: one is not what its digest says.
        ConfigError: `connections` is less than 1.
    """
    if connections < 1:
        raise ConfigError(f"connections: expected 1 or more, found {connections}")
    _check_space(wanted, folder)
    stored = [Download(item, folder, web=web, say=say, arrived=arrived) for item in wanted]
    with ThreadPoolExecutor(connections, thread_name_prefix="fetch") as pool:
        under_way = [pool.submit(item.fetch) for item in stored]
        try:
            done, _ = wait(under_way, return_when=FIRST_EXCEPTION)
            failed = [task for task in under_way if task in done and task.exception() is not None]
        except BaseException:
            failed = under_way  # of an interrupt
            raise
        finally:
            if failed:
                web.stopping.set()
                for task in under_way:
                    task.cancel()
    for task in failed:
        task.result()
    return [task.result() for task in under_way]


def publish(fetched: Sequence[Fetched], folder: Path) -> None:
    """Move what has been fetched to its final names, in the given order."""
    for item in fetched:
        if not item.was_there:
            path = folder / item.wanted.name
            partial_of(path).replace(path)
            notes_of(path).unlink(missing_ok=True)
    sync_folder(folder)


def bytes_there(item: Wanted, folder: Path) -> int:
    """How many bytes of a file are in the folder, whole or partial; nothing is verified."""
    path = folder / item.name
    for candidate in (path, partial_of(path)):
        if candidate.is_file():
            size = candidate.stat().st_size
            if candidate != path or item.size in (None, size):
                return size if item.size is None else min(size, item.size)
    return 0


def _check_space(wanted: Sequence[Wanted], folder: Path) -> None:
    check_space(folder, sum((item.size or 0) - bytes_there(item, folder) for item in wanted))
