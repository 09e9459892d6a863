"""Find the bzip2 streams of a file, and split the file between them.

Wikimedia's `*-multistream*.xml.bz2` consist of bzip2 streams: one with the header, one per 100
pages, and one with the last tag. The index in the same folder has the offsets of the streams with
pages, one line per page: `offset:page id:title`. Without an index the file is searched for the ten
bytes that every stream starts with, with the same result. Files of pbzip2 are split likewise.

Format: https://meta.wikimedia.org/wiki/Data_dumps/Dump_format
"""

from __future__ import annotations

import bz2
import contextlib
import re
from collections.abc import Sequence
from typing import IO

from pipelines.io.file_systems import SMALL_READ_AHEAD
from pipelines.io.raw_files import list_folder_of, open_file
from pipelines.io.user_cache import cache_value, cached_value
from schemas.errors import CorruptInputError, InputError

# "BZh", the block size, and the six bytes that every block (pi in BCD) or the end of a stream
# (its square root) starts with.
_HEAD = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_HEAD_LENGTH = 10
_READ = 1 << 20
# A file whose second stream does not start within this many bytes is treated as one stream, so
# that a large remote dump is not read completely for planning.
_FAR = 64 << 20
_MULTISTREAM = re.compile(r"-multistream(?!-index)")


def find_index(uri: str, *, name: str) -> str | None:
    """Return the index of a multistream dump in the same folder, compressed or not, or None."""
    base = name.rpartition("/")[2].lower()
    if not _MULTISTREAM.search(base):
        return None
    wanted = _MULTISTREAM.sub("-multistream-index", base).replace(".xml", ".txt")
    beside = {other.lower(): where for where, other in list_folder_of(uri)}
    return beside.get(wanted) or beside.get(wanted.removesuffix(".bz2"))


def is_index(name: str) -> bool:
    """Return whether a file is the index of a dump."""
    return bool(re.search(r"-index\d*\.txt(-p\d+p\d+)?(\.bz2|\.gz)?$", name, re.IGNORECASE))


def read_index(uri: str) -> list[int]:
    """Return the distinct byte offsets of an index, ascending.

    Raises:
        InputError: A line is not `offset:page id:title`, offsets descend, or it is truncated.
    """
    offsets: list[int] = []
    seen = b""
    with contextlib.ExitStack() as stack:
        lines: IO[bytes] = stack.enter_context(open_file(uri))
        if uri.lower().endswith(".bz2"):
            lines = stack.enter_context(bz2.open(lines))
        try:
            for number, line in enumerate(lines, 1):
                offset, _, rest = line.partition(b":")
                if offset == seen:  # as most are
                    continue
                if not (offset.isdigit() and b":" in rest):
                    raise InputError(
                        f"{uri}, line {number}: expected offset:page id:title, found {line[:60]!r}"
                    )
                if offsets and int(offset) <= offsets[-1]:
                    raise InputError(
                        f"{uri}, line {number}: expected offsets to ascend, found {int(offset)} "
                        f"after {offsets[-1]}. Download the index again"
                    )
                offsets.append(int(offset))
                seen = offset
        except (EOFError, OSError) as error:
            raise InputError(
                f"{uri}: the index is cut off or damaged ({error}). Download it again, or move it "
                "away: then the dump itself is searched"
            ) from error
    return offsets


def find_streams(uri: str, *, start: int) -> list[int]:
    """Return the offsets of the bzip2 streams of a file from byte `start`, ascending.

    They are found by their first ten bytes; `is_stream` checks that these are not data.
    """
    search = StreamSearch(start)
    with open_file(uri, start=start) as source:
        while not search.is_single_stream and (chunk := source.read(_READ)):
            search.feed(chunk)
    return search.offsets


class StreamSearch:
    """Search for stream headers in the bytes of a file, fed in order.

    Attributes:
        offsets: Offsets of headers, ascending.
        position: Offset of the next byte.
        is_single_stream: Whether the file is treated as one stream.
    """

    def __init__(self, start: int = 0) -> None:
        self.offsets: list[int] = []
        self.position = self._start = start
        self.is_single_stream = False
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Search the next bytes."""
        if not self.is_single_stream:
            data = self._rest + chunk
            origin = self.position - len(self._rest)
            self.offsets += [origin + match.start() for match in _HEAD.finditer(data)]
            self._rest = data[1 - _HEAD_LENGTH :]
        self.position += len(chunk)
        if len(self.offsets) <= 1 and self._start == 0 and self.position > _FAR:
            self.is_single_stream = True


def needs_search(uri: str, *, name: str) -> bool:
    """Return whether the whole file must be searched for streams: a .bz2 without an index."""
    return name.lower().endswith(".bz2") and find_index(uri, name=name) is None


def remember_streams(sha256: str, streams: Sequence[int]) -> None:
    """Cache the streams of a file with this digest for this run and later ones."""
    cache_value("bzip2-streams", sha256, list(streams))


def _known_streams(sha256: str) -> list[int] | None:
    """Return the cached streams of a file, or None."""
    known = cached_value("bzip2-streams", sha256) if sha256 else None
    is_right = isinstance(known, list) and all(isinstance(offset, int) for offset in known)
    return known if is_right else None


def is_stream(uri: str, offset: int) -> bool:
    """Return whether a stream with data starts at an offset: its first block decompresses."""
    decoder = bz2.BZ2Decompressor()
    with open_file(uri, start=offset, ahead=SMALL_READ_AHEAD) as source:
        try:
            while chunk := source.read(_READ >> 4):
                if decoder.decompress(chunk, 1):
                    return True
                if decoder.eof:
                    return False
        except OSError:
            return False
    return False


def find_all_streams(
    uri: str, *, name: str, size: int, must_be_whole: bool = True, sha256: str = ""
) -> tuple[int, ...]:
    """Return the offsets of all bzip2 streams of a file, from its index if it has one.

    Args:
        uri: Path or URL of a .bz2 file.
        name: Name of the file, which decides the name of the index.
        size: Size of the file in bytes.
        must_be_whole: Refuse a file that is shorter than its index.
        sha256: Digest of the file, by which a search is cached, or "".

    Raises:
        CorruptInputError: The index has streams after the end of the file.
        InputError: The index is damaged or belongs to another file.
    """
    index = find_index(uri, name=name)
    if index is None:
        offsets = _known_streams(sha256)
        if offsets is None:
            offsets = find_streams(uri, start=0)
            if sha256:
                remember_streams(sha256, offsets)
        return tuple(offsets)
    named = read_index(index)
    inside = [offset for offset in named if offset < size]
    if len(inside) < len(named) and must_be_whole:
        raise CorruptInputError(
            f"{uri}: has {size:,} bytes, but its index {index} names a stream at byte "
            f"{named[-1]:,}: the file is cut off, or the index is another's. Download both again, "
            "or set on_corrupt to keep-whole-pages",
            file=uri,
            offset=size,
        )
    probes = {*inside[:1], *inside[-1:], *inside[len(inside) // 2 : len(inside) // 2 + 1]}
    if probes and not any(_has_head(uri, offset) for offset in probes):
        raise InputError(
            f"{index}: names streams at bytes {', '.join(map(str, sorted(probes)))} of {uri}, but "
            "none starts there: it is the index of another file. Download it again, or move it away"
        )
    last = inside[-1] if inside else 0
    return tuple(sorted({0, *inside, *find_streams(uri, start=last)}))


def has_long_stream(streams: Sequence[int], *, size: int) -> bool:
    """Return whether a file has a stream that is long enough to be split at blocks."""
    ends = [*streams[1:], size]
    return len(streams) <= 1 or max(end - at for at, end in zip(streams, ends, strict=True)) > _FAR


def _has_head(uri: str, offset: int) -> bool:
    with open_file(uri, start=offset, ahead=_HEAD_LENGTH) as source:
        return bool(_HEAD.match(source.read(_HEAD_LENGTH)))


def choose_starts(
    uri: str, *, streams: Sequence[int], size: int, target_split_bytes: int
) -> list[tuple[int, int]]:
    """Return ranges of a bzip2 file of about `target_split_bytes`, which start at streams.

    Args:
        streams: Offsets from `find_all_streams`.
        size: Size of the file in bytes.
        target_split_bytes: Target length of a range in bytes. A longer stream is not split here.

    Returns:
        (start, end) of each range, end exclusive. Together they cover the file.
    """
    starts = [0]
    # The last stream has only the last tag. It belongs to the range before.
    candidates = [offset for offset in streams[1:-1] if offset > 0]
    for offset in candidates:
        if offset - starts[-1] >= target_split_bytes and is_stream(uri, offset):
            starts.append(offset)
    return list(zip(starts, [*starts[1:], size], strict=True))
