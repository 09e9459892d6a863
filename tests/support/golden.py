"""Digests of what the stages write for a small sample.

`PYTHONPATH=tests python -m support.golden` prints new ones.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.io.shards import open_shard
from schemas.manifest import FileEntry, StageOutput

GOLDEN: dict[str, str] = {
    "build-documents": "25f6d7d09a9735662fd083bfce8a9b9c",
    "build-instances.length-64": "fae538dc62bb13f65af820b70af33aed",
    "build-tokens": "ee2a9f671989f37edb8b3402a7fbd384",
    "build-vocabulary": "da9f4fe9101e3e1b31f3ca0fee36480a",
    "build-vocabulary/vocab.txt": "4956eb64009e8ffa3b6dc1388a441dd9",
}


def rows_digest(files: Iterable[FileEntry], folder: Path | str) -> str:
    """Return a digest of the rows of all tables, independent of their order and of pyarrow's bytes.

    It is the sum of the BLAKE2b digests of the rows modulo 2**128.
    """
    total = 0
    for entry in files:
        if entry.rows is not None:
            with open_shard(f"{folder}/{entry.stored_name}") as shard:
                schema, rows = shard.schema, shard.read_all().to_pylist()
            for row in rows:
                data = b"".join(_value_bytes(row[field.name], field) for field in schema)
                total += int.from_bytes(hashlib.blake2b(data, digest_size=16).digest(), "little")
    return f"{total % (1 << 128):032x}"


def _value_bytes(value: Any, field: pa.Field) -> bytes:
    """Return a value as unique bytes."""
    kind = field.type
    if field.nullable:
        item = pa.field("", kind, nullable=False)
        return b"\0" if value is None else b"\1" + _value_bytes(value, item)
    if pa.types.is_fixed_size_binary(kind):
        return bytes(value)
    if pa.types.is_string(kind):
        return len(value).to_bytes(4, "little") + value.encode()
    if pa.types.is_list(kind):
        item = pa.field("", kind.value_type, nullable=False)
        return len(value).to_bytes(4, "little") + b"".join(_value_bytes(v, item) for v in value)
    return np.asarray(value, kind.to_pandas_dtype()).tobytes()


def golden_digests(outputs: Mapping[str, StageOutput], folder: Path | str) -> dict[str, str]:
    """Return digests of the rows of each stage, in its folder below `folder`, and of vocab.txt."""
    digests = {}
    for stage, output in sorted(outputs.items()):
        digests[stage] = rows_digest(output.files, f"{folder}/{stage}")
        for entry in output.files:
            if entry.path == "vocab.txt":
                digests[f"{stage}/vocab.txt"] = entry.sha256[:32]
    return digests


def main() -> None:
    from support.corpus_builder import run_corpus, small_recipe, small_sample

    with tempfile.TemporaryDirectory() as folder:
        sample = small_sample(Path(folder) / "sample")
        digests = golden_digests(run_corpus(small_recipe(sample), Path(folder)), folder)
    for stage, digest in digests.items():
        print(f'    "{stage}": "{digest}",')


if __name__ == "__main__":
    main()
