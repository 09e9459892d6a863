"""Digests of JSON values and of an artifact's files, and the cache keys made from them.

A digest that cannot be computed raises `FingerprintError`: a key is never quietly weaker.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import rfc8785

from schemas.errors import FingerprintError

if TYPE_CHECKING:
    from schemas.manifest import FileEntry

KEY_VERSION = 2
_MAX_EXACT_INTEGER = (1 << 53) - 1  # RFC 8785 numbers are IEEE doubles
_ROW_DIGEST_MODULUS = 1 << 128


def canonical_json(value: Any) -> bytes:
    """The value as RFC 8785 canonical JSON: one sequence of bytes for equal values.

    Integers beyond 2**53 - 1, which JSON cannot hold exactly, are written as `{"$integer": "..."}`.

    Raises:
        FingerprintError: it holds something that is no JSON value (NaN, a set, a lone surrogate).
    """
    try:
        return rfc8785.dumps(_exact(value))
    except (rfc8785.CanonicalizationError, UnicodeError) as error:
        raise FingerprintError(
            f"expected plain JSON values (text, numbers, booleans, null, lists, objects): {error}"
        ) from error


def _exact(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, (str, float)):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_EXACT_INTEGER else {"$integer": str(value)}
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise FingerprintError(f"expected text as keys of an object, found {wrong[0]!r}")
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(item) for item in value]
    raise FingerprintError(f"expected plain JSON values, found {type(value).__name__}: {value!r}")


def fingerprint(value: Any) -> str:
    """`sha256:...` of the value's canonical JSON."""
    return f"sha256:{hashlib.sha256(canonical_json(value)).hexdigest()}"


def content_digest(files: Iterable[FileEntry]) -> str:
    """`sha256:...` of what an artifact's files hold: logical names, sizes and digests, sorted.

    Physical names are not in it, so the same bytes written by another attempt have the same digest;
    nor are files that only record how the work went.

    Raises:
        FingerprintError: two files have one logical name.
    """
    listed = list(files)
    rows = sorted([entry.path, entry.size, entry.sha256] for entry in listed if not entry.is_record)
    times = Counter(entry.path for entry in listed)
    repeated = sorted(name for name, number in times.items() if number > 1)
    if repeated:
        raise FingerprintError(f"files of one artifact share a name: {', '.join(repeated)}")
    return fingerprint(rows)


def logical_digest(files: Iterable[FileEntry]) -> str:
    """`ROWS:DIGEST` of all rows of all tables, whatever their order and the shards they are in.

    The digest is the sum modulo 2**128 of those of the files; "" where no file is a table.
    """
    tables = [entry for entry in files if entry.logical]
    if not tables:
        return ""
    total = sum(int(entry.logical, 16) for entry in tables) % _ROW_DIGEST_MODULUS
    return f"{sum(entry.rows or 0 for entry in tables)}:{total:032x}"


def key_spec(
    stage: str,
    *,
    stage_version: int,
    config: Mapping[str, Any],
    inputs: Mapping[str, Mapping[str, Any]],
    raw_inputs: Iterable[str],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Everything that decides a stage's bytes, in the form that its cache key is made of.

    Args:
        stage: its name.
        stage_version: version of its `STAGE`; it stands for the stage's code.
        config: the identity part of its configuration (`Config.identity()`).
        inputs: of each input artifact its content digest and its statistics.
        raw_inputs: the identities of the raw files.
        environment: versions that can change its bytes: of Python (minor) and of libraries.
    """
    return {
        "v": KEY_VERSION,
        "stage": stage,
        "stage_version": stage_version,
        "config": dict(config),
        "inputs": {name: dict(value) for name, value in inputs.items()},
        "raw_inputs": sorted(raw_inputs),
        "environment": dict(environment),
    }


def cache_key(spec: Mapping[str, Any]) -> str:
    """sha256 of a `key_spec`, 64 hex digits."""
    return hashlib.sha256(canonical_json(spec)).hexdigest()
