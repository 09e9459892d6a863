"""The tables of an artifact as Hugging Face's datasets calls them: configurations and splits."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from schemas.manifest import FileEntry, Manifest

DEFAULT = "default"
"""The configuration that is opened where none is named."""

_BESIDE = re.compile(r"^__([a-z-]+)__/")
_SPLITS = {"held-out"}


class Part(NamedTuple):
    """The files of one split."""

    config: str
    split: str
    entries: tuple[FileEntry, ...]

    @property
    def rows(self) -> int:
        """Of all files, as the manifest says."""
        return sum(entry.rows or 0 for entry in self.entries)


def parts_of(manifest: Manifest) -> list[Part]:
    """The splits of an artifact, `train` first; none where it holds no table.

    What lies beside the table (documents' `duplicates`) is a configuration of its own.
    """
    found: dict[tuple[str, str], list[FileEntry]] = defaultdict(list)
    for entry in manifest.files:
        if entry.rows is not None and entry.path.endswith(".arrow"):
            found[_named(entry.path)].append(entry)
    parts = [Part(config, split, tuple(entries)) for (config, split), entries in found.items()]
    return sorted(parts, key=_order)


def _named(path: str) -> tuple[str, str]:
    """Configuration and split of a file; datasets knows no `-` in names of splits."""
    if beside := _BESIDE.match(path):
        name = beside[1].replace("-", "_")
        return (DEFAULT, name) if beside[1] in _SPLITS else (name, "train")
    if path.startswith("part-"):
        return DEFAULT, "train"
    return DEFAULT, path.removesuffix(".arrow").replace("-", "_").replace("/", "_")


def _order(part: Part) -> tuple[bool, bool, str, str]:
    return part.config != DEFAULT, part.split != "train", part.config, part.split
