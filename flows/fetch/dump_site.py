"""What a site of Wikimedia's dumps says: which dates there are, what is done, which files.

`MIRROR/WIKI/` lists a folder for each date, and `MIRROR/WIKI/DATE/dumpstatus.json` says of each job
whether it is `done`, and names its files with size and sha1. A large wiki has its articles in parts
(job `articlesmultistreamdump`) and once more in one piece (`...recombine`); a small one in one
piece, in the first of these jobs. All of it comes from elsewhere and is believed in nothing.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any, NamedTuple

from flows.fetch.downloads import checked_name
from flows.fetch.one_download import Wanted
from flows.fetch.web import Web, shown_url
from schemas.errors import ConfigError, FetchError

JOBS = ("articlesmultistreamdump", "articlesmultistreamdumprecombine")
"""Parts are preferred: they are built side by side, and a part that stayed the same is reused."""

_MOST_LISTING = 8 << 20
_MOST_STATUS = 64 << 20
_MOST_DATES = 24
_LARGEST_FILE = 1 << 42
_WIKI = re.compile(r"[a-z][a-z0-9_]{1,63}")
_DATE = re.compile(r"\d{8}")
_LINK = re.compile(r"""href\s*+=\s*+["']?([^"'<>\s]++)""", re.IGNORECASE)
_DATED = re.compile(r"(?:.*/)?(\d{8})/?")
_SHA1 = re.compile(r"[0-9a-f]{40}")


class Dump(NamedTuple):
    """The files of a wiki's dump of one date."""

    wiki: str
    date: str
    pages: tuple[Wanted, ...]
    """The dump or its parts, in the order of their pages."""
    indexes: tuple[Wanted, ...]

    @property
    def files(self) -> tuple[Wanted, ...]:
        """Indexes first: a part whose index is missing is slower to cut."""
        return (*self.indexes, *self.pages)


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


def newest_dump(web: Web, mirror: str, wiki: str) -> Dump:
    """The newest dump whose articles are done.

    Raises:
        FetchError: there is none, or the site cannot be read.
    """
    listing = web.read_text(f"{mirror}/{wiki}/", most=_MOST_LISTING, what=f"the list of {wiki}")
    linked = (_DATED.fullmatch(target) for target in _LINK.findall(str(listing)))
    dates = sorted({found[1] for found in linked if found}, reverse=True)
    seen = []
    for date in dates[:_MOST_DATES]:
        status = read_status(web, mirror, wiki, date)
        if status is not None and (dump := _chosen(status, mirror, wiki, date)) is not None:
            return dump
        seen.append(f"{date} {_state(status)}")
    raise FetchError(
        f"{shown_url(mirror)}/{wiki}/: expected a dump whose job {JOBS[0]} is done, found "
        f"{', '.join(seen) or 'no folder of a date'}. Wait until one is done, or use another mirror"
    )


def dump_of_date(web: Web, mirror: str, wiki: str, date: str) -> Dump:
    """The dump of a date.

    Raises:
        FetchError: there is none, or its articles are not done.
    """
    status = read_status(web, mirror, wiki, date)
    dump = _chosen(status, mirror, wiki, date) if status is not None else None
    if dump is None:
        raise FetchError(
            f"{shown_url(mirror)}/{wiki}/{date}/: expected the job {JOBS[0]} to be done, found "
            f"{_state(status)}. Wait until it is, or take another date, or latest"
        )
    return dump


def read_status(web: Web, mirror: str, wiki: str, date: str) -> dict[str, Any] | None:
    """The jobs of a date by name; None if the site has no word of it.

    Raises:
        FetchError: it cannot be read, or is not what such files are.
    """
    url = f"{mirror}/{wiki}/{date}/dumpstatus.json"
    text = web.read_text(url, most=_MOST_STATUS, what=f"the status of {wiki} {date}", may_lack=True)
    if text is None:
        return None
    try:
        jobs = json.loads(text)["jobs"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FetchError(
            f"{shown_url(url)}: expected JSON with jobs, found something else "
            f"({error!r:.80}). Use another mirror"
        ) from error
    if not isinstance(jobs, dict):
        raise FetchError(
            f"{shown_url(url)}: expected jobs by name, found {jobs!r:.80}. Use another mirror"
        )
    return jobs


def _state(jobs: dict[str, Any] | None) -> str:
    if jobs is None:
        return "without a dumpstatus.json"
    job = jobs.get(JOBS[0])
    return repr(job.get("status"))[:40] if isinstance(job, dict) else "without that job"


def _chosen(jobs: dict[str, Any], mirror: str, wiki: str, date: str) -> Dump | None:
    for name in JOBS:
        job = jobs.get(name)
        if isinstance(job, dict) and job.get("status") == "done" and job.get("files"):
            return _dump(job["files"], mirror, wiki, date)
    return None


def _dump(files: Any, mirror: str, wiki: str, date: str) -> Dump:
    folder = f"{mirror}/{wiki}/{date}"
    where = f"{shown_url(folder)}/dumpstatus.json"
    if not isinstance(files, dict):
        raise FetchError(f"{where}: expected files by name, found {files!r:.80}")
    base = f"{re.escape(wiki)}-{date}-pages-articles-multistream"
    pages = re.compile(rf"{base}(?P<part>\d*)\.xml(?P<range>-p\d+p\d+)?\.bz2")
    index = re.compile(rf"{base}-index(?P<part>\d*)\.txt(?P<range>-p\d+p\d+)?\.bz2")
    found: dict[tuple[int, int, str], tuple[Wanted | None, Wanted | None]] = {}
    for name, facts in files.items():
        match = pages.fullmatch(name) or index.fullmatch(checked_name(name, where=where))
        if match is None:
            raise FetchError(
                f"{where}: expected {wiki}-{date}-pages-articles-multistream*.bz2, found {name!r}: "
                "the site names its files in a new way. Download this dump by hand"
            )
        wanted = _wanted(name, facts, url=f"{folder}/{name}", where=where)
        key = (int(match["part"] or 0), _first_page(match["range"]), match["range"] or "")
        one, other = found.get(key, (None, None))
        found[key] = (wanted, other) if match.re is pages else (one, wanted)
    if any(key[0] for key in found):  # parts, and perhaps the whole beside them
        found = {key: pair for key, pair in found.items() if key[0]}
    pairs = [found[key] for key in sorted(found)]
    if not all(one for one, _ in pairs):
        lone = next(other.name for one, other in pairs if one is None and other is not None)
        raise FetchError(f"{where}: names {lone}, the index of a dump that it does not name")
    return Dump(
        wiki,
        date,
        tuple(one for one, _ in pairs if one is not None),
        tuple(other for _, other in pairs if other is not None),
    )


def _first_page(pages: str | None) -> int:
    return int(pages[2:].partition("p")[0]) if pages else 0


def _wanted(name: str, facts: Any, *, url: str, where: str) -> Wanted:
    size = facts.get("size") if isinstance(facts, dict) else None
    sha1 = facts.get("sha1") if isinstance(facts, dict) else None
    is_size = isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _LARGEST_FILE
    if not is_size or not isinstance(sha1, str) or not _SHA1.fullmatch(sha1.lower()):
        raise FetchError(
            f"{where}: {name}: expected its size and sha1, found {facts!r:.120}. Its checksums may "
            "not be computed yet: try again later"
        )
    return Wanted(url, name, size, "sha1", sha1.lower())
