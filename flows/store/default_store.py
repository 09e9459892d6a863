"""Default artifact store."""

from __future__ import annotations

import os
from pathlib import Path

STORE_VARIABLE = "BERTLOOM_STORE"


def default_store() -> str:
    """Return the store of recipes that name none: $BERTLOOM_STORE, or `store` in this folder."""
    return os.environ.get(STORE_VARIABLE) or str(Path("store").absolute())
