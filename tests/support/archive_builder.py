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


def epub_bytes(
    chapters: Mapping[str, str],
    *,
    title: str = "A Title",
    items: str = "",
    spine: Iterable[str] | None = None,
    guide: str = "",
    more: Mapping[str, bytes] | None = None,
    folder: str = "OEBPS/",
) -> bytes:
    """Return an .epub.

    Args:
        chapters: XHTML bodies by file name.
        title: Title in its package.
        items: Further elements of the manifest.
        spine: File names in reading order. Default: all chapters.
        guide: Elements of the guide.
        more: Further members by path.
        folder: Folder of package and chapters, with a slash at its end.
    """
    manifest = "".join(
        f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>'
        for name in chapters
        if f'href="{name}"' not in items
    )
    order = "".join(f'<itemref idref="{name}"/>' for name in spine or chapters)
    package = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        f'<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title>'
        f"</metadata><manifest>{manifest}{items}</manifest><spine>{order}</spine>"
        f"<guide>{guide}</guide></package>"
    )
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        f'<rootfile full-path="{folder}package.opf"/></rootfiles></container>'
    )
    pages = {f"{folder}{name}": xhtml(body).encode() for name, body in chapters.items()}
    members = {
        "mimetype": b"application/epub+zip",
        "META-INF/container.xml": container.encode(),
        f"{folder}package.opf": package.encode(),
        **pages,
        **(more or {}),
    }
    return zip_bytes(members.items())


def xhtml(body: str, *, head: str = "") -> str:
    """Return a page in XHTML, whose body may use `epub:type`."""
    return (
        '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html>'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
        f"<head>{head}</head><body>{body}</body></html>"
    )
