"""Folders of the documents of TriviaQA's questions: location and digest.

They have up to 700,000 files, so a manifest records a folder as one raw input. Its digest covers
the names and digests of all files, and is cached until the folder changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fsspec.implementations.local import LocalFileSystem

from model.tasks.triviaqa import DOCUMENTS, documents_of, is_triviaqa
from pipelines.io.file_systems import open_stream
from pipelines.io.raw_files import digest_file, filesystem, parallel_map
from pipelines.io.user_cache import (
    cache_value,
    cached_value,
    digest_cache,
    is_settled,
    stat_fingerprint,
)
from schemas.errors import MissingInputError
from schemas.manifest import RawInput

_CHUNK = 1 << 20
_DIGEST = "tree-sha256"
_WHICH = "triviaqa-folders"
_VERSION_KEYS = ("ETag", "etag", "generation", "md5Hash", "VersionId", "content_md5")


class _File(NamedTuple):
    path: str
    name: str
    size: int
    version: str
    """"" where nothing tells whether it has changed."""


def find_evidence(url: str, evidence: str | None) -> str | None:
    """Return the folder of the documents of a question file; None if it is not TriviaQA's.

    Args:
        url: Path or URL of the question file.
        evidence: Folder given by the recipe. Default: `evidence` next to the file or next to its
            folder, as in the official archive.

    Raises:
        MissingInputError: No such folder has documents.
    """
    if not is_triviaqa(url):
        return None
    above = url.rpartition("/")[0]
    beside = f"{above.rpartition('/')[0]}/evidence"
    places = [evidence] if evidence is not None else [beside, f"{above}/evidence"]
    for place in (place.rstrip("/") for place in places):
        if any(_is_folder(f"{place}/{folder}") for folder in DOCUMENTS.values()):
            return place
    raise MissingInputError(
        f"{url}: has TriviaQA's questions; expected the folders {' or '.join(DOCUMENTS.values())} "
        f"of their documents in {' or '.join(places)}, found neither. Unpack triviaqa-rc.tar.gz, "
        "and set its folder evidence as `evidence`, next to files"
    )


def evidence_inputs(url: str, evidence: str, *, name: str, identity: str) -> Iterator[RawInput]:
    """Return the document folders of a question file as raw inputs.

    Args:
        url: Path or URL of the question file.
        evidence: Result of `find_evidence`.
        name: Prefix of their names.
        identity: Prefix of their identity in the cache key.
    """
    for folder in _folders_read(url):
        uri = f"{evidence}/{folder}"
        if _is_folder(uri):
            size, sha256 = digest_folder(uri)
            yield RawInput(
                name=f"{name}/{folder}",
                uri=uri,
                size_bytes=size,
                sha256=sha256,
                key_digest=f"{identity} {folder} sha256:{sha256}",
            )


def digest_folder(uri: str) -> tuple[int, str]:
    """Return the size of all files below a folder, and the sha256 of their names and contents."""
    fs, path = filesystem(uri)
    files = sorted(_files(fs, path), key=lambda file: file.name)
    size = sum(file.size for file in files)
    about = hashlib.sha256()
    for file in files:
        about.update(f"{file.name}\0{file.version}\n".encode())
    cache, version = digest_cache(), f"{len(files)}/{about.hexdigest()}"
    can_tell = all(file.version for file in files)
    known = cache.get(uri, version) if can_tell else {}
    if _DIGEST in known:
        return size, known[_DIGEST]
    whole = hashlib.sha256()
    found = parallel_map(lambda file: _content(fs, file.path), files)
    for file, digest in zip(files, found, strict=True):
        whole.update(f"{file.name}\0{digest}\n".encode())
    if can_tell and _is_settled(fs, files):
        cache.put(uri, version, {_DIGEST: whole.hexdigest()})
    return size, whole.hexdigest()


def _folders_read(url: str) -> Sequence[str]:
    """Return the folders that a file's questions refer to; cached by the file's digest."""
    sha256 = digest_file(url).digests["sha256"]
    known = cached_value(_WHICH, sha256)
    if isinstance(known, list) and set(known) <= set(DOCUMENTS.values()):
        return known
    found = documents_of(url)
    cache_value(_WHICH, sha256, found)
    return found


def _is_folder(uri: str) -> bool:
    fs, path = filesystem(uri)
    return bool(fs.isdir(path))


def _files(fs: Any, folder: str) -> Iterator[_File]:
    if not isinstance(fs, LocalFileSystem):
        for path, told in fs.find(folder, detail=True).items():
            yield _File(path, _below(path, folder), told["size"], _remote_version(told))
        return
    for path in (path for path in Path(folder).rglob("*") if path.is_file()):
        stat = path.stat()
        yield _File(str(path), _below(str(path), folder), stat.st_size, stat_fingerprint(stat))


def _below(path: str, folder: str) -> str:
    return path.removeprefix(f"{folder.rstrip('/')}/")


def _remote_version(told: Mapping[str, Any]) -> str:
    return next((f"{told['size']}/{told[key]}" for key in _VERSION_KEYS if told.get(key)), "")


def _is_settled(fs: Any, files: Sequence[_File]) -> bool:
    """Return whether modification times are old enough to detect every later change."""
    return not isinstance(fs, LocalFileSystem) or all(
        is_settled(Path(file.path).stat()) for file in files
    )


def _content(fs: Any, path: str) -> str:
    digest = hashlib.sha256()
    with open_stream(fs, path) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
