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


def canonical_json(value: Any) -> bytes:
    """Return a value as RFC 8785 canonical JSON: the same bytes for equal values.

    Raises:
        FingerprintError: The value is not plain JSON (NaN, a set, a lone surrogate, an integer
            beyond 2**53 - 1).
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError) as error:
        raise FingerprintError(
            f"expected plain JSON values (text, numbers, booleans, null, lists, objects): {error}"
        ) from error


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


def cache_key(inputs: Mapping[str, Any]) -> str:
    """Return the cache key of everything that determines an output: 64 hex digits of sha256."""
    return hashlib.sha256(canonical_json(inputs)).hexdigest()
