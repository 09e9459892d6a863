"""Wikipedia dumps: find the newest complete one, and download its articles and indexes.

`MIRROR/WIKI/` lists one folder per date; `MIRROR/WIKI/DATE/dumpstatus.json` lists the jobs of a
dump with their files. Large wikis have the articles in parts and also in one file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from flows.fetch.downloads import RemoteFile, download_files
from flows.fetch.http_client import CONTACT_VARIABLE, HttpClient, Log, fetch_error
from flows.formatting import format_bytes
from flows.recipes.errors import format_validation_error
from pipelines.io.local_files import write_atomic
from schemas.errors import ConfigError, FetchError
from schemas.redaction import public_address

MIRROR_VARIABLE = "BERTLOOM_MIRROR"
OFFICIAL_SITE = "https://dumps.wikimedia.org"
JOBS = ("articlesmultistreamdump", "articlesmultistreamdumprecombine")
"""Jobs that write articles: in parts, which can be built in parallel, and in one file."""

_MAX_DATES = 24


class _DumpFile(BaseModel):
    size: int = Field(strict=True, gt=0, le=1 << 42)
    sha1: str = Field(pattern=r"^[0-9a-f]{40}$")


class _Job(BaseModel):
    status: str
    files: dict[str, Any] = Field(default={})


class _DumpStatus(BaseModel):
    jobs: dict[str, _Job] = Field(default={})


class WikipediaDump(NamedTuple):
    """Complete dump of a wiki on a site."""

    wiki: str
    date: str
    """YYYYMMDD."""

    mirror: str
    articles: tuple[RemoteFile, ...]
    """Files with articles, in the order of their pages."""

    indexes: tuple[RemoteFile, ...]


class FetchedDump(NamedTuple):
    """Complete and verified dump in a local folder."""

    wiki: str
    date: str
    folder: str
    files: tuple[str, ...]
    """Local paths of the files with articles, in the order of their pages."""

    bytes_downloaded: int


def fetch_wikipedia(
    wiki: str,
    *,
    date: str = "latest",
    output_dir: Path,
    mirror: str | None = None,
    log: Log,
    connections: int = 2,
) -> FetchedDump:
    """Download the articles of a wiki to `OUTPUT_DIR/WIKI/DATE`.

    Args:
        wiki: Name such as `simplewiki`.
        date: YYYYMMDD, or `latest` for the newest complete dump.
        output_dir: Local folder.
        mirror: URL of a mirror. Default: `$BERTLOOM_MIRROR` or the official site.
        log: Prints a line.
        connections: Maximum number of concurrent downloads; the official site allows two.

    Raises:
        ConfigError: The wiki, date or mirror cannot be used.
        FetchError: A file cannot be downloaded; the next call resumes.
        ChecksumError: A file differs from the sha1 in dumpstatus.json; it is deleted.
    """
    with HttpClient(log=log) as client:
        dump = find_dump(wiki, date=date, mirror=mirror, client=client)
        files = (*dump.indexes, *dump.articles)
        label, folder = f"{wiki} {dump.date}", output_dir / wiki / dump.date
        size = format_bytes(sum(file.size or 0 for file in files))
        log(f"{label}: {len(files)} files, {size}, from {dump.mirror}")
        # `build-documents` verifies the files by this list.
        sums = "".join(sorted(f"{file.digest}  {file.name}\n" for file in files))
        write_atomic(folder / f"{wiki}-{dump.date}-sha1sums.txt", sums.encode())
        downloads = download_files(label, files, folder, client=client, connections=connections)
    paths = tuple(str(folder / file.name) for file in dump.articles)
    bytes_downloaded = sum(download.bytes_downloaded for download in downloads)
    return FetchedDump(wiki, dump.date, str(folder), paths, bytes_downloaded)


def find_dump(
    wiki: str, *, date: str = "latest", mirror: str | None = None, client: HttpClient
) -> WikipediaDump:
    """Return the dump of a date, or the newest one, whose articles are complete."""
    check_dump(wiki, date)
    site = _get_mirror(mirror, client.log)
    url, dates = f"{site}/{wiki}/", [date]
    if date == "latest":
        listing = client.read(url).decode(errors="replace")
        dates = sorted(set(re.findall(r"""["'/](\d{8})/?["']""", listing)), reverse=True)
    states = []
    for day in dates[:_MAX_DATES]:
        status = _read_status(client, f"{url}{day}/dumpstatus.json")
        for job in JOBS:
            if job in status.jobs and status.jobs[job].status == "done":
                files = _list_files(status.jobs[job], f"{url}{day}/", f"{wiki}-{day}")
                articles = tuple(file for file in files if "-index" not in file.name)
                indexes = tuple(file for file in files if "-index" in file.name)
                return WikipediaDump(wiki, day, public_address(site), articles, indexes)
        states.append(f"{day}: {status.jobs[JOBS[0]].status if JOBS[0] in status.jobs else None}")
    message = f"expected a dump with {JOBS[0]} done, got {', '.join(states) or 'no dates'}"
    raise fetch_error(url, message, hint="Wait, or use another date or mirror")


def check_dump(wiki: str, date: str) -> None:
    """Raise a ConfigError if these cannot be the name of a wiki and the date of a dump."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{1,63}", wiki):
        raise ConfigError(f"--wiki: expected a name such as simplewiki, got {wiki!r}")
    if not re.fullmatch(r"latest|20\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", date):
        raise ConfigError(f"--date: expected latest or YYYYMMDD, got {date!r}")


def _get_mirror(mirror: str | None, log: Log) -> str:
    site = mirror or os.environ.get(MIRROR_VARIABLE) or OFFICIAL_SITE
    if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", site):
        message = f"expected a URL such as {OFFICIAL_SITE}, got {public_address(site)!r}"
        raise ConfigError(f"--mirror or ${MIRROR_VARIABLE}: {message}")
    if site.startswith("http:"):
        log("note: over plain http, checksums detect corruption but not tampering")
    if site == OFFICIAL_SITE and not os.environ.get(CONTACT_VARIABLE):
        log(f"note: set ${CONTACT_VARIABLE} to an e-mail address or URL, as Wikimedia asks")
    return site.rstrip("/")


def _read_status(client: HttpClient, url: str) -> _DumpStatus:
    """Return the status of a dump; without jobs if the site has none."""
    try:
        return _DumpStatus.model_validate_json(client.read(url))
    except ValidationError as error:
        raise fetch_error(url, format_validation_error(error, _DumpStatus)) from error
    except FetchError as error:
        if error.status == 404:
            return _DumpStatus()
        raise


def _list_files(job: _Job, url: str, prefix: str) -> list[RemoteFile]:
    """Return the files of a job in the order of their pages.

    The numbers in a name are the part and its first and last page.
    """
    pattern = rf"{prefix}-pages-articles-multistream(-index)?\d*\.(xml|txt)(-p\d+p\d+)?\.bz2"
    names = sorted(job.files, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    if unknown := [name for name in names if not re.fullmatch(pattern, name)]:
        message = f"expected {prefix}-pages-articles-multistream*.bz2, got {unknown[0]!r}"
        raise fetch_error(url, message, hint="Download this dump by hand")
    try:
        files = {name: _DumpFile.model_validate(job.files[name]) for name in names}
    except ValidationError as error:
        message = format_validation_error(error, _DumpFile)
        raise fetch_error(f"{url}dumpstatus.json", message) from error
    return [RemoteFile(url + name, name, f.size, "sha1", f.sha1) for name, f in files.items()]
