"""Raw files of a bundle: their paths, and the recipe that reads them there.

They are in `inputs/`, or in the folder that `$BERTLOOM_INPUTS` names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from flows.fetch.downloads import read_origins
from schemas.addresses import public_address
from schemas.manifest import RawInput
from schemas.paths import RelativePath

VARIABLE = "BERTLOOM_INPUTS"
ROOT = f"${{{VARIABLE}:-inputs}}"
"""Folder of the inputs, as recipes write it."""

_MAX_NAMED = 50
"""A source with more files is read by its folder."""


class InputFile(BaseModel):
    """A raw file that a step reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: RelativePath
    """Path below the folder of inputs."""

    size: int
    """Bytes."""

    sha256: str
    checksum: str = ""
    """Published checksum that the file was verified against."""

    source: str = ""
    """URL that the file came from, or its name."""

    is_parsed: bool = False
    """Whether the digest is one of the parsed content, which the step itself verifies."""


class PlacedFile(NamedTuple):
    """A file of a bundle, and where it was read."""

    file: InputFile
    uri: str


def place_inputs(
    stage: str, config: dict[str, Any], raw: Sequence[RawInput], *, name: str
) -> list[PlacedFile]:
    """Let a step's configuration read its files from the bundle, and return those files.

    Args:
        stage: Name of the stage.
        config: Configuration in the recipe; its paths are changed.
        raw: Raw files that the step read.
        name: Entry of the recipe, "" if the recipe has one step of the stage.
    """
    if not raw:
        return []
    if stage == "build-documents":
        return [file for source in config["sources"] for file in _place_source(source, raw)]
    if stage == "build-vocabulary":
        path = f"vocabulary/{raw[0].name}"
        config["vocab_file"] = f"{ROOT}/{path}"
        return [_file(raw[0], path, is_parsed=True)]
    if stage == "build-examples":
        return _place_examples(config, raw, folder=f"examples/{name}")
    # Tables name the last parts of a checkpoint's path as what a model started from.
    parts = str(config["init_checkpoint"]).rstrip("/").split("/")
    below = "/".join(("checkpoints", name, *parts[-3 if parts[-1] == "data" else -1 :]))
    config["init_checkpoint"] = f"{ROOT}/{below}"
    return [_file(item, f"{below}/{item.name}") for item in raw]


def _place_source(source: dict[str, Any], raw: Sequence[RawInput]) -> list[PlacedFile]:
    own = [item for item in raw if item.identity.partition("\t")[0] == source["name"]]
    # Files of one name in several folders get a folder each.
    repeats = Counter[str]()
    folders: dict[str, list[RawInput]] = {}
    for item in sorted(own, key=lambda item: (item.name, item.uri)):  # the order of the plan
        number, repeats[item.name] = repeats[item.name], repeats[item.name] + 1
        suffix = f"~{number:03d}" if number else ""
        folders.setdefault(f"documents/{source['name']}{suffix}", []).append(item)
    paths: list[str] = []
    for folder, items in folders.items():
        # A file that is named is read whatever its suffix; nested names include their folders.
        named = [f"{folder}/{item.name}" for item in items if "/" not in item.name][:_MAX_NAMED]
        paths += named if len(named) == len(items) else [folder, *named]
    source["paths"] = [_escaped(path) for path in paths]
    if "trust_checksums" in source:
        source["trust_checksums"] = False
    return [
        _file(item, f"{folder}/{item.name}") for folder, items in folders.items() for item in items
    ]


def _place_examples(
    config: dict[str, Any], raw: Sequence[RawInput], *, folder: str
) -> list[PlacedFile]:
    """Place files under their official names, and those that are named by split by split."""
    data_dir, splits = config.get("data_dir"), config.get("data_files") or {}
    by_split: dict[str, list[str]] = {split: [] for split in splits}
    files: dict[str, PlacedFile] = {}
    for item in raw:
        split, _, name = item.name.partition("/")
        parts = item.identity.split(" ")
        if "evidence" in parts[1:]:
            config["evidence_dir"] = f"{ROOT}/{folder}/evidence"
            path = f"{folder}/evidence/{name.rpartition('/evidence/')[2]}"
            files[path] = _file(item, path, is_parsed=True)
            continue
        if split in splits:
            path = f"{folder}/{split}/{name}"
            if path in by_split[split]:  # two folders have a file of this name
                path = f"{folder}/{split}/{parts[1]}/{name}"
            if parts[1] != "beside":
                by_split[split].append(path)
        else:
            below = str(data_dir or "").rstrip("/") + "/"
            is_below = item.uri.startswith(below)
            path = f"{folder}/{item.uri.removeprefix(below) if is_below else name}"
        files[path] = _file(item, path)
    config["data_dir"] = f"{ROOT}/{folder}" if data_dir else None
    config["data_files"] = {split: list(map(_escaped, paths)) for split, paths in by_split.items()}
    return list(files.values())


def _escaped(path: str) -> str:
    """Return the path of an input as recipes write it: other dollar signs are no variables."""
    return f"{ROOT}/{path.replace('$', '$$')}"


def _file(item: RawInput, path: str, *, is_parsed: bool = False) -> PlacedFile:
    file = InputFile(
        path=path,
        size=item.size,
        sha256=item.sha256,
        checksum=item.checksum,
        source=_origin(item),
        is_parsed=is_parsed,
    )
    return PlacedFile(file, item.uri)


def _origin(item: RawInput) -> str:
    """Return where a file came from, without paths of the machine that read it."""
    if "://" in item.uri and not item.uri.startswith("file://"):
        return public_address(item.uri)
    path = Path(item.uri.removeprefix("file://"))
    return str(read_origins(path.parent).get(path.name, path.name))
