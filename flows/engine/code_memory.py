"""Digests of source files, remembered so that a run that changes nothing parses nothing."""

from __future__ import annotations

import platform
from pathlib import Path

from pipelines.io.user_cache import local_digest
from schemas.fingerprint import source_file_digest

# Syntax trees are told apart by Python's minor version.
_NAME = f"code-{'.'.join(platform.python_version_tuple()[:2])}"


def code_digest(path: Path) -> str:
    """`source_file_digest`, computed where it is not remembered of the file as it is.

    Raises:
        FingerprintError: it cannot be read or parsed.
    """
    return local_digest(path, _NAME, compute=source_file_digest)
