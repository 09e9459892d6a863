"""Files of a task: found below its folder, or named by split."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache

from model.tasks.files import base_name
from model.tasks.task import Task
from pipelines.io.file_systems import read_file
from pipelines.io.raw_files import (
    digest_file,
    expand_paths,
    filesystem,
    is_folder,
    list_folder_of,
)
from schemas.errors import ConfigError, MissingInputError
from schemas.field_names import field_name
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import RawInput

DATA_LABEL_FILE = "data-label.txt"
"""File in the folder of a task with the name of its data, if that is not the task's own."""

_MAX_DATA_LABEL = 40
_MAX_SHOWN_NAMES = 8
_MAX_SHOWN_GLOBS = 3
_COMPRESSED = (".gz", ".bz2", ".zst")
_TEXT_FORMATS = (".tsv", ".csv", ".jsonl", ".json")


def file_globs(task: Task, split: str) -> tuple[str, ...]:
    """Return globs of a split's files below a task's folder, in the order in which they are tried.

    A name without ending (`train`) can have any ending of a table, in the folder itself, in the
    task's folder in an unpacked benchmark, or in `data`, as on the Hugging Face hub.
    """
    names = task.splits[split]
    stems = [name for name in names if not set(name) & set(".*/")]
    if not stems:
        return names
    is_table = task.type in ("classification", "regression", "choice")
    text_ends = [
        f"{form}{end}"
        for form in (_TEXT_FORMATS if is_table else _TEXT_FORMATS[2:])
        for end in ("", *_COMPRESSED)
    ]
    own = [f"{name}/" for name in task.folders]
    tables = [
        *([] if is_table else stems),
        *_products(["", *own], stems, text_ends),
        *_products(["", "data/", *own], stems, [".parquet", "-?????-of-?????.parquet"]),
    ]
    first = names.index(stems[0])
    return (*names[:first], *tables, *(name for name in names[first:] if name not in stems))


def _products(*parts: Sequence[str]) -> list[str]:
    return ["".join(combination) for combination in itertools.product(*parts)]


def find_files(config: ExamplesConfig, *, task: Task) -> dict[str, tuple[str, ...]]:
    """Return the URLs of the files of each split that has any, in the task's order of splits.

    In a folder they are the matches of the first glob that has any, sorted by name.

    Raises:
        ConfigError: There is a dev file, and a part of train is to be dev.
        MissingInputError: A required split has no file.
    """
    list_files = cache(_list_files)  # each folder is listed once
    files_by_split: dict[str, tuple[str, ...]] = {}
    for split in task.splits:
        files: list[str] = []
        if split in config.data_files:
            files = [uri for uri, _ in expand_paths(config.data_files[split])]
        elif config.data_dir is not None:
            files = _match(config.data_dir, file_globs(task, split), list_files=list_files)
        if split == "dev" and config.dev_fraction:
            if files:
                raise ConfigError(
                    f"{field_name('dev_fraction')}: expected 0, as there is a dev file, "
                    f"{files[0]}. Remove one of them"
                )
            files = [*files_by_split["train"]]
        if files:
            files_by_split[split] = tuple(files)
        elif split in ("train", "dev"):
            raise _missing(split, config, task=task)
    if not files_by_split:
        raise _missing(next(iter(task.splits)), config, task=task)
    return files_by_split


def read_data_label(config: ExamplesConfig) -> tuple[str, tuple[RawInput, ...]]:
    """Return the name of data other than the task's own, as the recipe or a file of the folder
    states it, and that file."""
    label, inputs = config.data_label, tuple[RawInput, ...]()
    if not label and config.data_dir is not None:
        files = {name: uri for uri, name in _list_files(config.data_dir)}
        if uri := files.get(DATA_LABEL_FILE):
            label = read_file(uri).decode(errors="replace")
            inputs = (_raw_input(uri, DATA_LABEL_FILE, DATA_LABEL_FILE),)
    return " ".join(label.split())[:_MAX_DATA_LABEL], inputs


def raw_inputs_of(
    files_by_split: Mapping[str, Sequence[str]], *, task: Task
) -> tuple[RawInput, ...]:
    """Return the files and their companion files, with digests.

    The cache key has the split of a file, its number in it, and its digest, but not its name.
    """
    inputs: list[RawInput] = []
    for split, files in files_by_split.items():
        for number, uri in enumerate(files):
            inputs.append(_raw_input(uri, f"{split}/{base_name(uri)}", f"{split} {number}"))
            companions = task.layout.companions.get(base_name(uri), ())
            beside = {name: url for url, name in list_folder_of(uri)} if companions else {}
            for name in [name for name in companions if name in beside][:1]:
                inputs.append(_raw_input(beside[name], f"{split}/{name}", f"{split} beside"))
    return tuple(inputs)


def _raw_input(uri: str, name: str, identity: str) -> RawInput:
    read = digest_file(uri)
    sha256 = read.digests["sha256"]
    return RawInput(
        name=name,
        uri=uri,
        size_bytes=read.size,
        sha256=sha256,
        key_digest=f"{identity} sha256:{sha256}",
    )


def _match(
    folder: str, globs: Sequence[str], *, list_files: Callable[[str], list[tuple[str, str]]]
) -> list[str]:
    for glob in globs:
        below, _, pattern = glob.rpartition("/")
        matched: dict[str, str] = {}
        for uri, name in list_files(f"{folder.rstrip('/')}/{below}" if below else folder):
            if fnmatchcase(name, pattern):  # a file and its compressed copy count as one
                end = next((end for end in _COMPRESSED if name.endswith(end)), "")
                matched.setdefault(name.removesuffix(end), uri)
        if matched:
            return list(matched.values())
    return []


def _list_files(folder: str) -> list[tuple[str, str]]:
    """Return (uri, base name) of the files of a folder, by name; [] if it does not exist."""
    files = list_folder_of(f"{folder.rstrip('/')}/-") if is_folder(folder) else []
    return sorted(files, key=lambda pair: pair[1])


def _missing(split: str, config: ExamplesConfig, *, task: Task) -> MissingInputError:
    """Return the error for a required split without a file."""
    globs = [glob for glob in file_globs(task, split) if not glob.endswith(_COMPRESSED)]
    more = " or another of its official names" if len(globs) > _MAX_SHOWN_GLOBS else ""
    where, names = field_name("data_files"), sorted(config.data_files)
    if config.data_dir is not None:
        where, names = config.data_dir, _names_in(config.data_dir)
    shown = ", ".join(names[:_MAX_SHOWN_NAMES]) or "nothing"
    advice = f"Correct {field_name('data_dir')} or {field_name(f'data_files.{split}')}"
    if split == "dev" and task.can_split_train:
        advice += f", or use a part of train by {field_name('dev_fraction')}, e.g. 0.1"
    return MissingInputError(
        f"{where}: expected {', '.join(globs[:_MAX_SHOWN_GLOBS])}{more} for {task.name} {split}, "
        f"got {shown}{' and more' if len(names) > _MAX_SHOWN_NAMES else ''}. {advice}"
    )


def _names_in(folder: str) -> list[str]:
    if not is_folder(folder):
        return []
    fs, path = filesystem(folder)
    return sorted(base_name(str(name)) for name in fs.ls(path, detail=False))
