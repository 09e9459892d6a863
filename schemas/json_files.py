"""JSON objects in files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dump_json(value: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file of indented JSON."""
    return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n".encode()


def load_json(stored: bytes) -> dict[str, Any]:
    """Return the JSON object in the bytes of a file.

    Raises:
        ValueError: It is not a JSON object.
    """
    value = json.loads(stored)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value
