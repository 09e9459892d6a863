"""Wheel of the code that workers run, for engines whose workers install packages (Dataflow).

It contains the sources that `pipelines.runners.code` counts, and requires exactly the versions of
libraries that this Python has, because they are part of cache keys. Building it needs no build tool
and no network; the same code and versions give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import platform
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from pipelines.runners.code import code_digest, code_files
from schemas.errors import ConfigError

DISTRIBUTION = "bertloom"
_DIGEST_LENGTH = 16
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # constant, so that the same sources give the same bytes
_REGULAR_FILE = 0o100644 << 16
_NAME = re.compile(r"[\w.-]+")
CLIENTS = {"s3": "s3fs", "gcs": "gcsfs"}
"""Distribution of the file system that each of our extras installs."""

_SCHEMES = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}


def package_name() -> str:
    """Return the file name of the wheel, which contains the digest of the code."""
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
        folder: Folder, which is created if it does not exist.
        file_systems: Distributions of file systems (`file_system_packages`).

    Returns:
        Path of the wheel.

    Raises:
        ConfigError: A library is missing here.
        OSError: The folder cannot be written.
    """
    path = folder / package_name()
    members = {name: source.read_bytes() for name, source in code_files()}
    members |= _metadata(tuple(file_systems))
    record = f"{DISTRIBUTION}-{_version()}.dist-info/RECORD"
    lines = [f"{name},{_sha256(data)},{len(data)}" for name, data in members.items()]
    members[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    # Stored, not deflated: deflated bytes depend on the version of zlib.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, _TIMESTAMP)
            entry.create_system, entry.external_attr = 3, _REGULAR_FILE
            wheel.writestr(entry, data)
    return path


def _sha256(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"


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
            "bertloom is not installed in this Python, so the dependencies of workers are unknown: "
            "pip install it (a checkout: pip install -e .)"
        )
    return [f"{name}=={_installed(name)}" for name in [*core, *sorted(file_systems)]]


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"workers need {name} in the version of this Python, where it is not installed: pip "
            f"install {name}"
        ) from error


def _metadata(file_systems: tuple[str, ...]) -> dict[str, bytes]:
    python = ".".join(platform.python_version_tuple()[:2])
    metadata = [
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
        "METADATA": metadata,
        "WHEEL": [
            "Wheel-Version: 1.0",
            "Generator: bertloom",
            "Root-Is-Purelib: true",
            "Tag: py3-none-any",
        ],
        "entry_points.txt": ["[console_scripts]", program],
    }
    folder = f"{DISTRIBUTION}-{_version()}.dist-info"
    return {f"{folder}/{name}": "\n".join([*lines, ""]).encode() for name, lines in texts.items()}
