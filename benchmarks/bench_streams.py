"""One long bzip2 stream, read by blocks and in splits, next to Python's bz2 and indexed_bzip2.

    python -m benchmarks.bench_streams [--megabytes 64] [--split-bytes 1048576] [--file DUMP.bz2]

Without `--file`, compresses the sample world's text as one stream. Prints CPU seconds and the ratio
to `bz2.open` for: all bytes in one range; in as many ranges as possible; finding the places to
split, with the share of the file that this reads; and searching block marks. `indexed_bzip2`, where
installed, uses one thread, and knows no place to split before it has decompressed the whole file.
All must produce the same bytes.
"""

from __future__ import annotations

import argparse
import bz2
import hashlib
import importlib
import importlib.util
import io
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from pipelines.io import bzip2_blocks
from pipelines.io.bzip2_blocks import BlockReader, find_marks, split_at_blocks, verify_stream_crcs
from pipelines.io.compression import Damage, decompressed
from pipelines.io.raw_files import describe_file

_CHUNK = 1 << 20


def by_blocks(path: Path, places: list[tuple[int, int]]) -> Iterator[bytes]:
    """The bytes of a file cut at some places, range after range."""
    size = path.stat().st_size
    starts: list[tuple[int, int | None]] = [(0, None), *places]
    ends = [*(start for start, _ in places), size]
    parts = []
    with path.open("rb") as source:
        for (start, shift), end in zip(starts, ends, strict=True):
            reader = BlockReader(source, start=start, shift=shift, end=end, size=size)
            for item in reader.chunks():
                if isinstance(item, Damage):
                    raise ValueError(item.reason)
                if item.start >= end:
                    break
                yield item.data
            parts += reader.parts
    if verify_stream_crcs(parts):
        raise ValueError("the stream's checksum is wrong")


def in_one_piece(path: Path) -> Iterator[bytes]:
    """Read with the reader of multistream files."""
    with path.open("rb") as source:
        for item in decompressed(source, "bz2", start=0, end=path.stat().st_size):
            if isinstance(item, Damage):
                raise ValueError(item.reason)
            yield item.data


def of_stream(path: Path, opened: Callable[[str], Any]) -> Iterator[bytes]:
    with opened(str(path)) as source:
        while chunk := source.read(_CHUNK):
            yield chunk


def timed(chunks: Callable[[], Iterator[bytes]]) -> tuple[float, str, int]:
    """Seconds of the processor, digest and length."""
    digest, length, began = hashlib.sha256(), 0, time.process_time()
    spent = 0.0
    for chunk in chunks():
        spent += time.process_time() - began
        digest.update(chunk)
        length += len(chunk)
        began = time.process_time()
    return spent + time.process_time() - began, digest.hexdigest(), length


def write_stream(path: Path, megabytes: int) -> None:
    """Sentences of drawn words, so that blocks are about as dense as a dump's."""
    rng = random.Random(5)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 11))) for _ in range(30_000)]
    encoder = bz2.BZ2Compressor()
    with path.open("wb") as sink:
        for _ in range(megabytes):
            drawn = [words[int(rng.paretovariate(0.6)) % len(words)] for _ in range(150_000)]
            sink.write(encoder.compress(" ".join(drawn).encode()[: 1 << 20]))
        sink.write(encoder.flush())


class _Counting(io.FileIO):
    """Counts what is read."""

    amount = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size) or b""
        _Counting.amount += len(data)
        return data


def plan(path: Path, target_split_bytes: int) -> tuple[list[tuple[int, int]], float]:
    """The places to cut, and seconds of the processor that they took to find."""
    file = describe_file(str(path), name=path.name)
    began = time.process_time()
    with mock.patch.object(bzip2_blocks, "open_file", _Counting):
        places = split_at_blocks(
            file, start=0, end=file.size, target_split_bytes=target_split_bytes
        )
    return places, time.process_time() - began


def show(name: str, spent: float, peer: float, length: int) -> None:
    rate = length / 1e6 / spent
    print(f"{name:32}{spent:>9.2f} s of CPU{rate:>9.1f} MB/s of text{spent / peer:>7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--split-bytes", type=int, default=1 << 20)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BERTLOOM_CACHE"] = folder
        path = options.file or Path(folder) / "stream.bz2"
        if options.file is None:
            write_stream(path, options.megabytes)
        compare(path, options.target_split_bytes)


def compare(path: Path, target_split_bytes: int) -> None:
    size = path.stat().st_size
    peer, expected, length = timed(lambda: of_stream(path, bz2.open))
    print(f"one file of {size / 1e6:,.1f} MB, {length / 1e6:,.1f} MB of text")
    show("bz2.open", peer, peer, length)
    places, planned = plan(path, target_split_bytes)
    rows: dict[str, Callable[[], Iterator[bytes]]] = {
        "by streams": lambda: in_one_piece(path),
        "by blocks, 1 range": lambda: by_blocks(path, []),
        f"by blocks, {len(places) + 1} ranges": lambda: by_blocks(path, places),
    }
    if importlib.util.find_spec("indexed_bzip2"):
        peers = importlib.import_module("indexed_bzip2")
        rows["indexed_bzip2, 1 thread"] = lambda: of_stream(
            path, lambda name: peers.open(name, parallelization=1)
        )
    else:
        print("indexed_bzip2 is not installed, and not compared")
    for name, chunks in rows.items():
        spent, digest, _ = timed(chunks)
        if digest != expected:
            raise SystemExit(f"{name}: gives other bytes")
        show(name, spent, peer, length)
    print(
        f"{len(places)} places to cut: {planned:.2f} s of CPU, {planned / peer:.1%} of bz2.open; "
        f"{_Counting.amount / 1e6:,.1f} MB read, {_Counting.amount / size:.0%} of the file"
    )
    data = path.read_bytes()[: 64 << 20]
    began = time.process_time()
    marks = find_marks(data)
    spent = time.process_time() - began
    print(f"marks: {len(marks):,}, looked for at {len(data) / 1e9 / spent:.2f} GB/s of the file")


if __name__ == "__main__":
    main()
