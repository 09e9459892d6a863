"""Wikipedia dumps: find the newest complete one, and download its articles and indexes.

`MIRROR/WIKI/` lists one folder per date; `MIRROR/WIKI/DATE/dumpstatus.json` lists the jobs of a
dump with their files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from flows.fetch.downloads import RemoteFile, download_files
from flows.fetch.http_client import HttpClient, fetch_error
from flows.formatting import format_bytes
from flows.recipes.errors import format_validation_error
from pipelines.io.local_files import write_atomic
from schemas.errors import ConfigError, FetchError
from schemas.redaction import public_address

MIRROR_VARIABLE = "BERTLOOM_MIRROR"
OFFICIAL_SITE = "https://dumps.wikimedia.org"
JOB = "articlesmultistreamdump"
"""Job that writes the articles; those of large wikis in parts, which can be built in parallel."""


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

    url: str
    """Folder on the site."""

    files: tuple[RemoteFile, ...]
    """Files with articles and their indexes, in the order of their pages."""

    def list_articles(self, folder: Path) -> list[str]:
        """Return the paths in a local folder of the files with articles."""
        return [str(folder / file.name) for file in self.files if "-index" not in file.name]


def find_dump(
    wiki: str, *, date: str = "latest", mirror: str | None = None, client: HttpClient
) -> WikipediaDump:
    """Return the dump of a date, or the newest one, whose articles are complete.

    Args:
        wiki: Name such as `simplewiki`.
        date: YYYYMMDD, or `latest`.
        mirror: URL of a mirror. Default: `$BERTLOOM_MIRROR` or the official site.
        client: HTTP client.

    Raises:
        ConfigError: The wiki, date or mirror cannot be used.
        FetchError: The site cannot be reached, or has no such dump.
    """
    check_dump(wiki, date)
    site = _get_mirror(mirror)
    url, dates = f"{site}/{wiki}/", [date]
    if date == "latest":
        listing = client.read(url).decode(errors="replace")
        dates = sorted(set(re.findall(r"""["'/](\d{8})/?["']""", listing)), reverse=True)
    states = []
    for day in dates:
        job = _read_job(client, f"{url}{day}/dumpstatus.json")
        if job.status == "done":
            files = _list_files(job, f"{url}{day}/", f"{wiki}-{day}")
            return WikipediaDump(wiki, day, f"{url}{day}/", files)
        states.append(f"{day}: {job.status}")
    message = f"expected a dump with {JOB} done, got {', '.join(states) or 'no dates'}"
    raise fetch_error(url, message, hint="Wait, or use another date or mirror")


def fetch_dump(dump: WikipediaDump, folder: Path, *, client: HttpClient) -> None:
    """Download the files of a dump, and the list of checksums that `build-documents` reads.

    Raises:
        FetchError: A file cannot be downloaded; the next call resumes.
        ChecksumError: A file differs from the sha1 in dumpstatus.json; it is deleted.
    """
    label = f"{dump.wiki} {dump.date}"
    size = format_bytes(sum(file.size for file in dump.files))
    client.log(f"{label}: {len(dump.files)} files, {size}, from {public_address(dump.url)}")
    sums = "".join(sorted(f"{file.digest}  {file.name}\n" for file in dump.files))
    write_atomic(folder / f"{dump.wiki}-{dump.date}-sha1sums.txt", sums.encode())
    download_files(label, dump.files, folder, client=client)


def check_dump(wiki: str, date: str) -> None:
    """Raise a ConfigError if these cannot be the name of a wiki and the date of a dump."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{1,63}", wiki):
        raise ConfigError(f"--wiki: expected a name such as simplewiki, got {wiki!r}")
    if not re.fullmatch(r"latest|20\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", date):
        raise ConfigError(f"--date: expected latest or YYYYMMDD, got {date!r}")


def _get_mirror(mirror: str | None) -> str:
    site = mirror or os.environ.get(MIRROR_VARIABLE) or OFFICIAL_SITE
    if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", site):
        message = f"expected a URL such as {OFFICIAL_SITE}, got {site!r}"
        raise ConfigError(f"--mirror or ${MIRROR_VARIABLE}: {message}")
    return site.rstrip("/")


def _read_job(client: HttpClient, url: str) -> _Job:
    """Return the job that writes the articles of a dump."""
    try:
        status = _DumpStatus.model_validate_json(client.read(url))
    except ValidationError as error:
        raise fetch_error(url, format_validation_error(error, _DumpStatus)) from error
    except FetchError as error:
        if error.status == 404:
            return _Job(status="no dump")
        raise
    return status.jobs.get(JOB, _Job(status="not listed"))


def _list_files(job: _Job, url: str, prefix: str) -> tuple[RemoteFile, ...]:
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
    return tuple(RemoteFile(url + name, name, f.size, "sha1", f.sha1) for name, f in files.items())
