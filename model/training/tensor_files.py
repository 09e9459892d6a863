"""Tensors in one safetensors file, written as a stream.

The library's own writer copies all tensors first; this one holds a single tensor at a time, hashes
what it writes, and writes to any file object. Files are read by the library.

Equal tensors give equal bytes: order is by element size (largest first, so that all lie aligned),
then name. A tensor under several names is stored under the first; the metadata names the others as
`tied:NAME`. Other tensors that share memory are stored each in full.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from typing import IO, Any, NamedTuple, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from schemas.errors import CheckpointError

_CHUNK_BYTES = 1 << 22
_TIED = "tied:"
_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class TensorFile(NamedTuple):
    """What a file will hold: its first bytes, then the tensors in this order."""

    header: bytes
    tensors: tuple[Tensor, ...]

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return len(self.header) + sum(tensor.nbytes for tensor in self.tensors)

    def write(self, sink: IO[bytes]) -> str:
        """Write the file and return its sha256; `OSError` is the caller's to handle."""
        digest = hashlib.sha256(self.header)
        sink.write(self.header)
        for tensor in self.tensors:
            flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
            data = memoryview(cast("Any", flat.numpy()))
            for start in range(0, len(data), _CHUNK_BYTES):
                chunk = data[start : start + _CHUNK_BYTES]
                digest.update(chunk)
                sink.write(chunk)
        return digest.hexdigest()


def plan_file(tensors: Mapping[str, Tensor]) -> TensorFile:
    """Lay a file out; nothing is copied before it is written.

    Raises:
        CheckpointError: a tensor is sparse, of a type the format lacks, or has a reserved name.
    """
    kept: dict[str, Tensor] = {}
    metadata = {"format": "pt"}
    first: dict[tuple[object, ...], str] = {}
    for name, tensor in sorted(tensors.items()):
        if tensor.layout != torch.strided or tensor.dtype not in _DTYPES:
            raise CheckpointError(
                f"tensor {name}: expected a dense one of {', '.join(_DTYPES.values())}, found "
                f"{tensor.layout}, {tensor.dtype}"
            )
        if name == "__metadata__":
            raise CheckpointError(f"a tensor cannot be named {name}: the format reserves it")
        same = first.setdefault(_place(tensor), name) if tensor.numel() else name
        if same == name:
            kept[name] = tensor
        else:
            metadata[f"{_TIED}{name}"] = same
    order = sorted(kept, key=lambda name: (-kept[name].element_size(), name))
    return TensorFile(_header(kept, order, metadata), tuple(kept[name] for name in order))


def read_file(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """All tensors on the CPU; those stored once under several names are one tensor.

    Raises:
        SafetensorError: it is not a whole file of the format.
        OSError: it cannot be read.
    """
    with safe_open(path, framework="pt") as file:
        names: list[str] = file.keys()
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
        metadata: dict[str, str] = file.metadata() or {}
    for key, name in metadata.items():
        if key.startswith(_TIED):
            if name not in tensors:
                raise SafetensorError(f"{key} stands for {name}, which is not in the file")
            tensors[key.removeprefix(_TIED)] = tensors[name]
    return tensors


def _place(tensor: Tensor) -> tuple[object, ...]:
    """Equal for tensors that are the same values in the same memory."""
    where = (str(tensor.device), tensor.data_ptr(), tensor.dtype)
    return (*where, tuple(tensor.shape), tensor.stride())


def _header(kept: Mapping[str, Tensor], order: list[str], metadata: Mapping[str, str]) -> bytes:
    fields: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
    offset = 0
    for name in order:
        tensor = kept[name]
        fields[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8
    return struct.pack("<Q", len(text)) + text
