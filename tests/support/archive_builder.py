"""Writes folders, .zip and .tar archives, also with members that no tool writes."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from support.dump_builder import COMPRESS

Members = Iterable[tuple[tarfile.TarInfo | str, bytes]]

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    **{f".tar{suffix}": compress for suffix, compress in COMPRESS.items()},
    ".tgz": COMPRESS[".gz"],
    ".tar.xz": lzma.compress,
}


def tar_bytes(members: Members, *, form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar. The size of an entry is that of its data, unless it has one."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for named, data in members:
            entry = tarfile.TarInfo(named) if isinstance(named, str) else named
            entry.size = entry.size or len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def tar_entry(name: str, *, kind: bytes = tarfile.REGTYPE, **headers: str) -> tarfile.TarInfo:
    """Return an entry of a type with PAX headers, in whose names `_` is a dot."""
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.pax_headers = {key.replace("_", "."): value for key, value in headers.items()}
    return entry


def zip_bytes(members: Members, *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members:
            archive.writestr(str(name), data)
    return buffer.getvalue()


def write_books(path: Path, members: Mapping[str, bytes]) -> None:
    """Write members as the suffix of the path says; without one, as files of a folder."""
    suffix = "".join(path.suffixes)
    if suffix:
        is_zip = suffix == ".zip"
        items = members.items()
        path.write_bytes(zip_bytes(items) if is_zip else COMPRESSORS[suffix](tar_bytes(items)))
        return
    for name, data in members.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
