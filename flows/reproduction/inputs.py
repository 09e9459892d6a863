"""Raw files of a bundle: their paths, and the recipe that reads them there.

They are in `inputs/`, or in the folder that `$BERTLOOM_INPUTS` names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from model.tasks.official_files import DATA_LABEL_FILE
from schemas.manifest import RawInput, RelativePath
from schemas.redaction import public_address

VARIABLE = "BERTLOOM_INPUTS"
ROOT = f"${{{VARIABLE}:-inputs}}"
"""Folder of the inputs, as recipes write it."""


class InputFile(BaseModel):
    """A raw file that a step reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: RelativePath
    """Path relative to the folder of inputs."""

    size: int
    """Size in bytes."""

    sha256: str
    checksum: str = ""
    """Published checksum that the file was verified against."""

    source: str = ""
    """URL that the file came from, or its name."""

    is_parsed: bool = False
    """True if `sha256` is a digest of the parsed content, which the step itself verifies."""

    uri: str = Field(default="", exclude=True)
    """Original address; not in files."""


def resolve_inputs(
    stage: str, config: dict[str, Any], raw: Sequence[RawInput], *, name: str
) -> list[InputFile]:
    """Change a step's configuration to read its raw files from the bundle, and return the files.

    Args:
        stage: Name of the stage.
        config: Configuration in the recipe. Its paths are changed.
        raw: Raw files that the step read.
        name: Entry of the recipe, "" if the recipe has one step of the stage.
    """
    if not raw:
        return []
    if stage == "build-documents":
        return [file for source in config["sources"] for file in _resolve_source(source, raw)]
    if stage == "build-vocabulary":
        path = f"vocabulary/{raw[0].name}"
        config["vocab_file"] = f"{ROOT}/{path}"
        return [_input_file(raw[0], path, is_parsed=True)]
    if stage == "build-examples":
        return _resolve_examples(config, raw, folder=f"examples/{name}")
    # Tables show the last parts of a checkpoint's path.
    parts = str(config["init_checkpoint"]).rstrip("/").split("/")
    folder = "/".join(("checkpoints", name, *parts[-3 if parts[-1] == "data" else -1 :]))
    config["init_checkpoint"] = f"{ROOT}/{folder}"
    return [_input_file(item, f"{folder}/{item.name}") for item in raw]


def _resolve_source(source: dict[str, Any], raw: Sequence[RawInput]) -> list[InputFile]:
    own = [item for item in raw if item.key_digest.partition("\t")[0] == source["name"]]
    repeats = Counter[str]()
    folders: dict[str, list[RawInput]] = defaultdict(list)  # files of equal names are apart
    for item in sorted(own, key=lambda item: (item.name, item.uri)):  # the order of the plan
        number, repeats[item.name] = repeats[item.name], repeats[item.name] + 1
        suffix = f"~{number:03d}" if number else ""
        folders[f"documents/{source['name']}{suffix}"].append(item)
    paths: list[str] = []
    for folder, items in folders.items():
        # In a folder, only files with known suffixes are read, and names include subfolders.
        named = [f"{folder}/{item.name}" for item in items if "/" not in item.name]
        paths += named if len(named) == len(items) else [folder, *named]
    source["paths"] = [_escape(path) for path in paths]
    if "trust_checksums" in source:
        source["trust_checksums"] = False
    return [
        _input_file(item, f"{folder}/{item.name}")
        for folder, items in folders.items()
        for item in items
    ]


def _resolve_examples(
    config: dict[str, Any], raw: Sequence[RawInput], *, folder: str
) -> list[InputFile]:
    """Name the files of each split; what the task reads next to a file stays next to it."""
    by_split: dict[str, list[str]] = defaultdict(list)
    files: dict[str, InputFile] = {}
    place, data_dir = folder, None
    for item in raw:
        if item.name == DATA_LABEL_FILE:
            data_dir = f"{ROOT}/{folder}"  # where the step looks for the file
            files[f"{folder}/{item.name}"] = _input_file(item, f"{folder}/{item.name}")
            continue
        split, _, name = item.name.partition("/")
        if split == "dev" and config.get("dev_fraction"):
            continue  # the files of train again
        position = item.key_digest.split(" ")[1]
        if " evidence " in item.key_digest:  # a folder of documents
            config["evidence_dir"] = f"{ROOT}/{folder}/evidence"
            path = f"{folder}/evidence/{name.rpartition('/evidence/')[2]}"
            files[path] = _input_file(item, path, is_parsed=True)
            continue
        if position != "beside":
            place = f"{folder}/{split}"
            if f"{place}/{name}" in files:  # of another folder; the suffix keeps the order
                place = f"{place}~{int(position):03d}"
            by_split[split].append(_escape(f"{place}/{name}"))
        files[f"{place}/{name}"] = _input_file(item, f"{place}/{name}")
    config |= {"data_dir": data_dir, "data_files": dict(by_split)}
    return list(files.values())


def _escape(path: str) -> str:
    """Return the path of an input as recipes write it, in which `$` starts a variable."""
    return f"{ROOT}/{path.replace('$', '$$')}"


def _input_file(item: RawInput, path: str, *, is_parsed: bool = False) -> InputFile:
    return InputFile(
        path=path,
        size=item.size_bytes,
        sha256=item.sha256,
        checksum=item.checksum,
        source=_origin(item),
        is_parsed=is_parsed,
        uri=item.uri,
    )


def _origin(item: RawInput) -> str:
    """Return where a file came from, without paths of the machine that read it."""
    if "://" in item.uri and not item.uri.startswith("file://"):
        return public_address(item.uri)
    return Path(item.uri.removeprefix("file://")).name
