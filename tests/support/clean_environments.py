"""Environments with a wheel and the packages of some requirements alone.

They are made offline: the packages are links to those of this environment.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Set
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_LIBRARIES = Path(sysconfig.get_path("purelib"))


def clean_python(folder: Path) -> str:
    """The Python of a new environment without any package, not even pip."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True)
    return str(folder / "bin" / "python")


def install(python: str, wheel: Path) -> None:
    """Install a wheel without what it depends on."""
    command = ["pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([sys.executable, "-m", *command, str(wheel)], check=True)


def libraries() -> str:
    """Return the folder of this Python's libraries.

    On PYTHONPATH it does not include editable installations, because .pth files are not read there.
    """
    return str(_LIBRARIES)


def link_requirements(folder: Path, requirements: Iterable[str]) -> dict[str, str]:
    """Link the packages of requirements, and of all that they require, into a new folder.

    Returns:
        Environment variables of a process that finds only these packages besides its own.
    """
    for path in sorted(required_paths(requirements)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(_LIBRARIES / path)
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def required_paths(requirements: Iterable[str]) -> set[Path]:
    """Return the packages, and files outside of packages, of requirements and their own."""
    reached = dict[tuple[str, frozenset[str]], Requirement]()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        item = waiting.pop()
        key = canonicalize_name(item.name), frozenset(item.extras)
        if key not in reached:
            reached[key] = item
            waiting += _requirements(*key)
    return {path for name, _ in reached for path in _paths(name)}


@functools.cache
def _requirements(name: str, extras: Set[str]) -> list[Requirement]:
    """Return the requirements of a distribution with extras, in this environment."""
    items = map(Requirement, importlib.metadata.requires(name) or ())
    return [
        item
        for item in items
        if item.marker is None
        or any(item.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


@functools.cache
def _paths(name: str) -> Set[Path]:
    """Return the packages of a distribution, and its files outside of packages."""
    return {
        next(filter(_is_package, reversed(Path(file).parents)), Path(file))
        for file in importlib.metadata.files(name) or ()
        if ".." not in file.parts  # not a script
    }


@functools.cache
def _is_package(path: Path) -> bool:
    """Return whether a folder is a package of one distribution, not a namespace of several."""
    return (_LIBRARIES / path / "__init__.py").exists()
