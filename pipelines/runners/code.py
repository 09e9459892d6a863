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

LIBRARIES = ("chardet", "lxml", "numpy", "pyarrow", "rensa", "sentencex", "tokenizers")
"""The libraries whose versions the keys of the corpus stages count."""

_SUFFIXES = frozenset({".py", ".yaml", ".json"})


def code_files() -> Iterator[tuple[str, Path]]:
    """Yield the sources that a worker runs, sorted, by their names in an installation."""
    for package in _WORKERS:
        folder = _PACKAGES / package
        for path in sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES):
            yield path.relative_to(_PACKAGES).as_posix(), path


@functools.cache
def code_digest() -> str:
    """Return the sha256 of the sources of `pipelines` and `schemas` as this process has them."""
    digest = hashlib.sha256()
    for name, path in code_files():
        digest.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


@functools.cache
def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that can change the output."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: importlib.metadata.version(name) for name in LIBRARIES}}


class CodeVersionCheck:
    """Refuses to be unpickled by a worker with other code or libraries than the submitter.

    A `DoFn` has it as its first attribute, so that it is checked before the others are unpickled.
    """

    def __init__(self) -> None:
        self.digest = code_digest()
        self.versions = library_versions()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["digest"] != code_digest():
            raise RunnerError(
                f"worker code {code_digest()[:16]} ({_PACKAGES}) differs from submitted code "
                f"{state['digest'][:16]}: install the same version of bertloom on the workers and "
                "rerun"
            )
        here = library_versions()
        others = [
            f"{name} {here[name]}, expected {version}"
            for name, version in state["versions"].items()
            if here[name] != version
        ]
        if others:
            raise RunnerError(
                f"worker libraries differ from the submitter's: {'; '.join(others)}: install the "
                "same versions on the workers (`bertloom worker-package` requires them) and rerun"
            )
        self.__dict__.update(state)
