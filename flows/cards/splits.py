"""The tables of an artifact as configurations and splits of Hugging Face `datasets`."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Literal, NamedTuple

from schemas.manifest import FileEntry, Manifest

DEFAULT = "default"
"""Configuration that `load_dataset` opens if none is named."""


Suffix = Literal["parquet", "arrow"]
"""Format of exported rows."""


class CardSplit(NamedTuple):
    """Files of one split."""

    config: str
    name: str
    files: tuple[FileEntry, ...]

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return sum(file.rows or 0 for file in self.files)

    @property
    def prefix(self) -> str:
        """Start of the paths of exported files."""
        return f"{'data' if self.config == DEFAULT else self.config}/{self.name}"

    def pattern(self, suffix: Suffix) -> str:
        """Return the glob pattern of exported files."""
        return f"{self.prefix}-*.{suffix}"


def splits_of(manifest: Manifest) -> list[CardSplit]:
    """Return the splits of an artifact, `train` first; a side table is a configuration."""
    files: dict[tuple[str, str], list[FileEntry]] = defaultdict(list)
    for file in manifest.files:
        if file.rows is not None and file.path.endswith(".arrow"):
            files[_config_and_split(file.path)].append(file)
    splits = [CardSplit(config, name, tuple(group)) for (config, name), group in files.items()]
    return sorted(splits, key=lambda s: (s.config != DEFAULT, s.name != "train", s.config, s.name))


def _config_and_split(path: str) -> tuple[str, str]:
    name = re.sub("[-/]", "_", path.removesuffix(".arrow"))  # `datasets` allows no hyphens
    if name.startswith("__"):  # `__duplicates__/part-...`
        name = name.split("__")[1]
        return (DEFAULT, name) if name == "held_out" else (name, "train")
    return DEFAULT, "train" if name.startswith("part_") else name
