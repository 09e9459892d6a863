"""Provenance of artifacts: git checkout, installed packages, platform."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flows.run.dependencies import install_hint
from schemas.errors import FingerprintError
from schemas.manifest import Environment

_GIT_SECONDS = 20


class Checkout(NamedTuple):
    """State of the git checkout that the code runs from."""

    commit: str
    """Commit hash; "" for an installed wheel."""

    is_dirty: bool | None


@functools.cache
def checkout() -> Checkout:
    """Return the checkout that holds this package."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return Checkout("", None)
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch"]
    try:
        process = subprocess.run(  # noqa: S603 - fixed arguments, no shell
            command, capture_output=True, encoding="utf-8", check=True, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):  # no git on this machine
        return Checkout("", None)
    headers = dict(re.findall(r"(?m)^# (\S+) (\S+)", process.stdout))
    return Checkout(headers["branch.oid"], bool(re.search("(?m)^[^#]", process.stdout)))


@functools.cache
def environment() -> Environment:
    """Return the versions of Python, the platform and every installed distribution."""
    packages = {
        re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower(): distribution.version
        for distribution in importlib.metadata.distributions()
        if distribution.metadata["Name"]
    }
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        packages=dict(sorted(packages.items())),
    )


def platform_name() -> str:
    """Return the operating system and the processor, without the host name."""
    return f"{platform.system()} {platform.machine()}"


@functools.cache
def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


OLDEST_PYTHON = "3.11"
"""Version in the keys of stages whose bytes do not depend on the version of Python."""


def key_environment(
    libraries: Sequence[str], *, python_independent: bool = False
) -> dict[str, str]:
    """Return the versions that are part of a cache key: of Python (minor) and of libraries.

    Args:
        libraries: Names of distributions.
        python_independent: Use `OLDEST_PYTHON` instead of the running Python.

    Raises:
        FingerprintError: A distribution is not installed.
    """
    major, minor, _ = platform.python_version_tuple()
    versions = {"python": OLDEST_PYTHON if python_independent else f"{major}.{minor}"}
    for name in libraries:
        try:
            versions[name] = _version(name)
        except importlib.metadata.PackageNotFoundError as error:
            hint = install_hint(name) or f"pip install {name}"
            raise FingerprintError(
                f"{name}: not installed, and its version is part of the cache key. Run {hint}, or "
                "stop earlier with --until STAGE"
            ) from error
    return versions
