"""Reading the files of a checkpoint in Hugging Face's layout, from any fsspec URL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from model.encoder.checkpoint_layout import (
    CONFIG_FILE,
    INDEX_FILE,
    PICKLES,
    WEIGHTS_FILE,
    parse_object,
    pickle_advice,
)
from pipelines.io.file_systems import file_system, read_file
from schemas.errors import CheckpointError

__all__ = ["CONFIG_FILE", "WEIGHTS_FILE", "read_config", "read_weights", "some_of"]


def read_config(folder: str) -> tuple[dict[str, Any], str]:
    """Content of config.json, and its URL.

    Raises:
        CheckpointError: it is not there, or no JSON object.
    """
    where = f"{folder}/{CONFIG_FILE}"
    return parse_object(_read(folder, CONFIG_FILE), where=where), where


def read_weights(folder: str) -> tuple[dict[str, Tensor], str]:
    """The tensors of a checkpoint of one file or several, and the URL to name in messages.

    Raises:
        CheckpointError: there is no safetensors file, or one that cannot be read.
    """
    names = _listed(folder)
    if WEIGHTS_FILE in names:
        where = f"{folder}/{WEIGHTS_FILE}"
        return _tensors(_read(folder, WEIGHTS_FILE), where=where), where
    if INDEX_FILE in names:
        where = f"{folder}/{INDEX_FILE}"
        return dict(_sharded(folder, parse_object(_read(folder, INDEX_FILE), where=where))), where
    pickles = [name for name in PICKLES if name in names]
    if pickles:
        raise CheckpointError(
            f"{folder}: {pickles[0]} and no {WEIGHTS_FILE}: {pickle_advice(folder)}"
        )
    raise CheckpointError(
        f"{folder}: no {WEIGHTS_FILE}; found {some_of(names) or 'nothing'}: expected a "
        "checkpoint in Hugging Face's layout"
    )


def _sharded(folder: str, index: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Tensors of several files, each from the one that the index names."""
    where = f"{folder}/{INDEX_FILE}"
    places = index.get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{where}: expected a weight_map of tensor names to file names")
    for name in sorted(set(places.values())):
        if "/" in name or "\\" in name:
            raise CheckpointError(f"{where}: {name!r} is outside the folder: expected a file in it")
        tensors = _tensors(_read(folder, name), where=f"{folder}/{name}")
        for tensor_name in sorted(tensor for tensor, file in places.items() if file == name):
            if tensor_name not in tensors:
                raise CheckpointError(
                    f"{folder}/{name}: no {tensor_name}, which {INDEX_FILE} says is there: fetch "
                    "the checkpoint's files again"
                )
            yield tensor_name, tensors[tensor_name]


def _tensors(content: bytes, *, where: str) -> dict[str, Tensor]:
    try:
        return load_tensors(content)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"{where}: no safetensors file, or a damaged one: {error}. Fetch it again"
        ) from error


def _listed(folder: str) -> set[str]:
    """Names of the folder's files."""
    try:
        fs, path = file_system(folder)
        found = fs.ls(path, detail=False)
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointError(f"{folder}: cannot be listed: {error}") from error
    return {entry.rstrip("/").rpartition("/")[2] for entry in found}


def _read(folder: str, name: str) -> bytes:
    url = f"{folder}/{name}"
    try:
        return read_file(url)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{url}: no such file: expected a checkpoint in Hugging Face's layout, with "
            f"{CONFIG_FILE} and {WEIGHTS_FILE}"
        ) from error
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointError(
            f"{url}: cannot be read: {error}. Expected a local path or an fsspec URL; a remote one "
            "needs its own package (s3fs, gcsfs)"
        ) from error


def some_of(names: Iterable[str]) -> str:
    """The first names in order, and how many there are besides."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:5])
    return shown if len(ordered) <= 5 else f"{shown} and {len(ordered) - 5} more"
