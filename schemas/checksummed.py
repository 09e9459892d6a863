"""JSON records and HTML pages that end with the sha256 of everything before it.

    {                                    {"eventType":"START", ..., "sha256":"9f..."}
      "artifact_id": "5a6b...",
      "sha256": "9f..."
    }

The digest covers the bytes of the file up to the comma before it, so that every changed bit is
detected when the record is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

DIGEST_FIELD = "sha256"
"""Name of the last field."""

_FILE_END = re.compile(rb',\n  "sha256": "([0-9a-f]{64})"\n\}\n\Z')
_LINE_END = re.compile(rb',"sha256":"([0-9a-f]{64})"\}\Z')
_PAGE_END = re.compile(rb"<!-- sha256 ([0-9a-f]{64}) -->\n\Z")


def dump_json(value: Mapping[str, Any]) -> bytes:
    """Return a file of indented JSON with its digest.

    Args:
        value: At least one field, and no field `sha256`.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    body = text.removesuffix("\n}").encode()
    return body + f',\n  "{DIGEST_FIELD}": "{_digest(body)}"\n}}\n'.encode()


def dump_line(text: str) -> str:
    """Return a line of JSON, an object with at least one field, with its digest."""
    body = text.removesuffix("}")
    return f'{body},"{DIGEST_FIELD}":"{_digest(body.encode())}"}}'


def load_json(stored: bytes) -> dict[str, Any]:
    """Return the content of a file or line without its digest.

    Raises:
        ValueError: It is not a JSON object, or its digest is missing or differs.
    """
    value = json.loads(stored)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    _without_digest(stored, _FILE_END, _LINE_END)
    del value[DIGEST_FIELD]
    return value


def dump_page(page: bytes) -> bytes:
    """Return an HTML page with its digest in a comment."""
    return page + f"<!-- {DIGEST_FIELD} {_digest(page)} -->\n".encode()


def load_page(stored: bytes) -> bytes:
    """Return a page without its digest.

    Raises:
        ValueError: The digest is missing or differs.
    """
    return _without_digest(stored, _PAGE_END)


def _without_digest(stored: bytes, *ends: re.Pattern[bytes]) -> bytes:
    for end in ends:
        if match := end.search(stored):
            body = stored[: match.start()]
            if _digest(body).encode() != match[1]:
                raise ValueError(f"expected sha256 {match[1].decode()}, got {_digest(body)}")
            return body
    raise ValueError("expected a sha256 at the end, got none")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
