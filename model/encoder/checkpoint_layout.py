"""What lies in the folder of a checkpoint, told without torch: before anything is built or read.

A checkpoint may be anybody's, so nothing that its JSON says is taken on trust: neither that it is
JSON, nor that a number is a number.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection
from typing import Any

from pipelines.io.file_systems import file_system, read_file
from pipelines.wordpiece.vocabulary import VOCAB_FILE
from schemas.errors import CheckpointError, MissingInputError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")

_WEIGHTS = "model*.safetensors"
_OLD_CONFIG = "bert_config.json"
_SHOWN_NAMES, _SHOWN_LETTERS = 8, 60


def parse_object(content: bytes, *, where: str) -> dict[str, Any]:
    """A JSON file of a checkpoint.

    Raises:
        CheckpointError: no JSON, nested without end, or no object.
    """
    try:
        found = json.loads(content)
    except RecursionError as error:
        raise CheckpointError(
            f"{where}: its JSON is nested too deep, expected the few levels of a configuration: "
            "fetch the file again"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{where}: no JSON: {error}. Fetch the file again") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{where}: expected a JSON object, found {type(found).__name__}")
    return found


def shown(value: Any) -> str:
    """A value from a file as messages show it: short, whatever it is."""
    if isinstance(value, dict | list):
        return f"a {'list' if isinstance(value, list) else 'JSON object'}"
    text = str(value)[: _SHOWN_LETTERS + 1] if isinstance(value, str) else repr(value)
    if len(text) > _SHOWN_LETTERS:
        text = f"{text[:_SHOWN_LETTERS]}..."
    return repr(text) if isinstance(value, str) else text


def names_in(folder_url: str) -> list[str]:
    """Sorted names of what lies in a folder; none where there is no such folder."""
    fs, folder = file_system(folder_url)
    try:
        return sorted(
            str(path).rstrip("/").rpartition("/")[2] for path in fs.ls(folder, detail=False)
        )
    except (FileNotFoundError, NotADirectoryError):
        return []


def weights_in(names: Collection[str]) -> list[str]:
    """The files of weights among these names, in one file or several."""
    return [name for name in names if fnmatch.fnmatch(name, _WEIGHTS)]


def check_layout(folder_url: str, *, needs_vocabulary: bool = False) -> None:
    """See that a folder holds a checkpoint that can be read, without reading its weights.

    Args:
        folder_url: local or any fsspec URL.
        needs_vocabulary: whether its vocab.txt has to be beside it.

    Raises:
        MissingInputError: a file is missing; says how to convert a checkpoint of another layout.
        CheckpointError: its config.json is no JSON object.
    """
    names = names_in(folder_url)
    folder = folder_url.rstrip("/")
    if CONFIG_FILE not in names or not weights_in(names):
        raise MissingInputError(
            f"{folder_url}: expected a checkpoint in Hugging Face's layout ({CONFIG_FILE}, "
            f"{WEIGHTS_FILE}), found {_some_of(names)}{_how_to_convert(folder, names)}"
        )
    parse_object(read_file(f"{folder}/{CONFIG_FILE}"), where=f"{folder}/{CONFIG_FILE}")
    if needs_vocabulary and VOCAB_FILE not in names:
        raise MissingInputError(
            f"{folder_url}: no {VOCAB_FILE}, found {_some_of(names)}: expected the vocabulary that "
            "the checkpoint was trained with beside it, one piece a line"
        )


def pickle_advice(folder: str) -> str:
    """How weights that are a pickle are converted."""
    return (
        "it is a pickle, which can run any program when it is read, so that it is never read here. "
        "If you trust it, convert it: transformers.BertForPreTraining.from_pretrained("
        f"{folder!r}).save_pretrained(NEW)"
    )


def _how_to_convert(folder: str, names: Collection[str]) -> str:
    steps = []
    if CONFIG_FILE not in names and _OLD_CONFIG in names:
        steps.append(f"{_OLD_CONFIG} is the same under an old name: copy it to {CONFIG_FILE}")
    pickles = [name for name in PICKLES if name in names]
    if weights_in(names):
        pass
    elif pickles:
        steps.append(f"of {pickles[0]}: {pickle_advice(folder)}, and copy {VOCAB_FILE} there")
    elif parts := sorted(name for name in names if ".ckpt" in name):
        stem = parts[0].partition(".ckpt")[0]
        steps.append(
            f"{stem}.ckpt is TensorFlow's; convert it with transformers 4: python -m "
            "transformers.models.bert.convert_bert_original_tf_checkpoint_to_pytorch "
            f"--tf_checkpoint_path {folder}/{stem}.ckpt --bert_config_file {folder}/{_OLD_CONFIG} "
            "--pytorch_dump_path NEW/pytorch_model.bin, then NEW with from_pretrained and "
            "save_pretrained of its BertForPreTraining"
        )
    return "".join(f". {step}" for step in steps)


def _some_of(names: Collection[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _SHOWN_NAMES
    return (", ".join(listed[:_SHOWN_NAMES]) or "nothing") + (
        f" and {more} more" if more > 0 else ""
    )
