"""Wikipedia's dumps: the newest complete one of a wiki, as the multistream parts and their indexes.

`MIRROR/WIKI/` lists a folder for each date, and `MIRROR/WIKI/DATE/dumpstatus.json` says of each job
whether it is `done`, and names its files with size and sha1. A large wiki has its articles in parts
(job `articlesmultistreamdump`) and once more in one file (`...recombine`); a small one in one file,
in the first of these jobs. All of it comes from elsewhere, and nothing of it is believed.

A dump is written to `FOLDER/WIKI/DATE`, as the site has it. Its files get their names together,
once all of them are there and verified, with `WIKI-DATE-sha1sums.txt` beside them, by which
`build-documents` verifies them again.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from flows.fetch.client import (
    CONTACT_VARIABLE,
    MissingError,
    Say,
    Web,
    checked_address,
    shown_url,
)
from flows.fetch.downloads import (
    FILE_NAME,
    Wanted,
    bytes_there,
    drop_partial,
    fetch_files,
    local_folder,
    locked_folder,
    publish,
)
from flows.formatting import format_bytes
from pipelines.io.local_files import write_whole
from schemas.errors import ConfigError, FetchError

MIRROR_VARIABLE = "BERTLOOM_MIRROR"
OFFICIAL_SITE = "https://dumps.wikimedia.org"
JOBS = ("articlesmultistreamdump", "articlesmultistreamdumprecombine")
"""Parts are preferred: they are built side by side, and a part that stayed the same is reused."""

_MOST_LISTING, _MOST_STATUS = 8 << 20, 64 << 20  # bytes
_MOST_DATES = 24
_LARGEST_FILE = 1 << 42
_WIKI = re.compile(r"[a-z][a-z0-9_]{1,63}")
_DATE = re.compile(r"\d{8}")
_LINK = re.compile(r"""href\s*+=\s*+["']?([^"'<>\s]++)""", re.IGNORECASE)
_DATED = re.compile(r"(?:.*/)?(\d{8})/?")


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
    """How many of the files and their indexes were there already, and right."""


class PlannedFile(NamedTuple):
    """A file of a dump that a fetch would bring."""

    name: str
    size: int
    bytes_there: int
    """How much of it is in the folder already; not verified."""


class PlannedDump(NamedTuple):
    """What a fetch would do."""

    wiki: str
    date: str
    mirror: str
    folder: str
    files: tuple[PlannedFile, ...]


class _Dump(NamedTuple):
    """What the site has of a wiki's dump of one date."""

    wiki: str
    date: str
    pages: tuple[Wanted, ...]
    """The dump or its parts, in the order of their pages."""
    indexes: tuple[Wanted, ...]

    @property
    def files(self) -> tuple[Wanted, ...]:
        """Indexes first: a part whose index is missing is slower to cut."""
        return (*self.indexes, *self.pages)


def fetch_wikipedia(
    wiki: str,
    *,
    date: str = "latest",
    folder: str,
    mirror: str | None = None,
    say: Say,
    connections: int = 2,
) -> FetchedDump:
    """Fetch the articles of a wiki: what is there and right is kept, what is half is resumed.

    Args:
        wiki: such as `simplewiki`.
        date: YYYYMMDD, or `latest`: the newest whose articles are done.
        folder: local; the dump is written to `FOLDER/WIKI/DATE`.
        mirror: http or https; else `$BERTLOOM_MIRROR`, else the official site.
        say: prints a line.
        connections: at once. The official site wants no more than two.

    Raises:
        ConfigError: an argument is not what it should be.
        FetchError: something could not be fetched; running again goes on.
        ChecksumError: a file is not what the site's dumpstatus.json says; nothing of it is kept.
    """
    site = chosen_mirror(mirror, say=say)
    with contextlib.closing(Web(say=say)) as web:
        dump = _find(web, site, wiki, date)
        into = local_folder(folder) / dump.wiki / dump.date
        with locked_folder(into, say=say):
            name, size = f"{wiki} {dump.date}", sum(item.size or 0 for item in dump.files)
            text = f"{len(dump.files)}, {format_bytes(size)}"
            say(f"{name}: files: {text}, from {shown_url(site)}")
            fetched = fetch_files(name, dump.files, into, web=web, connections=connections)
            lines = sorted((item.name, f"{item.digest}  {item.name}\n") for item in dump.files)
            sums = into / f"{dump.wiki}-{dump.date}-sha1sums.txt"
            write_whole(sums, "".join(line for _, line in lines).encode())
            publish(fetched, into)
            for item in dump.files:  # what earlier fetches left half of files that are whole now
                drop_partial(into / item.name)
    return FetchedDump(
        dump.wiki,
        dump.date,
        str(into),
        tuple(str(into / item.name) for item in dump.pages),
        sum(item.bytes_downloaded for item in fetched),
        sum(item.was_there for item in fetched),
    )


def plan_wikipedia(
    wiki: str, *, date: str = "latest", folder: str, mirror: str | None = None, say: Say
) -> PlannedDump:
    """What `fetch_wikipedia` would bring; asks the site, and writes nothing.

    Raises:
        ConfigError, FetchError: as `fetch_wikipedia`.
    """
    site = chosen_mirror(mirror, say=say)
    with contextlib.closing(Web(say=say)) as web:
        dump = _find(web, site, wiki, date)
    into = local_folder(folder) / dump.wiki / dump.date
    files = [PlannedFile(f.name, f.size or 0, bytes_there(f, into)) for f in dump.files]
    return PlannedDump(dump.wiki, dump.date, shown_url(site), str(into), tuple(files))


def newest_complete_dump(wiki: str, *, mirror: str | None = None) -> str:
    """The date, YYYYMMDD, of the newest dump whose articles are done.

    Raises:
        ConfigError, FetchError: as `fetch_wikipedia`.
    """

    def say(_line: str) -> None:
        """Print nothing."""

    with contextlib.closing(Web(say=say)) as web:
        return _find(web, chosen_mirror(mirror, say=say), wiki, "latest").date


def chosen_mirror(mirror: str | None, *, say: Say) -> str:
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


def check_wiki(wiki: str) -> str:
    """The name, if a wiki can have it.

    Raises:
        ConfigError: none can.
    """
    if not _WIKI.fullmatch(wiki):
        raise ConfigError(
            f"--wiki: expected a name such as simplewiki or enwiki, found {wiki!r}. The site lists "
            "them in backup-index.html"
        )
    return wiki


def check_date(date: str) -> str:
    """The date, if it is one.

    Raises:
        ConfigError: it is neither `latest` nor a date of eight digits.
    """
    if date != "latest":
        try:
            if not _DATE.fullmatch(date):
                raise ValueError("not eight digits")
            datetime.date(int(date[:4]), int(date[4:6]), int(date[6:]))
        except ValueError as error:
            raise ConfigError(
                f"--date: expected latest or YYYYMMDD, found {date!r} ({error})"
            ) from error
    return date


# What the site has


class _File(BaseModel):
    """A file of a job in dumpstatus.json."""

    size: int = Field(strict=True, gt=0, le=_LARGEST_FILE)
    sha1: str = Field(pattern=r"^[0-9a-fA-F]{40}$")


def _find(web: Web, mirror: str, wiki: str, date: str) -> _Dump:
    """The dump of a date, or the newest, whose articles are done."""
    check_wiki(wiki)
    wanted, shown = f"the job {JOBS[0]} to be done", f"{shown_url(mirror)}/{wiki}"
    if check_date(date) != "latest":
        found = _dump_of(date, web, mirror, wiki)
        if isinstance(found, _Dump):
            return found
        raise FetchError(
            f"{shown}/{date}/: expected {wanted}, found {found}. Wait until it is, or take another "
            "date, or latest"
        )
    listing = web.read_text(f"{mirror}/{wiki}/", most=_MOST_LISTING, what=f"the list of {wiki}")
    linked = (_DATED.fullmatch(target) for target in _LINK.findall(listing))
    seen = []
    for day in sorted({match[1] for match in linked if match}, reverse=True)[:_MOST_DATES]:
        found = _dump_of(day, web, mirror, wiki)
        if isinstance(found, _Dump):
            return found
        seen.append(f"{day} {found}")
    raise FetchError(
        f"{shown}/: expected {wanted} at some date, found "
        f"{', '.join(seen) or 'no folder of a date'}. Wait until one is, or use another mirror"
    )


def _dump_of(date: str, web: Web, mirror: str, wiki: str) -> _Dump | str:
    """What the first job of a date that is done lists; else what there is of the first job."""
    if (jobs := _read_status(web, mirror, wiki, date)) is None:
        return "without a dumpstatus.json"
    for job in map(jobs.get, JOBS):
        if isinstance(job, dict) and job.get("status") == "done" and job.get("files"):
            return _listed(job["files"], mirror, wiki, date)
    first = jobs.get(JOBS[0])
    return repr(first.get("status"))[:40] if isinstance(first, dict) else "without that job"


def _read_status(web: Web, mirror: str, wiki: str, date: str) -> dict[str, Any] | None:
    """The jobs of a date by name; None if the site has no word of it.

    Raises:
        FetchError: it cannot be read, or is not what such files are.
    """
    url = f"{mirror}/{wiki}/{date}/dumpstatus.json"
    try:
        text = web.read_text(url, most=_MOST_STATUS, what=f"the status of {wiki} {date}")
        return dict[str, Any](json.loads(text)["jobs"])
    except MissingError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FetchError(
            f"{shown_url(url)}: expected JSON with jobs by name, found something else "
            f"({error!r:.80}). Use another mirror"
        ) from error


def _listed(files: Any, mirror: str, wiki: str, date: str) -> _Dump:
    folder = f"{mirror}/{wiki}/{date}"
    where = f"{shown_url(folder)}/dumpstatus.json"
    if not isinstance(files, dict):
        raise FetchError(f"{where}: expected files by name, found {files!r:.80}")
    base = f"{wiki}-{date}-pages-articles-multistream"
    pattern = re.compile(
        rf"{re.escape(base)}(?P<index>-index)?(?P<part>\d*)\.(?(index)txt|xml)"
        r"(?P<range>-p(?P<first>\d+)p\d+)?\.bz2"
    )
    found: dict[bool, dict[tuple[int, int, str], Wanted]] = {True: {}, False: {}}
    for name, facts in files.items():
        match = pattern.fullmatch(checked_name(name, where=where))
        if match is None:
            raise FetchError(
                f"{where}: expected {base}*.bz2, found {name!r}: the site names its files in a new "
                "way. Download this dump by hand"
            )
        key = (int(match["part"] or 0), int(match["first"] or 0), match["range"] or "")
        wanted = _wanted(name, facts, url=f"{folder}/{name}", where=where)
        found[match["index"] is not None][key] = wanted
    indexes, pages = found[True], found[False]
    has_parts = any(key[0] for key in {**indexes, **pages})  # and perhaps the whole beside them
    keys = sorted(key for key in {**indexes, **pages} if key[0] or not has_parts)
    if lone := [indexes[key].name for key in keys if key not in pages]:
        raise FetchError(f"{where}: names {lone[0]}, the index of a dump that it does not name")
    return _Dump(
        wiki,
        date,
        tuple(pages[key] for key in keys),
        tuple(indexes[key] for key in keys if key in indexes),
    )


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


def _wanted(name: str, facts: Any, *, url: str, where: str) -> Wanted:
    try:
        file = _File.model_validate(facts)
    except ValidationError as error:
        raise FetchError(
            f"{where}: {name}: expected its size and sha1, found {facts!r:.120}. Its checksums may "
            "not be computed yet: try again later"
        ) from error
    return Wanted(url, name, file.size, "sha1", file.sha1.lower())
