"""Files of a task: found below its folder, or named by split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from model.tasks.evidence import evidence_inputs, find_evidence
from model.tasks.files import base_name
from model.tasks.task import Task
from pipelines.io.raw_files import (
    digest_file,
    expand_paths,
    filesystem,
    is_folder,
    list_folder_of,
)
from schemas.errors import ConfigError, MissingInputError
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import RawInput

_SHOWN_NAMES = 8
_SHOWN_GLOBS = 3
_COMPRESSED = (".gz", ".bz2", ".zst")
_TEXT_FORMATS = (".tsv", ".csv", ".jsonl", ".json")

_Lister = Callable[[str], list[tuple[str, str]]]


class ExampleFile(NamedTuple):
    """A file that a split is read from."""

    uri: str
    name: str
    """Its base name."""

    evidence: str | None = None
    """The folder of the documents of its questions, where they are TriviaQA's."""


def table_globs(
    *stems: str,
    folders: Sequence[str] = (),
    hub: Sequence[str] = (),
    forms: Sequence[str] = _TEXT_FORMATS,
) -> tuple[str, ...]:
    """Globs below a task's folder, in the order in which they are tried.

    Args:
        stems: official names without what tells the format, such as `train` or `dev_matched`.
        folders: names that the task's folder has in an unpacked benchmark, so that the benchmark's
            own folder may be given.
        hub: names that the split has on the Hugging Face hub, where its files are in `data/`, in
            the task's folder, or in the folder given.
        forms: Name endings of the text formats; Parquet is always included.
    """
    globs = []
    for folder in ("", *(f"{name}/" for name in folders)):
        for stem in stems:
            globs += [f"{folder}{stem}{form}{end}" for form in forms for end in ("", *_COMPRESSED)]
    for folder in ("", "data/", *(f"{name}/" for name in folders)):
        for stem in dict.fromkeys((*stems, *hub)):
            globs += [f"{folder}{stem}.parquet", f"{folder}{stem}-?????-of-?????.parquet"]
    return tuple(globs)


def row_globs(*stems: str) -> tuple[str, ...]:
    """Return globs of the JSON and Parquet files that `datasets` writes."""
    return table_globs(*stems, forms=(".jsonl", ".json"))


def find_files(config: ExamplesConfig, *, task: Task) -> dict[str, tuple[ExampleFile, ...]]:
    """The files of each split that there are any of, in the task's order of splits.

    Of a folder they are what the first of the task's globs matches, sorted by name; so that the
    parts of a Parquet table are in order.

    Raises:
        MissingInputError: A required split has no file, or the task has no folder
            of documents for TriviaQA's questions.
    """
    list_files = cache(_files_of)  # each folder is asked once
    found: dict[str, tuple[ExampleFile, ...]] = {}
    for split, globs in task.splits.items():
        if split in config.data_files:
            files = [
                ExampleFile(uri, base_name(uri))
                for uri, _ in expand_paths(config.data_files[split])
            ]
        elif config.data_dir is not None:
            files = _match(config.data_dir, globs, list_files=list_files)
        else:
            files = []
        if files:
            found[split] = tuple(_with_evidence(file, config, task=task) for file in files)
        elif is_needed(split):
            raise _missing(split, config, task=task)
    if not found:
        raise _missing(next(iter(task.splits)), config, task=task)
    return found


def raw_inputs_of(
    found: Mapping[str, Sequence[ExampleFile]], *, task: Task
) -> tuple[RawInput, ...]:
    """Return the files and their companion files, with digests.

    The cache key holds which split a file is for, its position in it, and its bytes; not its name.
    """
    return tuple(
        item
        for split, files in found.items()
        for number, file in enumerate(files)
        for item in _inputs_of(split, number, file, task=task)
    )


def _inputs_of(split: str, number: int, file: ExampleFile, *, task: Task) -> Iterator[RawInput]:
    yield _raw_input(split, str(number), file)
    for position, other in _beside(file, task):
        yield _raw_input(split, position, other)
    if file.evidence is not None:
        yield from evidence_inputs(
            file.uri,
            file.evidence,
            name=f"{split}/{file.name}/evidence",
            identity=f"{split} {number} evidence",
        )


def is_needed(split: str) -> bool:
    """Return whether a task requires files for this split."""
    return split in ("train", "dev")


def _raw_input(split: str, position: str, file: ExampleFile) -> RawInput:
    read = digest_file(file.uri)
    sha256 = read.digests["sha256"]
    return RawInput(
        name=f"{split}/{file.name}",
        uri=file.uri,
        size_bytes=read.size,
        sha256=sha256,
        key_digest=f"{split} {position} sha256:{sha256}",
    )


def _beside(file: ExampleFile, task: Task) -> Iterator[tuple[str, ExampleFile]]:
    """Return the companion files of the task's reader (`FileLayout.companions`)."""
    for name, names in task.layout.companions.items():
        if file.name == name:
            there = {name: uri for uri, name in list_folder_of(file.uri)}
            first = next((name for name in names if name in there), None)
            if first is not None:
                yield "beside", ExampleFile(there[first], first)


def _with_evidence(file: ExampleFile, config: ExamplesConfig, *, task: Task) -> ExampleFile:
    if task.type != "span":
        return file
    return file._replace(evidence=find_evidence(file.uri, config.evidence_dir))


def check_splits(config: ExamplesConfig, *, task: Task) -> None:
    """Check that `data_files` and `max_samples` name splits of the task.

    Raises:
        ConfigError: A split does not exist, or its limit is below 1.
    """
    for field in ("data_files", "max_samples"):
        unknown = sorted(set(getattr(config, field)) - set(task.splits))
        if unknown:
            raise ConfigError(
                f"{field}: no split {unknown[0]!r:.80} in {task.name}. "
                f"Choose from {', '.join(task.splits)}"
            )
    for split, limit in config.max_samples.items():
        if limit < 1:
            raise ConfigError(f"max_samples: expected 1 or more of {split}, got {limit}")


def _match(folder: str, globs: Sequence[str], *, list_files: _Lister) -> list[ExampleFile]:
    for glob in globs:
        below, _, pattern = glob.rpartition("/")
        matched: dict[str, ExampleFile] = {}
        for uri, name in list_files(f"{folder.rstrip('/')}/{below}" if below else folder):
            if fnmatchcase(name, pattern):  # a file and its compressed copy count as one
                end = next((end for end in _COMPRESSED if name.endswith(end)), "")
                matched.setdefault(name.removesuffix(end), ExampleFile(uri, name))
        if matched:
            return list(matched.values())
    return []


def _files_of(folder: str) -> list[tuple[str, str]]:
    """(uri, base name) of the files of a folder, by name; [] if it is not there."""
    files = list_folder_of(f"{folder.rstrip('/')}/-") if is_folder(folder) else []
    return sorted(files, key=lambda pair: pair[1])


def _names_in(folder: str) -> list[str]:
    if not is_folder(folder):
        return []
    fs, path = filesystem(folder)
    return sorted(base_name(str(name)) for name in fs.ls(path, detail=False))


def _missing(split: str, config: ExamplesConfig, *, task: Task) -> MissingInputError:
    globs = [glob for glob in task.splits[split] if not glob.endswith(_COMPRESSED)]
    more = " or another of its official names" if len(globs) > _SHOWN_GLOBS else ""
    expected = ", ".join(globs[:_SHOWN_GLOBS]) + more
    if config.data_dir is None:
        given = ", ".join(config.data_files)
        return MissingInputError(
            f"{task.name} {split}: no file. The recipe's files are those of {given or 'no split'}: "
            f"add {split} to files, or give a folder with {expected}"
        )
    names = _names_in(config.data_dir)
    shown = ", ".join(names[:_SHOWN_NAMES]) or "nothing"
    if len(names) > _SHOWN_NAMES:
        shown += f" and {len(names) - _SHOWN_NAMES} more"
    return MissingInputError(
        f"{config.data_dir}: expected {expected} for {task.name} {split}, found {shown}. "
        f"Correct data_dir, or name the file in data_files.{split}"
    )
