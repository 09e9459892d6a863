"""Records that carry their own digest: JSON objects whose last field is a sha256 of all before it.

    {                                    {"eventType":"START", ..., "sha256":"9f..."}
      "artifact_id": "5a6b...",
      "sha256": "9f..."
    }

What is read again to act on it must be what was written. The digest is that of the file's bytes up
to the comma before it, so that every flipped bit shows: in a value, in a name, in white space, or
in the digest itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

SEAL = "sha256"
"""Name of the last field."""

# As an indented file ends, and as a line of compact JSON ends.
_ENDS = (
    re.compile(rb',\n  "sha256": "([0-9a-f]{64})"\n\}\n\Z'),
    re.compile(rb',"sha256":"([0-9a-f]{64})"\}\Z'),
)


_PAGE_END = re.compile(rb"<!-- sha256 ([0-9a-f]{64}) -->\n\Z")


def sealed_json(value: Mapping[str, Any]) -> bytes:
    """A file of indented JSON with its digest, and a final line break.

    Args:
        value: at least one field, none of them named as the digest is.
    """
    if not value or SEAL in value:
        raise ValueError(f"expected at least one field and none named {SEAL}, found {value!r}")
    text = json.dumps(value, indent=2, ensure_ascii=False)
    body = text.removesuffix("\n}").encode()
    return body + f',\n  "{SEAL}": "{_digest(body)}"\n}}\n'.encode()


def sealed_line(text: str) -> str:
    """A line of JSON, an object with at least one field, with its digest."""
    if not (text.startswith("{") and text.endswith("}")) or text == "{}":
        raise ValueError(f"expected a JSON object on a line, found {text[:80]!r}")
    body = text.removesuffix("}")
    return f'{body},"{SEAL}":"{_digest(body.encode())}"}}'


def read_sealed(stored: bytes) -> dict[str, Any]:
    """Return the content of a file or line, without its digest.

    Raises:
        ValueError: it is no JSON object, has no digest, or is not what its digest says.
    """
    value = json.loads(stored)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {type(value).__name__}")
    for pattern in _ENDS:
        if found := pattern.search(stored):
            computed = _digest(stored[: found.start()])
            if computed.encode() != found[1]:
                raise ValueError(
                    f"it is not what was written: it says that its sha256 is {found[1].decode()}, "
                    f"and its bytes have {computed}"
                )
            del value[SEAL]
            return value
    raise ValueError("it is not what was written: it does not end with a digest of its own")


def sealed_page(page: bytes) -> bytes:
    """A page of HTML with its digest in a comment behind it."""
    return page + f"<!-- {SEAL} {_digest(page)} -->\n".encode()


def read_page(stored: bytes) -> bytes:
    """Return a page without its digest.

    Raises:
        ValueError: it has no digest, or is not what its digest says.
    """
    found = _PAGE_END.search(stored)
    if not found:
        raise ValueError("it is not what was written: it does not end with a digest of its own")
    page = stored[: found.start()]
    if _digest(page).encode() != found[1]:
        raise ValueError(
            f"it is not what was written: it says that its sha256 is {found[1].decode()}, and its "
            f"bytes have {_digest(page)}"
        )
    return page


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
