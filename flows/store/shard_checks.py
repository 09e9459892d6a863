"""Checks of the rows of shards against the manifest."""

from __future__ import annotations

from typing import IO

import pyarrow as pa

from pipelines.io.row_digest import MODULUS, rows_digest
from schemas.manifest import FileEntry


def check_rows(source: IO[bytes], entry: FileEntry) -> list[str]:
    """Return what differs from a file's entry in the manifest, one text each.

    Args:
        source: Arrow IPC file, of which one batch at a time is in memory.
        entry: Entry with the number and the digest of the rows.
    """
    num_rows = digest = 0
    try:
        with pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                num_rows += batch.num_rows
                digest += rows_digest(batch)
    except (pa.ArrowException, ValueError) as error:
        return [f"expected an Arrow IPC file: {error}"]
    actual = {"rows": num_rows, "rows_digest": f"{digest % MODULUS:032x}"}
    return [
        f"{name}: expected {expected}, got {actual[name]}"
        for name, expected in (("rows", entry.rows), ("rows_digest", entry.rows_digest))
        if expected not in ("", actual[name])
    ]
