"""Taking named files out of a zip archive that came from elsewhere.

An archive is refused as a whole if any name in it leads out of the folder, if it holds links, or if
it claims to unpack to more than such archives do.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from flows.fetch.downloads import check_space, partial_of
from schemas.errors import FetchError

_CHUNK = 1 << 20
_MOST_BYTES = 8 << 30
_MOST_RATIO = 100
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def unpack(
    archive: Path, members: Mapping[str, str], folder: Path, *, where: str
) -> dict[str, str]:
    """Write members under the partial names of files; the caller gives them their names.

    Args:
        archive: a local file.
        members: path in the archive to the name of the file in `folder`.
        folder: is there.
        where: the archive's address, for messages.

    Returns:
        sha256 of each file by its name.

    Raises:
        FetchError: the archive is unsafe, damaged, or lacks a member.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            _check(opened.infolist(), size=archive.stat().st_size, where=where)
            infos = {info.filename: info for info in opened.infolist()}
            if missing := [name for name in members if name not in infos]:
                raise FetchError(
                    f"{where}: expected {', '.join(missing)} in it, found "
                    f"{', '.join(sorted(infos)[:12])}. Correct the layout under `unpack`"
                )
            check_space(folder, sum(infos[name].file_size for name in members))
            return {
                target: _write(opened, infos[name], partial_of(folder / target), where=where)
                for name, target in members.items()
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        # NotImplementedError: a newer kind of zip. Encryption was looked for before.
        raise FetchError(
            f"{where}: expected a zip archive, found a damaged one: {error}"
        ) from error


def _check(infos: list[zipfile.ZipInfo], *, size: int, where: str) -> None:
    for info in infos:
        if (problem := _problem(info)) is not None:
            raise FetchError(f"{where}: {info.filename!r} in it {problem}; nothing was unpacked")
    if len({info.filename for info in infos}) != len(infos):
        raise FetchError(f"{where}: two files in it have one name; nothing was unpacked")
    total, most = sum(info.file_size for info in infos), min(_MOST_BYTES, _MOST_RATIO * size)
    if total > most:
        raise FetchError(
            f"{where}: expected to unpack to {most:,} bytes at most, {_MOST_RATIO} times its size, "
            f"found {total:,}; nothing was unpacked"
        )


def _problem(info: zipfile.ZipInfo) -> str | None:
    name = info.orig_filename
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or any(letter in name for letter in "\\:\0"):
        return "leads out of the folder"
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device"
    if info.flag_bits & 0x1:
        return "is encrypted"
    if info.compress_type not in _COMPRESSIONS:
        return f"is compressed by method {info.compress_type}, not by deflate"
    return None


def _write(opened: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, *, where: str) -> str:
    digest, written = hashlib.sha256(), 0
    with opened.open(info) as source, target.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > info.file_size:
                raise FetchError(f"{where}: {info.filename} is longer than it says")
            sink.write(chunk)
            digest.update(chunk)
        sink.flush()
        os.fsync(sink.fileno())
    if written != info.file_size:
        raise FetchError(f"{where}: {info.filename} is shorter than it says")
    return digest.hexdigest()
