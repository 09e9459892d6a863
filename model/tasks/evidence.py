"""Folders of the documents of TriviaQA's questions: location and digest.

They have up to 700,000 files, so a manifest records a folder as one raw input. Its digest covers
the names and digests of all files, and is cached until the folder changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fsspec.implementations.local import LocalFileSystem

from model.tasks.triviaqa import DOCUMENTS, documents_of, is_triviaqa
from pipelines.io.file_systems import open_stream
from pipelines.io.raw_files import digest_file, filesystem, is_folder, parallel_map
from pipelines.io.user_cache import (
    cache_value,
    cached_value,
    digest_cache,
    is_settled,
    stat_fingerprint,
)
from schemas.errors import MissingInputError
from schemas.field_names import field_name
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

    is_settled: bool
    """False if a later change may not show in `version`."""


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
        if any(is_folder(f"{place}/{folder}") for folder in DOCUMENTS.values()):
            return place
    raise MissingInputError(
        f"{url}: has TriviaQA's questions; expected the folders {' or '.join(DOCUMENTS.values())} "
        f"of their documents in {' or '.join(places)}, found neither. Unpack triviaqa-rc.tar.gz, "
        f"and set {field_name('evidence_dir')} to its folder evidence"
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
        if is_folder(uri):
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
    versions = _sha256((file.name, file.version) for file in files)
    cache, version = digest_cache(), f"{len(files)}/{versions}"
    can_tell = all(file.version for file in files)
    known = cache.get(uri, version) if can_tell else {}
    if _DIGEST in known:
        return size, known[_DIGEST]
    digests = parallel_map(lambda file: _digest_content(fs, file.path), files)
    whole = _sha256((file.name, digest) for file, digest in zip(files, digests, strict=True))
    if can_tell and all(file.is_settled for file in files):
        cache.put(uri, version, {_DIGEST: whole})
    return size, whole


def _sha256(pairs: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.sha256()
    for name, value in pairs:
        digest.update(f"{name}\0{value}\n".encode())
    return digest.hexdigest()


def _folders_read(url: str) -> Sequence[str]:
    """Return the folders that a file's questions refer to; cached by the file's digest."""
    sha256 = digest_file(url).digests["sha256"]
    known = cached_value(_WHICH, sha256)
    if isinstance(known, list) and set(known) <= set(DOCUMENTS.values()):
        return known
    found = documents_of(url)
    cache_value(_WHICH, sha256, found)
    return found


def _files(fs: Any, folder: str) -> Iterator[_File]:
    stem = f"{folder.rstrip('/')}/"
    if not isinstance(fs, LocalFileSystem):
        for path, told in fs.find(folder, detail=True).items():
            key = next((key for key in _VERSION_KEYS if told.get(key)), "")
            version = f"{told['size']}/{told[key]}" if key else ""
            yield _File(path, path.removeprefix(stem), told["size"], version, is_settled=True)
        return
    for path in (path for path in Path(folder).rglob("*") if path.is_file()):
        stat, name = path.stat(), str(path).removeprefix(stem)
        yield _File(str(path), name, stat.st_size, stat_fingerprint(stat), is_settled(stat))


def _digest_content(fs: Any, path: str) -> str:
    digest = hashlib.sha256()
    with open_stream(fs, path) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
