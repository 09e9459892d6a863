"""Wikipedia's dumps: the newest complete one of a wiki, as the multistream parts and their indexes.

A dump comes to `FOLDER/WIKI/DATE`, as the site has it. Its files get their names together, once all
of them are there and verified, with `WIKI-DATE-sha1sums.txt` beside them, by which
`build-documents` verifies them again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from flows.fetch.arrivals import Arrivals
from flows.fetch.downloads import bytes_there, fetch_files, publish
from flows.fetch.dump_site import Dump, check_date, check_wiki, dump_of_date, newest_dump
from flows.fetch.local_files import (
    locked_folder,
    notes_of,
    partial_of,
    sync_folder,
    write_text,
)
from flows.fetch.one_download import Wanted
from flows.fetch.web import CONTACT_VARIABLE, Web, checked_address, shown_url
from flows.formats import byte_text
from schemas.errors import ConfigError

MIRROR_VARIABLE = "BERTLOOM_MIRROR"
OFFICIAL_SITE = "https://dumps.wikimedia.org"


class FetchedDump(NamedTuple):
    """A dump that is there, verified."""

    wiki: str
    date: str
    """YYYYMMDD."""
    folder: str
    """The folder that holds this dump and no other."""
    files: tuple[str, ...]
    """Local paths of the dump or its parts, in the order of their pages; without the indexes."""
    bytes_downloaded: int
    files_reused: int
    """Of the files and their indexes: those that were there already, and right."""


class PlannedFile(NamedTuple):
    """A file of a dump that a fetch would bring."""

    name: str
    size: int
    bytes_there: int
    """Of it, in the folder already; not verified."""


class PlannedDump(NamedTuple):
    """What a fetch would do."""

    wiki: str
    date: str
    mirror: str
    folder: str
    files: tuple[PlannedFile, ...]


def fetch_wikipedia(
    wiki: str,
    *,
    date: str = "latest",
    folder: str,
    mirror: str | None = None,
    say: Callable[[str], None],
    connections: int = 2,
    sleep: Callable[[float], object] | None = None,
    tries: int = 6,
) -> FetchedDump:
    """Fetch the articles of a wiki: what is there and right is kept, what is half is resumed.

    Args:
        wiki: such as `simplewiki`.
        date: YYYYMMDD, or `latest`: the newest whose articles are done.
        folder: local; the dump comes to `FOLDER/WIKI/DATE`.
        mirror: http or https; else `$BERTLOOM_MIRROR`, else the official site.
        connections: at once. The official site wants no more than two.
        sleep: waits so many seconds between tries.
        tries: of a request that brings nothing, before the fetch ends.

    Raises:
        ConfigError: an argument is not what it should be.
        FetchError: something could not be fetched; running again goes on.
        ChecksumError: a file is not what the site's dumpstatus.json says; nothing of it is kept.
    """
    site = chosen_mirror(mirror, say=say)
    with Web(say=say, sleep=sleep, tries=tries) as web:
        dump = _find(web, site, wiki, date)
        into = _folder(folder, dump)
        with locked_folder(into, say=say):
            name, total = f"{wiki} {dump.date}", sum(item.size or 0 for item in dump.files)
            there = sum(bytes_there(item, into) for item in dump.files)
            say(f"{name}: files: {len(dump.files)}, {byte_text(total)}, from {shown_url(site)}")
            with Arrivals(name, total=total, there=there, say=say) as arrivals:
                fetched = fetch_files(
                    dump.files,
                    into,
                    web=web,
                    connections=connections,
                    say=say,
                    arrived=arrivals.arrived,
                )
            _write_sums(into, dump)
            publish(fetched, into)
            _tidy(into, dump.files)
    return FetchedDump(
        dump.wiki,
        dump.date,
        str(into),
        tuple(str(into / item.name) for item in dump.pages),
        sum(item.bytes_downloaded for item in fetched),
        sum(item.was_there for item in fetched),
    )


def plan_wikipedia(
    wiki: str,
    *,
    date: str = "latest",
    folder: str,
    mirror: str | None = None,
    say: Callable[[str], None],
) -> PlannedDump:
    """What `fetch_wikipedia` would bring; asks the site, and writes nothing.

    Raises:
        ConfigError, FetchError: as `fetch_wikipedia`.
    """
    site = chosen_mirror(mirror, say=say)
    with Web(say=say) as web:
        dump = _find(web, site, wiki, date)
    into = _folder(folder, dump)
    files = [PlannedFile(f.name, f.size or 0, bytes_there(f, into)) for f in dump.files]
    return PlannedDump(dump.wiki, dump.date, shown_url(site), str(into), tuple(files))


def newest_complete_dump(wiki: str, *, mirror: str | None = None) -> str:
    """The date, YYYYMMDD, of the newest dump whose articles are done.

    Raises:
        ConfigError, FetchError: as `fetch_wikipedia`.
    """
    with Web(say=_silent) as web:
        return newest_dump(web, chosen_mirror(mirror, say=_silent), check_wiki(wiki)).date


def chosen_mirror(mirror: str | None, *, say: Callable[[str], None]) -> str:
    """The address of the mirror: what is given, `$BERTLOOM_MIRROR`, or the official site.

    Raises:
        ConfigError: it is no http or https address.
    """
    if mirror is not None:
        site = checked_address(mirror, name="--mirror")
    else:
        named = os.environ.get(MIRROR_VARIABLE)
        site = checked_address(named or OFFICIAL_SITE, name=f"${MIRROR_VARIABLE}")
    if site.startswith("http:"):
        say(
            "note: http is not encrypted; the checksums come by the same way as the files, and "
            "tell damage but not malice"
        )
    if site == OFFICIAL_SITE and not os.environ.get(CONTACT_VARIABLE):
        say(
            f"note: set ${CONTACT_VARIABLE} to a mail or web address; Wikimedia wants to know "
            "whose downloads these are, and may refuse others"
        )
    return site


def _silent(line: str) -> None:
    del line


def _find(web: Web, site: str, wiki: str, date: str) -> Dump:
    check_wiki(wiki)
    if check_date(date) == "latest":
        return newest_dump(web, site, wiki)
    return dump_of_date(web, site, wiki, date)


def _folder(folder: str, dump: Dump) -> Path:
    if "://" in folder or not folder:
        raise ConfigError(
            f"--folder: expected a folder of this machine, found {folder!r}. Fetch to a local "
            "folder, then copy it to where the recipe reads"
        )
    return Path(folder).absolute() / dump.wiki / dump.date


def _write_sums(folder: Path, dump: Dump) -> None:
    lines = sorted(f"{item.digest}  {item.name}\n" for item in dump.files)
    path = folder / f"{dump.wiki}-{dump.date}-sha1sums.txt"
    text = "".join(sorted(lines, key=lambda line: line.split()[1]))
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
        sync_folder(folder)


def _tidy(folder: Path, files: tuple[Wanted, ...]) -> None:
    """Take away what earlier fetches left half of files that are whole now."""
    for item in files:
        for path in (partial_of(folder / item.name), notes_of(folder / item.name)):
            path.unlink(missing_ok=True)
