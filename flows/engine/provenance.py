"""What is recorded about where an artifact was made: code checkout, software, machine."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flows.engine.extras import remedy
from schemas.errors import FingerprintError
from schemas.manifest import Environment

_GIT_SECONDS = 20


class Checkout(NamedTuple):
    """The state of the git checkout that the code runs from."""

    commit: str
    """"" where the code is no checkout (an installed wheel)."""

    is_dirty: bool | None


@functools.cache
def checkout() -> Checkout:
    """The checkout that holds this package, asked once a process."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return Checkout("", None)
    try:
        commit = _git(folder, "rev-parse", "HEAD").strip()
        return Checkout(commit, bool(_git(folder, "status", "--porcelain").strip()))
    except (OSError, subprocess.SubprocessError):
        # No git on this machine, or a repository without a commit: the code's own fingerprint is
        # in the manifest all the same.
        return Checkout("", None)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - fixed arguments, no shell
        ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's git
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=_GIT_SECONDS,
    )
    return done.stdout


@functools.cache
def environment() -> Environment:
    """Python, platform, and every installed distribution."""
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


def host_kind() -> str:
    """Operating system and processor; no host name."""
    return f"{platform.system()} {platform.machine()}"


@functools.cache
def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


OLDEST_PYTHON = "3.11"
"""In keys of what is the same on any Python: the first that made those bytes."""


def key_environment(
    libraries: Sequence[str], *, same_on_any_python: bool = False
) -> dict[str, str]:
    """Versions that enter a cache key: Python's (minor) and those of the named distributions.

    Args:
        libraries: names of distributions.
        same_on_any_python: Python's is then `OLDEST_PYTHON`, whichever runs.

    Raises:
        FingerprintError: one is not installed.
    """
    major, minor, _ = platform.python_version_tuple()
    versions = {"python": OLDEST_PYTHON if same_on_any_python else f"{major}.{minor}"}
    for name in libraries:
        try:
            versions[name] = _version(name)
        except importlib.metadata.PackageNotFoundError as error:
            how = remedy(name) or f"pip install {name}"
            raise FingerprintError(
                f"{name} is not installed, and its version is part of the cache key: {how}; or "
                "stop before with --until STAGE"
            ) from error
    return versions
