"""Compare-and-swap and compare-and-delete of a small file on S3 and GCS.

* S3: `If-Match` with the tag that came with the bytes that were compared;
* GCS: `ifGenerationMatch` with the generation that came with them.

The clients repeat a request whose answer got lost and may then meet their own write; a file that
is refused but holds what was to be written counts as written. How it is done on a disk:
`flows.store.local_files`.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Any


def swap_remote(fs: Any, full: str, data: bytes, *, expected: bytes) -> bool:
    """Write a file on S3 or GCS if it holds what is expected; whether it was written."""
    try:
        found, version = _read_version(fs, full)
    except FileNotFoundError:
        return False
    if found != expected:
        return found == data
    return _write(fs, full, data, version=version)


def _write(fs: Any, full: str, data: bytes, *, version: str) -> bool:
    """Write under a condition; whether the file holds the data now."""
    try:
        _put(fs, full, data, version=version)
    except OSError as error:
        try:
            now, other = _read_version(fs, full)
        except FileNotFoundError:
            return False
        if other == version and error.errno != errno.EBUSY:
            raise  # nobody else wrote, so that the refusal has another cause
        return now == data
    return True


def write_over_stale(fs: Any, full: str) -> bool:
    """Try to write a file under a condition that no longer holds; whether the server let it be."""
    _, version = _read_version(fs, full)
    _write(fs, full, b"probed", version=version)
    try:
        _put(fs, full, b"overwritten", version=version)
    except OSError:
        return _read_version(fs, full)[0] == b"overwritten"
    return True


def remove_remote(fs: Any, full: str, *, expected: bytes) -> bool:
    """Take a file on S3 or GCS away if it holds what is expected; whether it was taken away."""
    try:
        found, version = _read_version(fs, full)
        if found != expected:
            return False
        _delete(fs, full, version=version)
    except FileNotFoundError:
        return False
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            if _read_version(fs, full)[1] == version:
                raise  # nobody else wrote, so that the refusal has another cause
        return False
    fs.invalidate_cache(full)
    return True


def delete_stale(fs: Any, full: str) -> bool:
    """Try to delete a file under a condition that no longer holds; whether it is gone."""
    _, version = _read_version(fs, full)
    _write(fs, full, b"changed since", version=version)
    with contextlib.suppress(OSError):
        _delete(fs, full, version=version)
    try:
        _read_version(fs, full)
    except FileNotFoundError:
        return True
    return False


def _delete(fs: Any, full: str, *, version: str) -> None:
    bucket, key, _ = fs.split_path(full)
    if _is_gcs(fs):
        fs.call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=version)
    else:
        fs.call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=version)


def _is_gcs(fs: Any) -> bool:
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    return bool(protocols & {"gs", "gcs"})


def _read_version(fs: Any, full: str) -> tuple[bytes, str]:
    """A file's bytes, and the tag or generation of just those bytes."""
    if _is_gcs(fs):
        headers, found = fs.call("GET", fs.url(full))
        return bytes(found), str(headers["X-Goog-Generation"])

    from fsspec import asyn

    async def get() -> tuple[bytes, str]:
        bucket, key, _ = fs.split_path(full)
        answer = await fs._call_s3("get_object", Bucket=bucket, Key=key)
        async with answer["Body"] as body:
            return await body.read(), str(answer["ETag"])

    found, tag = asyn.sync(fs.loop, get)
    return found, tag


def _put(fs: Any, full: str, data: bytes, *, version: str) -> None:
    if not _is_gcs(fs):
        fs.pipe_file(full, data, IfMatch=version)
        return
    # gcsfs itself can only ask for generation 0, that is: for no file.
    bucket, key, _ = fs.split_path(full)
    fs.call(
        "POST",
        f"{fs._location}/upload/storage/v1/b/{{}}/o",
        bucket,
        uploadType="media",
        name=key,
        ifGenerationMatch=version,
        headers={"Content-Type": "application/octet-stream"},
        data=data,
    )
    fs.invalidate_cache(full)
