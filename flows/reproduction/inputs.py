"""The files from outside the store that an artifact was made of: where they lie, what they are.

In a folder for reproduction they lie below `inputs/`, or below `$BERTLOOM_INPUTS`, whatever they
were called before: a source's files under their names, a task's under their official ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from flows.fetch.downloads import read_origins
from schemas.addresses import public_address
from schemas.manifest import Manifest, RawInput
from schemas.paths import RelativePath

VARIABLE = "BERTLOOM_INPUTS"
ROOT = f"${{{VARIABLE}:-inputs}}"
"""The folder of inputs, as a recipe says it."""

_MANY = 50
"""Files of a source from which on its folder is named and not each of them."""

Place = str | None
"""Where a step's files lie below the folder of inputs; "" or None of a step that reads none."""


class InputFile(BaseModel):
    """A file that a step reads from outside the store."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    path: RelativePath
    """Below the folder of inputs."""

    step: str
    name: str
    size: int
    """Bytes."""

    sha256: str
    checksum: str = ""
    """The published checksum that it was found to have."""

    source: str = ""
    """Where it came from, as far as is known: a URL, or the file's name."""

    check: Literal["bytes", "meaning"] = "bytes"
    """`meaning`: the digest is not of the file's bytes but of what the stage reads out of it (the
    word pieces of a vocabulary, the evidence of a folder), which the stage compares itself."""


class PlacedFile(NamedTuple):
    """A file as a folder for reproduction lists it, and where it was read."""

    file: InputFile
    uri: str


def placed(manifest: Manifest, at: Place, *, label: str) -> tuple[dict[str, Any], list[PlacedFile]]:
    """A step's configuration, reading its files from below the folder of inputs, and those files.

    Args:
        manifest: of the artifact that the step made.
        at: the step's folder below that of inputs; None: the files are listed by another step.
        label: the step's.
    """
    config, raw = dict(manifest.config), manifest.raw_inputs
    if manifest.stage == "build-documents":
        return _documents(config, raw, at=str(at), label=label)
    if not raw or at is None:
        return config, []
    if manifest.stage == "build-vocabulary":
        [item] = raw
        config["vocab_file"] = f"{ROOT}/{at}/{item.name}"
        return config, [_file(item, f"{at}/{item.name}", label, check="meaning")]
    if manifest.stage == "build-examples":
        return _examples(config, raw, at=at, label=label)
    # The last parts of the folder's name stand in tables, as what a model started from.
    *_, parent, folder, name = ("", "", *str(config["init_checkpoint"]).rstrip("/").split("/"))
    below = "/".join((at, *((parent, folder, name) if name == "data" else (name,))))
    config["init_checkpoint"] = f"{ROOT}/{below}"
    return config, [_file(item, f"{below}/{item.name}", label) for item in raw]


def _documents(
    config: dict[str, Any], raw: Sequence[RawInput], *, at: str, label: str
) -> tuple[dict[str, Any], list[PlacedFile]]:
    files, sources = list[PlacedFile](), list[dict[str, Any]]()
    for source in config["sources"]:
        below = f"{at}/{source['name']}"
        own = [item for item in raw if _source_of(item, config) == source["name"]]
        # Files of one name were in several folders: each of these gets one of its own.
        times = Counter[str]()
        folders = {below: list[RawInput]()}
        for item in sorted(own, key=lambda item: (item.name, item.uri)):  # the order of the plan
            number, times[item.name] = times[item.name], times[item.name] + 1
            folders.setdefault(f"{below}~{number:03d}" if number else below, []).append(item)
        paths: list[str] = []
        for folder, items in folders.items():
            files += [_file(item, f"{folder}/{item.name}", label) for item in items]
            # A folder's files have names with its folders. A file that is named is read whatever
            # its suffix.
            top = [f"{ROOT}/{folder}/{item.name}" for item in items if "/" not in item.name]
            nested = len(top) < len(items) or len(top) > _MANY
            paths += [f"{ROOT}/{folder}", *(top if len(top) <= _MANY else [])] if nested else top
        placed_source = {**source, "paths": [_literal(path) for path in paths]}
        if "trust_checksums" in source:  # files are compared by their bytes here
            placed_source["trust_checksums"] = False
        sources.append(placed_source)
    return {**config, "sources": sources}, files


def _literal(path: str) -> str:
    """A path whose dollar signs, but for the variable's, are no variables."""
    return ROOT + path.removeprefix(ROOT).replace("$", "$$")


def _source_of(item: RawInput, config: dict[str, Any]) -> str:
    if item.identity:
        return item.identity.partition("\t")[0]
    names = [source["name"] for source in config["sources"]]  # of a version without identities
    return str(names[0]) if len(names) == 1 else ""


def _examples(
    config: dict[str, Any], raw: Sequence[RawInput], *, at: str, label: str
) -> tuple[dict[str, Any], list[PlacedFile]]:
    """Files under their official names in one folder; those named by split in one for each."""
    folder, named = str(config.get("data_dir") or ""), config.get("data_files") or {}
    files, by_split = list[PlacedFile](), {split: list[str]() for split in named}
    for item in raw:
        split, _, name = item.name.partition("/")
        parts = item.identity.split(" ")
        if "evidence" in parts[1:]:
            below = name.rpartition("/evidence/")[2]
            files.append(_file(item, f"{at}/evidence/{below}", label, check="meaning"))
            config["evidence_dir"] = f"{ROOT}/{at}/evidence"
            continue
        if split in named:
            path = f"{at}/{split}/{name}"
            if path in by_split[split]:  # of one name, from two folders
                path = f"{at}/{split}/{parts[1]}/{name}"
            by_split[split] += [path] if parts[1] != "beside" else []
        else:
            path = f"{at}/{_below(item.uri, folder) or name}"
        files.append(_file(item, path, label))
    config["data_dir"] = f"{ROOT}/{at}" if folder else None
    config["data_files"] = {
        split: [_literal(f"{ROOT}/{path}") for path in paths] for split, paths in by_split.items()
    }
    return config, list({one.file.path: one for one in files}.values())


def _below(uri: str, folder: str) -> str:
    """A file's path in a folder; "" where it is not in it."""
    start = folder.rstrip("/") + "/"
    return uri.removeprefix(start) if uri.startswith(start) else ""


def _file(
    item: RawInput, path: str, label: str, *, check: Literal["bytes", "meaning"] = "bytes"
) -> PlacedFile:
    file = InputFile(
        path=str(PurePosixPath(path)),
        step=label,
        name=item.name,
        size=item.size,
        sha256=item.sha256,
        checksum=item.checksum,
        source=_origin(item),
        check=check,
    )
    return PlacedFile(file, item.uri)


def _origin(item: RawInput) -> str:
    """Where a file came from: no path of the machine that read it."""
    if "://" in item.uri and not item.uri.startswith("file://"):
        return public_address(item.uri)
    path = Path(item.uri.removeprefix("file://"))
    return str(read_origins(path.parent).get(path.name, path.name))
