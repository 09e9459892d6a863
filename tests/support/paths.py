"""Folders of the checkout, and the module path of child processes."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Root of the checkout."""

PYTHONPATH = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
"""`PYTHONPATH` of a process that imports test modules (`tests....`) or `support`."""
