"""Whether a worker has the code that its job was submitted with."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import RunnerError

_PACKAGES = Path(__file__).parents[2]
_WORKERS = ("pipelines", "schemas")
"""The packages that a worker runs."""

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


class SameCode:
    """Travels with a job's work and refuses to be unpacked where the code is another one.

    Put before the work: what a worker cannot unpack then has never been looked at.
    """

    def __init__(self) -> None:
        self.digest = code_digest()

    def __setstate__(self, state: dict[str, str]) -> None:
        if state["digest"] != code_digest():
            raise RunnerError(
                f"this worker's bertloom ({_PACKAGES}, code {code_digest()[:16]}) is not the one "
                f"that submitted the job (code {state['digest'][:16]}): install the same version "
                "where the workers run, and start anew"
            )
        self.__dict__.update(state)
