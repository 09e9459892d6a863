"""The code of stages: its digests, remembered, and whether this process runs what is on disk."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from flows.engine.syntax import portable_file_digest
from pipelines.io.user_cache import cache_folder, is_settled, local_digest, local_version
from schemas.errors import ConfigError
from schemas.fingerprint import FIRST_PARTY, code_fingerprint
from schemas.sealed import read_sealed, sealed_json
from schemas.stage import Stage

_REMEMBERED = "source"
"""What the user's cache calls digests of code; they are the same on every Python."""

_LOADED: dict[str, str] = {}
"""Version of the source of each module of ours that this process has loaded, as it was then."""


class Code(NamedTuple):
    """The code of a stage."""

    digest: str
    modules: dict[str, str]
    """The digest of each module, by name."""


@functools.cache
def code_of(stage: Stage) -> Code:
    """The code of a stage as it was when this process first asked.

    Raises:
        ConfigError: this process has loaded other code than is on disk.
        FingerprintError: its imports cannot be followed.
    """
    remember_loaded(stage.packages)
    found = code_on_disk(stage)
    refuse_edited(
        [
            name
            for name in found.modules
            if name in _LOADED and _version(sys.modules[name]) != _LOADED[name]
        ]
    )
    return found


def refuse_edited(modules: Sequence[str]) -> None:
    """Refuse to build with code that is not what a key says.

    Raises:
        ConfigError: there are modules that changed since this process loaded or digested them.
    """
    if modules:
        raise ConfigError(
            f"{', '.join(modules)} changed on disk since this process read "
            f"{'it' if len(modules) == 1 else 'them'}: what it makes would not be what its key "
            "says. Start a new process (in a notebook: restart the kernel) and run again"
        )


def remember_loaded(packages: Sequence[str] = FIRST_PARTY) -> None:
    """Note the sources of all modules of some packages that are loaded and were not before."""
    for name, module in list(sys.modules.items()):
        if name not in _LOADED and name.partition(".")[0] in packages:
            with contextlib.suppress(OSError):  # no file: nothing that could change
                _LOADED[name] = _version(module)


def forget_loaded() -> None:
    """Behave as a new process, whose modules are those on disk."""
    _LOADED.clear()
    code_of.cache_clear()


def _version(module: ModuleType) -> str:
    stat = Path(module.__file__ or "").stat()
    return f"{stat.st_size}/{stat.st_mtime_ns}"


def code_on_disk(stage: Stage) -> Code:
    """The code of a stage at this moment.

    While no file of ours changes it is remembered, in the user's cache: following the imports of
    all modules takes longer than all else that a run which builds nothing does.
    """
    module, packages = stage.module, stage.packages
    state = _state_of(packages) if packages == FIRST_PARTY else ""
    if not state:
        return Code(*code_fingerprint(module, packages=packages, digest_of=_code_digest))
    file = cache_folder() / f"{_REMEMBERED}.json"
    known = dict(_remembered(file, state))
    if module not in known:
        known[module] = Code(*code_fingerprint(module, packages=packages, digest_of=_code_digest))
        _remembered.cache_clear()
        with contextlib.suppress(OSError):  # then it is followed again
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"{file.name}.{os.getpid()}.part")
            part.write_bytes(sealed_json({"state": state, "stages": known}))
            part.replace(file)
    return known[module]


def changed_modules(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Names of the modules whose digests differ, or that only one of two codes has."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def edited_modules(stage: Stage) -> list[str]:
    """Names of a stage's modules that were edited since this process digested them."""
    return changed_modules(code_of(stage).modules, code_on_disk(stage).modules)


@functools.lru_cache(maxsize=1)
def _remembered(file: Path, state: str) -> Mapping[str, Code]:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored, is_sealed = read_sealed(file.read_bytes())
        if is_sealed and stored["state"] == state:
            return {name: Code(*code) for name, code in stored["stages"].items()}
    return {}


def _state_of(packages: Sequence[str]) -> str:
    """Tells the files of packages as they are from what they were; "" where one just changed."""
    digest = hashlib.sha256()
    for package in packages:
        spec = importlib.util.find_spec(package)
        for entry in _files(list(spec.submodule_search_locations or ()) if spec else []):
            stat = entry.stat()
            if not is_settled(stat):
                return ""
            digest.update(f"{entry.path} {local_version(stat)}\n".encode())
    return digest.hexdigest()


def _files(folders: Iterable[str]) -> Iterator[os.DirEntry[str]]:
    """All source and data files of packages, in one order."""
    for folder in folders:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        yield from (entry for entry in entries if entry.name.endswith((".py", ".yaml")))
        inner = (e.path for e in entries if e.is_dir() and e.name != "__pycache__")
        yield from _files(inner)


def _code_digest(path: Path) -> str:
    return local_digest(path, _REMEMBERED, compute=portable_file_digest)
