"""A wheel of what a worker needs, for engines whose workers install packages (Dataflow).

It holds the sources that `pipelines.runners.code` counts and nothing else, and asks for exactly the
versions of libraries that this Python has: their versions are part of cache keys, and a worker with
others would write other bytes under the same key. No build tool and no network is needed; the same
code and versions give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import platform
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines.runners.code import code_digest, code_files
from schemas.errors import ConfigError

DISTRIBUTION = "bertloom"
_DIGEST_LENGTH = 16
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say: bytes must not tell the time
_REGULAR_FILE = 0o100644 << 16
_NAME = re.compile(r"[\w.-]+")
CLIENTS = {"s3": "s3fs", "gcs": "gcsfs"}
"""The distribution that each of our extras for stores elsewhere brings."""

_SCHEMES = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}


class Member(NamedTuple):
    """A file of a wheel."""

    name: str
    data: bytes


def package_name() -> str:
    """The file name of this code's wheel, which says its digest."""
    return f"{DISTRIBUTION}-{_version()}-py3-none-any.whl"


def _version() -> str:
    return f"{_installed(DISTRIBUTION)}+code.{code_digest()[:_DIGEST_LENGTH]}"


def file_system_packages(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the distributions of the file systems of some URLs.

    >>> file_system_packages(["gs://b/store", "s3://b/dumps/*.bz2", "/here"])
    ('gcsfs', 's3fs')
    """
    schemes = {url.split("://", 1)[0] for url in urls if "://" in url}
    return tuple(sorted({CLIENTS[_SCHEMES[name]] for name in schemes & _SCHEMES.keys()}))


def write_worker_package(folder: Path, *, file_systems: Iterable[str] = ()) -> Path:
    """Write the wheel into a folder.

    Args:
        folder: is made where it is not there.
        file_systems: distributions for stores and input elsewhere (`file_system_packages`).

    Returns:
        Where it is.

    Raises:
        ConfigError: a source or a library is missing here.
        OSError: the folder cannot be written.
    """
    path = folder / package_name()
    members = [*_sources(), *_metadata(tuple(file_systems))]
    record = f"{DISTRIBUTION}-{_version()}.dist-info/RECORD"
    lines = [f"{member.name},{_sha256(member.data)},{len(member.data)}" for member in members]
    listed = "\n".join([*lines, f"{record},,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    # Stored, not deflated: deflated bytes depend on the version of zlib.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for name, data in [*members, Member(record, listed)]:
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.create_system, entry.external_attr = 3, _REGULAR_FILE
            wheel.writestr(entry, data)
    return path


def _sha256(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"


def _sources() -> Iterator[Member]:
    found = [Member(name, path.read_bytes()) for name, path in code_files()]
    tops = {member.name.split("/")[0] for member in found if member.name.endswith("/__init__.py")}
    if tops != {"pipelines", "schemas"}:
        raise ConfigError(
            f"the workers' package needs the sources (.py) of pipelines and schemas; found those "
            f"of {', '.join(sorted(tops)) or 'neither'} beside {Path(__file__).parents[2]}: "
            "install bertloom from its wheel, or work in a checkout"
        )
    yield from found


def worker_requirements(file_systems: Iterable[str] = ()) -> list[str]:
    """Return the requirements of a worker: core dependencies and file systems, with versions.

    Raises:
        ConfigError: bertloom itself, or one of them, is not installed.
    """
    try:
        declared = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        declared = []
    core = [match[0] for text in declared if "extra ==" not in text if (match := _NAME.match(text))]
    if not core:
        raise ConfigError(
            "the workers' package names bertloom's dependencies, and bertloom is not installed in "
            "this Python: pip install it (a checkout: pip install -e .)"
        )
    return [f"{name}=={_installed(name)}" for name in [*core, *sorted(file_systems)]]


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"workers need {name}, in the version that this Python has, and it has none: "
            f"pip install {name}"
        ) from error


def _metadata(file_systems: tuple[str, ...]) -> list[Member]:
    python = ".".join(platform.python_version_tuple()[:2])
    told = [
        "Metadata-Version: 2.1",
        f"Name: {DISTRIBUTION}",
        f"Version: {_version()}",
        "Summary: what a worker of bertloom's jobs needs, and nothing else",
        "Classifier: Private :: Do Not Upload",
        "License: Apache-2.0",
        f"Requires-Python: =={python}.*",  # a minor version is part of cache keys
        *(f"Requires-Dist: {required}" for required in worker_requirements(file_systems)),
    ]
    program = "bertloom-beam-worker = pipelines.runners.beam_worker:main"
    texts = {
        "METADATA": told,
        "WHEEL": [
            "Wheel-Version: 1.0",
            "Generator: bertloom",
            "Root-Is-Purelib: true",
            "Tag: py3-none-any",
        ],
        "entry_points.txt": ["[console_scripts]", program],
    }
    folder = f"{DISTRIBUTION}-{_version()}.dist-info"
    return [
        Member(f"{folder}/{name}", "\n".join([*lines, ""]).encode())
        for name, lines in texts.items()
    ]
