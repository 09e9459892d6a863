"""Check that a worker has the code and libraries of the submitter."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemas.errors import RunnerError

_PACKAGES = Path(__file__).parents[2]
_WORKERS = ("pipelines", "schemas")
"""The packages that a worker runs."""

LIBRARIES = ("charset-normalizer", "numpy", "pyarrow", "sentencex", "tokenizers")
"""The libraries whose versions the keys of the corpus stages count."""

_SUFFIXES = frozenset({".py", ".yaml", ".json"})


def code_files() -> Iterator[tuple[str, Path]]:
    """The sources that a worker runs, sorted: names as in an installation, and where they are."""
    for package in _WORKERS:
        folder = _PACKAGES / package
        for path in sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES):
            yield path.relative_to(_PACKAGES).as_posix(), path


@functools.cache
def code_digest() -> str:
    """sha256 of the sources of `pipelines` and `schemas` as this process has them."""
    digest = hashlib.sha256()
    for name, path in code_files():
        digest.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


@functools.cache
def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that can change the output."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: importlib.metadata.version(name) for name in LIBRARIES}}


class SameCode:
    """Travels with a job's work and refuses to be unpacked where the code is another one.

    Put before the work: what a worker cannot unpack then has never been looked at. Libraries that
    decide bytes are looked at as well: keys count their versions as the submitter has them.
    """

    def __init__(self) -> None:
        self.digest = code_digest()
        self.versions = library_versions()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["digest"] != code_digest():
            raise RunnerError(
                f"this worker's bertloom ({_PACKAGES}, code {code_digest()[:16]}) is not the one "
                f"that submitted the job (code {state['digest'][:16]}): install the same version "
                "where the workers run, and run again"
            )
        here = library_versions()
        others = [
            f"{name} {here[name]}, expected {version}"
            for name, version in state["versions"].items()
            if here[name] != version
        ]
        if others:
            raise RunnerError(
                f"this worker has other libraries than the submitter of the job: "
                f"{'; '.join(others)}: install the same versions where the workers run (those that "
                "`bertloom worker-package` asks for), and run again"
            )
        self.__dict__.update(state)
