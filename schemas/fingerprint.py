"""Digests of JSON values and of an artifact's files, and the cache keys made from them.

Values that cannot be digested raise `FingerprintError`, so that no key is weaker than it seems.
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
    """Return a value as RFC 8785 canonical JSON: the same bytes for equal values.

    Integers beyond 2**53 - 1, which JSON numbers cannot represent, become `{"$integer": "..."}`.

    Raises:
        FingerprintError: The value is not plain JSON (NaN, a set, a lone surrogate).
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
        for key in value:
            if not isinstance(key, str):
                raise FingerprintError(f"expected text as keys of an object, got {key!r}")
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(item) for item in value]
    raise FingerprintError(f"expected plain JSON values, got {type(value).__name__}: {value!r}")


def fingerprint(value: Any) -> str:
    """Return `sha256:...` of a value's canonical JSON."""
    return f"sha256:{hashlib.sha256(canonical_json(value)).hexdigest()}"


def content_digest(files: Iterable[FileEntry]) -> str:
    """Return `sha256:...` of the logical names, sizes and digests of an artifact's files.

    Physical names and files that differ between runs are excluded.

    Raises:
        FingerprintError: Two files have the same logical name.
    """
    entries = list(files)
    counts = Counter(entry.path for entry in entries)
    repeated = sorted(path for path, count in counts.items() if count > 1)
    if repeated:
        raise FingerprintError(f"expected unique file names, got twice: {', '.join(repeated)}")
    return fingerprint(
        sorted(
            [entry.path, entry.size_bytes, entry.sha256]
            for entry in entries
            if not entry.excluded_from_digest
        )
    )


def logical_digest(files: Iterable[FileEntry]) -> str:
    """Return `ROWS:DIGEST` of the rows of all tables, independent of their order and shards.

    The digest is the sum of the files' row digests modulo 2**128; "" without tables.
    """
    tables = [entry for entry in files if entry.rows_digest]
    if not tables:
        return ""
    total = sum(int(entry.rows_digest, 16) for entry in tables) % _ROW_DIGEST_MODULUS
    return f"{sum(entry.rows or 0 for entry in tables)}:{total:032x}"


def cache_key_inputs(
    stage: str,
    *,
    stage_version: int,
    config: Mapping[str, Any],
    inputs: Mapping[str, Mapping[str, Any]],
    raw_inputs: Iterable[str],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return the inputs of a cache key: everything that determines a stage's output.

    Args:
        stage: Name of the stage.
        stage_version: Version of the stage, which represents its code.
        config: Fields of the configuration (`Config.cache_key_fields()`).
        inputs: Content digest and statistics of each input artifact.
        raw_inputs: Digests of the raw files.
        environment: Versions of Python (minor) and of libraries that can change the output.
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
    """Return the cache key of its inputs: 64 hex digits of sha256."""
    return hashlib.sha256(canonical_json(spec)).hexdigest()
